// Programs that were recorded, really changed and recorded again: what replay predicts of the
// change from the first recording alone, beside the second. tests/sim/recordings/README.md tells
// where they come from. The table that the test prints is that of sim/replay.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "sim/quantile.h"
#include "sim/replay.h"
#include "sim/timeline_summary.h"
#include "traces/convert/import.h"
#include "traces/reorder.h"

namespace stallcast::sim {
namespace {

using traces::LaneKind;
using traces::Timeline;

const std::filesystem::path kRecordings =
    std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/sim/recordings";

// What differs between the two recordings beside the change, as the recordings tell it.
struct Differs {
  bool host = true;   // others use the host: its speed, by the time from launch to launch
  bool link = false;  // another host: its link, by the rates of copies
  bool plan = false;  // the changed program alone compiles kernels for each length, see CompileTime
};

struct Pair {
  std::string name, base, changed;
  std::vector<std::string> changes;
  Differs differs;
  double unrecorded = 0;  // ms a step of the changed program; 0: its recording is what to compare
};

std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  // A CUDA graph is compared with steps that were not recorded: recording it adds 3 ms to a launch.
  const std::map<int, double> graph_ms = {{8192, 13.406}, {16384, 19.088}, {32768, 29.909}};
  const std::string caches = "kind=offload,bytes=1000000-";
  const auto file = [](const char* program, int context) {
    return fmt::format("{}-{}", program, context);
  };
  for (const auto& [context, ms] : graph_ms) {
    const std::string base = file("offloaded", context);
    pairs.push_back({"side-stream write-back",
                     base,
                     file("offloaded-side", context),
                     {fmt::format("move {} new", caches)},
                     {}});
    pairs.push_back({"new-token write-back",
                     base,
                     file("offloaded-new", context),
                     {fmt::format("scale {} {:.7f}", caches, 1.0 / context)},
                     {.plan = true}});
    pairs.push_back({"one CUDA graph",
                     file("static-eager", context),
                     file("static-graph", context),
                     {"graph all"},
                     {.host = false},
                     ms});
  }
  const std::vector<std::string> halves = {"scale kind=attention 0.5", "scale name=CatArray 0.5"};
  const std::vector<std::string> copied = {"scale kind=attention 0.5", "scale name=CatArray 0.5",
                                           "scale kind=recall,bytes=1000000- 0.5",
                                           fmt::format("scale {} 0.5", caches)};
  const std::vector<std::string> recalled = {"scale kind=attention 0.5", "scale name=CatArray 0.5",
                                             "scale kind=recall,bytes=1000000- 0.5"};
  const std::vector<std::string> still = {"scale kind=attention 0.5", "scale kind=rearrange 0.5"};
  for (const int context : {32768, 16384}) {
    for (const auto& [program, changes] :
         {std::pair("full", halves), std::pair("offloaded", copied),
          std::pair("offloaded-side", copied), std::pair("offloaded-new", recalled),
          std::pair("static-eager", still), std::pair("static-graph", still)}) {
      pairs.push_back(
          {"half the context", file(program, context), file(program, context / 2), changes, {}});
    }
  }
  const std::string shorter = fmt::format("{:.5f}", 32000.0 / 32768);
  pairs.push_back(
      {"another host",
       "offloaded-32768",
       "offloaded-32000-host-b",
       {"scale kind=attention " + shorter, "scale kind=recall,bytes=1000000- " + shorter,
        fmt::format("scale {} {}", caches, shorter)},
       {.link = true}});
  return pairs;
}

Timeline Load(const std::string& name) {
  traces::Trace trace = traces::Import(kRecordings / (name + ".kvt")).trace;
  EXPECT_EQ(trace.timelines.size(), 1u) << name;
  return trace.timelines.at(0);
}

// cuDNN compiles attention for each number of keys that the process meets first: tens of
// milliseconds a step in which the host starts nothing, and else at most two.
Picoseconds CompileTime(const Timeline& t) {
  std::map<int32_t, std::vector<Picoseconds>> calls;  // by step
  for (size_t row = 0; row < t.start.size(); ++row) {
    const std::string& name = t.names[t.name[row]];
    if (t.lanes[t.lane[row]].kind != LaneKind::kHost || t.step[row] < 0) continue;
    if (name.find("Launch") != std::string::npos) calls[t.step[row]].push_back(t.start[row]);
  }
  std::vector<Picoseconds> longest;
  for (auto& [step, starts] : calls) {
    std::ranges::sort(starts);
    Picoseconds most{0};
    for (size_t i = 1; i < starts.size(); ++i) most = std::max(most, starts[i] - starts[i - 1]);
    longest.push_back(most);
  }
  return Quantile(longest, 0.5);
}

struct Result {
  double base = 0, unchanged = 0, predicted = 0, measured = 0, host = 1;  // ms, and speed
  double error() const { return predicted / measured - 1; }
};

Result Evaluate(const Pair& pair) {
  const Timeline base = Load(pair.base), changed = Load(pair.changed);
  const TimelineSummary before = Summarize(base), after = Summarize(changed);
  Result result;
  std::vector<std::string> texts = pair.changes;
  if (pair.differs.host && before.launch_interval.count() > 0 &&
      after.launch_interval.count() > 0) {
    result.host = Seconds(before.launch_interval) / Seconds(after.launch_interval);
    texts.push_back(fmt::format("set host.speed {:.4f}", result.host));
  }
  if (pair.differs.link) {
    for (const auto& [setting, kind] : {std::pair("link.h2d", "recall"), {"link.d2h", "offload"}}) {
      texts.push_back(fmt::format("set {} {:.4f}", setting,
                                  after.kinds.at(kind).Rate() / before.kinds.at(kind).Rate()));
    }
  }
  std::vector<ReplayChange> changes;
  for (const std::string& text : texts) changes.push_back(ParseReplayChange(text));
  const Replay replay(base, MakeReplayMachine(hardware::FindProfile("h200")));
  result.base = Milliseconds(before.step);
  result.unchanged = Milliseconds(replay.Run().summary.step);
  result.predicted = Milliseconds(replay.Run(changes).summary.step);
  result.measured = pair.unrecorded > 0 ? pair.unrecorded : Milliseconds(after.step);
  if (pair.differs.plan) result.measured -= Milliseconds(CompileTime(changed));
  return result;
}

TEST(MeasuredPairsTest, ChangedProgramsTakeWhatReplayPredicts) {
  std::vector<double> errors;
  fmt::print("| program | change | host | recorded | predicted | measured | error |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const Pair& pair : Pairs()) {
    const Result r = Evaluate(pair);
    fmt::print("| {} | {} | {:.2f} | {:.1f} | {:.1f} | {:.1f} | {:+.1f} % |\n", pair.base,
               pair.name, r.host, r.base, r.predicted, r.measured, 100 * r.error());
    EXPECT_NEAR(r.unchanged / r.base, 1, 0.02) << pair.base;
    errors.push_back(std::abs(r.error()));
  }
  EXPECT_LE(Quantile(errors, 0.5), 0.03);
  EXPECT_LE(Quantile(errors, 1.0), 0.10);
}

// Steps recall as many pages as their queries ask for, the first of four most: means are compared.
// The recorder's own time for each of 1,900 copies a step counts as the host's, which stays.
TEST(MeasuredPairsTest, AnotherRecallPathOfFreeKvTakesWhatReplayPredicts) {
  const auto mean = [](const TimelineSummary& summary) {
    return Milliseconds(summary.computing) + Milliseconds(summary.exposed);
  };
  for (const auto& [base, changed, text] :
       {std::tuple("freekv-per-page-8192", "freekv-batched-8192", "batch kind=recall"),
        std::tuple("freekv-staged-8192", "freekv-zero-copy-8192", "zero-copy kind=recall")}) {
    const Timeline before = Load(base);
    const Replay replay(before, MakeReplayMachine(hardware::FindProfile("h200")));
    const ReplayChange change = ParseReplayChange(text);
    const double predicted = mean(replay.Run(std::span(&change, 1)).summary);
    const double measured = mean(Summarize(Load(changed)));
    fmt::print("| {} | {} | 1.00 | {:.1f} | {:.1f} | {:.1f} | {:+.1f} % |\n", base, text,
               mean(Summarize(before)), predicted, measured, 100 * (predicted / measured - 1));
    EXPECT_NEAR(predicted / measured, 1, 0.15) << base;
  }
}

TEST(MeasuredPairsTest, WaitsThatNoRecordNamesAreThoseOfTheRecords) {
  const Timeline named = Load("offloaded-32000-host-b");
  Timeline unnamed = named;
  std::vector<uint32_t> kept;
  for (uint32_t row = 0; row < named.start.size(); ++row) {
    if (!named.lanes[named.lane[row]].name.ends_with(" waits")) kept.push_back(row);
  }
  ASSERT_LT(kept.size(), named.start.size());
  traces::Reorder(unnamed, kept);
  const ReplayMachine machine = MakeReplayMachine(hardware::FindProfile("h200"));
  for (const char* change : {"scale kind=offload,bytes=1000000- 0.001", "set link.h2d 0.5x",
                             "set host.speed 3x", "graph all"}) {
    const ReplayChange parsed = ParseReplayChange(change);
    const auto step = [&](const Timeline& t) {
      return Seconds(Replay(t, machine).Run(std::span(&parsed, 1)).summary.step);
    };
    EXPECT_NEAR(step(unnamed) / step(named), 1, 0.001) << change;
  }
}

}  // namespace
}  // namespace stallcast::sim
