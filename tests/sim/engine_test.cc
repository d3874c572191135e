// Each test states what theory says, then expects exactly that time (to a picosecond or two, since
// ends are rounded).
#include "sim/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/metrics.h"
#include "tests/sim/engine_run.h"

namespace stallcast::sim {
namespace {

using hardware::How;
using hardware::Site;

TEST(Engine, CopiesOfOneDirectionTakeTurns) {
  // One engine a direction: two streams add no bandwidth, and the second waits for the first.
  Streams s;
  const OpId a = s.builder.Run(s.Add(), H2D(50 * kMB));
  const OpId b = s.builder.Run(s.Add(), H2D(25 * kMB));
  const Ran ran(s, TestMachine());
  ExpectTime(ran.End(a), 1ms);  // 50 MB at 50 GB/s
  ExpectTime(ran.Start(b), 1ms);
  ExpectTime(ran.End(b), 1500us);
  EXPECT_EQ(ran.Why(b).kind, CauseKind::kEngine);
  EXPECT_EQ(ran.Why(b).op, a);
}

TEST(Engine, TheCopyEngineServesInOrderOfArrival) {
  Profile machine = TestMachine();
  machine.host.launch = machine.host.copy_call = machine.host.copy_back_call = 1e-6;
  Streams s;
  const LaneId first = s.Add(), second = s.Add(), third = s.Add();
  const OpId holder = s.builder.Run(first, H2D(50 * kMB));
  const OpId late = s.builder.Run(second, Kernel(10us));  // its copy arrives after the third's
  const OpId b = s.builder.Run(second, H2D(kMB));
  const OpId c = s.builder.Run(third, H2D(kMB));
  const Ran ran(s, machine);
  EXPECT_LT(ran.End(late), ran.End(holder));
  EXPECT_LT(ran.End(c), ran.End(b));
  ExpectTime(ran.Start(b), ran.End(c));
}

TEST(Engine, ACopyAndAZeroCopyReadShareTheLink) {
  // Both could fill the link alone: each gets half until the smaller is done.
  // 10 MB shared at 25 GB/s: 400 us each; then 40 MB of the copy alone at 50 GB/s: 800 us.
  Streams s;
  const OpId copy = s.builder.Run(s.Add(), H2D(50 * kMB));
  const OpId gather = s.builder.Run(s.Add(), plan::ZeroCopyGather{10, kMB, 10});
  Profile machine = TestMachine();
  machine.zero_copy.rate = hardware::Surface({1024, 4e6}, {1, 10}, {50e9, 50e9, 50e9, 50e9});
  const Ran ran(s, machine);
  ExpectTime(ran.End(gather), 400us);
  ExpectTime(ran.End(copy), 1200us);
}

TEST(Engine, BothWaysAtOnceIsSlowerForEach) {
  // 30 and 20 GB/s while both run. H2D has 30 MB: done at 1 ms; D2H has moved 20 MB of its 60 MB by
  // then, and the other 40 MB go at 40 GB/s: 1 ms more.
  Streams s;
  const OpId up = s.builder.Run(s.Add(), H2D(30 * kMB));
  const OpId down = s.builder.Run(s.Add(), D2H(60 * kMB));
  const Ran ran(s, TestMachine());
  ExpectTime(ran.End(up), 1ms);
  ExpectTime(ran.End(down), 2ms);
}

TEST(Engine, ZeroCopyGrowsWithBlocksUpToTheLink) {
  const Profile machine = TestMachine();  // 5 GB/s a block up to 50 GB/s
  for (int blocks : {1, 2, 4, 8, 10, 40}) {
    Streams s;
    const OpId gather = s.builder.Run(s.Add(), plan::ZeroCopyGather{1000, 10000, blocks});
    const Ran ran(s, machine);
    const double rate = std::min(5e9 * blocks, 50e9);
    EXPECT_NEAR(Seconds(ran.End(gather)), 10e6 / rate, 10e6 / rate * 1e-6) << blocks << " blocks";
  }
}

TEST(Engine, LaunchesBoundShortKernels) {
  // n kernels of 1 us with 4 us a launch: the host is the bottleneck. The last starts when its
  // launch has returned, at 4 n us, plus the launch latency.
  Profile machine = TestMachine();
  machine.host.launch = 4e-6;
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 2e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  OpId last = OpId::kNone;
  for (int i = 0; i < 100; ++i) last = s.builder.Run(lane, Kernel(1us));
  const Ran ran(s, machine);
  ExpectTime(ran.End(last), 100 * 4us + 2us + 1us);
  EXPECT_EQ(ran.Why(last).kind, CauseKind::kIssue);
}

TEST(Engine, LongKernelsHideLaunches) {
  // First launch, latency, then kernels back to back with the stream's gap between them.
  Profile machine = TestMachine();
  machine.host.launch = 4e-6;
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 2e-6;
  machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 1e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  OpId last = OpId::kNone;
  for (int i = 0; i < 100; ++i) last = s.builder.Run(lane, Kernel(10us));
  const Ran ran(s, machine);
  ExpectTime(ran.End(last), 4us + 2us + 100 * 10us + 99 * 1us);
  EXPECT_EQ(ran.Why(last).kind, CauseKind::kLane);
}

TEST(Engine, AnOpOfTwoKernelsRunsWhileItsSecondIsLaunched) {
  // It starts behind the first launch. Where a launch takes longer than all of it, it ends when the
  // second kernel can start.
  Profile machine = TestMachine();
  machine.host.launch = 4e-6;
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 2e-6;
  for (const int64_t units : {1'000, 100'000}) {
    plan::Score score{.units = units, .kv_rows = 8, .group = 4, .vectors = 2, .head_dim = 128};
    score.pool = plan::Score::Pool::kSoftmax;
    const Picoseconds takes =
        FromSeconds(static_cast<double>(plan::Count(score).device()) / machine.memory.bandwidth);
    Streams s;
    const LaneId lane = s.Add(true);
    const OpId first = s.builder.Run(lane, score);
    const OpId next = s.builder.Run(lane, Kernel(1us));
    const Ran ran(s, machine);
    ExpectTime(ran.Start(first), 4us + 2us);
    ExpectTime(ran.End(first), units == 1'000 ? 2 * 4us + 2us : 4us + 2us + takes);
    ExpectTime(ran.CallTime(first), 2 * 4us);
    ExpectTime(ran.CallBegin(next), 2 * 4us);
  }
}

TEST(Engine, AGraphPaysForItsLaunchOnce) {
  Profile machine = TestMachine();
  machine.host.launch = 4e-6;
  machine.host.graph_launch = 6e-6;
  machine.host.graph_node = 1e-9;
  machine.handoff(Site::kKernel, Site::kKernel, How::kGraph) = 0.5e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  s.builder.BeginGraph(s.host);
  OpId last = OpId::kNone;
  for (int i = 0; i < 100; ++i) last = s.builder.Run(lane, Kernel(1us));
  s.builder.EndGraph();
  const Ran ran(s, machine);
  ExpectTime(ran.End(last), 6us + 100 * 1ns + 100 * 1us + 99 * 500ns);
}

TEST(Engine, BeforeAndBehindAGraphTheGapIsTheStreams) {
  Profile machine = TestMachine();
  machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 2e-6;
  machine.handoff(Site::kKernel, Site::kKernel, How::kGraph) = 0.5e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  const OpId before = s.builder.Run(lane, Kernel(10us));
  s.builder.BeginGraph(s.host);
  const OpId first = s.builder.Run(lane, Kernel(10us));
  const OpId second = s.builder.Run(lane, Kernel(10us));
  s.builder.EndGraph();
  const OpId behind = s.builder.Run(lane, Kernel(10us));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(first), ran.End(before) + 2us);
  ExpectTime(ran.Start(second), ran.End(first) + 500ns);
  ExpectTime(ran.Start(behind), ran.End(second) + 2us);
}

TEST(Engine, APiecewiseCopyGoesAtThePaceOfTheSlowerOfHostAndEngine) {
  Profile machine = TestMachine();
  machine.host.copy_call = 3e-6;
  machine.copy.h2d_start = 1e-6;
  for (const int64_t piece : {50000, 500000}) {  // 1 us and 10 us of link time
    Streams s;
    const OpId copy =
        s.builder.Run(s.Add(), Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 100, piece});
    const Ran ran(s, machine);
    const Picoseconds engine = 1us + FromSeconds(static_cast<double>(piece) / 50e9);
    ExpectTime(ran.End(copy), engine < 3us ? 100 * 3us + engine : 3us + 100 * engine);
  }
}

TEST(Engine, TwoKernelsThatFillTheDeviceRunAtHalfSpeed) {
  Streams s;
  const OpId a = s.builder.Run(s.Add(true), Kernel(100us));
  const OpId b = s.builder.Run(s.Add(), Kernel(300us));
  const Ran ran(s, TestMachine());
  ExpectTime(ran.End(a), 200us);
  ExpectTime(ran.End(b), 400us);
}

TEST(Engine, ASmallKernelFitsBesideALargeOne) {
  // Limited by its longest chain, not by memory: one block, hardly any bytes.
  Profile machine = TestMachine();
  machine.kernels["top_k"].serial_s = 1e-9;
  Streams s;
  const OpId large = s.builder.Run(s.Add(true), Kernel(100us));
  const OpId small = s.builder.Run(s.Add(), plan::TopK{1, 2000, 1});
  const Ran ran(s, machine);
  EXPECT_NEAR(Seconds(ran.End(large)), 100e-6, 1.1e-6);
  EXPECT_LT(ran.End(small), 10us);
}

TEST(Engine, WaitsSyncsAndHandoffsCostTheirLatency) {
  Profile machine = TestMachine();
  machine.host.launch = 1e-6;
  machine.host.event_record = 0.25e-6;
  machine.host.stream_wait = 0.25e-6;
  machine.handoff.SetEvent(3e-6);
  machine.handoff.SetHostSync(5e-6);
  machine.handoff(Site::kHost, Site::kHost, How::kEvent) = 7e-6;
  Streams s;
  const LaneId compute = s.Add(true), side = s.Add();
  const LaneId worker = s.builder.AddHost("worker");
  const OpId a = s.builder.Run(side, Kernel(50us));
  const OpId b = s.builder.Run(compute, Kernel(10us), {a});
  const OpId sync = s.builder.SyncStream(s.host, compute);
  const OpId woken = s.builder.Run(worker, plan::HostHandoff{}, {sync});
  const OpId after = s.builder.Run(side, Kernel(1us));
  const Ran ran(s, machine);
  ExpectTime(ran.End(a), 51us);
  ExpectTime(ran.Start(b), 54us);
  ExpectTime(ran.End(sync), 69us);
  ExpectTime(ran.End(woken), 76us);
  ExpectTime(ran.Start(after), 70us);  // launched when the sync has returned
}

TEST(Engine, ARecordedRunPaysForOpsCallsAndCopies) {
  Profile machine = TestMachine();
  machine.host.launch = 2e-6, machine.host.copy_call = 1e-6;
  machine.recorder.op = 1e-6, machine.recorder.launch = 3e-6;
  machine.recorder.copy_call = 0.5e-6, machine.recorder.copy = 4e-6;
  for (const bool recorded : {false, true}) {
    machine.host.recorded = recorded ? 1 : 0;
    Streams s;
    const LaneId lane = s.Add();
    const OpId first = s.builder.Run(lane, H2D(50 * kMB));  // 1 ms
    const OpId second = s.builder.Run(lane, H2D(50 * kMB));
    const OpId pieces =
        s.builder.Run(lane, plan::Copy{plan::Direction::kHostToDevice, plan::CopyPath::kPerPiece, 3,
                                       10 * kMB});  // 0.2 ms each
    const OpId kernel = s.builder.Run(s.Add(), Kernel(10us));
    const Ran ran(s, machine);
    ExpectTime(ran.End(first), recorded ? 2500ns + 1ms : 1us + 1ms);
    ExpectTime(ran.End(second), recorded ? 2500ns + 4us + 2ms : 1us + 2ms);
    ExpectTime(ran.End(pieces), recorded ? 2500ns + 16us + 2600us : 1us + 2600us);
    ExpectTime(ran.Start(kernel), recorded ? 2 * 2500ns + 5500ns + 6us : 5us + 2us);
  }
}

TEST(Engine, TheHostPaysForAnEventOnceWhereItIsRecordedAndForEachWait) {
  Profile machine = TestMachine();
  machine.host.launch = 1e-6;
  machine.host.event_record = 0.25e-6;
  machine.host.stream_wait = 0.5e-6;
  Streams s;
  const LaneId first = s.Add(true), second = s.Add(), third = s.Add();
  const OpId a = s.builder.Run(first, Kernel(10us));
  const OpId b = s.builder.Run(second, Kernel(10us), {a});
  const OpId c = s.builder.Run(third, Kernel(10us), {a, b});
  const OpId d = s.builder.Run(first, Kernel(10us));
  const Ran ran(s, machine);
  ExpectTime(ran.CallTime(a), 1us + 250ns);
  ExpectTime(ran.CallTime(b), 500ns + 1us + 250ns);
  ExpectTime(ran.CallTime(c), 2 * 500ns + 1us);
  ExpectTime(ran.CallTime(d), 1us);
}

TEST(Engine, CopiesFollowOneAnotherWithoutAGap) {
  Profile machine = TestMachine();
  machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 1e-6;
  machine.handoff.SetCopyGap(2e-6);
  Streams s;
  const LaneId lane = s.Add(true);
  const OpId first = s.builder.Run(lane, H2D(kMB));  // 20 us
  const OpId second = s.builder.Run(lane, H2D(kMB));
  const OpId kernel = s.builder.Run(lane, Kernel(10us));
  const OpId next = s.builder.Run(lane, Kernel(10us));
  const OpId third = s.builder.Run(lane, H2D(kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(second), ran.End(first));
  ExpectTime(ran.Start(kernel), 40us + 2us);
  ExpectTime(ran.Start(next), 52us + 1us);
  ExpectTime(ran.Start(third), 63us + 2us);
}

TEST(Engine, CopiesTheOtherWayFollowBehindTheirGap) {
  Profile machine = TestMachine();
  machine.handoff.SetCopyGap(2e-6);
  machine.handoff(Site::kH2D, Site::kD2H, How::kStream) = 7e-6;
  machine.handoff(Site::kD2H, Site::kH2D, How::kStream) = 3e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  const OpId down = s.builder.Run(lane, H2D(kMB));
  const OpId up = s.builder.Run(lane, D2H(kMB));
  const OpId again = s.builder.Run(lane, D2H(kMB));
  const OpId back = s.builder.Run(lane, H2D(kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(up), ran.End(down) + 7us);
  ExpectTime(ran.Start(again), ran.End(up));
  ExpectTime(ran.Start(back), ran.End(again) + 3us);
}

TEST(Engine, ACopyStartsItsOwnLatencyAfterItsCall) {
  Profile machine = TestMachine();
  machine.host.launch = 2e-6;
  machine.host.copy_call = 4e-6;
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 1e-6;
  machine.handoff.SetCopyLaunch(3e-6);
  Streams s;
  const OpId copy = s.builder.Run(s.Add(), H2D(kMB));
  const OpId kernel = s.builder.Run(s.Add(true), Kernel(10us));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(copy), 4us + 3us);
  ExpectTime(ran.Start(kernel), 4us + 2us + 1us);
}

TEST(Engine, AHostGatherSharesHostMemory) {
  // Two threads of 40 GB/s each want 160 GB/s of memory (read and written) and get 100.
  Profile machine = TestMachine();
  machine.host.gather_thread = 40e9;
  Streams s;
  const LaneId other = s.builder.AddHost("other");
  const OpId a = s.builder.Run(s.host, plan::HostGather{1000, 25000, 1});
  const OpId b = s.builder.Run(other, plan::HostGather{1000, 25000, 1});
  const Ran ran(s, machine);
  ExpectTime(ran.End(a), 1ms);
  ExpectTime(ran.End(b), 1ms);
}

TEST(Engine, HostGathersShareHostMemoryByWhatTheyWant) {
  // 40 and 20 GB/s want 120 GB/s of memory (read and written) and get 100, each five sixths of it.
  Profile machine = TestMachine();
  machine.host.gather_thread = 20e9;
  Streams s;
  const LaneId other = s.builder.AddHost("other");
  const OpId two = s.builder.Run(s.host, plan::HostGather{1000, 40000, 2});
  const OpId one = s.builder.Run(other, plan::HostGather{1000, 20000, 1});
  const Ran ran(s, machine);
  ExpectTime(ran.End(two), 1200us);
  ExpectTime(ran.End(one), 1200us);
}

TEST(Engine, SamplesScatterByTheSpreadAndRepeatBySeed) {
  constexpr double kSpread = 0.5;
  Profile machine = TestMachine();
  machine.kernels["layout"].spread = kSpread;
  Streams s;
  s.builder.BeginStep(0);
  s.builder.EndStep(s.builder.Run(s.Add(true), Kernel(100us)));
  const plan::Plan plan = s.builder.Finish();
  const Simulation simulation(plan, CostModel(machine));
  double sum = 0, logs = 0, squares = 0;
  constexpr int kSamples = 4000;
  for (int i = 0; i < kSamples; ++i) {
    const double t = Seconds(simulation.Sample(static_cast<uint64_t>(i)).end_of_all) / 100e-6;
    sum += t;
    logs += std::log(t);
    squares += std::log(t) * std::log(t);
  }
  EXPECT_NEAR(sum / kSamples, 1, 4 * kSpread / std::sqrt(kSamples));
  // The logarithm of a lognormal factor of mean 1 is normal, its mean half of its variance below 0.
  const double variance = std::log1p(kSpread * kSpread), mean = logs / kSamples;
  EXPECT_NEAR(mean, -variance / 2, 4 * std::sqrt(variance / kSamples));
  EXPECT_NEAR(std::sqrt(squares / kSamples - mean * mean), std::sqrt(variance),
              3 * std::sqrt(variance / (2 * kSamples)));
  EXPECT_EQ(simulation.Sample(5).end, simulation.Sample(5).end);
}

TEST(Engine, ASampleStretchesWhatAnOpTakesBesideItsBytesToo) {
  Profile plain = TestMachine();
  plain.kernels["layout"].spread = plain.copy.spread = plain.host.spread = 0.2;
  Profile starts = plain;
  starts.kernels["layout"].fixed_s = starts.copy.h2d_start = 50e-6;
  starts.host.gather_start = hardware::Curve({1, 2}, {50e-6, 50e-6});
  // 100 us of bytes each, alone.
  for (const plan::Work& work : {plan::Work(Kernel(100us)), plan::Work(H2D(5 * kMB)),
                                 plan::Work(plan::HostGather{100, 4000, 1})}) {
    SCOPED_TRACE(plan::KindName(work));
    const auto stretched = [&](const Profile& machine, Picoseconds nominal) {
      Streams s;
      const LaneId stream = s.Add(true);
      s.builder.Run(plan::IsHostWork(work) ? s.host : stream, work);
      const plan::Plan plan = s.builder.Finish();
      const Simulation simulation(plan, CostModel(machine));
      ExpectTime(simulation.Run().end_of_all, nominal);
      return Seconds(simulation.Sample(1).end_of_all) / Seconds(nominal);
    };
    const double factor = stretched(plain, 100us);
    EXPECT_GT(std::abs(factor - 1), 0.01);
    EXPECT_NEAR(stretched(starts, 150us), factor, 1e-6);
  }
}

// Random plans keep the rules of the machine whatever they hold.
class RandomPlans : public testing::TestWithParam<unsigned> {
 protected:
  static plan::Plan Make(unsigned seed) {
    std::mt19937 random(seed);
    PlanBuilder b;
    std::vector<LaneId> hosts{b.AddHost("host"), b.AddHost("worker")};
    std::vector<LaneId> streams{b.AddStream("compute", hosts[0], true)};
    for (int i = 0; i < 3; ++i) streams.push_back(b.AddStream("side", hosts[random() % 2]));
    b.BeginStep(0);
    for (int i = 0; i < 400; ++i) {
      std::vector<OpId> waits;
      for (unsigned w = random() % 3; w > 0 && b.size() > 0; --w) {
        waits.push_back(OpId{static_cast<int32_t>(random() % b.size())});
      }
      b.At(static_cast<int>(random() % 4), static_cast<plan::Role>(random() % traces::kRoles));
      const LaneId stream = streams[random() % streams.size()];
      const auto bytes = static_cast<int64_t>(1 + random() % (1 << 22));
      switch (random() % 8) {
        case 0:
          b.Run(stream, H2D(bytes), waits);
          break;
        case 1:
          b.Run(stream, D2H(bytes), waits);
          break;
        case 2:
          b.Run(stream, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 7, bytes / 8 + 1},
                waits);
          break;
        case 3:
          b.Run(stream, plan::ZeroCopyGather{64, bytes / 64 + 1, 8}, waits);
          break;
        case 4:
          b.Run(hosts[random() % 2], plan::HostGather{16, bytes / 16 + 1, 1}, waits);
          break;
        case 5:
          b.Run(hosts[random() % 2], plan::HostSync{}, waits);
          break;
        default:
          b.Run(stream, plan::Layout{1, bytes}, waits);
      }
    }
    b.EndStep(b.SyncDevice(hosts[0]));
    return b.Finish();
  }
  static Profile Machine() {
    Profile machine = TestMachine();
    machine.host.launch = 3e-6;
    machine.host.copy_call = 2e-6;
    machine.copy.h2d_start = machine.copy.d2h_start = 1e-6;
    machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 0.5e-6;
    machine.handoff.SetEvent(1e-6);
    machine.handoff.SetHostSync(2e-6);
    return machine;
  }
};

TEST_P(RandomPlans, ObeyOrderWaitsEnginesAndOwnTimes) {
  const plan::Plan plan = Make(GetParam());
  const Simulation simulation(plan, CostModel(Machine()));
  const Execution run = simulation.Run();
  std::vector<int64_t> lane_free(plan.lanes.size(), 0);
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const plan::Op& op = plan.ops[i];
    const OpId id{static_cast<int32_t>(i)};
    auto& free = lane_free[static_cast<size_t>(Index(op.lane))];
    ASSERT_GE(run.start[i].count(), free);
    free = run.end[i].count();
    for (OpId wait : plan.Waits(op)) {
      const auto waited = run.end[static_cast<size_t>(Index(wait))];
      ASSERT_LE(waited, plan::IsHostWork(op) ? run.end[i] : run.start[i]);
    }
    if (op.lane != op.issuer) {
      ASSERT_GE(run.start[i], simulation.CallStart(id, run));
      ASSERT_GE((run.end[i] - run.start[i]).count(), simulation.Cost(id).Alone().count() - 2);
    }
  }
  // One copy at a time in each direction.
  for (auto engine : {hardware::Engine::kCopyH2D, hardware::Engine::kCopyD2H}) {
    std::vector<std::pair<int64_t, int64_t>> copies;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (simulation.Cost(OpId{static_cast<int32_t>(i)}).engine == engine) {
        copies.emplace_back(run.start[i].count(), run.end[i].count());
      }
    }
    std::sort(copies.begin(), copies.end());
    for (size_t i = 1; i < copies.size(); ++i) ASSERT_GE(copies[i].first, copies[i - 1].second);
  }
}

