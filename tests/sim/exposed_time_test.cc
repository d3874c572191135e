#include "sim/exposed_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "sim/predict.h"
#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::LaneKind;
using traces::Role;
using traces::StepSpans;
using traces::Timeline;

constexpr uint16_t kHost = 0, kCompute = 1, kSide = 2, kEngine = 3, kCompute2 = 4;

struct Row {
  uint16_t lane;
  Role role;
  int64_t op;
  int64_t start, end;
  int32_t step = 0;
};

Timeline Of(const std::vector<Row>& rows) {
  Timeline t;
  t.lanes = {{"host", LaneKind::kHost, false},
             {"compute", LaneKind::kStream, true},
             {"side", LaneKind::kStream, false},
             {"engine", LaneKind::kCopyEngine, false},
             {"compute 2", LaneKind::kStream, true}};
  t.names = {"op"};
  for (const Row& row : rows) {
    t.lane.push_back(row.lane);
    t.op.push_back(row.op);
    t.step.push_back(row.step);
    t.layer.push_back(0);
    t.role.push_back(row.role);
    t.name.push_back(0);
    t.start.emplace_back(row.start);
    t.duration.emplace_back(row.end - row.start);
    t.bytes.push_back(0);
  }
  return t;
}

// Of step 0.
ExposedTime Exposed(const std::vector<Row>& rows) { return ExposedBySteps(Of(rows)).at(0); }

// What should be, in order: recall, offload, nothing, total.
void Expect(const ExposedTime& exposed, std::array<int64_t, 4> times) {
  EXPECT_EQ(exposed.role(Role::kRecall).count(), times[0]);
  EXPECT_EQ(exposed.role(Role::kOffload).count(), times[1]);
  EXPECT_EQ(exposed.nothing.count(), times[2]);
  EXPECT_EQ(exposed.total.count(), times[3]);
}

TEST(ExposedTime, IsWhatARecallRunsOutsideOfComputing) {
  // Computes 0-100 and 160-200; recall 50-140: 40 outside.
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                  {kSide, Role::kRecall, 1, 50, 140},
                  {kCompute, Role::kMlp, 2, 160, 200}}),
         {40, 0, 20, 60});
  // Wholly under computing: none.
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100}, {kSide, Role::kRecall, 1, 0, 100}}),
         {0, 0, 0, 0});
}

TEST(ExposedTime, LanesOfOneRoleCountOnce) {
  // Recalls 100-150 on a stream and 130-180 on a copy engine.
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                  {kSide, Role::kRecall, 1, 100, 150},
                  {kEngine, Role::kRecall, 2, 130, 180},
                  {kCompute, Role::kMlp, 3, 200, 210}}),
         {80, 0, 20, 100});
}

TEST(ExposedTime, EachOfSeveralRolesCountsTheSameTime) {
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                  {kSide, Role::kRecall, 1, 100, 150},
                  {kEngine, Role::kOffload, 2, 130, 180},
                  {kCompute, Role::kMlp, 3, 200, 210}}),
         {50, 50, 20, 100});
}

TEST(ExposedTime, AnyComputeLaneComputes) {
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                  {kSide, Role::kRecall, 1, 100, 150},
                  {kCompute2, Role::kSelection, 2, 120, 140},
                  {kCompute, Role::kMlp, 3, 150, 210}}),
         {30, 0, 0, 30});
}

TEST(ExposedTime, MovingOnTheComputeLaneIsNotComputing) {
  Expect(Exposed({{kCompute, Role::kSelection, 0, 0, 100},
                  {kCompute, Role::kRecall, 1, 100, 170},
                  {kCompute, Role::kOffload, 2, 170, 175},
                  {kCompute, Role::kSync, 3, 175, 178},
                  {kCompute, Role::kLayout, 4, 180, 300}}),
         {70, 5, 2, 80});
}

TEST(ExposedTime, ARoleOtherThanMovingIsExposedOnAnotherLane) {
  const ExposedTime exposed = Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                                       {kSide, Role::kLayout, 1, 90, 130},
                                       {kCompute, Role::kMlp, 2, 150, 160}});
  EXPECT_EQ(exposed.role(Role::kLayout).count(), 30);
  EXPECT_EQ(exposed.nothing.count(), 20);
}

TEST(ExposedTime, HostWorkCountsAndCallsAndWaitsDoNot) {
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 100},
                  {kHost, Role::kSync, 1, 0, 110},      // waits
                  {kHost, Role::kRecall, 2, 110, 150},  // gathers
                  {kHost, Role::kHost, 3, 150, 160},    // calls the copy
                  {kHost, Role::kRecall, 3, 150, 160},  // whatever role its call has
                  {kSide, Role::kRecall, 3, 165, 185},
                  {kHost, Role::kRecall, -1, 186, 188},  // no op: work or call, who knows
                  {kCompute, Role::kMlp, 4, 190, 200}}),
         {60, 0, 30, 90});
}

