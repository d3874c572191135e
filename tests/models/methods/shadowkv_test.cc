// ShadowKV's policy against its public code's rules in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/methods/method.h"
#include "models/methods/shadowkv/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

using brute::Cell;
using brute::Cells;
using brute::Vector;

Vector MeanKey(const brute::Layer& layer, int head, int64_t chunk, int64_t tokens) {
  Vector mean(static_cast<size_t>(layer.dim));
  for (int64_t t = chunk * tokens; t < (chunk + 1) * tokens; ++t) {
    for (int i = 0; i < layer.dim; ++i) {
      mean[i] += layer.keys[head][t][i] / static_cast<double>(tokens);
    }
  }
  return mean;
}

// All rules afresh for every step: chunks, outliers, softmax a query head, maximum, top-k.
Cells Expected(const brute::Layer& layer, const ShadowKvParams& params) {
  Cells cells;
  std::vector<std::set<uint32_t>> held(static_cast<size_t>(layer.kv_heads));
  std::vector<bool> held_ambiguous(static_cast<size_t>(layer.kv_heads));
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t token = layer.prompt + step;
    const int64_t made = params.update > 0 ? step - step % params.update : 0;
    const int64_t indexed = layer.prompt + made;
    const int64_t chunks = std::max<int64_t>(0, indexed / params.chunk - params.local);
    auto& row = cells.emplace_back(static_cast<size_t>(layer.kv_heads));
    for (int head = 0; head < layer.kv_heads; ++head) {
      Cell& cell = row[head];
      cell.attended.assign(static_cast<size_t>(token + 1), true);
      if (indexed <= params.dense_until || chunks <= params.outliers) continue;
      if (step == made) held[head].clear(), held_ambiguous[head] = false;
      Vector unlike;
      std::vector<Vector> means;
      for (int64_t c = 0; c < chunks; ++c) {
        const Vector mean = MeanKey(layer, head, c, params.chunk);
        double least = 1;
        for (int64_t t = c * params.chunk; t < (c + 1) * params.chunk; ++t) {
          const Vector& key = layer.keys[head][t];
          least = std::min(least, brute::Dot(key, mean) /
                                      std::sqrt(brute::Dot(key, key) * brute::Dot(mean, mean)));
        }
        unlike.push_back(-least);
        means.push_back(mean);
        for (double& x : means.back()) x = brute::Bf16(static_cast<float>(x));
      }
      std::set<uint32_t> candidates = brute::Range(0, chunks);
      const brute::Choice outliers = brute::Top(candidates, unlike, 0, params.outliers);
      candidates = brute::Minus(candidates, outliers.ids);
      Vector pooled(static_cast<size_t>(chunks));
      for (int g = 0; g < layer.group; ++g) {
        Vector logits;
        for (const uint32_t c : candidates) {
          logits.push_back(layer.scale *
                           brute::Dot(layer.Query(head * layer.group + g, token), means[c]));
        }
        const Vector weights = brute::Softmax(logits);
        size_t at = 0;
        for (const uint32_t c : candidates) pooled[c] = std::max(pooled[c], weights[at++]);
      }
      const brute::Choice top = brute::Top(candidates, pooled, 0, params.budget / params.chunk);
      cell.selected_now = true;
      const bool ambiguous = outliers.ambiguous || top.ambiguous;
      cell.ambiguous = ambiguous || held_ambiguous[head];
      held_ambiguous[head] = ambiguous;
      cell.selected = top.ids;
      cell.recalled_now = brute::Minus(top.ids, held[head]);
      cell.evicted = std::ssize(held[head]) + std::ssize(cell.recalled_now) - std::ssize(top.ids);
      held[head] = top.ids;
      for (int64_t c = 0; c < chunks; ++c) {
        const auto id = static_cast<uint32_t>(c);
        if (top.ids.contains(id) || outliers.ids.contains(id)) continue;
        for (int64_t t = 0; t < params.chunk; ++t) cell.attended[c * params.chunk + t] = false;
      }
    }
  }
  return cells;
}

