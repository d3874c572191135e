#include "sim/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "sim/compare_programs.h"
#include "sim/predict.h"
#include "traces/common/error.h"
#include "traces/convert/import.h"

namespace stallcast::sim {
namespace {

using testing::HasSubstr;
using traces::LaneKind;
using traces::Role;
using traces::Timeline;

constexpr uint16_t kHost = 0, kCompute = 1, kSide = 2;
constexpr int64_t kUs = 1'000'000;

// A recording of a host thread and two streams of one GPU; times in microseconds.
class Recording {
 public:
  Recording() {
    t.origin = Timeline::Origin::kImported;
    t.title = "made";
    t.lanes = {{"thread 1", LaneKind::kHost, false},
               {"GPU 0 stream 7", LaneKind::kStream, true},
               {"GPU 0 stream 20", LaneKind::kStream, false}};
    t.names = {"cudaLaunchKernel", "gemm",        "Memcpy HtoD (Pinned -> Device)",
               "cudaMemcpyAsync",  "Memcpy DtoH", "cudaDeviceSynchronize"};
  }
  Recording& Add(uint16_t lane, int64_t op, uint32_t name, double start, double duration,
                 int32_t step = 0, int64_t bytes = 0) {
    constexpr Role kRoles[] = {Role::kHost, Role::kProjection, Role::kRecall,
                               Role::kHost, Role::kOffload,    Role::kSync};
    t.lane.push_back(lane);
    t.op.push_back(op);
    t.step.push_back(step);
    t.layer.push_back(-1);
    t.role.push_back(kRoles[name]);
    t.name.push_back(name);
    t.start.emplace_back(static_cast<int64_t>(start * kUs));
    t.duration.emplace_back(static_cast<int64_t>(duration * kUs));
    t.bytes.push_back(bytes);
    return *this;
  }
  // A kernel or copy with the call that launches it.
  Recording& Run(uint16_t lane, int64_t op, uint32_t name, double call, double start,
                 double duration, int32_t step = 0) {
    Add(kHost, op, name == 1 ? 0 : 3, call, 3, step);
    return Add(lane, op, name, start, duration, step, name == 1 ? 0 : 1 << 20);
  }
  Timeline t;
};

double StepUs(const Replayed& replayed) { return Seconds(replayed.summary.step) * 1e6; }

double StepUs(const Timeline& t, std::initializer_list<const char*> changes,
              const ReplayMachine& machine = {}) {
  std::vector<ReplayChange> parsed;
  for (const char* change : changes) parsed.push_back(ParseReplayChange(change));
  return StepUs(Replay(t, machine).Run(parsed));
}

// Kernel, copy and kernel on one stream, called ahead: 10, 102 and 20 us.
Timeline InARow() {
  Recording r;
  r.Run(kCompute, 1, 1, 0, 10, 10).Run(kCompute, 2, 4, 4, 21, 102).Run(kCompute, 3, 1, 8, 124, 20);
  return r.t;
}

TEST(ReplayTest, UnchangedEverythingHappensWhenItDid) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    Recording r;
    double host = 0, free[3] = {0, 0, 0};
    for (int op = 0; op < 200; ++op) {
      host += static_cast<double>(random() % 20);
      const auto lane = static_cast<uint16_t>(random() % 3 == 0 ? kSide : kCompute);
      const uint32_t name = lane == kSide ? 2 : random() % 5 == 0 ? 4 : 1;
      const double start = std::max(host + 4, free[lane] + 1) + static_cast<double>(random() % 3);
      const double duration = 1 + static_cast<double>(random() % 30);
      r.Run(lane, op, name, host, start, duration, op / 50);
      free[lane] = start + duration;
      host += 3;
    }
    traces::RestoreOrder(&r.t);
    ReplayMachine machine;
    machine.both_h2d = machine.both_d2h = 0.7;
    const Timeline again = Replay(r.t, machine).Run().timeline;
    ASSERT_EQ(again.rows(), r.t.rows());
    for (size_t row = 0; row < r.t.start.size(); ++row) {
      // Copies that meet are reckoned in doubles.
      EXPECT_NEAR(again.start[row].count(), r.t.start[row].count(), 2000) << row;
      EXPECT_NEAR(again.duration[row].count(), r.t.duration[row].count(), 2000) << row;
    }
  }
}

