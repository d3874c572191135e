// What CUPTI's numbers are called in a timeline.
#pragma once

#include <cupti.h>

#include <string>
#include <string_view>
#include <vector>

#include "capture/cupti/library.h"

namespace stallcast::capture {

/// "copy host to device", ...: by direction, of pinned or pageable host memory.
std::string_view CopyName(uint8_t copy_kind, uint8_t src_kind, uint8_t dst_kind);
std::string_view WaitName(CUpti_ActivitySynchronizationType type);

struct CallName {
  std::string name;  ///< without the version that CUPTI puts behind it
  /// Runtime calls that launch, move, wait, allocate or set up, and driver calls that launch, move
  /// or wait (libraries make them without the runtime). Not questions, of which programs ask so
  /// many that recording them would be most of the cost.
  bool recorded = false;
};

/// The calls of the runtime or driver API, by callback id.
std::vector<CallName> CallNames(const Cupti& cupti, CUpti_CallbackDomain domain);

}  // namespace stallcast::capture
