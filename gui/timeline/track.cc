// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/track.h"

#include <algorithm>

namespace stallcast::gui {
namespace {

constexpr int64_t kFine = 16, kCoarse = 256;

}  // namespace

Track::Index::Index(std::span<const Picoseconds> start, std::span<const Picoseconds> duration,
                    std::span<const traces::Role> role) {
  const auto rows = static_cast<int64_t>(start.size());
  std::array<bool, traces::kRoles> occurs{};
  for (traces::Role r : role) occurs[static_cast<size_t>(r)] = true;
  for (size_t r = 0; r < occurs.size(); ++r) {
    slot_[r] = static_cast<uint8_t>(roles_.size());
    if (occurs[r]) roles_.push_back(static_cast<traces::Role>(r));
  }
  const auto blocks = static_cast<size_t>((rows + kFine - 1) / kFine);
  fine_.reserve(blocks);
  sums_.reserve(blocks * roles_.size());
  coarse_.reserve(static_cast<size_t>((rows + kCoarse - 1) / kCoarse));
  std::array<int64_t, traces::kRoles> sum{};
  for (int64_t row = 0; row < rows; ++row) {
    const auto i = static_cast<size_t>(row);
    if (row % kFine == 0) {
      fine_.push_back(start[i]);
      sums_.insert(sums_.end(), sum.begin(), sum.begin() + std::ssize(roles_));
    }
    if (row % kCoarse == 0) coarse_.push_back(start[i]);
    sum[slot_[static_cast<size_t>(role[i])]] += duration[i].count();
  }
}

int64_t Track::Index::MemoryBytes() const {
  return static_cast<int64_t>(roles_.capacity() * sizeof(roles_[0]) +
                              (fine_.capacity() + coarse_.capacity()) * sizeof(fine_[0]) +
                              sums_.capacity() * sizeof(sums_[0]));
}

int64_t Track::Before(Picoseconds time) const {
  // Of each level, the last entry that starts before `time` bounds where to look below it.
  const auto last_before = [time](const auto& starts, int64_t first, int64_t last) {
    return std::lower_bound(starts.begin() + first, starts.begin() + last, time) - starts.begin();
  };
  int64_t first = 0, last = std::ssize(index_->coarse_);
  first = std::max<int64_t>(0, last_before(index_->coarse_, first, last) - 1);
  last = std::min((first + 1) * (kCoarse / kFine), std::ssize(index_->fine_));
  first = std::max<int64_t>(0, last_before(index_->fine_, first * (kCoarse / kFine), last) - 1);
  return last_before(start_, first * kFine, std::min((first + 1) * kFine, size()));
}

int64_t Track::Before(Picoseconds time, int64_t from, int64_t stride) const {
  const std::vector<Picoseconds>& fine = index_->fine_;
  // Doubling steps over the fine starts, then a search among the blocks stepped over.
  int64_t first = from / kFine, last = first + 1;
  for (int64_t step = std::max<int64_t>(1, stride / kFine / 4);
       last < std::ssize(fine) && fine[static_cast<size_t>(last)] < time; step *= 2) {
    first = last;
    last += step;
  }
  last = std::min(last, std::ssize(fine));
  const auto block =
      std::lower_bound(fine.begin() + first + (first < last ? 1 : 0), fine.begin() + last, time) -
      fine.begin();
  const int64_t low = std::max(from, (block - 1) * kFine);
  return std::lower_bound(start_.begin() + low, start_.begin() + std::min(block * kFine, size()),
                          time) -
         start_.begin();
}

void Track::Add(int64_t row, int64_t sign, RoleSums& sums) const {
  const size_t roles = index_->roles_.size();
  const auto block = static_cast<size_t>(std::min(row / kFine, std::ssize(index_->fine_) - 1));
  const int64_t* before = index_->sums_.data() + block * roles;
  for (size_t r = 0; r < roles; ++r) {
    sums[static_cast<size_t>(index_->roles_[r])] += sign * before[r];
  }
  for (auto i = static_cast<int64_t>(block) * kFine; i < row; ++i) {
    sums[static_cast<size_t>(role(i))] += sign * duration(i).count();
  }
}

RoleSums Track::Sum(int64_t first, int64_t last) const {
  RoleSums sums{};
  if (last - first <= 2 * kFine) {
    for (int64_t i = first; i < last; ++i) {
      sums[static_cast<size_t>(role(i))] += duration(i).count();
    }
  } else {
    Add(last, 1, sums);
    Add(first, -1, sums);
  }
  return sums;
}

}  // namespace stallcast::gui
