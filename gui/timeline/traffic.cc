// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/traffic.h"

#include <algorithm>

namespace stallcast::gui {
namespace {

constexpr int64_t kStride = 16;

bool Goes(traces::Role role, Way way) {
  switch (way) {
    case Way::kToGpu:
      return role == traces::Role::kRecall;
    case Way::kToHost:
      return role == traces::Role::kOffload;
    case Way::kMemory:
      return !traces::MovesData(role) && role != traces::Role::kHost;
  }
  return false;
}

double BytesOf(const Track& track, std::span<const int64_t> bytes, int64_t row, Way way) {
  if (!Goes(track.role(row), way)) return 0;
  return static_cast<double>(std::max<int64_t>(0, bytes[static_cast<size_t>(row)]));
}

// Whether kernels have bytes for half of their time at least: recordings know those of a few.
bool MostlyKnown(const Track& track, std::span<const int64_t> bytes) {
  int64_t known = 0, all = 0;
  for (int64_t row = 0; row < track.size(); ++row) {
    if (!Goes(track.role(row), Way::kMemory)) continue;
    all += track.duration(row).count();
    if (bytes[static_cast<size_t>(row)] > 0) known += track.duration(row).count();
  }
  return known >= all - known;
}

}  // namespace

Traffic::Traffic(const Track& track, std::span<const int64_t> bytes) {
  for (const Way way : kWays) {
    if (way == Way::kMemory && !MostlyKnown(track, bytes)) continue;
    std::vector<double>& sums = sums_[static_cast<size_t>(way)];
    const bool any = std::ranges::any_of(track.roles(), [&](auto role) { return Goes(role, way); });
    if (!any) continue;
    double sum = 0;
    for (int64_t row = 0; row < track.size(); ++row) {
      if (row % kStride == 0) sums.push_back(sum);
      sum += BytesOf(track, bytes, row, way);
    }
    sums.push_back(sum);
    if (sum == 0) sums.clear();
    sums.shrink_to_fit();
  }
}

double Traffic::Before(Way way, Picoseconds time, const Track& track,
                       std::span<const int64_t> bytes) const {
  const std::vector<double>& sums = Of(way);
  const int64_t rows = track.Before(time);
  if (sums.empty() || rows == 0) return 0;
  // All rows that start before, but the last one may still run.
  const int64_t last = rows - 1;
  double sum = sums[static_cast<size_t>(last / kStride)];
  for (int64_t row = last / kStride * kStride; row < last; ++row) {
    sum += BytesOf(track, bytes, row, way);
  }
  const double of_last = BytesOf(track, bytes, last, way);
  const Picoseconds run = std::min(time, track.end(last)) - track.start(last);
  if (track.duration(last).count() == 0) return sum + of_last;
  return sum + of_last * static_cast<double>(run.count()) /
                   static_cast<double>(track.duration(last).count());
}

int64_t Traffic::MemoryBytes() const {
  int64_t bytes = 0;
  for (const auto& sums : sums_) bytes += static_cast<int64_t>(sums.capacity() * sizeof(double));
  return bytes;
}

}  // namespace stallcast::gui
