// What PyTorch's operators take the host thread that calls them.
#pragma once

#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "models/plan/operators.h"

namespace stallcast::hardware {

/// Least and most that an operator of an eager program takes, of those that PyTorch's profiler
/// counts, where a machine's were not measured: decode steps of transformers on published and
/// measured hosts take 6 to 17 us for each.
inline constexpr double kLeastOperator = 6e-6, kMostOperator = 17e-6;

/// s, from a profile's pytorch.*. An operator that was not measured takes as long as the one that
/// is most like it. Where pytorch.each is set, each operator takes that.
class PyTorchCosts {
 public:
  explicit PyTorchCosts(const Profile& profile) : profile_(profile) {}
  double Of(plan::Operator op, Bytes bytes = 0) const;
  double Of(const plan::OperatorCalls& calls) const;
  double EventRecord() const;
  double EventWait() const;
  double GraphLaunch() const;

 private:
  double Copying(Bytes bytes) const;
  bool Each() const { return profile_.pytorch.each > 0; }

  const Profile& profile_;
};

/// What a profile's measured operators are taken for those that it lacks, in a sentence; empty:
/// nothing.
std::string AssumedOperators(const Profile& profile);

}  // namespace stallcast::hardware
