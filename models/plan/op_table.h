// The ops of a plan, held small: a plan has hundreds of thousands of ops and little distinct work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/plan/purpose.h"
#include "models/plan/work.h"
#include "traces/timeline.h"

namespace stallcast::plan {

using traces::Role;

/// Position of an op in its plan. Waits only point to smaller ids, so the order is topological.
enum class OpId : int32_t { kNone = -1 };
enum class LaneId : int16_t { kNone = -1 };
constexpr int32_t Index(OpId id) { return static_cast<int32_t>(id); }
constexpr int16_t Index(LaneId id) { return static_cast<int16_t>(id); }
/// The same, to index a container of the plan's ops or lanes.
constexpr size_t At(OpId id) { return static_cast<size_t>(id); }
constexpr size_t At(LaneId id) { return static_cast<size_t>(id); }

/// An op as its table shows it; `work` lives as long as the table, until an op is added.
struct Op {
  const Work& work;
  LaneId lane = LaneId::kNone;
  /// The host lane whose thread makes the CUDA call; for host work it equals `lane`.
  LaneId issuer = LaneId::kNone;
  Role role = Role::kOther;
  Purpose purpose = Purpose::kOnly;
  bool graph_node = false;    ///< launched by an earlier GraphLaunch: the issuer pays nothing
  bool from_pytorch = false;  ///< its issuer calls an operator of PyTorch for it
  int16_t layer = -1;
  int32_t step = -1;  ///< -1: prefill
  uint32_t waits_begin = 0;
  uint32_t waits_count = 0;
};
/// Whether a host thread does it, and no stream.
inline bool IsHostWork(const Op& op) { return op.lane == op.issuer; }

/// Ops in program order, each distinct work held once.
class OpTable {
 public:
  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }

  Op operator[](size_t i) const {
    const Row& row = rows_[i];
    const uint32_t begin = i == 0 ? 0 : rows_[i - 1].waits_end;
    return {.work = works_[row.work],
            .lane = row.lane,
            .issuer = row.issuer,
            .role = row.role,
            .purpose = row.purpose,
            .graph_node = row.graph_node,
            .from_pytorch = row.from_pytorch,
            .layer = row.layer,
            .step = row.step,
            .waits_begin = begin,
            .waits_count = row.waits_end - begin};
  }

  /// An input iterator: ops are made when looked at.
  class Iterator {
   public:
    using value_type = Op;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const OpTable& table, size_t at) : table_(&table), at_(at) {}
    Op operator*() const { return (*table_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    void operator++(int) { ++at_; }
    bool operator==(const Iterator&) const = default;

   private:
    const OpTable* table_ = nullptr;
    size_t at_ = 0;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

  /// The distinct works, and the one of op `i` among them.
  const std::vector<Work>& works() const { return works_; }
  uint32_t WorkOf(size_t i) const { return rows_[i].work; }

 private:
  friend class PlanBuilder;
  struct Row {
    uint32_t work;
    uint32_t waits_end;  // its waits begin where those of the op before end
    int32_t step;
    int16_t layer;
    LaneId lane, issuer;
    Role role;
    Purpose purpose : 6;
    bool graph_node : 1;
    bool from_pytorch : 1;
  };
  static_assert(sizeof(Row) == 20);

  std::vector<Row> rows_;
  std::vector<Work> works_;
};

}  // namespace stallcast::plan
