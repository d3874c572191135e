#include "models/methods/projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "models/methods/projected_log.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

using testing::ElementsAre;

TEST(LayersByDepthTest, AFullTraceStandsForItself) {
  std::vector<int> all(32);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(LayersByDepth(32, all, 32), all);
}

TEST(LayersByDepthTest, OneTracedLayerStandsForAll) {
  EXPECT_THAT(LayersByDepth(4, std::vector<int>{5}, 12), ElementsAre(0, 0, 0, 0));
}

TEST(LayersByDepthTest, IndicesCountTracedLayersNotTheModels) {
  // Halfway between two traced layers the earlier one is taken.
  EXPECT_THAT(LayersByDepth(9, std::vector<int>{0, 4, 8}, 9),
              ElementsAre(0, 0, 0, 1, 1, 1, 1, 2, 2));
}

TEST(LayersByDepthTest, ModelsOfOtherDepthsMatchByShareOfTheWay) {
  // Each of four layers stands for two of eight, and the other way round the middle is as near to
  // both: the earlier.
  EXPECT_THAT(LayersByDepth(8, std::vector<int>{0, 1, 2, 3}, 4),
              ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(LayersByDepth(4, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, 8),
              ElementsAre(0, 2, 4, 6));
}

TEST(LayersByDepthTest, NoTracedLayerIsNearerThanTheOneChosen) {
  const std::vector<int> traced = {1, 2, 7, 19, 30};
  const std::vector<int> nearest = LayersByDepth(48, traced, 36);
  ASSERT_EQ(nearest.size(), 48u);
  for (int layer = 0; layer < 48; ++layer) {
    const auto distance = [&](int of) { return std::abs((of + 0.5) / 36 - (layer + 0.5) / 48); };
    for (const int other : traced) {
      EXPECT_LE(distance(traced[static_cast<size_t>(nearest[static_cast<size_t>(layer)])]),
                distance(other) + 1e-12)
          << layer;
    }
  }
}

TEST(ProjectedLogTest, ALogThatLeavesOutWhatAPlanNeedsIsRefused) {
  traces::AccessLog log;
  log.method = "quest";
  log.prompt_tokens = 16, log.steps = 1, log.kv_heads = 2, log.model_layers = 1;
  traces::LayerAccess& layer = log.layers.emplace_back();
  layer.heads = 2;
  layer.flags = {0, 0};
  layer.attended_tokens = {16, 16};
  for (traces::IdLists* lists : {&layer.selected, &layer.recalled_now, &layer.recalled_ahead}) {
    for (int head = 0; head < 2; ++head) lists->Append({});
  }
  llm::Model model;
  model.layers = 1, model.kv_heads = model.query_heads = 2;
  EXPECT_NO_THROW(ProjectedLog(&log, model, 1));
  const std::vector<std::function<void(traces::LayerAccess&)>> leave_out = {
      [](auto& of) { of.flags.clear(); }, [](auto& of) { of.selected = {}; },
      [](auto& of) { of.recalled_now = {}; }, [](auto& of) { of.recalled_ahead = {}; },
      [](auto& of) { of.attended_tokens.clear(); }};
  for (const auto& from : leave_out) {
    traces::AccessLog less = log;
    from(less.layers[0]);
    EXPECT_THROW(ProjectedLog(&less, model, 1), Error);
  }
}

}  // namespace
}  // namespace stallcast::methods
