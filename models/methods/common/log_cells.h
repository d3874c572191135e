// Fills a layer's part of an access log cell by cell.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "models/methods/layer_tensors.h"
#include "traces/access_log.h"

namespace stallcast::methods {

/// What one selection head did in one step; all else is in the attended ranges.
struct LogCell {
  uint8_t flags = 0;  ///< traces::AccessFlag
  float similarity = std::numeric_limits<float>::quiet_NaN();
  std::span<const uint32_t> selected{};
  std::span<const uint32_t> recalled_now{};
  std::span<const uint32_t> recalled_ahead{};
  int32_t evicted = 0;
  /// Tokens kept, of methods that drop some for good.
  std::optional<int64_t> cached_tokens{};
};

class LogCells {
 public:
  LogCells(traces::LayerAccess& access, AttendedRanges& attended, int heads)
      : access_(access), attended_(attended) {
    access_.heads = heads;
    attended_ = AttendedRanges(heads);
  }

  /// Ends the next cell: step by step, head by head. Its ranges have been added before.
  void End(const LogCell& cell) {
    attended_.EndCell();
    access_.flags.push_back(cell.flags);
    access_.similarity.push_back(cell.similarity);
    access_.selected.Append(cell.selected);
    access_.recalled_now.Append(cell.recalled_now);
    access_.recalled_ahead.Append(cell.recalled_ahead);
    access_.evicted.push_back(cell.evicted);
    if (cell.cached_tokens) {
      access_.cached_tokens.push_back(static_cast<int32_t>(*cell.cached_tokens));
    }
    access_.attended_tokens.push_back(static_cast<int32_t>(attended_.TokensInLastCell()));
  }

 private:
  traces::LayerAccess& access_;
  AttendedRanges& attended_;
};

}  // namespace stallcast::methods
