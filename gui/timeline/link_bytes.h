// SPDX-License-Identifier: GPL-3.0-or-later
// How many bytes went over the link until any time, each way.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gui/timeline/track.h"

namespace stallcast::gui {

enum class LinkWay : uint8_t { kToGpu, kToHost };
inline constexpr std::array kLinkWays = {LinkWay::kToGpu, LinkWay::kToHost};

/// Of one track: bytes of rows with a role that moves data to the GPU (recall) or to the host
/// (offload), each spread evenly over its row.
class LinkBytes {
 public:
  LinkBytes() = default;
  LinkBytes(const Track& track, std::span<const int64_t> bytes);

  double total(LinkWay way) const { return Of(way).empty() ? 0 : Of(way).back(); }
  /// Before `time`; `track` and `bytes` are those that it was made of.
  double Before(LinkWay way, Picoseconds time, const Track& track,
                std::span<const int64_t> bytes) const;
  int64_t MemoryBytes() const;

 private:
  const std::vector<double>& Of(LinkWay way) const { return sums_[static_cast<size_t>(way)]; }
  // Before every 16th row, and of all; empty: no row moves that way.
  std::array<std::vector<double>, 2> sums_;
};

}  // namespace stallcast::gui
