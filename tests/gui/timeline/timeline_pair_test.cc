// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/timeline_pair.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "gui/timeline/op_details.h"
#include "gui/timeline/words.h"
#include "tests/gui/timeline/random_timeline.h"

namespace stallcast::gui {
namespace {

using traces::Timeline;

struct Both {
  std::shared_ptr<const TimelineModel> predicted, measured;
  std::shared_ptr<const TimelinePair> pair;
};

Both RandomPair(uint32_t seed) {
  Both both;
  both.predicted = TimelineModel::Build(RandomTimeline(seed, 400));
  both.measured =
      TimelineModel::Build(RandomTimeline(seed + 100, 300, 3, Timeline::Origin::kMeasured));
  both.pair = TimelinePair::Make({both.predicted}, {both.measured});
  return both;
}

TEST(TimelinePair, OnlyAReplayOfAnothersRecordingHasItsTwins) {
  const auto recording =
      TimelineModel::Build(RandomTimeline(1, 400, 3, Timeline::Origin::kImported));
  const auto other = TimelineModel::Build(RandomTimeline(1, 400));
  EXPECT_EQ(TimelinePair::Make({other}, {recording})->matched(), 0) << "its op ids are its own";
  const auto pair = TimelinePair::Make({other}, {recording}, nullptr, /*replay=*/true);
  EXPECT_GT(pair->matched(), 0);
  EXPECT_EQ(pair->unlike(), 0);
}

TEST(TimelinePair, TwinsAreThoseOfTheComparison) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Both both = RandomPair(seed);
    const sim::Comparison comparison =
        sim::Compare({&both.predicted->timeline()}, {&both.measured->timeline()});
    EXPECT_EQ(both.pair->matched(), std::ssize(comparison.ops));
    EXPECT_GT(both.pair->matched(), 0);
    for (const sim::MatchedOp& op : comparison.ops) {
      int64_t rows = 0;
      for (uint32_t row : both.predicted->ops().RowsOf(op.op)) {
        if (both.predicted->timeline().step[row] != op.step ||
            both.predicted->IsCall(row) != op.call) {
          continue;
        }
        ++rows;
        const OpDetails details = Describe(*both.pair, {Side::kPredicted, row});
        ASSERT_TRUE(details.twin);
        EXPECT_EQ(details.op.duration, op.duration.predicted.value);
        EXPECT_EQ(details.twin->duration, op.duration.measured.value);
        EXPECT_EQ(*details.residual, op.duration.residual());
        EXPECT_EQ(static_cast<float>(op.duration.relative()),
                  both.pair->Residual({Side::kPredicted, row}));
        EXPECT_EQ(both.pair->Residual(details.twin->ref),
                  both.pair->Residual({Side::kPredicted, row}));
      }
      EXPECT_GT(rows, 0);
    }
  }
}

TEST(TimelinePair, TheTwinsTwinIsTheOp) {
  const Both both = RandomPair(3);
  for (Side side : kSides) {
    for (int64_t row = 0; row < both.pair->model(side)->rows(); ++row) {
      const auto twin = both.pair->Twin({side, row});
      EXPECT_EQ(twin.has_value(), !std::isnan(both.pair->Residual({side, row})));
      if (!twin) continue;
      const auto back = both.pair->Twin(*twin);
      ASSERT_TRUE(back);
      EXPECT_EQ(back->side, side);
      EXPECT_EQ(both.pair->model(side)->SpanOf(row).first_row, back->row);
    }
  }
}

TEST(TimelinePair, MeanResidualIsWeightedByDuration) {
  const Both both = RandomPair(8);
  std::mt19937 random(1);
  for (Side side : kSides) {
    const TimelineModel& model = *both.pair->model(side);
    for (int n = 0; n < 200; ++n) {
      int64_t a = static_cast<int64_t>(random()) % (model.rows() + 1);
      int64_t b = static_cast<int64_t>(random()) % (model.rows() + 1);
      if (a > b) std::swap(a, b);
      double weighted = 0, weight = 0;
      for (int64_t row = a; row < b; ++row) {
        const double residual = both.pair->Residual({side, row});
        if (!std::isfinite(residual)) continue;
        const auto d =
            static_cast<double>(model.timeline().duration[static_cast<size_t>(row)].count());
        weighted += residual * d;
        weight += d;
      }
      const double mean = both.pair->MeanResidual(side, a, b);
      if (weight > 0) {
        EXPECT_NEAR(mean, weighted / weight, 1e-9 * (1 + std::abs(mean)));
      } else {
        EXPECT_TRUE(std::isnan(mean));
      }
    }
  }
}

