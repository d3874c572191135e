// SPDX-License-Identifier: GPL-3.0-or-later
// Two sides, matched op by op.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gui/timeline/timeline_model.h"
#include "sim/compare.h"

namespace stallcast::gui {

enum class Side : uint8_t { kPredicted = 0, kMeasured = 1 };
inline constexpr std::array kSides = {Side::kPredicted, Side::kMeasured};
constexpr Side Other(Side side) {
  return side == Side::kPredicted ? Side::kMeasured : Side::kPredicted;
}

/// A row of one side's model.
struct OpRef {
  Side side = Side::kPredicted;
  int64_t row = 0;
  bool operator==(const OpRef&) const = default;
};

/// Immutable; built in any thread. Twins are matched as sim::Compare does: by step, op id, and
/// whether they are a call or a run; an op of several rows counts as one.
class TimelinePair {
 public:
  using Model = std::shared_ptr<const TimelineModel>;

  /// Either side may be null. A measured side that has no waits gets those of the predicted one
  /// when both are of one plan: then it, too, names what the compute lane waited for. `before` is a
  /// pair made earlier, of which is taken what is still right. `replay`: the predicted side is the
  /// measured one replayed, so that op ids mean the same whoever recorded them.
  static std::shared_ptr<const TimelinePair> Make(sim::Predicted<Model> predicted,
                                                  sim::Measured<Model> measured,
                                                  const TimelinePair* before = nullptr,
                                                  bool replay = false);

  const Model& model(Side side) const { return sides_[static_cast<size_t>(side)].model; }
  bool both() const { return model(Side::kPredicted) && model(Side::kMeasured); }

  /// The first row of the same op on the other side.
  std::optional<OpRef> Twin(OpRef op) const;
  int64_t matched() const { return matched_; }  ///< ops on both sides
  /// Of them, those whose two sides share no role: the sides are not of one plan.
  int64_t unlike() const { return unlike_; }
  /// The measured side's waits are the predicted side's.
  bool lent_waits() const { return lent_from_ != nullptr; }
  /// The predicted side is the measured one replayed.
  bool replay() const { return replay_; }

  /// Predicted minus measured duration of the row's op, as a share of the measured one; NaN without
  /// twin, infinite where the measured one took no time.
  float Residual(OpRef op) const {
    const std::vector<float>& residual = sides_[static_cast<size_t>(op.side)].residual;
    return residual.empty() ? std::numeric_limits<float>::quiet_NaN()
                            : residual[static_cast<size_t>(op.row)];
  }
  /// Mean over rows [first, last) that have a finite one, weighted by their durations; NaN without.
  double MeanResidual(Side side, int64_t first, int64_t last) const;

  int64_t MemoryBytes() const;  ///< of the matching, without the models

 private:
  TimelinePair() = default;

  struct SideData {
    Model model;
    std::vector<int32_t> twin;    // by row; -1: none. Empty: no other side
    std::vector<float> residual;  // by row
    // Of all rows before every 16th: duration times residual, and duration, of rows that have one.
    std::vector<double> weighted, weight;
  };
  void Match();
  void LendWaits(const TimelinePair* before);
  static void Add(const SideData& side, int64_t row, double sign, double& weighted, double& weight);

  std::array<SideData, 2> sides_;
  bool replay_ = false;
  int64_t matched_ = 0, unlike_ = 0;
  Model lent_from_;  // the measured side as it was given, when its waits are lent
};

}  // namespace stallcast::gui