TEST_P(RandomPlans, NeverBeatTheCeiling) {
  const plan::Plan plan = Make(GetParam());
  const Simulation simulation(plan, CostModel(Machine()));
  const Metrics m = Measure(simulation, simulation.Run(), 1);
  EXPECT_GE(m.step_mean, m.ceiling);
}

TEST_P(RandomPlans, TimesAddUp) {
  const plan::Plan plan = Make(GetParam());
  const Simulation simulation(plan, CostModel(Machine()));
  const Execution run = simulation.Run();
  const Metrics m = Measure(simulation, run, 1);
  ExpectTime(m.compute_busy + m.exposed, m.step_mean);
  Picoseconds exposed{0}, critical{0};
  for (int r = 0; r < traces::kRoles; ++r) {
    exposed += m.roles[r].exposed;
    critical += m.critical[r];
    EXPECT_LE(m.roles[r].overlapped, m.roles[r].busy);
  }
  ExpectTime(exposed, m.exposed);
  ExpectTime(critical, m.step_mean);
}

TEST_P(RandomPlans, RepeatBitForBit) {
  const plan::Plan plan = Make(GetParam());
  const Simulation simulation(plan, CostModel(Machine()));
  const Execution a = simulation.Run(), b = simulation.Run();
  EXPECT_EQ(a.start, b.start);
  EXPECT_EQ(a.end, b.end);
  EXPECT_EQ(a.call_end, b.call_end);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlans, testing::Range(1u, 25u));

