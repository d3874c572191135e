#include "models/methods/common/unit_buffer.h"

#include <algorithm>
#include <utility>

#include "models/methods/common/random_bits.h"

namespace stallcast::methods {

UnitBuffer::UnitBuffer(int64_t capacity, Replacement rule, uint64_t seed, NextUse next_use)
    : capacity_(capacity), rule_(rule), seed_(seed), next_use_(std::move(next_use)) {}

void UnitBuffer::Add(uint32_t unit, int32_t time) {
  if (unit >= held_.size()) {
    held_.resize(size_t{unit} + 1);
    is_used_.resize(size_t{unit} + 1);
  }
  held_[unit] = true;
  entries_.push_back({unit, time, time});
}

void UnitBuffer::Fill(uint32_t count) {
  for (uint32_t unit = 0; unit < count; ++unit) {
    Add(unit, static_cast<int32_t>(int64_t{unit} - count));
  }
  Shrink(-1);
}

std::vector<uint32_t> UnitBuffer::Use(int32_t step, std::span<const uint32_t> used,
                                      std::span<const uint32_t> written) {
  std::vector<uint32_t> missing;
  for (const uint32_t unit : written) {
    if (!Holds(unit)) Add(unit, step);
  }
  for (const uint32_t unit : used) {
    if (!Holds(unit)) {
      Add(unit, step);
      missing.push_back(unit);
    }
    is_used_[unit] = 1;
  }
  for (Entry& entry : entries_) {
    if (is_used_[entry.unit]) entry.used = step;
  }
  Shrink(step);
  for (const uint32_t unit : used) is_used_[unit] = 0;
  return missing;
}

int64_t UnitBuffer::Rank(const Entry& entry, int32_t step) const {
  switch (rule_) {
    case Replacement::kLru:
      return entry.used;
    case Replacement::kFifo:
      return entry.came;
    case Replacement::kRandom: {
      const uint64_t at = (static_cast<uint64_t>(static_cast<uint32_t>(step)) << 32) | entry.unit;
      return static_cast<int64_t>(RandomBits(RandomBits(seed_) ^ at) >> 1);
    }
    case Replacement::kBelady:
      return -int64_t{next_use_(entry.unit, step)};
  }
  return 0;
}

void UnitBuffer::Shrink(int32_t step) {
  evicted_ = std::max<int64_t>(0, std::ssize(entries_) - capacity_);
  if (evicted_ == 0) return;
  std::vector<std::pair<int64_t, uint32_t>> ranked;
  for (const Entry& entry : entries_) {
    if (!is_used_[entry.unit]) ranked.emplace_back(Rank(entry, step), entry.unit);
  }
  std::nth_element(ranked.begin(), ranked.begin() + (evicted_ - 1), ranked.end());
  for (int64_t i = 0; i < evicted_; ++i) held_[ranked[static_cast<size_t>(i)].second] = false;
  std::erase_if(entries_, [this](const Entry& entry) { return !held_[entry.unit]; });
}

}  // namespace stallcast::methods
