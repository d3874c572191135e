// RetroInfer against its paper in double precision, given its clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "models/methods/common/key_clusters.h"
#include "models/methods/retroinfer/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"

namespace stallcast::methods {
namespace {

using brute::Vector;

RetroInferParams Params() {
  return {.cluster = 8,
          .segment = 100,
          .iterations = 4,
          .retrieval = 0.2,
          .sink = 4,
          .window = 16,
          .update = 24,
          .cache = 2};
}

// The clusters of a head that hold tokens, of the prompt's segments and of `updates` decoded ones.
std::vector<std::vector<uint32_t>> Clusters(const LayerTensors& tensors, int head,
                                            const RetroInferParams& params, int64_t updates) {
  std::vector<std::vector<uint32_t>> all;
  const auto add = [&](int64_t first, int64_t count) {
    const int64_t clusters = brute::PagesOf(count, params.cluster);
    const KeyClusters found = ClusterKeys(tensors, head, first, count, clusters, params.iterations);
    for (int64_t c = 0; c < clusters; ++c) {
      std::vector<uint32_t> tokens;
      for (uint32_t at = found.offsets[c]; at < found.offsets[c + 1]; ++at) {
        tokens.push_back(static_cast<uint32_t>(first) + found.tokens[at]);
      }
      if (!tokens.empty()) all.push_back(tokens);
    }
  };
  const int64_t end = tensors.prompt_tokens() - params.window;
  for (int64_t at = params.sink; at < end; at += params.segment) {
    add(at, std::min(params.segment, end - at));
  }
  for (int64_t i = 0; i < updates; ++i) add(end + i * params.update, params.update);
  return all;
}

brute::Cells BruteForce(const brute::Layer& layer, const LayerTensors& tensors,
                        const RetroInferParams& params) {
  brute::Cells cells(static_cast<size_t>(layer.steps));
  for (int head = 0; head < layer.kv_heads; ++head) {
    std::list<uint32_t> cache;  // the one used last first
    bool ambiguous = false;
    const int64_t slots = params.Slots(params.Clusters(layer.prompt, layer.steps - 1));
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t token = layer.prompt + step, updates = step / params.update;
      const auto clusters = Clusters(tensors, head, params, updates);
      std::vector<Vector> rows(static_cast<size_t>(layer.group));
      for (const auto& tokens : clusters) {
        Vector centroid(static_cast<size_t>(layer.dim));
        for (const uint32_t t : tokens) {
          for (int i = 0; i < layer.dim; ++i) centroid[i] += layer.keys[head][t][i];
        }
        for (double& x : centroid) {
          x = brute::Bf16(static_cast<float>(x / static_cast<double>(tokens.size())));
        }
        for (int g = 0; g < layer.group; ++g) {
          rows[g].push_back(layer.scale *
                            brute::Dot(layer.Query(head * layer.group + g, token), centroid));
        }
      }
      for (Vector& row : rows) row = brute::Softmax(row);
      const auto count = static_cast<int64_t>(
          params.retrieval * static_cast<double>(params.Clusters(layer.prompt, step)));
      const brute::Choice best =
          brute::Top(brute::Range(0, std::ssize(clusters)), brute::MeanOf(rows), 0, count);
      brute::Cell& cell = cells[step].emplace_back();
      cell.selected = best.ids;
      cell.selected_now = true;
      for (const uint32_t c : best.ids) {
        if (std::ranges::find(cache, c) == cache.end()) {
          cell.recalled_now.insert(c);
        } else {
          cache.remove(c);
        }
      }
      // Of those used in a step none is older than another: the smaller id leaves first.
      for (auto c = best.ids.begin(); c != best.ids.end(); ++c) cache.push_front(*c);
      while (std::ssize(cache) > slots) {
        cache.pop_back();
        ++cell.evicted;
      }
      cell.attended.assign(static_cast<size_t>(token + 1), false);
      for (const uint32_t c : best.ids) {
        for (const uint32_t t : clusters[c]) cell.attended[t] = true;
      }
      const int64_t indexed = layer.prompt - params.window + updates * params.update;
      for (int64_t t = 0; t <= token; ++t) {
        if (t < params.sink || t >= indexed) cell.attended[t] = true;
      }
      cell.ambiguous = ambiguous = ambiguous || best.ambiguous;
    }
  }
  return cells;
}

TEST(RetroInfer, AttendsTheBestClustersAndCachesThem) {
  for (const RandomTraceOptions& shape :
       {RandomTraceOptions{}, RandomTraceOptions{.kv_heads = 1, .group = 4, .dim = 17, .seed = 2},
        RandomTraceOptions{.group = 1, .prompt = 60, .steps = 90, .seed = 3}}) {
    const traces::Trace trace = RandomTrace(shape);
    const LayerTensors tensors(trace, 0);
    const brute::Layer layer(trace, 0);
    ExpectSame(Replayed(RetroInferPolicy(Params()), tensors), BruteForce(layer, tensors, Params()),
               layer, 0.6);
  }
}

TEST(RetroInfer, APromptWithinSinkAndWindowIsAttendedWhole) {
  const traces::Trace trace = RandomTrace({.prompt = 20, .steps = 40});
  const LayerTensors tensors(trace, 0);
  const Replayed log(RetroInferPolicy(Params()), tensors);
  for (const float mass : log.fidelity.mass) EXPECT_EQ(mass, 1.0f);
}

}  // namespace
}  // namespace stallcast::methods