TEST(Metrics, ExposedTimeIsChargedToWhatTheComputeLaneWaitedFor) {
  // Compute 10 us; recall of 50 us started with it; attention waits: 40 us exposed by recall.
  Streams s;
  const LaneId compute = s.Add(true), recall = s.Add();
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kRecall);
  const OpId fetched = s.builder.Run(recall, H2D(2500000));
  s.builder.At(0, plan::Role::kMlp);
  s.builder.Run(compute, Kernel(10us));
  s.builder.At(0, plan::Role::kAttention);
  s.builder.EndStep(s.builder.Run(compute, Kernel(5us), {fetched}));
  const Ran ran(s, TestMachine());
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  const RoleTime& role = m.roles[static_cast<size_t>(plan::Role::kRecall)];
  ExpectTime(role.exposed, 40us);
  ExpectTime(role.busy, 50us);
  ExpectTime(role.overlapped, 10us);
  ExpectTime(m.exposed, 40us);
  ExpectTime(m.compute_busy, 15us);
  ExpectTime(m.ceiling, 50us);
  EXPECT_DOUBLE_EQ(role.overlap(), 0.2);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kRecall)], 50us);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kAttention)], 5us);
}

TEST(Metrics, ABlockedHostIsChargedToWhatItWaitedFor) {
  // The host waits for a recall of 20 us, takes 5 us to go on, and launches for 2 us.
  Profile machine = TestMachine();
  machine.handoff.SetHostSync(5e-6);
  machine.host.launch = 2e-6;
  Streams s;
  const LaneId compute = s.Add(true), recall = s.Add();
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kRecall);
  s.builder.Run(recall, H2D(1000000));
  s.builder.At(0, plan::Role::kSync);
  s.builder.SyncStream(s.host, recall);
  s.builder.At(0, plan::Role::kAttention);
  s.builder.EndStep(s.builder.Run(compute, Kernel(5us)));
  const Ran ran(s, machine);
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kRecall)].exposed, 20us);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kSync)].exposed, 5us);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kHost)].exposed, 2us);
}