TEST(ExposedTime, AnOpRunsFromItsFirstRowToItsLast) {
  // A copy a piece, an attention of two kernels: as the prediction's one row each.
  Expect(Exposed({{kCompute, Role::kAttention, 0, 0, 40},
                  {kCompute, Role::kAttention, 0, 60, 100},
                  {kSide, Role::kRecall, 1, 30, 45},
                  {kSide, Role::kRecall, 1, 110, 120},
                  {kSide, Role::kRecall, 1, 140, 150},
                  {kCompute, Role::kMlp, 2, 150, 160}}),
         {50, 0, 0, 50});
  // Rows without an op are runs of their own.
  Expect(Exposed({{kCompute, Role::kAttention, -1, 0, 40},
                  {kCompute, Role::kAttention, -1, 60, 100},
                  {kSide, Role::kRecall, -1, 30, 45},
                  {kSide, Role::kRecall, -1, 70, 120},
                  {kCompute, Role::kMlp, -1, 150, 160}}),
         {25, 0, 45, 70});
}

TEST(ExposedTime, IsCutAtTheStepsEnds) {
  // Step 0 from its first call at 10 to 100, step 1 to 200; the recall from 90 is of step 0.
  const auto exposed = ExposedBySteps(Of({{kHost, Role::kHost, 0, 10, 20, 0},
                                          {kCompute, Role::kAttention, 0, 30, 80, 0},
                                          {kSide, Role::kRecall, 1, 70, 150, 0},
                                          {kCompute, Role::kSync, 2, 95, 100, 0},
                                          {kCompute, Role::kAttention, 3, 120, 200, 1},
                                          {kSide, Role::kRecall, 4, 190, 400, 1}}));
  ASSERT_EQ(exposed.size(), 2u);
  Expect(exposed.at(0), {20, 0, 20, 40});  // 80 to 100; 10 to 30
  Expect(exposed.at(1), {20, 0, 0, 20});   // 100 to 120; after the step's end nothing counts
}

TEST(ExposedTime, TheFirstStepBeginsWithItsFirstRowInWhateverOrder) {
  const Timeline t = Of({{kCompute, Role::kMlp, 1, 60, 100},
                         {kSide, Role::kRecall, 0, 20, 50},
                         {kCompute, Role::kAttention, 2, 70, 130}});
  EXPECT_EQ(StepSpans(t).at(0).start.count(), 20);
  EXPECT_EQ(StepSpans(t).at(0).end.count(), 130);
  Expect(ExposedBySteps(t).at(0), {30, 0, 10, 40});
}

TEST(ExposedTime, RowsOfNoStepAreNotOneOp) {
  // Two rows of the prompt that bear the same number; what they leave free is not theirs.
  Expect(Exposed({{kSide, Role::kRecall, 7, 0, 10, -1},
                  {kSide, Role::kRecall, 7, 50, 60, -1},
                  {kCompute, Role::kAttention, 1, 0, 20},
                  {kCompute, Role::kMlp, 2, 80, 100}}),
         {10, 0, 50, 60});
}

TEST(ExposedTime, IsNotKnownWithoutAComputeLane) {
  Timeline t = Of({{kCompute, Role::kAttention, 0, 0, 100}, {kSide, Role::kRecall, 1, 50, 140}});
  for (traces::TimelineLane& lane : t.lanes) lane.compute = false;
  EXPECT_TRUE(ExposedBySteps(t).empty());
  EXPECT_EQ(StepSpans(t).at(0).end.count(), 140);
}

TEST(ExposedTime, IsNotKnownOfCallsAlone) {
  const Timeline calls = Of({{kHost, Role::kHost, 0, 0, 100}, {kHost, Role::kSync, 1, 100, 140}});
  EXPECT_TRUE(ExposedBySteps(calls).empty());
  EXPECT_EQ(StepSpans(calls).at(0).end.count(), 140);
}