TEST(ReplayTest, OurRecordingsAreReplayedWithinTwoPercent) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(STALLCAST_SOURCE_DIR) / "traces/measured")) {
    if (entry.path().extension() != ".kvt") continue;
    for (const Timeline& t : traces::Import(entry.path()).trace.timelines) {
      if (t.origin == Timeline::Origin::kPredicted) continue;
      const TimelineSummary recorded = Summarize(t);
      if (!recorded.has_compute || recorded.steps.empty()) continue;
      const Replayed replayed = Replay(t, {}).Run();
      EXPECT_NEAR(Seconds(replayed.summary.step) / Seconds(recorded.step), 1, 0.02) << entry.path();
      ++files;
    }
  }
  EXPECT_GT(files, 0);
}

TEST(ReplayTest, WhatFollowsOnAStreamComesAsMuchEarlier) {
  EXPECT_NEAR(StepUs(InARow(), {}), 144, 1e-6);
  // A copy of 2 us that no link speeds up, and 100 us of bytes.
  EXPECT_NEAR(StepUs(InARow(), {"set link.d2h 2x"}), 94, 1e-6);
  EXPECT_NEAR(StepUs(InARow(), {"set link 2x"}), 94, 1e-6);
  EXPECT_NEAR(StepUs(InARow(), {"scale kind=offload 0.5"}), 144 - 51, 1e-6);
  // Without it the second kernel follows the first: 102 us and a gap less.
  EXPECT_NEAR(StepUs(InARow(), {"remove kind=offload"}), 144 - 103, 1.5);
}

TEST(ReplayTest, ACopyOnAStreamOfItsOwnHoldsNoKernelUp) {
  const Replayed moved =
      Replay(InARow(), {}).Run(std::vector{ParseReplayChange("move kind=offload new")});
  EXPECT_NEAR(Seconds(moved.summary.kinds.at("gemm").busy) * 1e6, 30, 1e-6);
  EXPECT_NEAR(StepUs(moved), 41, 2);  // its end is the compute lane's
  ASSERT_EQ(moved.timeline.lanes.size(), 4u);
  EXPECT_EQ(moved.timeline.lanes[3].name, "new stream 1");
}

TEST(ReplayTest, AHostThatIsSlowSetsThePaceUntilItsCallsAreAGraph) {
  Recording r;
  for (int op = 0; op < 10; ++op) r.Run(kCompute, op, 1, op * 20, op * 20 + 5, 4);
  EXPECT_NEAR(StepUs(r.t, {}), 189, 1e-6);
  EXPECT_NEAR(StepUs(r.t, {"set host.speed 2x"}), 99, 1);
  // Ten kernels of 4 us with the usual gap behind the first launch.
  EXPECT_LT(StepUs(r.t, {"graph all"}), 65);
  EXPECT_NEAR(StepUs(r.t, {"remove name=cudaLaunchKernel"}), 189 - 9 * 3, 5);
}

TEST(ReplayTest, AThreadThatSynchronisesGoesOnWhenTheDeviceHas) {
  Recording r;
  r.Run(kCompute, 1, 1, 0, 5, 100);
  r.Add(kHost, 2, 5, 4, 104);  // until 3 us behind the kernel's end
  r.Run(kCompute, 3, 1, 110, 115, 10);
  EXPECT_NEAR(StepUs(r.t, {}), 125, 1e-6);
  EXPECT_NEAR(StepUs(r.t, {"scale step=0 0.5"}), 125 - 50 - 5, 1);
  EXPECT_LT(StepUs(r.t, {"unwait name=Synchronize"}), 120);
}

// Rounds of 200 us: a copy to the GPU on the side stream, a stream wait whose streams no record
// tells, and a kernel. `copy` is how long the copy takes in a round; the kernel is called 40 us
// into it and takes 20 us.
Recording Rounds(const std::vector<double>& copies) {
  Recording r;
  r.t.names.emplace_back("cudaStreamWaitEvent");
  int64_t op = 0;
  for (size_t i = 0; i < copies.size(); ++i) {
    const double at = 200.0 * static_cast<double>(i);
    r.Run(kSide, ++op, 2, at, at + 5, copies[i]);
    r.Add(kHost, ++op, 0, at + 35, 2);
    r.t.name.back() = 6;
    r.Run(kCompute, ++op, 1, at + 40, std::max(at + 45, at + 5 + copies[i] + 2), 20);
  }
  return r;
}