TEST(Metrics, AWorkerThatIsNotNeededYetDoesNothing) {
  Streams s;
  const LaneId compute = s.Add(true), worker = s.builder.AddHost("worker");
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kHost);
  s.builder.Run(compute, Kernel(50us));
  s.builder.SyncStream(s.host, compute);
  const OpId posted = s.builder.Run(s.host, plan::HostHandoff{});
  s.builder.EndStep(s.builder.Run(worker, plan::HostHandoff{}, {posted}));
  const Ran ran(s, TestMachine());
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  ExpectTime(m.step_mean, 50us);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kHost)].busy, 50us);  // the kernel
}

// What is recalled for a step that never comes is not work of those that do.
TEST(Metrics, TheCeilingCountsWhatTheLastStepNeeds) {
  Streams s;
  const LaneId compute = s.Add(true), recall = s.Add();
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kRecall);
  const OpId needed = s.builder.Run(recall, H2D(1000000));  // 20 us
  s.builder.At(0, plan::Role::kAttention);
  s.builder.EndStep(s.builder.Run(compute, Kernel(5us), {needed}));
  s.builder.At(0, plan::Role::kRecall);
  s.builder.Run(recall, H2D(50000000));
  const Ran ran(s, TestMachine());
  ExpectTime(Measure(ran.simulation(), ran.execution(), 1).ceiling, 20us);
}

