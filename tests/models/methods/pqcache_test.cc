// PQCache against its paper in double precision, given its clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "models/methods/common/key_clusters.h"
#include "models/methods/pqcache/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"

namespace stallcast::methods {
namespace {

using brute::Vector;

// A head's keys as their codes give them back, from the sink on.
std::vector<Vector> Decoded(const brute::Layer& layer, const LayerTensors& tensors, int head,
                            const PqCacheParams& params, bool& ambiguous) {
  const int64_t clustered = layer.prompt - params.sink, part = layer.dim / params.subspaces;
  std::vector<Vector> decoded(static_cast<size_t>(clustered + layer.steps),
                              Vector(static_cast<size_t>(layer.dim)));
  const auto key = [&](int64_t t) -> const Vector& { return layer.keys[head][params.sink + t]; };
  for (int64_t s = 0; s < params.subspaces; ++s) {
    const int64_t from = s * part;
    const int64_t clusters = int64_t{1} << params.bits;
    const KeyClusters found = ClusterKeys(tensors, head, params.sink, clustered, clusters,
                                          params.iterations, {from, part});
    std::vector<Vector> centroids;
    for (int64_t c = 0; c < clusters; ++c) {
      const uint32_t first = found.offsets[c], end = found.offsets[c + 1];
      if (first == end) continue;
      Vector mean(static_cast<size_t>(part));
      for (uint32_t at = first; at < end; ++at) {
        for (int64_t i = 0; i < part; ++i) mean[i] += key(found.tokens[at])[from + i];
      }
      for (double& x : mean) x = brute::Bf16(static_cast<float>(x / (end - first)));
      for (uint32_t at = first; at < end; ++at) {
        std::ranges::copy(mean, decoded[found.tokens[at]].begin() + from);
      }
      centroids.push_back(mean);
    }
    for (int64_t t = clustered; t < clustered + layer.steps; ++t) {
      Vector apart;
      for (const Vector& centroid : centroids) {
        double square = 0;
        for (int64_t i = 0; i < part; ++i) square += std::pow(key(t)[from + i] - centroid[i], 2);
        apart.push_back(square);
      }
      const auto nearest = std::ranges::min_element(apart);
      ambiguous = ambiguous || std::ranges::count_if(
                                   apart, [&](double x) { return x <= *nearest * (1 + 1e-9); }) > 1;
      std::ranges::copy(centroids[nearest - apart.begin()], decoded[t].begin() + from);
    }
  }
  return decoded;
}

// Tokens of the same codes have the same score in any precision: the smaller id is taken.
brute::Choice Top(const Vector& scores, int64_t first, int64_t count) {
  brute::Choice choice =
      brute::Top(brute::Range(first, first + std::ssize(scores)), scores, first, count);
  Vector sorted = scores;
  std::ranges::sort(sorted, std::greater());
  const double cut = sorted[count];
  if (sorted[count - 1] != cut) return choice;
  // Scores of other codes may lie beside the cut, too.
  choice.ambiguous = std::ranges::any_of(sorted, [&](double score) {
    return score != cut && std::abs(score - cut) <= 1e-5 * std::abs(cut);
  });
  return choice;
}

brute::Cells BruteForce(const brute::Layer& layer, const LayerTensors& tensors,
                        const PqCacheParams& params) {
  const auto attended = static_cast<int64_t>(params.ratio * static_cast<double>(layer.prompt));
  const int64_t recent = attended / 2, chosen = attended - recent;
  std::vector<std::vector<Vector>> decoded;
  bool ambiguous = false;
  for (int head = 0; head < layer.kv_heads; ++head) {
    decoded.push_back(Decoded(layer, tensors, head, params, ambiguous));
  }
  std::set<uint32_t> cache;
  std::map<uint32_t, int64_t> uses;
  const auto capacity = params.cache / params.block;
  brute::Cells cells(static_cast<size_t>(layer.steps));
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t token = layer.prompt + step, end = token + 1 - recent;
    std::map<uint32_t, int64_t> now;
    for (int head = 0; head < layer.kv_heads; ++head) {
      std::vector<Vector> rows(static_cast<size_t>(layer.group));
      for (int64_t t = params.sink; t < end; ++t) {
        for (int g = 0; g < layer.group; ++g) {
          rows[g].push_back(layer.scale * brute::Dot(layer.Query(head * layer.group + g, token),
                                                     decoded[head][t - params.sink]));
        }
      }
      for (Vector& row : rows) row = brute::Softmax(row);
      const brute::Choice best = Top(brute::MeanOf(rows), params.sink, chosen);
      brute::Cell& cell = cells[step].emplace_back();
      cell.selected = best.ids;
      cell.selected_now = true;
      ambiguous = ambiguous || best.ambiguous;
      for (const uint32_t t : best.ids) {
        const auto block = static_cast<uint32_t>(t / params.block);
        if (!cache.contains(block)) cell.recalled_now.insert(t);
        ++now[block];
      }
      cell.attended.assign(static_cast<size_t>(token + 1), false);
      for (int64_t t = 0; t <= token; ++t) {
        cell.attended[t] =
            t < params.sink || t >= end || best.ids.contains(static_cast<uint32_t>(t));
      }
    }
    // Blocks that the step used most may come; those used most so far stay.
    std::vector<uint32_t> offered, all(cache.begin(), cache.end());
    for (const auto& [block, count] : now) {
      uses[block] += count;
      if ((block + 1) * params.block <= end) offered.push_back(block);
    }
    std::ranges::stable_sort(offered, [&](uint32_t a, uint32_t b) { return now[a] > now[b]; });
    offered.resize(std::min(offered.size(), static_cast<size_t>(capacity)));
    for (const uint32_t block : offered) {
      if (!cache.contains(block)) all.push_back(block);
    }
    std::ranges::sort(all);
    std::ranges::stable_sort(all, [&](uint32_t a, uint32_t b) { return uses[a] > uses[b]; });
    const auto before = std::ssize(all);
    all.resize(std::min(all.size(), static_cast<size_t>(capacity)));
    cache = {all.begin(), all.end()};
    for (brute::Cell& cell : cells[step]) {
      cell.evicted = (before - std::ssize(all)) * params.block;
      cell.ambiguous = ambiguous;
    }
  }
  return cells;
}

TEST(PqCache, AttendsTheBestCodedTokensThroughItsCache) {
  for (const RandomTraceOptions& shape :
       {RandomTraceOptions{}, RandomTraceOptions{.kv_heads = 1, .group = 4, .dim = 32, .seed = 2},
        RandomTraceOptions{.group = 1, .prompt = 300, .steps = 40, .seed = 3}}) {
    const traces::Trace trace = RandomTrace(shape);
    const LayerTensors tensors(trace, 0);
    const brute::Layer layer(trace, 0);
    const PqCacheParams params{
        .ratio = 0.3, .sink = 8, .bits = 5, .iterations = 3, .block = 16, .cache = 64};
    ExpectSame(Replayed(PqCachePolicy(params), tensors), BruteForce(layer, tensors, params), layer,
               0.3);
  }
}

TEST(PqCache, APromptShorterThanItsCodeBookIsAttendedWhole) {
  const traces::Trace trace = RandomTrace({.prompt = 80, .steps = 20});
  const LayerTensors tensors(trace, 0);
  const Replayed log(PqCachePolicy({}), tensors);
  for (const float mass : log.fidelity.mass) EXPECT_EQ(mass, 1.0f);
}

}  // namespace
}  // namespace stallcast::methods
