#include "sim/fair_share.h"

#include <gtest/gtest.h>

#include <random>

namespace stallcast::sim {
namespace {

using hardware::Demand;
using hardware::OpCost;
using hardware::Resource;

OpCost Flow(double rate, double weight, std::initializer_list<Demand> demands) {
  OpCost cost;
  cost.amount = 1;
  cost.rate = rate;
  cost.weight = weight;
  for (const Demand& d : demands) cost.demand[cost.demands++] = d;
  return cost;
}

std::array<double, hardware::kResources> Capacity(double all) {
  std::array<double, hardware::kResources> capacity;
  capacity.fill(all);
  return capacity;
}

TEST(FairShare, EqualFlowsHalveALink) {
  FairShare share(Capacity(10));
  const OpCost a = Flow(8, 1, {{Resource::kLinkH2D, 1}});
  share.Add(0, a);
  share.Add(1, a);
  share.Solve();
  EXPECT_DOUBLE_EQ(share.flows()[0].rate, 5);
  EXPECT_DOUBLE_EQ(share.flows()[1].rate, 5);
}

TEST(FairShare, WhatASlowFlowLeavesGoesToTheOther) {
  FairShare share(Capacity(10));
  const OpCost slow = Flow(2, 1, {{Resource::kLinkH2D, 1}});
  const OpCost fast = Flow(20, 1, {{Resource::kLinkH2D, 1}});
  share.Add(0, slow);
  share.Add(1, fast);
  share.Solve();
  EXPECT_DOUBLE_EQ(share.flows()[0].rate, 2);
  EXPECT_DOUBLE_EQ(share.flows()[1].rate, 8);
}

TEST(FairShare, WeightsDivideAFullResource) {
  FairShare share(Capacity(10));
  const OpCost a = Flow(100, 1, {{Resource::kLinkH2D, 1}});
  const OpCost b = Flow(100, 4, {{Resource::kLinkH2D, 1}});
  share.Add(0, a);
  share.Add(1, b);
  share.Solve();
  EXPECT_DOUBLE_EQ(share.flows()[0].rate, 2);
  EXPECT_DOUBLE_EQ(share.flows()[1].rate, 8);
}

TEST(FairShare, AFlowAloneRunsAtItsOwnRateOrTheTightestCapacity) {
  FairShare share(Capacity(10));
  const OpCost a = Flow(7, 1, {{Resource::kLinkH2D, 1}, {Resource::kDeviceMemory, 2}});
  share.Add(0, a);
  share.Solve();
  EXPECT_DOUBLE_EQ(share.flows()[0].rate, 5);
  share.Remove(0);
  const OpCost b = Flow(4, 1, {{Resource::kLinkH2D, 1}, {Resource::kDeviceMemory, 2}});
  share.Add(0, b);
  share.Solve();
  EXPECT_DOUBLE_EQ(share.flows()[0].rate, 4);
}

// The bottleneck theorem: an allocation is weighted max-min fair exactly when it is feasible and
// every flow below its own rate uses some full resource on which no other flow has a larger
// rate-to-weight ratio.
TEST(FairShare, EveryFlowHasABottleneck) {
  std::mt19937 random(7);
  auto uniform = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random()) / 4294967296.0;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::array<double, hardware::kResources> capacity;
    for (double& c : capacity) c = uniform(1, 20);
    std::vector<OpCost> costs(1 + random() % 7);
    for (OpCost& cost : costs) {
      cost = Flow(uniform(0.1, 30), uniform(0.1, 5), {});
      cost.demands = static_cast<uint8_t>(1 + random() % 3);
      const unsigned first = random() % hardware::kResources;
      for (unsigned i = 0; i < cost.demands; ++i) {
        cost.demand[i] = {static_cast<Resource>((first + 2 * i) % hardware::kResources),
                          uniform(0.05, 3)};
      }
    }
    FairShare share(capacity);
    for (size_t i = 0; i < costs.size(); ++i) share.Add(static_cast<int>(i), costs[i]);
    share.Solve();

    std::array<double, hardware::kResources> load{};
    for (const auto& flow : share.flows()) {
      for (int i = 0; i < flow.cost->demands; ++i) {
        load[static_cast<size_t>(flow.cost->demand[i].resource)] +=
            flow.rate * flow.cost->demand[i].per_unit;
      }
    }
    for (size_t r = 0; r < load.size(); ++r) ASSERT_LE(load[r], capacity[r] * (1 + 1e-9));
    for (const auto& flow : share.flows()) {
      ASSERT_GT(flow.rate, 0);
      ASSERT_LE(flow.rate, flow.cost->rate * (1 + 1e-9));
      if (flow.rate >= flow.cost->rate * (1 - 1e-9)) continue;
      bool bottleneck = false;
      for (int i = 0; i < flow.cost->demands; ++i) {
        const Resource resource = flow.cost->demand[i].resource;
        if (load[static_cast<size_t>(resource)] <
            capacity[static_cast<size_t>(resource)] * (1 - 1e-9)) {
          continue;
        }
        bool largest = true;
        for (const auto& other : share.flows()) {
          for (int j = 0; j < other.cost->demands; ++j) {
            if (other.cost->demand[j].resource == resource) {
              largest &=
                  other.rate / other.cost->weight <= flow.rate / flow.cost->weight * (1 + 1e-9);
            }
          }
        }
        bottleneck |= largest;
      }
      ASSERT_TRUE(bottleneck) << "trial " << trial << ", flow " << flow.id;
    }
  }
}

}  // namespace
}  // namespace stallcast::sim