TEST(Metrics, ATransferOnTheComputeLaneIsExposed) {
  Streams s;
  const LaneId compute = s.Add(true);
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kRecall);
  s.builder.Run(compute, H2D(kMB));                                // 20 us
  s.builder.Run(compute, plan::ZeroCopyGather{10, kMB / 10, 10});  // 20 us
  s.builder.At(0, plan::Role::kOffload);
  s.builder.Run(compute, D2H(kMB));  // 25 us
  s.builder.At(0, plan::Role::kAttention);
  s.builder.EndStep(s.builder.Run(compute, Kernel(5us)));
  const Ran ran(s, TestMachine());
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  const auto role = [&](plan::Role of) { return m.roles[static_cast<size_t>(of)]; };
  ExpectTime(role(plan::Role::kRecall).exposed, 40us);
  ExpectTime(role(plan::Role::kRecall).overlapped, 0us);
  ExpectTime(role(plan::Role::kOffload).exposed, 25us);
  ExpectTime(m.compute_busy, 5us);
  // Only what moves for the recall is recalled.
  EXPECT_EQ(m.recall_bytes, 2 * kMB);
  EXPECT_EQ(m.recall_pieces, 1 + 10);
  EXPECT_NEAR(m.recall_rate, 50e9, 50e3);
  // 3 MB over a link of 50 GB/s both ways take longer than the kernel, and than either engine.
  ExpectTime(m.ceiling, 60us);
}