TEST(ReplayTest, AStreamWaitOfUnknownStreamsHoldsWhereTheCopyHadEndedBefore) {
  // Whether it was seen to hold a kernel up in other rounds, or only hands a copy over.
  for (const auto& copies : {std::vector{45.0, 20.0, 45.0, 20.0}, std::vector{20.0, 20.0}}) {
    const Recording r = Rounds(copies);
    const double round = 200 * static_cast<double>(copies.size() - 1);
    EXPECT_NEAR(StepUs(r.t, {}), round + 65, 1e-6);
    // The last copy then ends 85 us into its round: 2 us of it no link speeds up.
    EXPECT_NEAR(StepUs(r.t, {"set link.h2d 0.25x"}), round + 5 + 74 + 20, 3);
    EXPECT_NEAR(StepUs(r.t, {"set link.h2d 4x"}), round + 65, 1e-6);
  }
}

TEST(ReplayTest, AStreamWaitIsNotOfAStreamThatBeganBeforeTheOtherEnded) {
  // Kernels run far behind: each copy begins while the kernel before it still runs.
  Recording r;
  r.t.names.emplace_back("cudaStreamWaitEvent");
  for (int i = 0; i < 4; ++i) {
    const double at = 50.0 * i;
    r.Add(kHost, 100 + i, 0, at, 2);
    r.t.name.back() = 6;
    r.Run(kSide, 200 + i, 2, at + 4, at + 9, 20);
    r.Run(kCompute, 300 + i, 1, at + 8, 13 + 60.0 * i, 59);
  }
  const ReplayChange slower = ParseReplayChange("scale kind=gemm 2");
  const Timeline changed = Replay(r.t, {}).Run(std::span(&slower, 1)).timeline;
  std::vector<int64_t> begins;
  for (size_t row = 0; row < changed.start.size(); ++row) {
    if (changed.lane[row] == kSide) begins.push_back(changed.start[row].count() / kUs);
  }
  EXPECT_THAT(begins, testing::ElementsAre(9, 59, 109, 159));
}

TEST(ReplayTest, NodesOfAGraphFollowAsTheMachineSays) {
  Recording r;
  for (int op = 0; op < 10; ++op) r.Run(kCompute, op, 1, op * 20, op * 20 + 5, 4);
  ReplayMachine machine;
  machine.graph_gap = Picoseconds(kUs / 2);
  EXPECT_NEAR(StepUs(r.t, {"graph all"}, machine), 5 + 10 * 4 + 9 * 0.5, 1e-6);
}

TEST(ReplayTest, AFilterTakesOpsByTheirBytes) {
  EXPECT_NEAR(StepUs(InARow(), {"scale bytes=1000000- 0.5"}), 144 - 51, 1e-6);
  EXPECT_NEAR(StepUs(InARow(), {"scale bytes=0-1000 0.5"}), 144 - 15, 1e-6);
}

TEST(ReplayTest, AFilterTakesWholeNamesAndAlternatives) {
  Recording r;
  r.t.names[1] = "gemm<int, 2>";  // commas and blanks, as kernels have
  r.t.lanes[kSide].name = "GPU 0 stream 77";
  r.Run(kCompute, 1, 1, 0, 10, 10).Run(kSide, 2, 2, 4, 21, 30).Run(kCompute, 3, 4, 8, 52, 40);
  const Replay replay(r.t, {});
  const auto changed = [&](const char* filter) {
    const ReplayChange change = ParseReplayChange(std::string("scale ") + filter + " 0.5");
    return replay.Run(std::span(&change, 1)).changed;
  };
  EXPECT_EQ(changed("name=\"gemm<int, 2>\""), 1);
  EXPECT_EQ(changed("name=\"gemm<int, 2>\",lane=\"GPU 0 stream 7\""), 1);
  EXPECT_EQ(changed("lane=stream 7"), 3) << "a part of the names of both";
  EXPECT_EQ(changed("lane=\"GPU 0 stream 7\""), 2) << "the whole name of one";
  EXPECT_EQ(changed("name=Memcpy D|Memcpy H"), 2);
  EXPECT_EQ(changed("role=recall|offload"), 2);
  EXPECT_EQ(changed("lane=\"GPU 0 stream 7\"|\"GPU 0 stream 77\""), 3);
  EXPECT_THROW(changed("name=\"gemm"), Error);
  EXPECT_THROW(changed("name=\"emm<int, 2>\""), Error) << "a part in quotes";
}

