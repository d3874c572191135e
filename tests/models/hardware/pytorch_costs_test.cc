// What PyTorch's operators cost a host, from a profile's section.
#include "models/hardware/pytorch_costs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "models/hardware/cost_model.h"
#include "models/hardware/profile.h"
#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

using plan::Operator;

Profile Machine() {
  Profile machine = FindProfile("h200");
  machine.pytorch = {};
  machine.pytorch.view = 1e-6;
  machine.pytorch.launch = 8e-6;
  machine.pytorch.launch_allocating = 9e-6;
  machine.pytorch.linear = 20e-6;
  machine.pytorch.item = 11e-6;
  machine.pytorch.sdpa = 30e-6;
  machine.pytorch.sdpa_new_length = 50e-3;
  machine.pytorch.copy_pinned = Curve({16384, 131072}, {8e-6, 8e-6});
  machine.pytorch.copy_back_pageable = Curve({16384, 131072}, {10e-6, 24e-6});
  return machine;
}

Picoseconds HostOf(const Profile& machine, const plan::Work& work) {
  return CostModel(machine).Cost(work, plan::Host::kPyTorch).host;
}

TEST(PyTorchCostsTest, CallsAddUp) {
  const Profile machine = Machine();
  const PyTorchCosts costs(machine);
  plan::OperatorCalls calls;
  for (int64_t n = 1; n < 1000; n *= 7) {
    calls[Operator::kLaunch] = n;
    calls[Operator::kView] = 2 * n;
    EXPECT_NEAR(costs.Of(calls), static_cast<double>(n) * (8e-6 + 2e-6), 1e-12);
  }
}

TEST(PyTorchCostsTest, AnUnmeasuredOperatorTakesAsLongAsTheOneMostLikeIt) {
  const Profile machine = Machine();
  const PyTorchCosts costs(machine);
  EXPECT_EQ(costs.Of(Operator::kCast), 9e-6);
  EXPECT_EQ(costs.Of(Operator::kModule), 1e-6);
  EXPECT_NE(AssumedOperators(machine).find("cast as launch_allocating"), std::string::npos);
}

TEST(PyTorchCostsTest, ANewLengthCostsWhatItTakesMore) {
  const Profile machine = Machine();
  EXPECT_NEAR(PyTorchCosts(machine).Of(Operator::kSdpaNewLength), 50e-3 - 30e-6, 1e-12);
}

TEST(PyTorchCostsTest, PageableCopiesGoOnBeyondWhatWasMeasured) {
  const Profile machine = Machine();
  const PyTorchCosts costs(machine);
  const double slope = 14e-6 / (131072 - 16384);
  EXPECT_NEAR(costs.Of(Operator::kCopyBackPageable, 1 << 20), 24e-6 + slope * ((1 << 20) - 131072),
              1e-9);
  EXPECT_NEAR(costs.Of(Operator::kCopy, 1 << 20), 8e-6, 1e-12);
}

TEST(PyTorchCostsTest, EachOperatorThatTheProfilerCountsCostsTheSame) {
  Profile machine = Machine();
  Set(machine, "pytorch.each", "10us");
  const PyTorchCosts costs(machine);
  for (int op = 0; op < plan::kOperators; ++op) {
    const auto each = static_cast<Operator>(op);
    EXPECT_NEAR(costs.Of(each), 10e-6 * plan::ProfiledOperators(each), 1e-12);
  }
}

TEST(PyTorchCostsTest, AnOpCostsItsHostTheCallsThatIssueIt) {
  const Profile machine = Machine();
  EXPECT_EQ(HostOf(machine, plan::Eager{.op = Operator::kLaunchAllocating}), FromSeconds(9e-6));
  EXPECT_EQ(HostOf(machine, plan::HostCalls{Operator::kView, 5}), FromSeconds(5e-6));
  const plan::Copy pages{plan::Direction::kHostToDevice, plan::CopyPath::kPerPiece, 3, 16384};
  const OpCost cost = CostModel(machine).Cost(pages, plan::Host::kPyTorch);
  EXPECT_EQ(cost.host, FromSeconds(3 * (8e-6 + 2e-6)));
  EXPECT_EQ(cost.first_call, cost.host / 3);
  // What the device does is the same, whoever asks.
  const OpCost plain = CostModel(machine).Cost(pages);
  EXPECT_EQ(cost.Alone(), plain.Alone());
  EXPECT_NE(cost.host, plain.host);
}

TEST(PyTorchCostsTest, ASmallKernelTakesTheGpuWhatWasMeasured) {
  Profile machine = Machine();
  machine.handoff(Site::kKernel, Site::kKernel, How::kGraph) = 0.25e-6;
  machine.pytorch.kernel = 1.75e-6;
  const plan::Eager small{.op = Operator::kLaunch, .read = 0, .written = 0, .kernels = 3};
  EXPECT_EQ(CostModel(machine).Cost(small).Alone(), FromSeconds(3 * 1.5e-6));
}

TEST(PyTorchCostsTest, AKernelOfFewBlocksReadsTheirShareOfTheMemory) {
  const Profile machine = Machine();
  const CostModel model(machine);
  constexpr Bytes kBytes = Bytes{512} << 20;
  const OpCost few = model.Cost(plan::Eager{.op = Operator::kSdpa, .read = kBytes, .blocks = 33});
  const double share = 33 / machine.device.sms * machine.memory.bandwidth;
  EXPECT_NEAR(few.rate, share, 1e-6 * share);
  const OpCost many =
      model.Cost(plan::Eager{.op = Operator::kSdpa, .read = kBytes, .blocks = 1000});
  EXPECT_GT(many.rate, 0.9 * machine.memory.bandwidth);
}

TEST(PyTorchSectionTest, GoesRoundThroughAFile) {
  const Profile machine = Machine();
  const auto path = std::filesystem::temp_directory_path() / "stallcast_pytorch_section.toml";
  SaveProfile(machine, path);
  const Profile read = LoadProfile(path);
  std::filesystem::remove(path);
  for (const ProfileField& field : ProfileFields()) {
    if (!field.path.starts_with("pytorch.") || !field.in_file()) continue;
    EXPECT_NEAR(field.In(read), field.In(machine), 1e-4 * field.In(machine)) << field.path;
  }
  for (const CurveField& curve : CurveFields()) {
    if (!curve.path.starts_with("pytorch.")) continue;
    EXPECT_EQ(curve.In(read).x(), curve.In(machine).x()) << curve.path;
  }
}

TEST(PyTorchSectionTest, IsNotInheritedFromAnotherMachine) {
  EXPECT_TRUE(FindProfile("h200").pytorch.measured());
  EXPECT_FALSE(FindProfile("rtx-4090").pytorch.measured());
}

TEST(PyTorchSectionTest, IsCheckedAndSet) {
  Profile machine = Machine();
  Set(machine, "pytorch.launch", "2x");
  EXPECT_NEAR(machine.pytorch.launch, 16e-6, 1e-12);
  EXPECT_THROW(Set(machine, "pytorch.launch", "2s"), Error);
  EXPECT_THROW(Set(machine, "pytorch.lunch", "2us"), Error);
  Set(machine, "host.slower", "2");
  EXPECT_NEAR(machine.pytorch.launch, 32e-6, 1e-12);
  EXPECT_NEAR(machine.pytorch.copy_pinned.At(16384), 16e-6, 1e-12);
}

}  // namespace
}  // namespace stallcast::hardware
