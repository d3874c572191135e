// What ops do to one another beyond sharing: groups of streams, weights in flight, traffic of
// others, calls that carry their copies.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "models/hardware/background_ticks.h"
#include "tests/sim/engine_run.h"

namespace stallcast::sim {
namespace {

using hardware::How;
using hardware::Site;

TEST(EngineTraffic, ACopyTakesItsTurnLaterBesideAKernelOfItsGroupThatWaits) {
  // Three pages, beside a stream with a longer copy and what is behind it.
  const auto time = [](bool kernel_behind, bool other_computes) {
    Profile machine = TestMachine();
    machine.copy.group_turn = 2e-6;
    Streams s;
    const LaneId other = s.Add(other_computes), lane = s.Add();
    if (!other_computes) s.Add(true);
    const OpId page = s.builder.Run(other, H2D(kMB));
    if (kernel_behind) s.builder.Run(other, Kernel(1us));
    const OpId copies =
        s.builder.Run(lane, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 3, kMB / 2});
    const Ran ran(s, machine);
    return ran.End(copies) - ran.End(page);
  };
  ExpectTime(time(false, false), 30us);
  ExpectTime(time(true, false), 32us);
  ExpectTime(time(true, true), 30us);
}

// Of three pages beside another stream whose work goes on longer than they.
enum class Other { kNone, kKernels, kCopies, kCopyWaits, kKernelBehindCopy, kKernelWaits };

Picoseconds CopyBeside(Other does) {
  Profile machine = TestMachine();
  machine.copy.group_turn = 3e-6;
  machine.kernels["top_k"].fixed_s = 100e-6;
  Streams s;
  const LaneId lane = s.Add(), other = s.Add();
  s.Add(true);
  const plan::Work kernel = plan::TopK{1, 1, 1};
  const bool waits = does == Other::kCopyWaits || does == Other::kKernelWaits;
  const OpId awaited = waits ? s.builder.Run(s.Add(), kernel) : OpId::kNone;
  switch (does) {
    case Other::kNone:
      break;
    case Other::kKernels:
      s.builder.Run(other, kernel);
      s.builder.Run(other, kernel);
      break;
    case Other::kCopies:
      s.builder.Run(other, D2H(8 * kMB));
      s.builder.Run(other, D2H(8 * kMB));
      break;
    case Other::kCopyWaits:
      s.builder.Run(other, D2H(kMB), {awaited});
      break;
    case Other::kKernelBehindCopy:
      s.builder.Run(other, D2H(8 * kMB));
      s.builder.Run(other, kernel);
      break;
    case Other::kKernelWaits:
      s.builder.Run(other, kernel, {awaited});
      break;
  }
  const OpId copies =
      s.builder.Run(lane, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 3, 1});
  const Ran ran(s, machine);
  return ran.End(copies) - ran.Start(copies);
}

TEST(EngineTraffic, OnlyAKernelThatWaitsTakesTheGroupsTurn) {
  for (const Other does : {Other::kNone, Other::kKernels, Other::kCopies, Other::kCopyWaits}) {
    EXPECT_LT(CopyBeside(does), 1us) << static_cast<int>(does);
  }
  for (const Other does : {Other::kKernelBehindCopy, Other::kKernelWaits}) {
    EXPECT_GE(CopyBeside(does), 3us) << static_cast<int>(does);
  }
}

TEST(EngineTraffic, NoKernelStartsWhileTheFrontEndMovesACopy) {
  Profile machine = TestMachine();
  machine.copy.h2d_inline_call = hardware::Curve({1000, 20000}, {5e-6, 5e-6});
  for (const bool timed : {false, true}) {
    if (timed) machine.copy.h2d_inline_time = hardware::Curve({1000, 20000}, {4e-6, 4e-6});
    Streams s;
    const LaneId lane = s.Add(true);
    s.builder.Run(lane, Kernel(7us));
    // Its call begins at once; behind it that of a copy that goes in the call, over at 5 us.
    const OpId copy = s.builder.Run(s.Add(), H2D(1000));
    const OpId next = s.builder.Run(lane, Kernel(1us));
    const Ran ran(s, machine);
    ExpectTime(ran.Start(copy), 5us);
    ExpectTime(ran.End(copy), timed ? 9us : 5us + 20ns);
    ExpectTime(ran.Start(next), timed ? 9us : 7us);
  }
}