class ShadowKv : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const LayerTensors tensors{trace, 0};
  const brute::Layer layer{trace, 0};
};
INSTANTIATE_TEST_SUITE_P(
    Random, ShadowKv,
    testing::Values(RandomTraceOptions{}, RandomTraceOptions{.kv_heads = 1, .group = 1, .seed = 2},
                    RandomTraceOptions{
                        .group = 7, .dim = 64, .prompt = 129, .steps = 41, .seed = 4},
                    RandomTraceOptions{.prompt = 3, .steps = 90, .seed = 6},
                    RandomTraceOptions{.dim = 32, .prompt = 2500, .steps = 8, .seed = 9}));

TEST_P(ShadowKv, SelectsByTheRulesOfItsCode) {
  for (const int64_t update : {0, 16}) {
    for (const int64_t outliers : {0, 3}) {
      const ShadowKvParams params{.budget = 40,
                                  .chunk = 8,
                                  .outliers = outliers,
                                  .local = 2,
                                  .dense_until = 0,
                                  .update = update};
      SCOPED_TRACE(testing::Message() << "update " << update << ", outliers " << outliers);
      ExpectSame(Replayed(ShadowKvPolicy(params), tensors), Expected(layer, params), layer, 0.7);
    }
  }
}

TEST(ShadowKvPolicy, SelectsByTheRulesOfItsCodeOnRealTensors) {
  traces::Trace trace = traces::ReadTrace(kRealTrace);
  trace.info.set_decode_steps(3);
  const int index = trace.Layers().back();
  const LayerTensors real(trace, index);
  const brute::Layer exact(trace, index);
  const ShadowKvParams params{.dense_until = 0};
  ExpectSame(Replayed(ShadowKvPolicy(params), real), Expected(exact, params), exact, 0.5);
}

TEST_P(ShadowKv, AttendsShortPromptsWhole) {
  const Replayed log(ShadowKvPolicy({.budget = 40, .dense_until = 5000}), tensors);
  for (const float mass : log.fidelity.mass) EXPECT_EQ(mass, 1);
  for (int64_t cell = 0; cell < log.access.selected.size(); ++cell) {
    EXPECT_TRUE(log.access.selected[cell].empty());
    EXPECT_TRUE(log.access.recalled_now[cell].empty());
  }
}

// With room for every chunk nothing is left out, and nothing is fetched twice.
TEST_P(ShadowKv, WithRoomForAllFetchesEachChunkOnce) {
  const ShadowKvParams params{
      .budget = 4000, .chunk = 8, .outliers = 1, .local = 1, .dense_until = 0};
  if (!params.Sparse(layer.prompt)) GTEST_SKIP() << "nothing to choose from";
  const Replayed log(ShadowKvPolicy(params), tensors);
  for (const float mass : log.fidelity.mass) EXPECT_EQ(mass, 1);
  for (int64_t cell = 0; cell < log.access.recalled_now.size(); ++cell) {
    EXPECT_EQ(std::ssize(log.access.recalled_now[cell]),
              cell < log.access.heads ? params.Candidates(layer.prompt) : 0);
  }
}

TEST(SummarizeChunk, TellsHowMuchAChunksKeysAreAlike) {
  const std::vector<float> alike{1, 2, 2, 4}, opposed{1, 0, -1, 0}, none(4);
  std::vector<float> mean(2);
  EXPECT_FLOAT_EQ(SummarizeChunk(alike.data(), 2, 2, mean.data()), 1);
  EXPECT_EQ(mean, (std::vector<float>{1.5, 3}));
  EXPECT_EQ(SummarizeChunk(opposed.data(), 2, 2, mean.data()), 0);
  EXPECT_EQ(mean, (std::vector<float>{0, 0}));
  EXPECT_EQ(SummarizeChunk(none.data(), 2, 2, mean.data()), 0);
}

}  // namespace
}  // namespace stallcast::methods
