// From CUPTI's activity records to ours.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/cupti/library.h"
#include "capture/cupti/names.h"
#include "capture/timeline_assembler.h"

namespace stallcast::capture {

class ActivityParser {
 public:
  /// The kind under which ids are pushed, so that those of others are told apart.
  static constexpr CUpti_ExternalCorrelationKind kExternalKind =
      CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;

  explicit ActivityParser(const Cupti& cupti);

  const std::vector<CallName>& runtime_calls() const { return runtime_calls_; }
  const std::vector<CallName>& driver_calls() const { return driver_calls_; }

  /// Hands every record of a buffer to the assembler; incomplete ones count as dropped.
  void Parse(uint8_t* buffer, size_t bytes, TimelineAssembler& assembler) const;
  /// Records in a buffer.
  int64_t Count(uint8_t* buffer, size_t bytes) const;

 private:
  void Add(const CUpti_Activity& activity, TimelineAssembler& assembler) const;

  const Cupti& cupti_;
  const std::vector<CallName> runtime_calls_, driver_calls_;
};

}  // namespace stallcast::capture