// Every instant of every step asked by itself, by the words of the header.
std::map<int32_t, ExposedTime> ByInstant(const std::vector<Row>& rows) {
  struct Run {
    Role role = Role::kOther;
    bool computes = false;
    int64_t start = 1 << 30, end = 0;
  };
  const auto on_compute = [](const Row& row) {
    return row.lane == kCompute || row.lane == kCompute2;
  };
  std::map<std::pair<int32_t, int64_t>, Run> runs;
  for (const bool host : {false, true}) {
    std::map<std::pair<int32_t, int64_t>, Run> found;
    for (const Row& row : rows) {
      if ((row.lane == kHost) != host) continue;
      if (host && (row.role == Role::kHost || row.role == Role::kSync)) continue;
      const bool moves =
          row.role == Role::kRecall || row.role == Role::kOffload || row.role == Role::kSync;
      Run& run = found[{row.step, row.op}];
      run.role = row.role;
      run.computes |= on_compute(row) && !moves;
      run.start = std::min(run.start, row.start);
      run.end = std::max(run.end, row.end);
    }
    runs.merge(found);
  }
  std::map<int32_t, ExposedTime> exposed;
  if (std::ranges::none_of(rows, on_compute)) return exposed;
  for (const auto& [step, span] : StepSpans(Of(rows))) {
    ExposedTime& of = exposed[step];
    for (int64_t at = span.start.count(); at < span.end.count(); ++at) {
      std::array<bool, traces::kRoles> running{};
      bool computing = false, any = false;
      for (const auto& [key, run] : runs) {
        if (at < run.start || at >= run.end) continue;
        computing |= run.computes;
        running[static_cast<size_t>(run.role)] = any = true;
      }
      if (computing) continue;
      ++of.total;
      if (!any) ++of.nothing;
      for (size_t role = 0; role < running.size(); ++role)
        of.roles[role] += Picoseconds(running[role]);
    }
  }
  return exposed;
}

TEST(ExposedTime, OfRandomTimelinesIsWhatEveryInstantSays) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
  };
  int exposed_recalls = 0;
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Row> rows;
    std::vector<Role> roles;  // by op
    for (int op = 0; op < 12; ++op) roles.push_back(static_cast<Role>(below(traces::kRoles)));
    const int64_t count = 4 + below(24);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t op = below(12), start = below(300);
      const auto step = static_cast<int32_t>(op / 4);
      rows.push_back({static_cast<uint16_t>(below(5)), roles[static_cast<size_t>(op)], op, start,
                      start + below(40), step});
    }
    const auto expected = ByInstant(rows);
    const auto found = ExposedBySteps(Of(rows));
    const auto spans = StepSpans(Of(rows));
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, e] : expected) {
      const ExposedTime& f = found.at(step);
      EXPECT_EQ(f.roles, e.roles);
      EXPECT_EQ(f.nothing, e.nothing);
      EXPECT_EQ(f.total, e.total);
      const Picoseconds time = spans.at(step).end - spans.at(step).start;
      EXPECT_LE(f.total, time);
      for (const Picoseconds role : f.roles) {
        EXPECT_GE(role.count(), 0);
        EXPECT_LE(role, f.total - f.nothing);
      }
      exposed_recalls += f.role(Role::kRecall).count() > 0;
    }
  }
  EXPECT_GT(exposed_recalls, 20);
}

// Of a prediction the metrics know the causes. What is exposed in all is the same. Recall is, to
// 5 %, what the compute lane waited for while it ran; where recalls are speculative, as FreeKV's,
// some only happen to run while compute waits for something else.
TEST(ExposedTime, OfPredictionsAgreesWithTheirMetrics) {
  PredictorOptions options;
  options.cache = false;
  Predictor predictor(STALLCAST_SOURCE_DIR "/traces/samples/qwen-8k.kvt", options);
  for (const char* method :
       {"full", "offload", "arkvale", "freekv", "louiskv", "prkv", "pariskv"}) {
    SCOPED_TRACE(method);
    PredictRequest request;
    request.method = method;
    request.model = "llama-3.1-8b";
    request.machine = "h200";
    request.steps = 4;
    request.prefill = false;
    Timeline timeline;
    const Metrics metrics = predictor.Predict(request, &timeline).metrics;
    double total = 0, recall = 0;
    const auto exposed = ExposedBySteps(timeline);
    ASSERT_EQ(exposed.size(), 4u);
    for (const auto& [step, of] : exposed) {
      total += Seconds(of.total) / 4;
      recall += Seconds(of.role(Role::kRecall)) / 4;
    }
    EXPECT_NEAR(total, Seconds(metrics.exposed), 2e-6);
    const double charged = Seconds(metrics.roles[static_cast<size_t>(Role::kRecall)].exposed);
    EXPECT_GE(recall, 0.95 * charged);
    if (method != std::string_view("freekv")) {
      EXPECT_LE(recall, 1.05 * charged);
    }
  }
}

}  // namespace
}  // namespace stallcast::sim
