// SPDX-License-Identifier: GPL-3.0-or-later
// Which rows an op has, and which ops wait for which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "traces/timeline.h"

namespace stallcast::gui {

/// Op ids are looked up in constant time where they are dense (plans number their ops from 0), by
/// binary search otherwise (correlation ids of an imported file).
class OpIndex {
 public:
  OpIndex() = default;
  /// Flows that name an op without rows, or an op as its own cause, are left out.
  OpIndex(const traces::Timeline& timeline, std::span<const traces::TimelineFlow> flows);

  /// All rows of an op, ordered by step, runs before calls, then row.
  std::span<const uint32_t> RowsOf(int64_t op) const;
  /// Ops that `op` waited for, and ops that waited for it.
  std::span<const uint32_t> WaitsOf(int64_t op) const;
  std::span<const uint32_t> WaitersOf(int64_t op) const;
  /// The op ids that have rows, ascending.
  template <class Visit>
  void ForEachOp(Visit&& visit) const {
    for (size_t slot = 0; slot + 1 < rows_.offset.size(); ++slot) {
      if (rows_.offset[slot] != rows_.offset[slot + 1]) visit(OpOf(slot));
    }
  }
  /// What a slot given by WaitsOf or WaitersOf stands for.
  int64_t OpOf(size_t slot) const { return dense_ ? static_cast<int64_t>(slot) : ids_[slot]; }
  int64_t flows() const { return static_cast<int64_t>(waits_.values.size()); }
  /// The flows kept, by the op that waits.
  std::vector<traces::TimelineFlow> Flows() const;
  int64_t MemoryBytes() const;

 private:
  // Values of each slot, one slot's after the other's.
  struct Lists {
    std::vector<uint32_t> offset, values;
    std::span<const uint32_t> operator[](int64_t slot) const;
    int64_t MemoryBytes() const;
  };
  int64_t SlotOf(int64_t op) const;  // -1: no such op
  static Lists Group(size_t slots, std::span<const int64_t> slot, std::span<const uint32_t> value);

  bool dense_ = true;
  std::vector<int64_t> ids_;  // by slot, unless dense
  Lists rows_, waits_, waiters_;
};

}  // namespace stallcast::gui
