// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/op_index.h"

#include <algorithm>
#include <tuple>

namespace stallcast::gui {

using traces::Timeline;
using traces::TimelineFlow;

std::span<const uint32_t> OpIndex::Lists::operator[](int64_t slot) const {
  if (slot < 0 || slot + 1 >= std::ssize(offset)) return {};
  const auto at = offset.begin() + slot;
  return {values.data() + at[0], values.data() + at[1]};
}

int64_t OpIndex::Lists::MemoryBytes() const {
  return static_cast<int64_t>((offset.capacity() + values.capacity()) * sizeof(uint32_t));
}

// Counting sort, stable; items of slot -1 are left out.
OpIndex::Lists OpIndex::Group(size_t slots, std::span<const int64_t> slot,
                              std::span<const uint32_t> value) {
  Lists lists;
  lists.offset.assign(slots + 1, 0);
  for (int64_t s : slot) {
    if (s >= 0) ++lists.offset[static_cast<size_t>(s) + 1];
  }
  for (size_t s = 0; s < slots; ++s) lists.offset[s + 1] += lists.offset[s];
  lists.values.resize(lists.offset.back());
  std::vector<uint32_t> next(lists.offset.begin(), lists.offset.end() - 1);
  for (size_t i = 0; i < slot.size(); ++i) {
    if (slot[i] < 0) continue;
    const auto item = value.empty() ? static_cast<uint32_t>(i) : value[i];
    lists.values[next[static_cast<size_t>(slot[i])]++] = item;
  }
  return lists;
}

OpIndex::OpIndex(const Timeline& t, std::span<const TimelineFlow> flows) {
  int64_t last = -1;
  for (int64_t op : t.op) last = std::max(last, op);
  dense_ = last < 2 * t.rows();
  if (!dense_) {
    std::copy_if(t.op.begin(), t.op.end(), std::back_inserter(ids_),
                 [](int64_t op) { return op >= 0; });
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
    ids_.shrink_to_fit();
  }
  const size_t slots = dense_ ? static_cast<size_t>(last + 1) : ids_.size();
  {
    // Slots of dense ids are the ids themselves: no second column is needed.
    std::vector<int64_t> slot;
    if (!dense_) {
      slot.reserve(t.op.size());
      for (int64_t op : t.op) {
        slot.push_back(op < 0 ? -1 : std::lower_bound(ids_.begin(), ids_.end(), op) - ids_.begin());
      }
    }
    rows_ = Group(slots, dense_ ? std::span<const int64_t>(t.op) : slot, {});
  }
  const auto call = [&](uint32_t row) {
    return t.lanes[t.lane[row]].kind == traces::LaneKind::kHost;
  };
  for (size_t s = 0; s < slots; ++s) {
    std::sort(rows_.values.begin() + rows_.offset[s], rows_.values.begin() + rows_.offset[s + 1],
              [&](uint32_t a, uint32_t b) {
                return std::tuple(t.step[a], call(a), a) < std::tuple(t.step[b], call(b), b);
              });
  }

  if (flows.empty()) return;
  std::vector<int64_t> from, to;
  std::vector<uint32_t> from_value, to_value;
  for (const TimelineFlow& flow : flows) {
    const int64_t a = SlotOf(flow.from_op), b = SlotOf(flow.to_op);
    if (a == b || rows_[a].empty() || rows_[b].empty()) continue;
    from.push_back(a);
    to.push_back(b);
    from_value.push_back(static_cast<uint32_t>(a));
    to_value.push_back(static_cast<uint32_t>(b));
  }
  waits_ = Group(slots, to, from_value);
  waiters_ = Group(slots, from, to_value);
}

int64_t OpIndex::SlotOf(int64_t op) const {
  if (dense_) return op;
  const auto at = std::lower_bound(ids_.begin(), ids_.end(), op);
  return at != ids_.end() && *at == op ? at - ids_.begin() : -1;
}

std::span<const uint32_t> OpIndex::RowsOf(int64_t op) const { return rows_[SlotOf(op)]; }
std::span<const uint32_t> OpIndex::WaitsOf(int64_t op) const { return waits_[SlotOf(op)]; }
std::span<const uint32_t> OpIndex::WaitersOf(int64_t op) const { return waiters_[SlotOf(op)]; }

std::vector<TimelineFlow> OpIndex::Flows() const {
  std::vector<TimelineFlow> flows;
  flows.reserve(waits_.values.size());
  for (size_t to = 0; to + 1 < waits_.offset.size(); ++to) {
    for (uint32_t from : waits_[static_cast<int64_t>(to)]) flows.push_back({OpOf(from), OpOf(to)});
  }
  return flows;
}

int64_t OpIndex::MemoryBytes() const {
  return static_cast<int64_t>(ids_.capacity() * sizeof(ids_[0])) + rows_.MemoryBytes() +
         waits_.MemoryBytes() + waiters_.MemoryBytes();
}

}  // namespace stallcast::gui