// A copy hidden to 10 us under a kernel, then an attention that waits for it, all synchronised.
void RecallAndAttend(Streams& s, LaneId compute, LaneId recall, int step, int64_t pieces) {
  s.builder.BeginStep(step);
  s.builder.At(0, plan::Role::kRecall);
  const OpId fetched =
      s.builder.Run(recall, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, pieces, kMB / 2});
  s.builder.At(0, plan::Role::kMlp);
  s.builder.Run(compute, Kernel(10us));
  s.builder.At(0, plan::Role::kAttention);
  s.builder.Run(compute, Kernel(10us), {fetched});
  s.builder.SetRole(plan::Role::kSync);
  s.builder.EndStep(s.builder.SyncStream(s.host, compute));
}

TEST(Metrics, AreMeansOverTheSteps) {
  // Copies of 20 and 40 us: steps of 30 and 50 us.
  Profile machine = TestMachine();
  machine.kernels["layout"].max_bytes = 1;
  Streams s;
  const LaneId compute = s.Add(true), recall = s.Add();
  RecallAndAttend(s, compute, recall, 0, 2);
  RecallAndAttend(s, compute, recall, 1, 4);
  const Ran ran(s, machine);
  const Metrics m = Measure(ran.simulation(), ran.execution(), 3);
  ASSERT_EQ(m.step_times.size(), 2u);
  ExpectTime(m.step_times[0], 30us);
  ExpectTime(m.step_times[1], 50us);
  ExpectTime(m.step_mean, 40us);
  EXPECT_NEAR(m.tokens_per_second, 3 / 40e-6, 1);
  const RoleTime& role = m.roles[static_cast<size_t>(plan::Role::kRecall)];
  ExpectTime(role.busy, 30us);
  ExpectTime(role.overlapped, 10us);
  ExpectTime(role.exposed, 20us);
  EXPECT_EQ(role.bytes, 3 * kMB / 2);
  ExpectTime(m.exposed, 20us);
  ExpectTime(m.compute_busy, 20us);
  EXPECT_EQ(m.recall_bytes, 3 * kMB / 2);
  EXPECT_EQ(m.recall_pieces, 3);
  EXPECT_NEAR(m.recall_rate, 50e9, 50e3);
  ExpectTime(m.ceiling, 30us);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kRecall)], 30us);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kAttention)], 10us);
  EXPECT_EQ(m.roles[static_cast<size_t>(plan::Role::kSync)].busy.count(), 0);  // waiting is no work
  EXPECT_DOUBLE_EQ(m.extrapolated, 4.0 / 8);  // the kernels of 8 ops
}