TEST(EngineTraffic, KernelsAloneWaitForTheLongestOfTheCopiesInTheFrontEnd) {
  Profile machine = TestMachine();
  machine.copy.h2d_inline_call = hardware::Curve({1000, 20000}, {1e-6, 1e-6});
  machine.copy.h2d_inline_time = hardware::Curve({1000, 20000}, {1e-6, 8e-6});
  Streams s;
  s.builder.Run(s.Add(), H2D(20000));  // from 1 us on for 8
  s.builder.Run(s.Add(), H2D(1000));   // from 2 us on for 1
  const OpId kernel = s.builder.Run(s.Add(true), Kernel(1us));
  const OpId copy = s.builder.Run(s.Add(), D2H(kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(kernel), 9us);
  ExpectTime(ran.Start(copy), 2us);
}

TEST(EngineTraffic, ProductsPayForWhatKernelsBeforeThemHaveWritten) {
  Profile machine = TestMachine();
  machine.memory.drag_most = 10e-6;
  machine.memory.drag_share = 0.1;
  machine.zero_copy.drag = hardware::Curve({1e6, 4e6}, {2e-6, 5e-6});
  const plan::Work writes = Kernel(1us);  // 2 MB
  const plan::Work selects = plan::TopK{8, 4096, 64}, others = plan::TopK{8, 1024, 64};
  machine.kernels["top_k"].points = {{.shape = plan::ShapeOf(selects), .drag = 2e-6},
                                     {.shape = plan::ShapeOf(others)}};
  // A product of so many us, and what it then takes.
  const auto times = [&](std::vector<plan::Work> before, std::initializer_list<int64_t> products) {
    Streams s;
    const LaneId lane = s.Add(true);
    for (const plan::Work& work : before) s.builder.Run(lane, work);
    std::vector<OpId> ops;
    for (const int64_t time : products) {
      ops.push_back(s.builder.Run(lane, plan::Gemm{1, 20000 * time, 100}));
    }
    const Ran ran(s, machine);
    std::vector<double> us;
    for (const OpId op : ops) us.push_back(Seconds(ran.End(op) - ran.Start(op)) * 1e6);
    return us;
  };
  using testing::DoubleNear;
  using testing::ElementsAre;
  // Beside 4 MB of weights a us, a hundredth of output.
  const auto us = [](double time) { return DoubleNear(time, 0.01); };
  EXPECT_THAT(times({}, {100}), ElementsAre(us(101)));
  EXPECT_THAT(times({writes}, {100, 100}), ElementsAre(us(104), us(101)));
  // However many have written it.
  EXPECT_THAT(times(std::vector<plan::Work>(20, plan::Layout{1, 100'000}), {100, 100}),
              ElementsAre(us(104), us(101)));
  // A tenth of its time at most; the next pays on.
  EXPECT_THAT(times({writes, writes}, {40, 100, 100}), ElementsAre(us(44.44), us(101.96), us(101)));
  // More than was measured costs no more.
  EXPECT_THAT(times(std::vector<plan::Work>(50, writes), {50, 100, 100}),
              ElementsAre(us(55.5), us(101), us(101)));
  // Gathers too; less than was measured in proportion.
  EXPECT_THAT(times({plan::ZeroCopyGather{4000, 1000, 16}}, {100, 100}),
              ElementsAre(us(106), us(101)));
  EXPECT_THAT(times({plan::ZeroCopyGather{500, 1000, 16}}, {100}), ElementsAre(us(102)));
  // Other kernels owe as much as they were seen to, and it adds up with that.
  EXPECT_THAT(times({selects}, {100, 100}), ElementsAre(us(103), us(101)));
  EXPECT_THAT(times({selects, writes, others}, {100}), ElementsAre(us(105)));
  // Other kernels pay nothing, however much they read.
  EXPECT_THAT(times({writes, plan::Norm{100'000, 4096}}, {100}), ElementsAre(us(104)));
  // Copies owe nothing.
  EXPECT_THAT(times({H2D(8 * kMB)}, {100}), ElementsAre(us(101)));
  // Nor is more owed than may be.
  machine.memory.drag_most = 2e-6;
  EXPECT_THAT(times({writes}, {100, 100}), ElementsAre(us(103), us(101)));
}

TEST(EngineTraffic, KernelsThatComputeAreFasterUntilThePowerLimitSetsTheClock) {
  Profile machine = TestMachine();
  machine.kernels["gemm"].flops_rate = machine.kernels["prefill_attention"].flops_rate = 1e12;
  machine.device.boost = 1.25;
  machine.device.boost_time = 10e-3;
  // 2 m n k operations: 8 ms at the clock of a busy GPU.
  const plan::Gemm product{4000, 1000, 1000};
  Streams s;
  const LaneId lane = s.Add();
  // Reads memory, which the clock is not for: 1 ms.
  const OpId reads = s.builder.Run(lane, Kernel(1ms));
  const OpId first = s.builder.Run(lane, product), second = s.builder.Run(lane, product);
  const OpId third = s.builder.Run(lane, product);
  const Ran ran(s, machine);
  ExpectTime(ran.End(reads), 1ms);
  ExpectTime(ran.End(first), 1ms + 6400us);
  // 3.6 ms are left, in which 4.5 of the 8 are done.
  ExpectTime(ran.End(second), 1ms + 6400us + 3600us + 3500us);
  ExpectTime(ran.End(third) - ran.End(second), 8ms);
}

TEST(EngineTraffic, DecodeStepsFindAGpuThatHasComputedAPrompt) {
  Profile machine = TestMachine();
  machine.kernels["gemm"].flops_rate = 1e12;
  machine.device.boost = 1.25;
  machine.device.boost_time = 10e-3;
  Streams s;
  const LaneId lane = s.Add();
  s.builder.BeginStep(0);
  const OpId product = s.builder.Run(lane, plan::Gemm{4000, 1000, 1000});
  s.builder.EndStep(product);
  ExpectTime(Ran(s, machine).End(product), 8ms);
}

// A kernel starts 12 us later beside products.
Profile StreamingMachine() {
  Profile machine = TestMachine();
  machine.copy.h2d_start = 1e-6;
  machine.kernels["top_k"].fixed_s = 4e-6;
  machine.kernels["gemm"].flops_rate = 400e12;
  machine.gemm.delays_kernel = 12e-6;
  return machine;
}

// What `work` takes beside a product whose weights flow all the while.
Picoseconds BesideProduct(const Profile& machine, std::optional<plan::Gemm> product,
                          const plan::Work& work) {
  Streams s;
  if (product) s.builder.Run(s.Add(), *product);
  const LaneId side = s.Add();
  s.builder.Run(side, Kernel(1us));
  const OpId op = s.builder.Run(side, work);
  const Ran ran(s, machine);
  return ran.End(op) - ran.Start(op);
}

TEST(EngineTraffic, WhatStartsBesideAProductWaitsForItsWeightsOnTheirWay) {
  const Profile machine = StreamingMachine();
  const plan::TopK kernel{1, 1, 1};
  const Copy pages{Direction::kHostToDevice, CopyPath::kPerPiece, 3, 1};
  const plan::Gemm few_rows{1, 1'000'000, 4096};
  const Picoseconds alone = BesideProduct(machine, {}, kernel);
  ExpectTime(BesideProduct(machine, few_rows, kernel), alone + 12us);
  // A copy does not.
  ExpectTime(BesideProduct(machine, few_rows, pages), BesideProduct(machine, {}, pages));
  // One that computes has room.
  ExpectTime(BesideProduct(machine, plan::Gemm{4096, 20'000, 4096}, kernel), alone);
}

// They flow from its start on; its fixed time, in which its last blocks end, lies behind them.
TEST(EngineTraffic, NothingWaitsForAProductWhoseWeightsHaveCome) {
  Profile machine = StreamingMachine();
  machine.kernels["gemm"].fixed_s = 20e-6;
  const plan::TopK kernel{1, 1, 1};
  const auto takes = [&](Picoseconds later) {
    Streams s;
    s.builder.Run(s.Add(), plan::Gemm{1, 20'000, 4096});  // 41 us of weights
    const LaneId side = s.Add();
    s.builder.Run(side, Kernel(later));
    const OpId op = s.builder.Run(side, kernel);
    const Ran ran(s, machine);
    return ran.End(op) - ran.Start(op);
  };
  EXPECT_NEAR(Seconds(takes(1us)), 4e-6 + 12e-6, 1e-10);
  EXPECT_NEAR(Seconds(takes(45us)), 4e-6, 1e-10);
}

TEST(EngineTraffic, AFasterMemoryEmptiesAProductsQueueSooner) {
  Profile machine = StreamingMachine();
  hardware::Set(machine, "memory.bandwidth", "8TB/s");
  const plan::TopK kernel{1, 1, 1};
  ExpectTime(BesideProduct(machine, plan::Gemm{1, 1'000'000, 4096}, kernel),
             BesideProduct(machine, {}, kernel) + 6us);
}

TEST(EngineTraffic, AProductThatEndsHoldsUpNoLonger) {
  // Of the 16 us of a start half have passed after 8, when the product's 32 MB are there.
  Streams s;
  const OpId product = s.builder.Run(s.Add(), plan::Gemm{1, 4000, 4000});
  const OpId kernel = s.builder.Run(s.Add(), plan::TopK{1, 1, 1});
  Profile machine = StreamingMachine();
  const Ran ran(s, machine);
  EXPECT_NEAR(Seconds(ran.End(product)), 8e-6, 0.1e-6);
  EXPECT_NEAR(Seconds(ran.End(kernel)), 8e-6 + 2e-6, 0.1e-6);
}

TEST(EngineTraffic, AStreamKeepsTheEngineForCopiesThatOnlyFollowOneAnother) {
  Streams s;
  const LaneId one = s.Add(true), two = s.Add();
  std::vector<OpId> first, second;
  for (int i = 0; i < 4; ++i) {
    first.push_back(s.builder.Run(one, H2D(kMB)));
    second.push_back(s.builder.Run(two, H2D(kMB)));
  }
  const Ran ran(s, TestMachine());
  for (int i = 0; i < 4; ++i) {
    ExpectTime(ran.Start(first[i]), i * 20us);
    ExpectTime(ran.Start(second[i]), 80us + i * 20us);
  }
  EXPECT_EQ(ran.Why(second[0]).kind, CauseKind::kEngine);
  EXPECT_EQ(ran.Why(second[0]).op, first[3]);
  EXPECT_EQ(ran.Why(second[1]).kind, CauseKind::kLane);
}

TEST(EngineTraffic, AStreamLeavesTheEngineWhereItsNextCopyWaits) {
  Streams s;
  const LaneId one = s.Add(true), two = s.Add();
  const OpId kernel = s.builder.Run(s.Add(), Kernel(25us));
  s.builder.Run(one, H2D(kMB));
  const OpId waits = s.builder.Run(one, H2D(kMB), {kernel});
  const OpId queued = s.builder.Run(two, H2D(kMB));
  const Ran ran(s, TestMachine());
  ExpectTime(ran.Start(queued), 20us);
  ExpectTime(ran.Start(waits), 40us);
}

TEST(EngineTraffic, AStreamLeavesTheEngineWhereItsNextCopyIsCalledLate) {
  Profile machine = TestMachine();
  machine.host.launch = machine.host.copy_call = 30e-6;
  Streams s;
  const LaneId one = s.Add(true), two = s.Add(), third = s.Add();
  s.builder.Run(one, H2D(50 * kMB));                 // from 30 us on for 1 ms
  const OpId queued = s.builder.Run(two, H2D(kMB));  // called at 30 us
  for (int i = 0; i < 40; ++i) s.builder.Run(third, Kernel(1us));
  const OpId late = s.builder.Run(one, H2D(kMB));  // its call, the 43rd, ends at 1290 us
  const Ran ran(s, machine);
  ExpectTime(ran.Start(queued), 1030us);
  ExpectTime(ran.Start(late), 1290us);
}

// When the background's copies come, `period` apart in the mean.
std::vector<Picoseconds> BackgroundComes(Picoseconds period, size_t count) {
  hardware::BackgroundTicks ticks(Direction::kHostToDevice, period);
  std::vector<Picoseconds> comes;
  for (Picoseconds time{0}; comes.size() < count;) comes.push_back(time += ticks.Next());
  return comes;
}

TEST(EngineTraffic, ATrainOfCopiesKeepsTheEngineFromTheBackground) {
  // Background copies of 20 us, each 40 us or so, wait until all 100 copies are done.
  Profile machine = TestMachine();
  machine.background.h2d = 25e9;
  machine.background.piece = kMB;
  Streams s;
  const LaneId lane = s.Add(true);
  for (int i = 0; i < 100; ++i) s.builder.Run(lane, H2D(kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.Total(), 2ms);
}

TEST(EngineTraffic, BackgroundKeepsTheEngineForAsManyCopiesAsMayBeUnderWay) {
  // At a hundred times the link's rate there is always another one. The kernels between the plan's
  // copies let it in: of 20 us each at most so many in a row.
  Profile machine = TestMachine();
  machine.background.h2d = 5000e9;
  machine.background.piece = kMB;
  Streams s;
  const LaneId lane = s.Add(true);
  for (int i = 0; i < 10; ++i) {
    s.builder.Run(lane, Kernel(1us));
    s.builder.Run(lane, H2D(kMB));
  }
  const Ran ran(s, machine);
  const Picoseconds first = BackgroundComes(200ns, 1).front();
  ASSERT_LT(first, 1us);
  ExpectTime(ran.Total(), first + 10 * (hardware::kBackgroundCopies * 20us + 20us));
}

TEST(EngineTraffic, AHeldUpBackgroundHasNoMoreCopiesToMakeUpForThanMayBeUnderWay) {
  // 8 of its copies wait when the plan's 2 ms of copies are done, of 50 or so that would have
  // begun. They and those that come meanwhile take 20 us each; where all are done first, the plan's
  // next copy need not wait.
  constexpr Picoseconds kTrain = 2ms, kCopy = 20us;
  Picoseconds busy_until = kTrain + hardware::kBackgroundCopies * kCopy;
  for (const Picoseconds time : BackgroundComes(40us, 200)) {
    if (time > busy_until + 1us) break;
    if (time > kTrain) busy_until += kCopy;
  }
  ASSERT_LT(busy_until, kTrain + 50 * kCopy);
  Profile machine = TestMachine();
  machine.background.h2d = 25e9;
  machine.background.piece = kMB;
  machine.kernels["top_k"].fixed_s = Seconds(busy_until + 1us - kTrain);
  Streams s;
  const LaneId lane = s.Add(true);
  for (int i = 0; i < 100; ++i) s.builder.Run(lane, H2D(kMB));
  s.builder.Run(lane, plan::TopK{1, 1, 1});
  const OpId copy = s.builder.Run(lane, H2D(kMB / 2));
  const Ran ran(s, machine);
  ExpectTime(ran.End(copy), busy_until + 1us + 10us);
}

TEST(EngineTraffic, AWaitForBackgroundCopiesIsPartOfTheOp) {
  // The background's first copy holds the engine for 20 us.
  Profile machine = TestMachine();
  machine.background.h2d = 25e9;
  machine.background.piece = kMB;
  const std::vector<Picoseconds> comes = BackgroundComes(40us, 2);
  ASSERT_GT(comes[1], comes[0] + 20us);
  Streams s;
  const LaneId lane = s.Add(true);
  const OpId kernel = s.builder.Run(lane, Kernel(comes[0] + 5us));
  const OpId copy = s.builder.Run(lane, H2D(kMB / 2));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(copy), ran.End(kernel));
  ExpectTime(ran.End(copy), comes[0] + 20us + 10us);
  EXPECT_EQ(ran.Why(copy).kind, CauseKind::kLane);
}

TEST(EngineTraffic, ACopyThatQueuesBehindBackgroundHasBegunWhenThatBegins) {
  // The engine: a copy of 20 us, the background that came meanwhile, the copy that came last.
  Profile machine = TestMachine();
  machine.background.h2d = 25e9;
  machine.background.piece = kMB;
  const std::vector<Picoseconds> comes = BackgroundComes(40us, 2);
  ASSERT_GT(comes[0], 5us);
  ASSERT_GT(comes[1], comes[0] + 40us);
  machine.kernels["top_k"].fixed_s = Seconds(comes[0] - 5us);
  machine.kernels["sort"].fixed_s = Seconds(comes[0] + 5us);
  Streams s;
  const LaneId one = s.Add(true), two = s.Add();
  s.builder.Run(one, plan::TopK{1, 1, 1});
  const OpId first = s.builder.Run(one, H2D(kMB));
  s.builder.Run(two, plan::Sort{1, 1});
  const OpId copy = s.builder.Run(two, H2D(kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.Start(copy), ran.End(first));
  ExpectTime(ran.End(copy), ran.End(first) + 20us + 20us);
}

TEST(EngineTraffic, APlansCopiesMeetTheBackgroundAsOftenAsItIsThere) {
  // A copy that comes at any time waits for all that holds the engine then, and for what comes
  // meanwhile: with background copies of 20 us that take a fifth of the time, a fifth of half a
  // copy over 0.8 twice (Pollaczek and Khinchine; a busy period), however long a layer is.
  Profile machine = TestMachine();
  machine.background.h2d = 10e9;
  machine.background.piece = kMB;
  for (const Picoseconds layer : {100us, 150us, 173us, 200us}) {
    Streams s;
    const LaneId lane = s.Add(true);
    constexpr int kLayers = 20000;
    for (int i = 0; i < kLayers; ++i) {
      s.builder.Run(lane, Kernel(layer));
      s.builder.Run(lane, H2D(50));
    }
    const double wait = Seconds(Ran(s, machine).Total()) / kLayers - Seconds(layer) - 1e-9;
    EXPECT_NEAR(wait, 0.2 * 10e-6 / 0.8 / 0.8, 0.2e-6);
  }
}

TEST(EngineTraffic, BackgroundOfOneDirectionComesWheneverThatOfTheOtherDoes) {
  // Of two independent exponential times of 40 us the difference has a mean of 40 us.
  hardware::BackgroundTicks down(Direction::kHostToDevice, 40us);
  hardware::BackgroundTicks up(Direction::kDeviceToHost, 40us);
  constexpr int kTicks = 20000;
  double apart = 0;
  for (int i = 0; i < kTicks; ++i) apart += std::abs(Seconds(down.Next() - up.Next())) / kTicks;
  EXPECT_NEAR(apart, 40e-6, 1e-6);
}

TEST(EngineTraffic, BackgroundOfOneDirectionLeavesTheOtherItsBothWaysRate) {
  Profile machine = TestMachine();
  machine.background.d2h = 40e9;
  machine.background.piece = 1000 * kMB;
  Streams s;
  const LaneId lane = s.Add(true);
  s.builder.Run(lane, Kernel(25ms));  // the background's first copy begins meanwhile
  const OpId copy = s.builder.Run(lane, H2D(3 * kMB));
  const Ran ran(s, machine);
  ExpectTime(ran.End(copy), 25ms + 100us);  // at 30 GB/s
}

// 1 us a call, a small copy's call on an idle stream 5 us.
Profile MachineThatInlines() {
  Profile machine = TestMachine();
  machine.host.launch = machine.host.copy_call = machine.host.copy_back_call = 1e-6;
  machine.copy.h2d_inline_call = hardware::Curve({1000, 20000}, {5e-6, 5e-6});
  return machine;
}

TEST(EngineTraffic, ASmallCopyToAnIdleStreamGoesInItsCall) {
  Profile machine = MachineThatInlines();
  machine.handoff.SetCopyGap(8e-6);
  machine.copy.h2d_start = 3e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  const OpId first = s.builder.Run(lane, H2D(20000));
  const OpId kernel = s.builder.Run(lane, Kernel(50us));
  const OpId behind = s.builder.Run(lane, H2D(20000));
  s.builder.SyncStream(s.host, lane);
  const OpId large = s.builder.Run(lane, H2D(20001));
  s.builder.SyncStream(s.host, lane);
  const OpId back = s.builder.Run(lane, D2H(20000));
  const Ran ran(s, machine);
  // Neither the copy engine's start nor the handover to a kernel: 0.4 us over the link.
  ExpectTime(ran.CallTime(first), 5us);
  ExpectTime(ran.End(first), 5400ns);
  ExpectTime(ran.Start(kernel), 6us);
  ExpectTime(ran.CallTime(behind), 1us);
  ExpectTime(ran.Start(behind), ran.End(kernel) + 8us);
  ExpectTime(ran.CallTime(large), 1us);
  ExpectTime(ran.CallTime(back), 1us);
}

TEST(EngineTraffic, WhetherACopyGoesInItsCallIsSettledWhenTheCallBegins) {
  Streams s;
  const LaneId lane = s.Add(true), other = s.Add();
  for (int i = 0; i < 5; ++i) s.builder.Run(other, plan::Layout{1, 1});
  s.builder.Run(lane, Kernel(1us));  // from 6 us on
  for (int i = 0; i < 3; ++i) s.builder.Run(other, plan::Layout{1, 1});
  const OpId idle = s.builder.Run(lane, H2D(20000));
  s.builder.Run(lane, Kernel(50us));
  const OpId busy = s.builder.Run(lane, H2D(20000));
  const Ran ran(s, MachineThatInlines());
  ExpectTime(ran.CallBegin(idle), 9us);
  ExpectTime(ran.CallTime(idle), 5us);
  ExpectTime(ran.CallTime(busy), 1us);
}

TEST(EngineTraffic, ACopyThatWentInItsCallIsNoCopyToTheStreams) {
  Profile machine = MachineThatInlines();
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 1e-6,
                                              machine.handoff.SetCopyLaunch(3e-6);
  machine.handoff.SetEvent(2e-6), machine.handoff.SetEventFromCopy(7e-6);
  machine.handoff.SetHostSync(4e-6);
  Streams s;
  const LaneId lane = s.Add(true), other = s.Add();
  const OpId copy = s.builder.Run(lane, H2D(20000));
  const OpId after = s.builder.Run(other, Kernel(1us), {copy});
  const OpId sync = s.builder.SyncStream(s.host, lane);
  const Ran ran(s, machine);
  ExpectTime(ran.Start(copy), 5us + 1us);
  ExpectTime(ran.Start(after), ran.End(copy) + 2us);
  ExpectTime(ran.End(sync), ran.End(copy) + 4us);
}

TEST(EngineTraffic, ACopyInItsCallFollowsAndIsFollowedAsAKernel) {
  Profile machine = MachineThatInlines();
  machine.handoff(Site::kKernel, Site::kKernel, How::kStream) = 7e-6,
                                                machine.handoff.SetCopyGap(20e-6),
                                                machine.handoff(Site::kH2D, Site::kD2H,
                                                                How::kStream) = 40e-6;
  Streams s;
  const LaneId lane = s.Add(true);
  std::vector<OpId> ops;
  for (const plan::Work& work : {plan::Work(Kernel(10us)), plan::Work(H2D(20000)),
                                 plan::Work(D2H(kMB)), plan::Work(H2D(20000))}) {
    ops.push_back(s.builder.Run(lane, work));
    s.builder.SyncStream(s.host, lane);  // so that the next finds its stream idle
  }
  const Ran ran(s, machine);
  ExpectTime(ran.Start(ops[1]), ran.End(ops[0]) + 7us);
  ExpectTime(ran.Start(ops[2]), ran.End(ops[1]) + 20us);
  ExpectTime(ran.Start(ops[3]), ran.End(ops[2]) + 20us);
}

TEST(EngineTraffic, ACopyThatStillHasToWaitDoesNotGoInItsCall) {
  Streams s;
  const OpId kernel = s.builder.Run(s.Add(true), Kernel(50us));
  const LaneId side = s.Add(), third = s.Add();
  const OpId waits = s.builder.Run(side, H2D(20000), {kernel});
  s.builder.Run(third, Kernel(1us), {kernel});
  const OpId behind = s.builder.Run(third, H2D(20000));  // nothing of its stream is under way yet
  s.builder.SyncStream(s.host, side);
  const OpId finds_it_done = s.builder.Run(side, H2D(20000), {kernel});
  const Ran ran(s, MachineThatInlines());
  ExpectTime(ran.CallTime(waits), 1us);
  ExpectTime(ran.CallTime(behind), 1us);
  ExpectTime(ran.CallTime(finds_it_done), 5us);
}

TEST(EngineTraffic, OfSeveralPiecesTheFirstGoesInItsCall) {
  for (const int64_t count : {2, 4}) {
    Profile machine = MachineThatInlines();
    machine.handoff.SetCopyGap(8e-6);
    machine.copy.h2d_start = 50e-6;
    machine.copy.h2d_inline_time = hardware::Curve({1000, 20000}, {7e-6, 7e-6});
    Streams s;
    const LaneId lane = s.Add(true);
    const OpId pieces =
        s.builder.Run(lane, Copy{Direction::kHostToDevice, CopyPath::kPerPiece, count, 20000});
    const OpId kernel = s.builder.Run(lane, Kernel(1us));
    const OpId beside = s.builder.Run(s.Add(), Kernel(1us));
    const Ran ran(s, machine);
    ExpectTime(ran.CallTime(pieces), 5us + (count - 1) * 1us);
    ExpectTime(ran.Start(pieces), 5us);
    ExpectTime(ran.Start(beside), 5us + 7us);  // when the front end has moved the first
    // It hands over to the copy engine as behind a kernel.
    ExpectTime(ran.End(pieces), 5us + 7us + 8us + (count - 1) * (50us + 400ns));
    ExpectTime(ran.Start(kernel), ran.End(pieces) + 8us);  // it ends as copies do
  }
}

TEST(EngineTraffic, PiecesBehindOneThatWentInItsCallWaitForTheirOwnCalls) {
  Profile machine = MachineThatInlines();
  machine.host.copy_call = 30e-6;
  machine.handoff(Site::kHost, Site::kKernel, How::kStream) = 1e-6,
                                              machine.handoff.SetCopyLaunch(3e-6);
  machine.handoff.SetCopyGap(8e-6);
  machine.copy.h2d_inline_time = hardware::Curve({1000, 20000}, {7e-6, 7e-6});
  Streams s;
  const OpId pieces =
      s.builder.Run(s.Add(true), Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 2, 20000});
  const Ran ran(s, machine);
  ExpectTime(ran.Start(pieces), 5us + 1us);
  ExpectTime(ran.End(pieces), 5us + 30us + 3us + 400ns);
}

TEST(EngineTraffic, ACopyWhoseFirstPieceWentInItsCallHasBegunWhileItsOthersQueue) {
  Profile machine = MachineThatInlines();
  machine.copy.h2d_inline_time = hardware::Curve({1000, 20000}, {7e-6, 7e-6});
  Streams s;
  const OpId large = s.builder.Run(s.Add(), H2D(5 * kMB));  // from 1 us on, for 100 us
  const OpId pieces =
      s.builder.Run(s.Add(true), Copy{Direction::kHostToDevice, CopyPath::kPerPiece, 2, 20000});
  const Ran ran(s, machine);
  ExpectTime(ran.Start(pieces), 1us + 5us);
  ExpectTime(ran.End(pieces), ran.End(large) + 400ns);
  // In the timeline as in a recording: what went in the call, and what the engine moved.
  const traces::Timeline t = ToTimeline(ran.simulation(), ran.execution());
  std::vector<std::array<Picoseconds, 2>> rows;
  for (int64_t row = 0; row < t.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    if (t.op[i] != plan::Index(pieces) || t.role[i] == traces::Role::kHost) continue;
    rows.push_back({t.start[i], t.duration[i]});
    EXPECT_EQ(t.bytes[i], 20'000);
  }
  ASSERT_EQ(rows.size(), 2u);
  ExpectTime(rows[0][0], 6us);
  ExpectTime(rows[0][1], 7us);
  ExpectTime(rows[1][0], ran.End(large));
  ExpectTime(rows[1][1], 400ns);
}

// One thread that decodes, and another with a stream of its own.
struct TwoThreads : Streams {
  LaneId worker = builder.AddHost("worker");
  LaneId compute = Add(true), lane = builder.AddStream("side", worker);
};

struct ThreeThreads : Streams {
  std::array<LaneId, 3> threads{host, builder.AddHost("second"), builder.AddHost("third")};
};

TEST(EngineTraffic, AWokenThreadsFirstCallsTakeLongerByHowLongItSlept) {
  Profile machine = TestMachine();
  machine.host.launch = machine.host.copy_call = machine.host.copy_back_call = 1e-6;
  machine.host.notify = 10e-6;
  machine.host.woken = hardware::Curve({100e-6, 1000e-6}, {16e-6, 64e-6});
  const std::pair<Picoseconds, Picoseconds> cases[] = {{100us, 16us}, {50us, 8us}, {1000us, 64us}};
  for (const auto& [asleep, longer] : cases) {
    SCOPED_TRACE(asleep.count());
    TwoThreads s;
    s.builder.Run(s.compute, Kernel(asleep - 11us));
    s.builder.SyncStream(s.host, s.compute);
    const OpId posted = s.builder.Run(s.host, plan::HostHandoff{});
    const OpId of_waiting = s.builder.Run(s.compute, Kernel(1us));
    s.builder.Run(s.worker, plan::HostHandoff{}, {posted});
    const OpId first = s.builder.Run(s.lane, Kernel(1us));
    const Copy none{Direction::kHostToDevice, CopyPath::kPerPiece, 0, 1000};
    const OpId no_call = s.builder.Run(s.builder.AddStream("idle", s.worker), none);
    const Copy two{Direction::kHostToDevice, CopyPath::kPerPiece, 2, 1000};
    const OpId copies = s.builder.Run(s.lane, two);
    const OpId next = s.builder.Run(s.lane, Kernel(1us));
    const Ran ran(s, machine);
    // Half of it, then half of what is left, and so on.
    ExpectTime(ran.CallTime(first), 1us + longer / 2);
    ExpectTime(ran.Start(first), ran.CallBegin(first) + 1us + longer / 2);
    ExpectTime(ran.Start(no_call), ran.CallBegin(no_call));
    ExpectTime(ran.CallTime(copies), 2us + longer / 4 + longer / 8);
    ExpectTime(ran.Start(copies), ran.CallBegin(copies) + 1us + longer / 4);
    ExpectTime(ran.CallTime(next), 1us + longer / 16);
    ExpectTime(ran.CallTime(of_waiting), 1us);  // a wait for the device is no sleep
  }
}

TEST(EngineTraffic, AThreadGoesOnLaterTheLongerItHasSlept) {
  Profile machine = TestMachine();
  machine.handoff(Site::kHost, Site::kHost, How::kEvent) = 7e-6;
  Profile by_sleep = machine;
  by_sleep.host.handoff_asleep = hardware::Curve({100e-6, 1000e-6}, {10e-6, 40e-6});
  // From the notice, after `work`, to the going on of a thread that gathers so many bytes before.
  const auto later = [](const Profile& of, Picoseconds work, Bytes gathered) {
    TwoThreads s;
    s.builder.Run(s.worker, plan::HostGather{1, gathered, 1});
    s.builder.Run(s.compute, Kernel(work));
    s.builder.SyncStream(s.host, s.compute);
    const OpId posted = s.builder.Run(s.host, plan::HostHandoff{});
    const OpId noticed = s.builder.Run(s.worker, plan::HostHandoff{}, {posted});
    const Ran ran(s, of);
    return ran.End(noticed) - ran.End(posted);
  };
  constexpr Bytes kTenMicroseconds = 40000;
  ExpectTime(later(machine, 3000us, kTenMicroseconds), 7us);
  ExpectTime(later(by_sleep, 3000us, kTenMicroseconds), 40us);
  ExpectTime(later(by_sleep, 110us, kTenMicroseconds), 10us);
  ExpectTime(later(by_sleep, 50us, kTenMicroseconds), 10us);
  // Who is still at work when the notice comes does not sleep.
  ExpectTime(later(by_sleep, 50us, 10 * kTenMicroseconds), 50us);
}

TEST(EngineTraffic, AnEventIsWaitedForOnceAnotherThreadHasRecordedIt) {
  Profile machine = TestMachine();
  machine.host.launch = 1e-6;
  TwoThreads s;
  for (int i = 0; i < 4; ++i) s.builder.Run(s.lane, plan::Layout{1, 1});
  const OpId last = s.builder.Run(s.lane, plan::Layout{1, 1});
  const OpId waits = s.builder.Run(s.compute, plan::Layout{1, 1}, {last});
  const OpId next = s.builder.Run(s.compute, plan::Layout{1, 1});
  const OpId same_stream = s.builder.Run(s.lane, plan::Layout{1, 1}, {}, s.host);
  const OpId behind = s.builder.Run(s.lane, plan::Layout{1, 1});
  const Ran ran(s, machine);
  ExpectTime(ran.CallBegin(last), 4us);
  ExpectTime(ran.CallBegin(waits), 5us);
  ExpectTime(ran.CallBegin(next), 6us);
  // A stream gets its ops in the plan's order, whoever makes the calls.
  ExpectTime(ran.CallBegin(same_stream), 7us);
  ExpectTime(ran.CallBegin(behind), 8us);
}

TEST(EngineTraffic, AnEventOfAThreadThatIsAheadIsWaitedForToo) {
  Profile machine = TestMachine();
  machine.host.launch = 1e-6;
  TwoThreads s;
  OpId last = OpId::kNone;
  for (int i = 0; i < 5; ++i) last = s.builder.Run(s.compute, plan::Layout{1, 1});
  const OpId waits = s.builder.Run(s.lane, plan::Layout{1, 1}, {last});
  const OpId next = s.builder.Run(s.lane, plan::Layout{1, 1});
  const Ran ran(s, machine);
  ExpectTime(ran.Start(waits), 6us);
  ExpectTime(ran.Start(next), 7us);
}

TEST(EngineTraffic, AnEventBetweenAKernelAndACopyHasItsOwnLatency) {
  Profile machine = TestMachine();
  machine.handoff.SetEvent(1e-6);
  machine.handoff.SetEventToCopy(2e-6);
  machine.handoff.SetEventFromCopy(4e-6);
  Streams s;
  const OpId kernel = s.builder.Run(s.Add(true), Kernel(10us));
  const OpId kernel_after_kernel = s.builder.Run(s.Add(), Kernel(1us), {kernel});
  const OpId copy = s.builder.Run(s.Add(), H2D(kMB), {kernel});
  const OpId kernel_after_copy = s.builder.Run(s.Add(), Kernel(1us), {copy});
  const Ran ran(s, machine);
  ExpectTime(ran.Start(kernel_after_kernel), 11us);
  ExpectTime(ran.Start(copy), 12us);
  ExpectTime(ran.Start(kernel_after_copy), 32us + 4us);
}

}  // namespace
}  // namespace stallcast::sim