TEST(TimelinePair, OneSideHasNoTwins) {
  const auto model = TimelineModel::Build(RandomTimeline(1, 50));
  const auto pair = TimelinePair::Make({model}, {nullptr});
  EXPECT_FALSE(pair->both());
  EXPECT_FALSE(pair->Twin({Side::kPredicted, 0}));
  EXPECT_TRUE(std::isnan(pair->Residual({Side::kPredicted, 0})));
  EXPECT_TRUE(std::isnan(pair->MeanResidual(Side::kPredicted, 0, 10)));
}

// A copy that the compute lane waits for; the recording says nothing of waits and bytes.
Timeline Waiting(Timeline::Origin origin, int64_t slower) {
  Timeline t = EmptyTimeline(origin);
  Add(t, {.lane = 1, .op = 0, .step = 0, .start = 0, .duration = 100 * slower});
  Add(t, {.lane = 2,
          .op = 1,
          .step = 0,
          .role = traces::Role::kRecall,
          .name = 1,
          .start = 100 * slower,
          .duration = 500 * slower,
          .bytes = origin == Timeline::Origin::kPredicted ? 1 << 20 : 0});
  Add(t, {.lane = 1, .op = 2, .step = 0, .start = 600 * slower, .duration = 50 * slower});
  if (origin == Timeline::Origin::kPredicted) t.flows = {{0, 1}, {1, 2}};
  return t;
}

TEST(TimelinePair, ARecordingGetsTheWaitsOfItsPlan) {
  const auto predicted = TimelineModel::Build(Waiting(Timeline::Origin::kPredicted, 10));
  const auto measured = TimelineModel::Build(Waiting(Timeline::Origin::kMeasured, 12));
  ASSERT_EQ(measured->ops().flows(), 0);
  const auto pair = TimelinePair::Make({predicted}, {measured});
  EXPECT_TRUE(pair->lent_waits());
  const TimelineModel& lent = *pair->model(Side::kMeasured);
  EXPECT_EQ(lent.ops().Flows(), predicted->ops().Flows());
  EXPECT_EQ(&lent.timeline(), &measured->timeline()) << "columns are shared";
  const Track exposed = lent.ExposureTrack(1);
  ASSERT_EQ(exposed.size(), 1);
  EXPECT_EQ(exposed.role(0), traces::Role::kRecall);
  EXPECT_EQ(exposed.duration(0).count(), 6000);
  EXPECT_EQ(lent.NameOf(lent.exposure(0).cause), "copy");
  EXPECT_EQ(Describe(*pair, {Side::kMeasured, 1}).op.waits, std::vector<std::string>{"copy"});

  const auto faster = TimelineModel::Build(Waiting(Timeline::Origin::kPredicted, 5));
  const auto next = TimelinePair::Make({faster}, {measured}, pair.get());
  EXPECT_EQ(next->model(Side::kMeasured), pair->model(Side::kMeasured)) << "of the same plan";
}

TEST(TimelinePair, SidesOfDifferentPlansSayHowMany) {
  Timeline other = Waiting(Timeline::Origin::kMeasured, 12);
  other.role[0] = traces::Role::kAttention;
  const auto pair =
      TimelinePair::Make({TimelineModel::Build(Waiting(Timeline::Origin::kPredicted, 10))},
                         {TimelineModel::Build(other)});
  EXPECT_EQ(pair->matched(), 3);
  EXPECT_EQ(pair->unlike(), 1);
  EXPECT_FALSE(pair->lent_waits());
}

TEST(OpDetails, BytesThatARecordingLacksAreThePlans) {
  const auto pair =
      TimelinePair::Make({TimelineModel::Build(Waiting(Timeline::Origin::kPredicted, 10))},
                         {TimelineModel::Build(Waiting(Timeline::Origin::kMeasured, 20))});
  const OpDetails details = Describe(*pair, {Side::kMeasured, 2});
  EXPECT_EQ(details.op.bytes, 1 << 20);
  EXPECT_TRUE(details.op.planned_bytes);
  EXPECT_FALSE(details.twin->planned_bytes);
  EXPECT_DOUBLE_EQ(details.op.rate() * 2, details.twin->rate());
}

