// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "models/hardware/cost_model.h"
#include "models/methods/method.h"
#include "sim/engine.h"
#include "sim/metrics.h"
#include "sim/predict.h"
#include "tests/gui/timeline/random_timeline.h"
#include "tests/sim/freekv_plan.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

using hardware::How;
using hardware::Site;

using traces::Role;
using traces::Timeline;

constexpr uint16_t kHost = 0, kCompute = 1, kCopy = 2;

using Content = std::multiset<std::tuple<uint16_t, int64_t, int32_t, int16_t, Role, uint32_t,
                                         Picoseconds, Picoseconds, int64_t, int64_t>>;
Content ContentOf(const Timeline& t) {
  Content content;
  for (size_t i = 0; i < t.start.size(); ++i) {
    content.insert({t.lane[i], t.op[i], t.step[i], t.layer[i], t.role[i], t.name[i], t.start[i],
                    t.duration[i], t.bytes[i], t.graph_node.empty() ? 0 : t.graph_node[i]});
  }
  return content;
}

TEST(TimelineModel, KeepsEveryRowAndLetsNoneOverlapOnATrack) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Timeline t = RandomTimeline(seed, 500);
    t.graph_node.resize(t.start.size());
    std::iota(t.graph_node.begin(), t.graph_node.end(), int64_t{1});
    const auto model = TimelineModel::Build(t);
    EXPECT_EQ(ContentOf(model->timeline()), ContentOf(t));
    int64_t row = 0;
    for (size_t k = 0; k < model->tracks().size(); ++k) {
      const ModelTrack& at = model->tracks()[k];
      EXPECT_EQ(at.first_row, row);
      const Track track = model->Ops(static_cast<int32_t>(k));
      ASSERT_GT(track.size(), 0);
      for (int64_t i = 0; i < track.size(); ++i, ++row) {
        EXPECT_EQ(model->timeline().lane[static_cast<size_t>(row)], at.lane);
        EXPECT_EQ(model->TrackOf(row), static_cast<int32_t>(k));
        if (i > 0) {
          EXPECT_GE(track.start(i), track.end(i - 1));
        }
      }
    }
    EXPECT_EQ(row, t.rows());
  }
}

TEST(TimelineModel, TracksAreAsManyAsOpsRunAtOnce) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto model = TimelineModel::Build(RandomTimeline(seed, 300));
    const Timeline& t = model->timeline();
    for (size_t lane = 0; lane < t.lanes.size(); ++lane) {
      // The most ops of length above 0 at any one moment: at the start of one of them.
      int32_t most = 0;
      const ModelLane& of = model->lanes()[lane];
      for (int64_t a = of.first_row; a < of.first_row + of.rows; ++a) {
        int32_t running = 0;
        for (int64_t b = of.first_row; b < of.first_row + of.rows; ++b) {
          running += model->Start(b) <= model->Start(a) && model->End(b) > model->Start(a);
        }
        most = std::max(most, running);
      }
      // An op of no length in the midst of others needs a track of its own.
      EXPECT_GE(of.tracks, most);
      EXPECT_LE(of.tracks, most + 1);
    }
  }
}

TEST(TimelineModel, ARangeIsBesideWhatIsInsideIt) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = kHost, .name = 1, .start = 0, .duration = 10});
  Add(t, {.lane = kHost, .name = 0, .start = 0, .duration = 100});
  Add(t, {.lane = kHost, .name = 2, .start = 20, .duration = 10});
  const auto model = TimelineModel::Build(t);
  ASSERT_EQ(model->lanes()[kHost].tracks, 2);
  EXPECT_EQ(model->Ops(0).size(), 1);
  EXPECT_EQ(model->NameOf(0), "gemm");
  EXPECT_EQ(model->Ops(1).size(), 2);
}

std::vector<std::tuple<int64_t, int64_t, Role, std::string>> ExposuresOf(
    const TimelineModel& model) {
  std::vector<std::tuple<int64_t, int64_t, Role, std::string>> found;
  const ModelLane& lane = model.lanes()[kCompute];
  for (int64_t i = lane.first_exposure; i < lane.first_exposure + lane.exposures; ++i) {
    const Exposure e = model.exposure(i);
    found.emplace_back(e.start.count(), e.duration.count(), e.role,
                       e.cause < 0 ? "" : model.NameOf(e.cause));
  }
  return found;
}

