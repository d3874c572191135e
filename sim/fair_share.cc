#include "sim/fair_share.h"

#include <algorithm>
#include <limits>

namespace stallcast::sim {
namespace {

// A resource counts as full only beyond rounding.
constexpr double kSlack = 1e-12;

}  // namespace

void FairShare::Add(int id, const hardware::OpCost& cost) {
  flows_.push_back({id, &cost, 0, false});
}

void FairShare::Remove(int id) {
  flows_.erase(
      std::find_if(flows_.begin(), flows_.end(), [id](const Flow& f) { return f.id == id; }));
}

void FairShare::Solve() {
  Loads load{};
  for (Flow& flow : flows_) {
    flow.rate = flow.cost->rate;
    for (int i = 0; i < flow.cost->demands; ++i) {
      const hardware::Demand& d = flow.cost->demand[i];
      load[static_cast<size_t>(d.resource)] += d.per_unit * flow.rate;
    }
  }
  // Most of the time nothing is contended: everyone runs at his own rate.
  for (size_t r = 0; r < load.size(); ++r) {
    if (load[r] > capacity_[r] * (1 + kSlack)) return Fill(load);
  }
}

void FairShare::Fill(const Loads& full_load) {
  // Only resources that would overflow can bind: the others never run out whatever the shares.
  std::array<double, hardware::kResources> left = capacity_;
  std::array<bool, hardware::kResources> tight{};
  for (size_t r = 0; r < left.size(); ++r) tight[r] = full_load[r] > capacity_[r] * (1 + kSlack);

  for (Flow& flow : flows_) flow.fixed = false;
  for (size_t open = flows_.size(); open > 0;) {
    Loads growth{};  // of each resource's load for a unit of the common level
    double level = std::numeric_limits<double>::infinity();
    for (const Flow& flow : flows_) {
      if (flow.fixed) continue;
      level = std::min(level, flow.cost->rate / flow.cost->weight);
      for (int i = 0; i < flow.cost->demands; ++i) {
        const hardware::Demand& d = flow.cost->demand[i];
        growth[static_cast<size_t>(d.resource)] += d.per_unit * flow.cost->weight;
      }
    }
    std::array<bool, hardware::kResources> full{};
    for (size_t r = 0; r < left.size(); ++r) {
      if (tight[r] && growth[r] > 0) level = std::min(level, std::max(left[r], 0.0) / growth[r]);
    }
    for (size_t r = 0; r < left.size(); ++r) {
      full[r] = tight[r] && growth[r] > 0 && left[r] <= growth[r] * level * (1 + kSlack);
    }
    for (Flow& flow : flows_) {
      if (flow.fixed) continue;
      bool stops = flow.cost->rate <= flow.cost->weight * level * (1 + kSlack);
      for (int i = 0; i < flow.cost->demands; ++i) {
        stops |= full[static_cast<size_t>(flow.cost->demand[i].resource)];
      }
      if (!stops) continue;
      flow.rate = std::min(flow.cost->rate, flow.cost->weight * level);
      flow.fixed = true;
      --open;
      for (int i = 0; i < flow.cost->demands; ++i) {
        const hardware::Demand& d = flow.cost->demand[i];
        left[static_cast<size_t>(d.resource)] -= d.per_unit * flow.rate;
      }
    }
  }
}

}  // namespace stallcast::sim
