// SPDX-License-Identifier: GPL-3.0-or-later
// Rows that follow each other in time without overlap, and what any stretch of them adds up to.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::gui {

/// Busy time by role.
using RoleSums = std::array<int64_t, traces::kRoles>;

/// A view of columns that live elsewhere. Rows are numbered from 0 here; row 0 is `first_row` of
/// the columns' owner. Starts ascend and each row ends at or before the next one's start.
class Track {
 public:
  /// Starts and role sums of every 16th row (starts of every 256th too), so that any stretch is
  /// summed exactly by reading two entries and at most 30 rows, however long it is. Roles that do
  /// not occur take no room.
  class Index {
   public:
    Index() = default;
    Index(std::span<const Picoseconds> start, std::span<const Picoseconds> duration,
          std::span<const traces::Role> role);
    int64_t MemoryBytes() const;

   private:
    friend class Track;
    std::vector<traces::Role> roles_;             // that occur
    std::array<uint8_t, traces::kRoles> slot_{};  // of each role among them
    std::vector<Picoseconds> fine_, coarse_;      // starts of every 16th and 256th row
    std::vector<int64_t> sums_;                   // before every 16th row, roles_.size() each
  };

  Track() = default;
  Track(std::span<const Picoseconds> start, std::span<const Picoseconds> duration,
        std::span<const traces::Role> role, const Index* index, int64_t first_row)
      : start_(start), duration_(duration), role_(role), index_(index), first_row_(first_row) {}

  int64_t size() const { return static_cast<int64_t>(start_.size()); }
  int64_t first_row() const { return first_row_; }
  Picoseconds start(int64_t row) const { return start_[static_cast<size_t>(row)]; }
  Picoseconds duration(int64_t row) const { return duration_[static_cast<size_t>(row)]; }
  Picoseconds end(int64_t row) const { return start(row) + duration(row); }
  traces::Role role(int64_t row) const { return role_[static_cast<size_t>(row)]; }

  /// Roles that occur.
  std::span<const traces::Role> roles() const { return index_->roles_; }
  /// Rows that start before `time`.
  int64_t Before(Picoseconds time) const;
  /// The same where rows [0, from) are known to; quick when about `stride` more do.
  int64_t Before(Picoseconds time, int64_t from, int64_t stride) const;
  /// Durations of rows [first, last) by role.
  RoleSums Sum(int64_t first, int64_t last) const;

 private:
  // Adds the sums of rows [0, row), times `sign`.
  void Add(int64_t row, int64_t sign, RoleSums& sums) const;

  std::span<const Picoseconds> start_, duration_;
  std::span<const traces::Role> role_;
  const Index* index_ = nullptr;
  int64_t first_row_ = 0;
};

}  // namespace stallcast::gui