TEST(TimelineModel, ExposedTimeIsChargedToWhatWasWaitedFor) {
  Timeline t = EmptyTimeline();
  t.names = {"gemm", "copy", "call copy", "call attention", "attention"};
  Add(t, {.lane = kCompute,
          .op = 0,
          .role = Role::kProjection,
          .name = 0,
          .start = 0,
          .duration = 100});
  // The copy is called at 60, starts at 110 behind another, and keeps attention waiting.
  Add(t, {.lane = kHost, .op = 1, .role = Role::kHost, .name = 2, .start = 50, .duration = 30});
  Add(t, {.lane = kCopy, .op = 1, .role = Role::kRecall, .name = 1, .start = 90, .duration = 160});
  Add(t, {.lane = kHost, .op = 2, .role = Role::kHost, .name = 3, .start = 80, .duration = 20});
  Add(t, {.lane = kCompute,
          .op = 2,
          .role = Role::kAttention,
          .name = 4,
          .start = 255,
          .duration = 50});
  t.flows = {{0, 1}, {1, 2}};
  const auto model = TimelineModel::Build(t);
  using E = std::tuple<int64_t, int64_t, Role, std::string>;
  EXPECT_EQ(ExposuresOf(*model), (std::vector<E>{{100, 155, Role::kRecall, "copy"}}));
}

TEST(TimelineModel, LaunchBoundGapsAreTheHosts) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = kHost, .op = 0, .role = Role::kHost, .name = 2, .start = 0, .duration = 40});
  Add(t, {.lane = kCompute, .op = 0, .start = 50, .duration = 10});
  Add(t, {.lane = kHost, .op = 1, .role = Role::kHost, .name = 2, .start = 40, .duration = 60});
  Add(t, {.lane = kCompute, .op = 1, .start = 110, .duration = 10});
  const auto model = TimelineModel::Build(t);
  int64_t host = 0;
  for (const auto& [start, duration, role, name] : ExposuresOf(*model)) {
    EXPECT_EQ(role, Role::kHost);
    EXPECT_EQ(name, "call gemm");
    host += duration;
  }
  EXPECT_EQ(host, 50 + 50);  // before the first op, and between the two
}

TEST(TimelineModel, TransfersOnTheComputeLaneAreExposed) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = kCompute, .op = 0, .start = 0, .duration = 10});
  Add(t,
      {.lane = kCompute, .op = 1, .role = Role::kRecall, .name = 1, .start = 10, .duration = 30});
  const auto model = TimelineModel::Build(t);
  using E = std::tuple<int64_t, int64_t, Role, std::string>;
  EXPECT_EQ(ExposuresOf(*model), (std::vector<E>{{10, 30, Role::kRecall, "copy"}}));
}

TEST(TimelineModel, WithoutCausesTheLastToEndElsewhereIsNamed) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = kCompute, .start = 0, .duration = 10});
  Add(t, {.lane = kCopy, .role = Role::kRecall, .name = 1, .start = 5, .duration = 80});
  Add(t, {.lane = kCompute, .start = 90, .duration = 10});
  const auto model = TimelineModel::Build(t);
  using E = std::tuple<int64_t, int64_t, Role, std::string>;
  EXPECT_EQ(ExposuresOf(*model), (std::vector<E>{{10, 80, Role::kRecall, "copy"}}));
}

// What is exposed and what is computed fill the lane, without overlap.
TEST(TimelineModel, ExposuresFillTheGapsExactly) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    Timeline t = RandomTimeline(seed, 400);
    for (Role& role : t.role) {
      if (role == Role::kRecall || role == Role::kOffload || role == Role::kSync) role = Role::kMlp;
    }
    const auto model = TimelineModel::Build(t);
    const ModelLane& lane = model->lanes()[kCompute];
    std::vector<std::pair<Picoseconds, Picoseconds>> busy;
    for (int64_t row = lane.first_row; row < lane.first_row + lane.rows; ++row) {
      busy.emplace_back(model->Start(row), model->End(row));
    }
    std::sort(busy.begin(), busy.end());
    Picoseconds until = model->begin(), gaps{0};
    for (const auto& [start, end] : busy) {
      gaps += std::max(Picoseconds{0}, start - until);
      until = std::max(until, end);
    }
    Picoseconds exposed{0}, last = model->begin();
    for (int64_t i = lane.first_exposure; i < lane.first_exposure + lane.exposures; ++i) {
      const Exposure e = model->exposure(i);
      EXPECT_GE(e.start, last);
      EXPECT_GT(e.duration.count(), 0);
      last = e.start + e.duration;
      exposed += e.duration;
    }
    EXPECT_EQ(exposed, gaps);
  }
}

