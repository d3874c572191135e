#include "models/methods/projection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "models/methods/layer_tensors.h"
#include "models/methods/projected_log.h"
#include "tests/models/methods/random_trace.h"
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

TEST(TracedKvHeadsTest, TheLayersOwnThenTheNearestLayersThenTheSameAgain) {
  const std::vector<int> traced = {7, 14, 21};
  using Head = TracedKvHead;
  EXPECT_THAT(TracedKvHeads(traced, 14, 2, 8),
              ElementsAre(Head{14, 0}, Head{14, 1}, Head{7, 0}, Head{7, 1}, Head{21, 0},
                          Head{21, 1}, Head{14, 0}, Head{14, 1}));
  EXPECT_THAT(TracedKvHeads(traced, 21, 2, 5),
              ElementsAre(Head{21, 0}, Head{21, 1}, Head{14, 0}, Head{14, 1}, Head{7, 0}));
  EXPECT_THAT(TracedKvHeads(std::vector<int>{3}, 3, 1, 3),
              ElementsAre(Head{3, 0}, Head{3, 0}, Head{3, 0}));
}

std::vector<float> Row(const LayerTensors& tensors, int kv_head) {
  std::vector<float> keys(static_cast<size_t>(tensors.prompt_tokens() * tensors.head_dim()));
  tensors.ReadKeys(kv_head, 0, tensors.prompt_tokens(), keys.data());
  return keys;
}

TEST(LayerTensorsTest, HeadsBeyondTheTracesAreThoseOfOtherLayers) {
  const int groups = 3, kv = 2;
  const traces::Trace trace = RandomTrace(
      {.layers = 3, .kv_heads = kv, .group = groups, .prompt = 60, .steps = 5, .value_dim = 8});
  for (const int group : {2, 3, 5}) {
    const LayerTensors wide(trace, 1, 1, group, 7);
    ASSERT_EQ(wide.kv_heads(), 7);
    ASSERT_EQ(wide.query_heads(), 7 * group);
    const std::vector<int> lenders = {1, 1, 0, 0, 2, 2, 1};
    for (int head = 0; head < 7; ++head) {
      const LayerTensors own(trace, lenders[static_cast<size_t>(head)]);
      EXPECT_EQ(Row(wide, head), Row(own, head % kv)) << head;
      EXPECT_EQ(wide.has_values(head), lenders[static_cast<size_t>(head)] == 1);
      for (int g = 0; g < group; ++g) {
        const auto query = wide.Query(head * group + g, 63);
        const auto want = own.Query(head % kv * groups + g % groups, 63);
        EXPECT_TRUE(std::ranges::equal(query, want)) << head << " " << g;
      }
    }
  }
}

TEST(LayerTensorsTest, ALayerThatMissesTokensLendsNoHead) {
  traces::Trace trace = RandomTrace({.layers = 2, .prompt = 60, .steps = 5});
  traces::Tensor& keys = trace.tensors[2];  // of layer 1
  ASSERT_EQ(keys.spec.layer, 1);
  keys.spec.first_token = 1;
  const LayerTensors wide(trace, 0, 1, 0, 4);
  EXPECT_EQ(Row(wide, 2), Row(wide, 0));
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