TEST(ReplayTest, AFilterTakesOpsByWhenTheyBeganInTheirStep) {
  Recording r;
  for (int step = 0; step < 3; ++step) {
    const double at = 51.0 * step;  // each step begins as the one before ends
    r.Run(kCompute, 2 * step, 1, at, at + 10, 10, step);
    r.Run(kCompute, 2 * step + 1, 1, at + 4, at + 21, 30, step);
  }
  const ReplayChange second = ParseReplayChange("scale start=15-30 0.5");
  const Replayed replayed = Replay(r.t, {}).Run(std::span(&second, 1));
  EXPECT_EQ(replayed.changed, 3) << "one of each step";
}

TEST(ReplayTest, StopsWhenAsked) {
  const Timeline recording = InARow();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(Replay(recording, {}).Run({}, stop.get_token()), Cancelled);
}

TEST(ReplayTest, TheMachineOfARecordingIsTheShippedOneOfItsName) {
  EXPECT_EQ(MachineOfRecording("NVIDIA H200"), "h200");
  EXPECT_EQ(MachineOfRecording("NVIDIA H20"), "h20");
  EXPECT_EQ(MachineOfRecording("made up"), "h200");
}

TEST(ReplayTest, CopiesBothWaysSlowEachOtherAsTheLinkSays) {
  ReplayMachine machine;
  machine.both_h2d = machine.both_d2h = 0.5;
  Recording r;
  r.Run(kCompute, 1, 4, 0, 5, 100).Run(kSide, 2, 2, 4, 8, 97);
  // Alone the copy to the host would take half of what it took beside the other.
  const double alone = StepUs(r.t, {"remove kind=recall"}, machine);
  EXPECT_NEAR(alone, 5 + 3 + 48.5, 1);
  EXPECT_NEAR(StepUs(r.t, {}, machine), 105, 1e-3);
}

TEST(ReplayTest, CollectivesEndBehindTheLastBegin) {
  Recording r;
  r.t.lanes[kSide].name = "GPU 1 stream 7";
  r.t.lanes[kSide].compute = true;
  r.t.names.emplace_back("ncclDevKernel_AllReduce");
  r.Run(kCompute, 1, 1, 0, 5, 10).Run(kSide, 2, 1, 4, 9, 50);
  for (const auto& [lane, start] : {std::pair(kCompute, 16.0), std::pair(kSide, 60.0)}) {
    r.Add(lane, 3 + lane, 1, start, 70 - start);
    r.t.name.back() = 6;
    r.t.role.back() = Role::kSync;
  }
  // The other GPU's product holds both up.
  EXPECT_NEAR(StepUs(r.t, {}), 70, 1e-6);
  EXPECT_NEAR(StepUs(r.t, {"scale lane=stream,kind=gemm 0.5"}), 45, 1);
}

TEST(ReplayTest, TheLargestExposedOpsComeFirstWithWhatTheyCost) {
  const Timeline recording = InARow();
  const Replay replay(recording, {});
  const std::vector<ReplayTop> tops = replay.Top(10, replay.Run());
  ASSERT_EQ(tops.size(), 2u);
  EXPECT_EQ(tops[0].name, "Memcpy DtoH");
  EXPECT_NEAR(Seconds(tops[0].exposed) * 1e6, 102, 1e-6);
  EXPECT_NEAR(Seconds(tops[0].gain) * 1e6, 103, 1.5);
}

TEST(ReplayTest, TheCriticalPathAddsUpToTheStep) {
  const Replayed replayed = Replay(InARow(), {}).Run();
  Picoseconds sum{0};
  for (const auto& [kind, time] : replayed.critical) sum += time;
  EXPECT_EQ(sum, replayed.summary.step);
  EXPECT_EQ(replayed.critical.at("offload").count(), 102 * kUs);
}