// The engine knows the causes; the timeline has only calls, waits and times. Both blame the same
// where a call and a wait take as long to let an op go: which of two came last shows in the times.
TEST(TimelineModel, ExposuresAreTheMetrics) {
  const plan::Plan plan = sim::FreeKvPlan(4);
  for (double link : {50e9, 10e9}) {
    hardware::Profile profile = hardware::FindProfile("h200");
    // The rows blame what ended last; they do not say what passes until an op starts, which the
    // engine counts too, nor what of a call was a copy or a thread's waking.
    profile.handoff(Site::kHost, Site::kKernel, How::kStream) =
        profile.handoff.SetCopyLaunch(profile.handoff(Site::kKernel, Site::kKernel, How::kEvent));
    profile.handoff.SetEventToCopy(profile.handoff.SetEventFromCopy(
        profile.handoff(Site::kKernel, Site::kKernel, How::kEvent)));
    profile.handoff.SetCopyGap(profile.handoff(Site::kKernel, Site::kKernel, How::kStream));
    profile.copy.h2d_inline_call = profile.host.woken = profile.host.handoff_asleep = {};
    profile.link.h2d = link;
    profile.link.both_h2d = std::min(profile.link.both_h2d, link);
    const hardware::CostModel cost(profile);
    const sim::Simulation simulation(plan, cost);
    const sim::Execution execution = simulation.Run();
    const sim::Metrics metrics = sim::Measure(simulation, execution, 1);
    const auto model = TimelineModel::Build(sim::ToTimeline(simulation, execution));
    std::array<int64_t, traces::kRoles> exposed{};
    int64_t total = 0;
    for (size_t l = 0; l < model->lanes().size(); ++l) {
      const Track track = model->ExposureTrack(static_cast<int32_t>(l));
      for (int64_t i = 0; i < track.size(); ++i) {
        exposed[static_cast<size_t>(track.role(i))] += track.duration(i).count();
        total += track.duration(i).count();
      }
    }
    // After its last op the compute lane waits for nothing that a timeline shows.
    const ModelLane& lane = *std::find_if(model->lanes().begin(), model->lanes().end(),
                                          [](const ModelLane& l) { return l.exposures > 0; });
    const Picoseconds tail =
        execution.end[static_cast<size_t>(plan::Index(plan.step_ends.back()))] -
        model->End(lane.first_row + lane.rows - 1);
    exposed[static_cast<size_t>(Role::kSync)] += tail.count();
    const auto steps = static_cast<int64_t>(plan.step_ends.size());
    for (size_t r = 0; r < exposed.size(); ++r) {
      EXPECT_NEAR(static_cast<double>(exposed[r] / steps),
                  static_cast<double>(metrics.roles[r].exposed.count()), 1000)  // 1 ns
          << Name(static_cast<Role>(r));
    }
    EXPECT_NEAR(static_cast<double>((total + tail.count()) / steps),
                static_cast<double>(metrics.exposed.count()), 1000);
  }
}

TEST(TimelineModel, ExposuresOfEveryMethodAreThoseOfItsReport) {
  sim::PredictorOptions options;
  options.cache = false;
  options.first_steps = 4;
  sim::Predictor predictor(std::string(STALLCAST_SOURCE_DIR) + "/traces/samples/qwen-8k.kvt",
                           options);
  for (const methods::MethodInfo& method : methods::Methods()) {
    SCOPED_TRACE(method.name);
    sim::PredictRequest request;
    request.method = method.name;
    request.model = "llama-3.1-8b";
    request.steps = 4;
    request.prefill = false;
    // Rows do not say that a copy is held up by the way that the one before it went, nor that the
    // event of a copy that has ended comes later than the row before has.
    request.machine_overrides = {{"handoff.d2h.h2d.stream", "1us"},
                                 {"handoff.h2d.kernel.event", "1us"}};
    traces::Timeline timeline;
    const sim::Metrics metrics = predictor.Predict(request, &timeline).metrics;
    const auto model = TimelineModel::Build(timeline);
    std::array<double, traces::kRoles> exposed{};
    for (size_t l = 0; l < model->lanes().size(); ++l) {
      const Track track = model->ExposureTrack(static_cast<int32_t>(l));
      for (int64_t i = 0; i < track.size(); ++i) {
        exposed[static_cast<size_t>(track.role(i))] +=
            Seconds(track.duration(i)) / static_cast<double>(request.steps);
      }
    }
    for (size_t r = 0; r < exposed.size(); ++r) {
      const double reported = Seconds(metrics.roles[r].exposed);
      EXPECT_NEAR(exposed[r], reported, std::max(2e-6, 0.01 * reported))
          << Name(static_cast<Role>(r));
    }
  }
}