TEST(Metrics, StepQuantilesAreStepsThatOccurred) {
  Streams s;
  const LaneId compute = s.Add(true);
  for (int step = 0; step < 20; ++step) {
    s.builder.BeginStep(step);
    s.builder.EndStep(s.builder.Run(compute, Kernel((step * 7 % 20 + 1) * 1us)));
  }
  const Ran ran(s, TestMachine());
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  ExpectTime(m.step_p50, 10us);
  ExpectTime(m.step_p95, 19us);
}

TEST(Metrics, TheCeilingIsTheLongestOfComputeEnginesAndWhatIsShared) {
  Profile machine = TestMachine();
  const auto ceiling = [&](std::initializer_list<plan::Work> compute, const plan::Work& beside) {
    Streams s;
    s.builder.BeginStep(0);
    const LaneId lane = s.Add(true);
    for (const plan::Work& work : compute) s.builder.Run(lane, work);
    s.builder.Run(plan::IsHostWork(beside) ? s.host : s.Add(), beside);
    s.builder.EndStep(s.builder.SyncDevice(s.host));
    return Ceiling(Ran(s, machine).simulation());
  };
  ExpectTime(ceiling({Kernel(30us), Kernel(20us)}, H2D(kMB)), 50us);
  ExpectTime(ceiling({Kernel(10us)}, H2D(kMB)), 20us);
  ExpectTime(ceiling({Kernel(10us)}, D2H(kMB)), 25us);
  ExpectTime(ceiling({Kernel(10us)}, plan::HostGather{1, kMB, 1}), 20us);  // 2 MB at 100 GB/s
  machine.kernels["top_k"].fixed_s = 70e-6;                                // beside what it shares
  EXPECT_NEAR(Seconds(ceiling({Kernel(30us), plan::TopK{1, 1, 1}}, H2D(kMB))), 100e-6, 1e-9);
  // A copy's start keeps its engine too, unless the copy can go in its call.
  machine.copy.d2h_start = 100e-6;
  ExpectTime(ceiling({Kernel(10us)}, D2H(kMB)), 125us);
  machine.copy.h2d_start = 100e-6;
  ExpectTime(ceiling({Kernel(10us)}, H2D(kMB)), 120us);
  machine.copy.h2d_inline_call = hardware::Curve({1e6}, {1e-6});
  ExpectTime(ceiling({Kernel(10us)}, H2D(kMB)), 20us);
}

