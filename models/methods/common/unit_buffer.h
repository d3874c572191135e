// The units of a head that a GPU buffer of fixed size holds, and which of them leave it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace stallcast::methods {

/// Who leaves a full buffer: the unit not used for longest, the one that came first, any, or the
/// one whose next use is farthest (which only a replay can know: no rule misses less).
enum class Replacement : uint8_t { kLru, kFifo, kRandom, kBelady };

class UnitBuffer {
 public:
  /// The step at which a unit is used next after `step`, or INT32_MAX. Needed for kBelady only.
  using NextUse = std::function<int32_t(uint32_t unit, int32_t step)>;
  /// `seed` makes the random choices of heads differ.
  UnitBuffer(int64_t capacity, Replacement rule, uint64_t seed, NextUse next_use = {});

  /// Before the first step: units [0, count) have come one after the other.
  void Fill(uint32_t count);
  /// In `step` the ascending `used` (at most the capacity) must be there, and the ascending
  /// `written` come without being missed. Returns those of `used` that were missing, ascending;
  /// none that is used leaves.
  std::vector<uint32_t> Use(int32_t step, std::span<const uint32_t> used,
                            std::span<const uint32_t> written);
  /// Units that left in the last Use().
  int64_t evicted() const { return evicted_; }

  /// A unit that is there, and the steps in which it came and was used last; before the first step
  /// they are negative.
  struct Entry {
    uint32_t unit;
    int32_t came, used;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  bool Holds(uint32_t unit) const { return unit < held_.size() && held_[unit]; }
  void Add(uint32_t unit, int32_t time);
  // The smallest rank leaves first.
  int64_t Rank(const Entry& entry, int32_t step) const;
  // Drops entries that `step` did not use until the buffer holds what it can.
  void Shrink(int32_t step);

  int64_t capacity_;
  Replacement rule_;
  uint64_t seed_;
  NextUse next_use_;
  std::vector<Entry> entries_;
  std::vector<bool> held_;        // by unit
  std::vector<uint8_t> is_used_;  // by unit, in the step
  int64_t evicted_ = 0;
};

}  // namespace stallcast::methods
