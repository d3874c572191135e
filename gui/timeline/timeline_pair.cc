// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_pair.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace stallcast::gui {
namespace {

constexpr int64_t kBlock = 16;

// The rows of one op, as step by step and kind by kind they are one op of the comparison.
std::tuple<int32_t, bool> KindOf(const TimelineModel& model, uint32_t row) {
  return {model.timeline().step[row], model.IsCall(row)};
}

// Calls visit(rows of p, rows of m) for each step and kind that both lists have.
template <class Visit>
void ForEachCommon(const TimelineModel& p, std::span<const uint32_t> p_rows, const TimelineModel& m,
                   std::span<const uint32_t> m_rows, Visit&& visit) {
  const auto group = [](const TimelineModel& model, std::span<const uint32_t> rows, size_t first) {
    size_t last = first + 1;
    while (last < rows.size() && KindOf(model, rows[last]) == KindOf(model, rows[first])) ++last;
    return rows.subspan(first, last - first);
  };
  size_t i = 0, j = 0;
  while (i < p_rows.size() && j < m_rows.size()) {
    const auto a = group(p, p_rows, i), b = group(m, m_rows, j);
    const auto p_kind = KindOf(p, a[0]), m_kind = KindOf(m, b[0]);
    if (p_kind == m_kind) visit(a, b);
    if (p_kind <= m_kind) i += a.size();
    if (m_kind <= p_kind) j += b.size();
  }
}

// A bit a role. Calls are the host's whatever they are for.
uint32_t RolesIn(const TimelineModel& model, std::span<const uint32_t> rows) {
  uint32_t roles = 0;
  for (uint32_t row : rows) {
    if (!model.IsCall(row)) roles |= 1U << static_cast<int>(model.timeline().role[row]);
  }
  return roles;
}

template <class T>
int64_t BytesOf(const std::vector<T>& column) {
  return static_cast<int64_t>(column.capacity() * sizeof(T));
}

}  // namespace

std::shared_ptr<const TimelinePair> TimelinePair::Make(sim::Predicted<Model> predicted,
                                                       sim::Measured<Model> measured,
                                                       const TimelinePair* before, bool replay) {
  std::shared_ptr<TimelinePair> pair(new TimelinePair);
  pair->sides_[0].model = std::move(predicted.value);
  pair->sides_[1].model = std::move(measured.value);
  if (pair->both()) {
    pair->replay_ = replay;
    pair->Match();
    pair->LendWaits(before);
  }
  return pair;
}

void TimelinePair::LendWaits(const TimelinePair* before) {
  const Model& predicted = model(Side::kPredicted);
  Model& measured = sides_[static_cast<size_t>(Side::kMeasured)].model;
  if (matched_ == 0 || unlike_ > 0 || measured->ops().flows() > 0) return;
  const std::vector<traces::TimelineFlow> waits = predicted->ops().Flows();
  if (waits.empty()) return;
  lent_from_ = measured;
  const bool again = before != nullptr && before->lent_from_ == measured &&
                     before->model(Side::kPredicted)->ops().Flows() == waits;
  measured = again ? before->model(Side::kMeasured) : TimelineModel::WithWaits(*measured, waits);
}

void TimelinePair::Match() {
  const TimelineModel& p = *sides_[0].model;
  const TimelineModel& m = *sides_[1].model;
  for (SideData& side : sides_) {
    const auto rows = static_cast<size_t>(side.model->rows());
    side.twin.assign(rows, -1);
    side.residual.assign(rows, std::numeric_limits<float>::quiet_NaN());
  }
  // What another program recorded has numbers of its own, if any.
  const bool comparable = replay_ || (m.timeline().origin != traces::Timeline::Origin::kImported &&
                                      p.timeline().origin != traces::Timeline::Origin::kImported);
  const auto match = [&](int64_t op) {
    ForEachCommon(p, p.ops().RowsOf(op), m, m.ops().RowsOf(op), [&](auto p_rows, auto m_rows) {
      ++matched_;
      if (RolesIn(p, p_rows) != 0 && (RolesIn(p, p_rows) & RolesIn(m, m_rows)) == 0) ++unlike_;
      const auto p_span = p.SpanOf(p_rows[0]);
      const auto m_span = m.SpanOf(m_rows[0]);
      const sim::TimePair durations{{p_span.end - p_span.start}, {m_span.end - m_span.start}};
      const auto residual = static_cast<float>(durations.relative());
      const auto set = [residual](SideData& side, auto rows, int64_t twin) {
        for (uint32_t row : rows) {
          side.twin[row] = static_cast<int32_t>(twin);
          side.residual[row] = residual;
        }
      };
      set(sides_[0], p_rows, m_span.first_row);
      set(sides_[1], m_rows, p_span.first_row);
    });
  };
  if (comparable) p.ops().ForEachOp(match);
  for (SideData& side : sides_) {
    const int64_t rows = side.model->rows();
    double weighted = 0, weight = 0;
    for (int64_t first = 0; first < rows; first += kBlock) {
      side.weighted.push_back(weighted);
      side.weight.push_back(weight);
      Add(side, std::min(rows, first + kBlock), 1, weighted, weight);
    }
    side.weighted.shrink_to_fit();
    side.weight.shrink_to_fit();
  }
}

// Rows from the begin of the block that ends at or holds `row`, up to it.
void TimelinePair::Add(const SideData& side, int64_t row, double sign, double& weighted,
                       double& weight) {
  for (int64_t r = (row - 1) / kBlock * kBlock; r < row; ++r) {
    const auto i = static_cast<size_t>(r);
    if (!std::isfinite(side.residual[i])) continue;
    const auto duration = static_cast<double>(side.model->timeline().duration[i].count());
    weighted += sign * duration * side.residual[i];
    weight += sign * duration;
  }
}

std::optional<OpRef> TimelinePair::Twin(OpRef op) const {
  const SideData& side = sides_[static_cast<size_t>(op.side)];
  if (side.twin.empty()) return std::nullopt;
  const int32_t row = side.twin[static_cast<size_t>(op.row)];
  if (row < 0) return std::nullopt;
  return OpRef{Other(op.side), row};
}

double TimelinePair::MeanResidual(Side which, int64_t first, int64_t last) const {
  const SideData& side = sides_[static_cast<size_t>(which)];
  if (side.twin.empty() || first >= last) return std::numeric_limits<double>::quiet_NaN();
  double weighted = 0, weight = 0;
  const auto add = [&](int64_t row, double sign) {
    if (row == 0) return;
    const auto block = static_cast<size_t>((row - 1) / kBlock);
    weighted += sign * side.weighted[block];
    weight += sign * side.weight[block];
    Add(side, row, sign, weighted, weight);
  };
  add(last, 1);
  add(first, -1);
  return weight > 0 ? weighted / weight : std::numeric_limits<double>::quiet_NaN();
}

int64_t TimelinePair::MemoryBytes() const {
  int64_t bytes = 0;
  for (const SideData& side : sides_) {
    bytes +=
        BytesOf(side.twin) + BytesOf(side.residual) + BytesOf(side.weighted) + BytesOf(side.weight);
  }
  return bytes;
}

}  // namespace stallcast::gui
