#include "models/hardware/pytorch_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace stallcast::hardware {
namespace {

using plan::Operator;
using PyTorch = Profile::PyTorch;

// The value of an operator, and the operator that stands for it where it was not measured.
struct Row {
  Operator op;
  double PyTorch::*value;
  Operator like;
  std::string_view path;
};
constexpr Row kRows[] = {
    {Operator::kView, &PyTorch::view, Operator::kView, "view"},
    {Operator::kSlice, &PyTorch::slice, Operator::kView, "slice"},
    {Operator::kModule, &PyTorch::module_call, Operator::kView, "module_call"},
    {Operator::kCpu, &PyTorch::cpu_operator, Operator::kView, "cpu_operator"},
    {Operator::kLaunch, &PyTorch::launch, Operator::kLaunch, "launch"},
    {Operator::kLaunchAllocating, &PyTorch::launch_allocating, Operator::kLaunch,
     "launch_allocating"},
    {Operator::kAllocation, &PyTorch::allocation, Operator::kView, "allocation"},
    {Operator::kZeros, &PyTorch::zeros, Operator::kLaunch, "zeros"},
    {Operator::kCast, &PyTorch::cast, Operator::kLaunchAllocating, "cast"},
    {Operator::kReduce, &PyTorch::reduce, Operator::kLaunchAllocating, "reduce"},
    {Operator::kLinear, &PyTorch::linear, Operator::kLinear, "linear"},
    {Operator::kCat, &PyTorch::cat, Operator::kLaunchAllocating, "cat"},
    {Operator::kTopK, &PyTorch::topk, Operator::kLinear, "topk"},
    {Operator::kSort, &PyTorch::sort, Operator::kTopK, "sort"},
    {Operator::kIndexSelect, &PyTorch::index_select, Operator::kLinear, "index_select"},
    {Operator::kSdpa, &PyTorch::sdpa, Operator::kLinear, "sdpa"},
    {Operator::kSdpaNewLength, &PyTorch::sdpa_new_length, Operator::kSdpa, "sdpa_new_length"},
    {Operator::kItem, &PyTorch::item, Operator::kLaunch, "item"},
    {Operator::kIndexByGpuScalar, &PyTorch::index_by_gpu_scalar, Operator::kItem,
     "index_by_gpu_scalar"},
    {Operator::kSynchronize, &PyTorch::synchronize, Operator::kItem, "synchronize"},
    {Operator::kStreamContext, &PyTorch::stream_context, Operator::kLaunch, "stream_context"},
};

struct CopyRow {
  Operator op;
  Curve PyTorch::*curve;
  Operator like;
};
constexpr CopyRow kCopyRows[] = {
    {Operator::kCopy, &PyTorch::copy_pinned, Operator::kLaunch},
    {Operator::kCopyStrided, &PyTorch::copy_strided, Operator::kCopy},
    {Operator::kCopyPageable, &PyTorch::copy_pageable, Operator::kCopy},
    {Operator::kCopyBack, &PyTorch::copy_back_pinned, Operator::kCopy},
    {Operator::kCopyBackStrided, &PyTorch::copy_back_strided, Operator::kCopyStrided},
    {Operator::kCopyBackPageable, &PyTorch::copy_back_pageable, Operator::kCopyPageable},
};

// What more bytes than were measured take more, as those between the last two points do.
double BeyondEnd(const Curve& curve, double size) {
  const size_t last = curve.x().size() - 1;
  if (last == 0 || size <= curve.x()[last]) return 0;
  const double slope =
      (curve.y()[last] - curve.y()[last - 1]) / (curve.x()[last] - curve.x()[last - 1]);
  return std::max(0.0, slope) * (size - curve.x()[last]);
}

const Row* RowOf(Operator op) {
  const auto* row = std::ranges::find(kRows, op, &Row::op);
  return row == std::end(kRows) ? nullptr : row;
}

// Whether the thread itself copies what goes to or comes from pageable memory.
bool Copies(Operator op) {
  return op == Operator::kCopyPageable || op == Operator::kCopyBackPageable;
}

}  // namespace

// Through a buffer of the driver, as fast as one thread gathers.
double PyTorchCosts::Copying(Bytes bytes) const {
  const double rate = profile_.host.gather_thread;
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

double PyTorchCosts::Of(Operator op, Bytes bytes) const {
  if (Each()) {
    return profile_.pytorch.each * plan::ProfiledOperators(op) + (Copies(op) ? Copying(bytes) : 0);
  }
  if (const Row* row = RowOf(op); row != nullptr) {
    const double value = profile_.pytorch.*row->value;
    // Measured is the whole of a call over a new length.
    if (op == Operator::kSdpaNewLength) return std::max(0.0, value - Of(Operator::kSdpa));
    return value > 0 || row->like == op ? value : Of(row->like, bytes);
  }
  const auto* row = std::ranges::find(kCopyRows, op, &CopyRow::op);
  const Curve& curve = profile_.pytorch.*row->curve;
  if (curve.empty()) return Of(row->like, bytes);
  const double size = std::max(1.0, static_cast<double>(bytes)), last = curve.x().back();
  double seconds = curve.At(size);
  if (Copies(op) && size > last) {
    seconds += curve.x().size() > 1 ? BeyondEnd(curve, size) : Copying(bytes - Bytes(last));
  }
  return seconds;
}

double PyTorchCosts::Of(const plan::OperatorCalls& calls) const {
  double all = 0;
  for (int op = 0; op < plan::kOperators; ++op) {
    const int64_t count = calls.count[static_cast<size_t>(op)];
    if (count > 0) all += static_cast<double>(count) * Of(static_cast<Operator>(op), calls.bytes);
  }
  return all;
}

double PyTorchCosts::EventRecord() const {
  const double measured = profile_.pytorch.event_record;
  return !Each() && measured > 0 ? measured : profile_.host.event_record;
}
double PyTorchCosts::EventWait() const {
  const double measured = profile_.pytorch.event_wait;
  return !Each() && measured > 0 ? measured : profile_.host.stream_wait;
}
double PyTorchCosts::GraphLaunch() const {
  const double measured = profile_.pytorch.graph_launch;
  return measured > 0 ? measured : profile_.host.graph_launch;
}

std::string AssumedOperators(const Profile& profile) {
  std::vector<std::string> lacks;
  for (const Row& row : kRows) {
    if (row.like == row.op || profile.pytorch.*row.value > 0) continue;
    if (row.op == Operator::kSdpaNewLength) {
      lacks.emplace_back("sdpa_new_length as no more than sdpa");
    } else {
      lacks.push_back(fmt::format("{} as {}", row.path, RowOf(row.like)->path));
    }
  }
  if (lacks.empty()) return {};
  return fmt::format("assumed: PyTorch operators that {} has not measured: {}", profile.name,
                     fmt::join(lacks, ", "));
}

}  // namespace stallcast::hardware
