// SimGrid shares resources and keeps time on its own: both simulators must give an op the same end.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "models/methods/decoder_plan.h"
#include "tests/sim/simgrid/simgrid_run.h"

namespace stallcast::sim {
namespace {

using hardware::How;
using hardware::Site;

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;

/// Work of a few microseconds to a few hundred: kernels, copies either way, zero-copy reads.
plan::Work RandomWork(std::mt19937& random) {
  const auto number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  switch (number(0, 5)) {
    case 0:
      return plan::Gemm{1, 128 * number(8, 64), 128 * number(8, 64)};
    case 1:
      return plan::Layout{number(1, 4096), 16384};
    case 2:
      return Copy{Direction::kHostToDevice, CopyPath::kPerPiece, number(1, 8),
                  1024 * number(4, 64)};
    case 3:
      return Copy{Direction::kHostToDevice, CopyPath::kBatched, number(1, 64),
                  1024 * number(1, 64)};
    case 4:
      return Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, 4096 * number(1, 512)};
    default:
      return plan::ZeroCopyGather{number(8, 512), 8192, static_cast<int32_t>(number(1, 32))};
  }
}

/// Two host threads and two to five streams; an op waits for up to two earlier ones, and now and
/// then a thread waits for a stream or is woken. No two ops wait for the same one, and the second
/// thread starts at an odd time: two copies that reach an engine at one instant have no order.
plan::Plan RandomPlan(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  plan::PlanBuilder builder;
  const LaneId one = builder.AddHost("one");
  const LaneId two = builder.AddHost("two");
  std::vector<LaneId> streams;
  for (size_t s = 2 + below(4); s > 0; --s) streams.push_back(builder.AddStream("stream", one));
  const OpId first = builder.Run(streams[0], plan::Gemm{1, 1111, 1111});
  builder.Run(two, plan::HostHandoff{}, {first});

  std::vector<OpId> free;  // ops that nobody waits for yet
  for (int i = 0; i < 120; ++i) {
    std::vector<OpId> waits;
    for (size_t w = below(3); w > 0 && !free.empty(); --w) {
      std::swap(free[below(free.size())], free.back());
      waits.push_back(free.back());
      free.pop_back();
    }
    const LaneId stream = streams[below(streams.size())];
    const size_t kind = below(12);
    if (kind == 0) {
      builder.SyncStream(one, stream);
    } else if (kind == 1) {
      builder.Run(two, plan::HostHandoff{}, waits);
    } else {
      free.push_back(builder.Run(stream, RandomWork(random), waits, below(2) == 0 ? one : two));
    }
  }
  return builder.Finish();
}

/// Ends of waited-for ops and of a lane's previous one must not take effect at one instant either.
hardware::Profile Machine() {
  hardware::Profile machine = EqualWeights();
  machine.handoff.SetEvent(1.73e-6);
  machine.handoff.SetEventToCopy(
      machine.handoff.SetEventFromCopy(machine.handoff(Site::kKernel, Site::kKernel, How::kEvent)));
  return machine;
}

struct Case {
  explicit Case(plan::Plan made) : plan(std::move(made)) {}
  plan::Plan plan;
  Simulation simulation{plan, hardware::CostModel(Machine())};
};

TEST(SimGrid, GivesEveryOpTheSameEnd) {
  std::vector<std::unique_ptr<Case>> cases;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    cases.push_back(std::make_unique<Case>(RandomPlan(seed)));
  }
  const methods::PlanInput input{llm::FindModel("qwen3-4b"), 1, 4096, 2, {}, nullptr};
  cases.push_back(std::make_unique<Case>(
      methods::WriteDecode(*methods::MakeMethod("offload", {}).method, input)));
  std::vector<const Simulation*> simulations;
  for (const auto& each : cases) simulations.push_back(&each->simulation);
  char name[] = "test_simgrid";
  char* argv[] = {name, nullptr};
  int argc = 1;
  SimGridMachine machine(simulations, &argc, argv);

  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const Simulation& simulation = cases[i]->simulation;
    const Execution execution = simulation.Run();
    const std::vector<double> ends = SimGridRun(machine, simulation).Run();
    // The engine rounds its events to the picosecond, two to four of them an op.
    EXPECT_LE(WorstDifference(execution, ends), 2e-12 * static_cast<double>(ends.size()));
    EXPECT_GT(SlowedBySharing(simulation, execution), 0);
  }
}

}  // namespace
}  // namespace stallcast::sim