TEST(ReplayTest, WhatChangesNothingOrIsNoChangeIsAnError) {
  const Timeline t = InARow();
  EXPECT_THROW(StepUs(t, {"remove kind=recall"}), Error);
  for (const char* change : {"", "forget all", "remove", "scale all", "scale all -1", "scale all x",
                             "set link.up 2x", "remove kind", "remove colour=red",
                             "remove layer=a-b", "split all 1.5", "move all nowhere"}) {
    EXPECT_THROW(StepUs(t, {change}), Error) << change;
  }
  Recording nothing;
  EXPECT_THROW(Replay(nothing.t, {}), Error);
}

TEST(ReplayTest, AnyChangeOfAnyFilterRunsToItsEnd) {
  std::mt19937_64 random(3);
  Recording r;
  double host = 0, free[3] = {0, 0, 0};
  for (int op = 0; op < 300; ++op) {
    host += static_cast<double>(random() % 10);
    const auto lane = static_cast<uint16_t>(random() % 3 == 0 ? kSide : kCompute);
    const uint32_t name = lane == kSide ? 2 : random() % 3 == 0 ? 4 : 1;
    const double start = std::max(host + 4, free[lane] + 1);
    const double duration = 1 + static_cast<double>(random() % 30);
    r.Run(lane, op, name, host, start, duration, op / 100);
    free[lane] = start + duration;
    host += 3;
  }
  traces::RestoreOrder(&r.t);
  const Replay replay(r.t, {});
  for (const char* filter : {"all", "kind=offload", "kind=recall,step=1", "step=0-1"}) {
    for (const char* verb : {"scale % 0.5", "remove %", "move % new", "move % 20", "batch %",
                             "zero-copy %", "split % 4", "graph %", "unwait %"}) {
      std::string change(verb);
      change.replace(change.find('%'), 1, filter);
      const ReplayChange parsed = ParseReplayChange(change);
      const Replayed replayed = replay.Run(std::span(&parsed, 1));
      EXPECT_EQ(FirstFault(replayed.timeline), "") << change;
      EXPECT_GT(replayed.changed, 0) << change;
    }
  }
}

TEST(CompareProgramsTest, TheCauseIsTheKindThatIsExposedMost) {
  // A program that copies nothing back, and one that does: of other numbers and names.
  Recording without;
  without.Run(kCompute, 1, 1, 0, 10, 10).Run(kCompute, 3, 1, 8, 21, 20);
  const ProgramComparison c = ComparePrograms(without.t, InARow());
  EXPECT_EQ(c.cause, "offload");
  EXPECT_EQ(c.cause_longer.count(), 102 * kUs);
  EXPECT_EQ(c.kinds.at("gemm").matched, 2);
  EXPECT_EQ(c.kinds.at("offload").only_b, 1);
  EXPECT_EQ(c.kinds.at("offload").only_a, 0);
}

TEST(TimelineSummaryTest, TheHostsPaceIsTheMedianTimeBetweenWhatItStarts) {
  Recording r;
  for (int op = 0; op < 100; ++op) r.Run(kCompute, op, 1, op * 20, op * 20 + 5, 4);
  r.Run(kCompute, 100, 1, 40'000, 40'005, 4);
  EXPECT_EQ(Summarize(r.t).launch_interval.count(), 20 * kUs);
  EXPECT_EQ(Summarize(InARow()).launch_interval.count(), 0);  // too few to tell
}

TEST(TimelineSummaryTest, CopiesOnAComputeLaneAreExposedAndNoComputing) {
  const TimelineSummary summary = Summarize(InARow());
  EXPECT_EQ(summary.computing.count(), 30 * kUs);
  EXPECT_EQ(summary.exposed.count(), 114 * kUs);
  EXPECT_EQ(summary.kinds.at("offload").exposed.count(), 102 * kUs);
  EXPECT_EQ(summary.nothing.count(), 12 * kUs);
  EXPECT_NEAR(summary.copies.at("Memcpy DtoH on GPU 0 stream 7").Rate(), (1 << 20) / 102e-6, 1e3);
}

}  // namespace
}  // namespace stallcast::sim