TEST(TimelineModel, StepsBeginWhereTheOneBeforeEnded) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = kHost, .op = 0, .step = 4, .start = 50, .duration = 10});
  Add(t, {.lane = kCompute, .op = 0, .step = 4, .start = 100, .duration = 50});
  Add(t, {.lane = kHost, .op = 1, .step = 5, .start = 60, .duration = 10});
  Add(t, {.lane = kCompute, .op = 1, .step = 5, .start = 160, .duration = 90});
  const auto model = TimelineModel::Build(t);
  ASSERT_EQ(model->steps().size(), 2u);
  EXPECT_EQ(model->steps()[0].step, 4);
  EXPECT_EQ(model->steps()[0].begin.count(), 50);
  EXPECT_EQ(model->steps()[1].begin.count(), 150);
  EXPECT_EQ(model->steps()[1].end.count(), 250);
}

TEST(TimelineModel, IsNotBuiltOnceNobodyWantsIt) {
  std::stop_source stop;
  EXPECT_NE(TimelineModel::Build(RandomTimeline(1, 50), stop.get_token()), nullptr);
  stop.request_stop();
  EXPECT_THROW(TimelineModel::Build(RandomTimeline(1, 50), stop.get_token()), sim::Cancelled);
}

TEST(TimelineModel, RefusesWhatCannotBeDrawn) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = 9});
  EXPECT_THROW(TimelineModel::Build(t), Error);
  t = EmptyTimeline();
  Add(t, {.start = int64_t{1} << 62});
  EXPECT_THROW(TimelineModel::Build(t), Error);
  t = EmptyTimeline();
  EXPECT_EQ(TimelineModel::Build(t)->rows(), 0);  // nothing is no fault
}

TEST(TimelineModel, OpsAreFoundByDenseAndBySparseIds) {
  for (int64_t stride : {1, 1'000'003}) {
    Timeline t = RandomTimeline(3, 600);
    for (int64_t& op : t.op) op = op < 0 ? op : op * stride;
    for (auto& flow : t.flows) flow = {flow.from_op * stride, flow.to_op * stride};
    const auto flows = t.flows;
    const auto model = TimelineModel::Build(t);
    std::map<int64_t, std::set<uint32_t>> rows;
    for (int64_t row = 0; row < model->rows(); ++row) {
      const int64_t op = model->timeline().op[static_cast<size_t>(row)];
      if (op >= 0) rows[op].insert(static_cast<uint32_t>(row));
    }
    for (const auto& [op, expected] : rows) {
      const auto found = model->ops().RowsOf(op);
      EXPECT_EQ(std::set<uint32_t>(found.begin(), found.end()), expected);
    }
    EXPECT_TRUE(model->ops().RowsOf(600 * stride + 7).empty());
    std::multiset<std::pair<int64_t, int64_t>> expected, found;
    for (const auto& [from, to] : flows) {
      if (from != to && rows.contains(from) && rows.contains(to)) expected.emplace(from, to);
    }
    for (const auto& [op, unused] : rows) {
      for (uint32_t slot : model->ops().WaitsOf(op)) found.emplace(model->ops().OpOf(slot), op);
    }
    EXPECT_EQ(found, expected);
    found.clear();
    for (const auto& [op, unused] : rows) {
      for (uint32_t slot : model->ops().WaitersOf(op)) found.emplace(op, model->ops().OpOf(slot));
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(TimelineModel, TakesUnderAHundredBytesAnOp) {
  const auto model = TimelineModel::Build(RandomTimeline(1, 100'000));
  EXPECT_LT(static_cast<double>(model->MemoryBytes()) / static_cast<double>(model->rows()), 100);
}

}  // namespace
}  // namespace stallcast::gui
