// Weighted max-min fair sharing of the machine's capacities among running flows.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "models/hardware/cost_model.h"

namespace stallcast::sim {

/// Progressive filling: all flows' rates grow in proportion to their weights; a flow stops growing
/// at its own rate or when a resource that it uses is full. The result is the unique weighted
/// max-min fair allocation (Bertsekas & Gallager, Data Networks, 6.5.2). Rates are in units/s.
class FairShare {
 public:
  struct Flow {
    int id;
    const hardware::OpCost* cost;
    double rate;
    bool fixed;
  };

  explicit FairShare(const std::array<double, hardware::kResources>& capacity)
      : capacity_(capacity) {}

  /// `cost` must outlive the flow.
  void Add(int id, const hardware::OpCost& cost);
  void Remove(int id);
  /// Recomputes all rates.
  void Solve();
  std::span<const Flow> flows() const { return flows_; }

 private:
  using Loads = std::array<double, hardware::kResources>;
  void Fill(const Loads& full_load);

  std::array<double, hardware::kResources> capacity_;
  std::vector<Flow> flows_;
};

}  // namespace stallcast::sim
