// Operators of eager PyTorch: what its host thread calls to issue an op. Counts are facts of public
// code; what a call takes is a machine's (models/hardware/pytorch_costs.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "models/plan/host.h"
#include "models/plan/operator.h"
#include "models/plan/work.h"

namespace stallcast::plan {

/// How often each operator is called. Those that copy move `bytes` a call.
struct OperatorCalls {
  std::array<int64_t, kOperators> count{};
  Bytes bytes = 0;
  int64_t& operator[](Operator op) { return count[static_cast<size_t>(op)]; }
  int64_t operator[](Operator op) const { return count[static_cast<size_t>(op)]; }
  bool operator==(const OperatorCalls&) const = default;
};

/// The calls by which a PyTorch program issues some work.
OperatorCalls CallsOf(const Work& work);

/// Whether a plan's main thread is PyTorch's: a public program stays one where graphs launch it.
constexpr bool CallsOperators(Host host, bool as_run) {
  return host == Host::kPyTorch || (as_run && host == Host::kGraph);
}

/// How many operators PyTorch's profiler counts for one call, those that it calls included.
int ProfiledOperators(Operator op);
/// The same for all of some calls.
int64_t ProfiledOperators(const OperatorCalls& calls);

}  // namespace stallcast::plan
