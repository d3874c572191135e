#include "sim/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/traces/sample.h"

namespace stallcast::sim {
namespace {

TEST(Summarize, CountsWhatTheLogSays) {
  // Layer 0 is dense, layer 1 has 3 steps of 2 heads; see SampleLog().
  const SelectionMetrics metrics = Summarize(traces::SampleLog());
  EXPECT_DOUBLE_EQ(metrics.hit_rate, 1 - 6.0 / (0 + 1 + 2 + 3 + 0 + 1));
  EXPECT_DOUBLE_EQ(metrics.correction_rate, 1);  // an odd flag in each step
  EXPECT_DOUBLE_EQ(metrics.attention_mass, (3 + 0.5 + 0.75 + 0.875) / 6);
  EXPECT_DOUBLE_EQ(metrics.output_error, (0.25 + 0.125 + 0) / 3);
  EXPECT_DOUBLE_EQ(metrics.similarity, 0.125 * 15 / 6);
  EXPECT_DOUBLE_EQ(metrics.evictions, (0 + 1 + 2 + 0 + 1 + 2) / 6.0);
}

TEST(Summarize, CountsTheStepsThatWerePredicted) {
  const std::vector<int64_t> first = {1, 0, 0}, evenly = {2, 2, 2}, last_twice = {0, 1, 2};
  const SelectionMetrics all = Summarize(traces::SampleLog());
  const SelectionMetrics same = Summarize(traces::SampleLog(), evenly);
  EXPECT_DOUBLE_EQ(same.attention_mass, all.attention_mass);
  EXPECT_DOUBLE_EQ(same.hit_rate, all.hit_rate);
  EXPECT_DOUBLE_EQ(same.evictions, all.evictions);
  EXPECT_DOUBLE_EQ(Summarize(traces::SampleLog(), first).attention_mass, (1 + 0.5) / 2);
  const SelectionMetrics late = Summarize(traces::SampleLog(), last_twice);
  EXPECT_DOUBLE_EQ(late.attention_mass, (1 + 2 * 1 + 0.75 + 2 * 0.875) / 6);
  EXPECT_DOUBLE_EQ(late.evictions, (2 + 0 + 2 * (1 + 2)) / 6.0);
}

TEST(Summarize, AStepIsCorrectedWhereALayerSelectsInIt) {
  traces::AccessLog log = traces::SampleLog();
  traces::LayerAccess& layer = log.layers[1];
  // Of three steps of two heads: ahead only, now by the second head, now and ahead.
  layer.flags = {traces::kSelectedAhead | traces::kTriggered,
                 traces::kSelectedAhead,
                 traces::kSelectedAhead,
                 traces::kSelectedNow,
                 traces::kSelectedNow | traces::kSelectedAhead,
                 0};
  EXPECT_DOUBLE_EQ(Summarize(log).correction_rate, 2.0 / 3);
}

TEST(Summarize, KeptIsTheMeanShareOfEachStepsContext) {
  traces::AccessLog log = traces::SampleLog();
  log.prompt_tokens = 9;
  traces::LayerAccess& layer = log.layers[1];
  // Contexts of 10, 11 and 12 tokens.
  layer.cached_tokens = {5, 10, 11, 11, 3, 6};
  layer.flags = {0, 0, traces::kEvicted, traces::kEvicted, 0, 0};
  const SelectionMetrics metrics = Summarize(log);
  EXPECT_DOUBLE_EQ(metrics.kept, (0.5 + 1 + 1 + 1 + 0.25 + 0.5) / 6);
  EXPECT_DOUBLE_EQ(metrics.eviction_rate, 1.0 / 3);
  // Where nothing is dropped there is no share to speak of.
  layer.cached_tokens.clear();
  EXPECT_TRUE(std::isnan(Summarize(log).kept));
  EXPECT_TRUE(std::isnan(Summarize(log).eviction_rate));
}

TEST(Summarize, WhatTheLogDoesNotHoldIsNotKnown) {
  traces::AccessLog log = traces::SampleLog();
  for (traces::LayerAccess& layer : log.layers) {
    layer.output_error.clear();
    layer.evicted.clear();
    layer.similarity.assign(layer.similarity.size(), NAN);
  }
  const SelectionMetrics metrics = Summarize(log);
  EXPECT_TRUE(std::isnan(metrics.output_error));
  EXPECT_TRUE(std::isnan(metrics.evictions));
  EXPECT_TRUE(std::isnan(metrics.similarity));
  EXPECT_FALSE(std::isnan(metrics.attention_mass));
}

}  // namespace
}  // namespace stallcast::sim
