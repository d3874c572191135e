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

/// Names of the calls of an API without the version that CUPTI puts behind them; by callback id.
std::vector<std::string> CallNames(const Cupti& cupti, CUpti_CallbackDomain domain);

/// Whether calls of that name are recorded: those that launch, move, wait, allocate or set up; not
/// questions, of which programs ask so many that recording them would be most of the cost.
bool IsRecordedRuntimeCall(std::string_view name);
/// Driver calls that launch, move or wait: libraries make them without the runtime.
bool IsRecordedDriverCall(std::string_view name);

}  // namespace stallcast::capture