TEST(Words, KernelsAreCalledByTheirFunction) {
  EXPECT_EQ(ShortName("void a::kernels::(anonymous namespace)::Score<128, 2, (int)1>(a::Args)"),
            "Score");
  EXPECT_EQ(ShortName("a::Pool(float const*, int)"), "Pool");
  EXPECT_EQ(ShortName("nvjet_sm90_tst_64x8"), "nvjet_sm90_tst_64x8");
  EXPECT_EQ(ShortName("aten::matmul"), "aten::matmul");
  EXPECT_EQ(ShortName("Memcpy HtoD (Pinned -> Device)"), "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(ShortName("call gemm"), "call gemm");
  EXPECT_EQ(ShortName("(((<<<"), "(((<<<");
  EXPECT_EQ(ShortName(""), "");
}

TEST(OpDetails, FactsAreThoseOfTheOp) {
  Timeline t = EmptyTimeline();
  Add(t, {.lane = 1, .op = 0, .step = 2, .start = 1000, .duration = 500});
  Add(t, {.lane = 2,
          .op = 1,
          .step = 2,
          .role = traces::Role::kRecall,
          .name = 1,
          .start = 1600,
          .duration = 1'000'000,
          .bytes = 4096});
  Add(t, {.lane = 1, .op = 2, .step = 2, .start = 1'002'000, .duration = 10});
  t.flows = {{1, 2}, {0, 2}, {0, 1}};
  const auto model = TimelineModel::Build(t);
  const auto pair = TimelinePair::Make({model}, {nullptr});
  const OpFacts copy = Describe(*pair, {Side::kPredicted, 2}).op;
  EXPECT_EQ(copy.name, "copy");
  EXPECT_EQ(copy.lane, "copy");
  EXPECT_EQ(copy.start_in_step.count(), 600);
  EXPECT_EQ(copy.bytes, 4096);
  EXPECT_DOUBLE_EQ(copy.rate(), 4096 / 1e-6);
  const OpFacts last = Describe(*pair, {Side::kPredicted, 1}).op;
  EXPECT_EQ(last.idle_before.count(), 1'002'000 - 1500);
  EXPECT_EQ(last.waits, (std::vector<std::string>{"copy", "gemm"}));
}

TEST(AreaSums, AreWhatALoopOverAllRowsGives) {
  const Both both = RandomPair(5);
  const Alignment alignment = Align(both.predicted.get(), both.measured.get(), nullptr);
  std::mt19937 random(2);
  for (int n = 0; n < 100; ++n) {
    const auto length = static_cast<uint64_t>(alignment.whole.length().count());
    Picoseconds a(static_cast<int64_t>(random() % length)),
        b(static_cast<int64_t>(random() % length));
    if (a > b) std::swap(a, b);
    AreaTracks tracks;
    for (Side side : kSides) {
      const auto count = both.pair->model(side)->tracks().size();
      for (size_t k = 0; k < count; ++k) {
        if (random() % 2 == 0) tracks[static_cast<size_t>(side)].push_back(static_cast<int32_t>(k));
      }
    }
    const AreaSums sums = SumArea(*both.pair, alignment, {a, b}, tracks);
    const auto& touched = tracks[1];
    ASSERT_EQ(sums.measured.has_value(), !touched.empty());
    if (touched.empty()) continue;
    AreaSums::Roles expected{};
    const TimelineModel& model = *both.measured;
    const Picoseconds begin = alignment.measured.FromAxis(a), end = alignment.measured.FromAxis(b);
    for (int64_t row = 0; row < model.rows(); ++row) {
      if (std::find(touched.begin(), touched.end(), model.TrackOf(row)) == touched.end()) continue;
      const bool inside =
          model.Start(row) < end && (model.End(row) > begin || model.Start(row) >= begin);
      if (!inside) continue;
      const auto i = static_cast<size_t>(row);
      AreaSums::Role& role = expected[static_cast<size_t>(model.timeline().role[i])];
      ++role.ops;
      role.busy += std::min(model.End(row), end) - std::max(model.Start(row), begin);
      if (model.Start(row) >= begin) role.bytes += model.timeline().bytes[i];
    }
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_EQ((*sums.measured)[r].ops, expected[r].ops);
      EXPECT_EQ((*sums.measured)[r].busy, expected[r].busy);
      EXPECT_EQ((*sums.measured)[r].bytes, expected[r].bytes);
    }
  }
}

}  // namespace
}  // namespace stallcast::gui