TEST(Metrics, GapsAndCallsAreTheHosts) {
  // A gap of 4 us between kernels; behind a gather of 10 us three calls of 2 us.
  Profile machine = TestMachine();
  machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 4e-6;
  machine.host.launch = 2e-6;
  Streams s;
  const LaneId compute = s.Add(true), other = s.Add();
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kRecall);
  s.builder.Run(s.host, plan::HostGather{1, 40000, 1});  // 10 us at 4 GB/s
  s.builder.At(0, plan::Role::kMlp);
  s.builder.Run(other, plan::Layout{1, 1});
  s.builder.Run(other, plan::Layout{1, 1});
  s.builder.Run(compute, Kernel(50us));
  s.builder.EndStep(s.builder.Run(compute, Kernel(50us)));
  const Ran ran(s, machine);
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kRecall)].exposed, 10us);
  ExpectTime(m.roles[static_cast<size_t>(plan::Role::kHost)].exposed, 3 * 2us + 4us);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kHost)], 3 * 2us + 4us);
  ExpectTime(m.critical[static_cast<size_t>(plan::Role::kMlp)], 100us);
}

TEST(Metrics, WhatTheHostDoesAfterAWaitIsItsWorkAndTheWayOnIsSync) {
  // A copy of 25 us to the host; 3 us until a worker is woken for it, 5 us until it goes on; then a
  // gather of 10 us, 5 us until another thread knows, and its launch.
  Profile machine = TestMachine();
  machine.handoff(Site::kHost, Site::kHost, How::kEvent) = 3e-6;
  machine.handoff.SetHostSync(5e-6);
  Streams s;
  const LaneId compute = s.Add(true), side = s.Add(), worker = s.builder.AddHost("worker");
  s.builder.BeginStep(0);
  s.builder.At(0, plan::Role::kOffload);
  const OpId down = s.builder.Run(side, D2H(kMB));
  s.builder.At(0, plan::Role::kRecall);
  const OpId gathered = s.builder.Run(worker, plan::HostGather{1, 40000, 1}, {down});
  s.builder.At(0, plan::Role::kHost);
  s.builder.Run(s.host, plan::HostHandoff{}, {gathered});
  s.builder.At(0, plan::Role::kAttention);
  s.builder.EndStep(s.builder.Run(compute, Kernel(50us)));
  const Ran ran(s, machine);
  const Metrics m = Measure(ran.simulation(), ran.execution(), 1);
  const auto exposed = [&](plan::Role of) { return m.roles[static_cast<size_t>(of)].exposed; };
  ExpectTime(exposed(plan::Role::kOffload), 25us);
  ExpectTime(exposed(plan::Role::kRecall), 5us + 10us);  // with its way on: it does more than wait
  ExpectTime(exposed(plan::Role::kSync), 3us);
  ExpectTime(exposed(plan::Role::kHost), 0us);
}

}  // namespace
}  // namespace stallcast::sim
