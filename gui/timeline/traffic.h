// SPDX-License-Identifier: GPL-3.0-or-later
// How many bytes went over the link, each way, and through the GPU's memory until any time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gui/timeline/track.h"

namespace stallcast::gui {

enum class Way : uint8_t { kToGpu, kToHost, kMemory };
inline constexpr std::array kWays = {Way::kToGpu, Way::kToHost, Way::kMemory};

/// Of one track: bytes of rows with a role that moves data to the GPU (recall), to the host
/// (offload), or that computes, which reads and writes the GPU's memory; each spread evenly over
/// its row.
class Traffic {
 public:
  Traffic() = default;
  Traffic(const Track& track, std::span<const int64_t> bytes);

  double total(Way way) const { return Of(way).empty() ? 0 : Of(way).back(); }
  /// Before `time`; `track` and `bytes` are those that it was made of.
  double Before(Way way, Picoseconds time, const Track& track,
                std::span<const int64_t> bytes) const;
  int64_t MemoryBytes() const;

 private:
  const std::vector<double>& Of(Way way) const { return sums_[static_cast<size_t>(way)]; }
  // Before every 16th row, and of all; empty: no row moves that way.
  std::array<std::vector<double>, kWays.size()> sums_;
};

}  // namespace stallcast::gui
