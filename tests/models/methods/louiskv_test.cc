// LouisKV against its paper in double precision: clusters, segments, boundaries and retrievals.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>

#include "models/methods/common/key_clusters.h"
#include "models/methods/louiskv/local_buffer.h"
#include "models/methods/louiskv/policy.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

using brute::Cells;
using brute::Layer;
using brute::Vector;

// Keys in the whole numbers that clusters are made of. The scaling is the one step in float: its
// rounding decides what is clustered.
std::vector<Vector> WholeKeys(const Layer& layer, int head, int64_t first, int64_t count) {
  float largest = 0;
  for (int64_t t = first; t < first + count; ++t) {
    for (double x : layer.keys[head][t])
      largest = std::max(largest, std::abs(static_cast<float>(x)));
  }
  const float scale = 127.0f / largest;
  std::vector<Vector> keys;
  for (int64_t t = first; t < first + count; ++t) {
    Vector& key = keys.emplace_back();
    for (double x : layer.keys[head][t])
      key.push_back(std::nearbyint(static_cast<float>(x) * scale));
  }
  return keys;
}

double SquaredDistance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// Cluster of each key.
std::vector<int64_t> Lloyd(const std::vector<Vector>& keys, int64_t clusters, int64_t iterations) {
  const auto count = static_cast<int64_t>(keys.size());
  std::vector<Vector> centroids;
  for (int64_t c = 0; c < clusters; ++c) {
    centroids.push_back(keys[static_cast<size_t>((2 * c + 1) * count / (2 * clusters))]);
  }
  std::vector<int64_t> cluster(keys.size());
  for (int64_t i = 0; i < iterations; ++i) {
    for (size_t t = 0; t < keys.size(); ++t) {
      double nearest = std::numeric_limits<double>::infinity();
      for (int64_t c = 0; c < clusters; ++c) {
        const double distance = SquaredDistance(keys[t], centroids[c]);
        if (distance < nearest) {
          nearest = distance;
          cluster[t] = c;
        }
      }
    }
    if (i + 1 == iterations) break;
    for (int64_t c = 0; c < clusters; ++c) {
      Vector sum(keys[0].size());
      double members = 0;
      for (size_t t = 0; t < keys.size(); ++t) {
        if (cluster[t] != c) continue;
        ++members;
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += keys[t][d];
      }
      if (members == 0) continue;
      for (size_t d = 0; d < sum.size(); ++d) centroids[c][d] = std::floor(sum[d] / members + 0.5);
    }
  }
  return cluster;
}

using UnitMap = std::map<uint32_t, std::vector<int64_t>>;  // tokens by unit

// What one selection head keeps between retrievals.
struct Head {
  std::set<uint32_t> units;
  std::set<int64_t> tokens;
  bool ambiguous = false;
};

void Retrieve(const Layer& layer, const LouisKvParams& params, const UnitMap& units, int head,
              int members, int64_t token, Head& state) {
  std::vector<uint32_t> ids;
  std::vector<Vector> rows(static_cast<size_t>(members));
  const int kv_head = head * members / layer.group;
  for (const auto& [id, tokens] : units) {
    ids.push_back(id);
    Vector centroid(static_cast<size_t>(layer.dim));
    for (int64_t t : tokens) {
      for (int i = 0; i < layer.dim; ++i) {
        centroid[i] += layer.keys[kv_head][t][i] / static_cast<double>(tokens.size());
      }
    }
    for (double& x : centroid) x = brute::Bf16(x);
    for (int m = 0; m < members; ++m) {
      rows[m].push_back(layer.scale * brute::Dot(layer.Query(head * members + m, token), centroid));
    }
  }
  for (Vector& row : rows) row = brute::Softmax(row);
  const Vector score = brute::MeanOf(rows);
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score[a] > score[b]; });
  const auto close = [&](size_t a, size_t b) {
    return score[order[a]] - score[order[b]] <= 1e-5 * score[order[a]];
  };
  state = {};
  int64_t room = params.capacity();
  for (size_t i = 0; i < order.size() && room > 0; ++i) {
    const auto& tokens = units.at(ids[order[i]]);
    const bool whole = static_cast<int64_t>(tokens.size()) <= room;
    state.units.insert(ids[order[i]]);
    for (int64_t t : tokens) {
      if (room-- > 0) state.tokens.insert(t);
    }
    if (room <= 0 && i + 1 < order.size() && close(i, i + 1)) state.ambiguous = true;
    if (!whole && i > 0 && close(i - 1, i)) state.ambiguous = true;
  }
}

Cells LouisKv(const Layer& layer, const LouisKvParams& params) {
  const bool alone = params.group == LouisKvParams::Group::kQueryHead;
  const bool pages = params.units == LouisKvParams::Units::kPages;
  const int heads = alone ? layer.query_heads : layer.kv_heads;
  const int members = layer.query_heads / heads;
  const int64_t sink = std::min(params.sink, layer.prompt);
  const int64_t tail = params.prompt_window ? std::min(params.window, layer.prompt - sink) : 0;
  const int64_t clustered = layer.prompt - sink - tail;
  const int64_t clusters = (clustered + params.cluster - 1) / params.cluster;

  std::vector<UnitMap> units(static_cast<size_t>(layer.kv_heads));
  for (int h = 0; h < layer.kv_heads && clustered > 0; ++h) {
    const auto keys = WholeKeys(layer, h, sink, clustered);
    const std::vector<int64_t> cluster = Lloyd(keys, clusters, params.iterations);
    for (int64_t t = 0; t < clustered; ++t) {
      const int64_t c = pages ? t / params.cluster : cluster[static_cast<size_t>(t)];
      units[h][static_cast<uint32_t>(c)].push_back(sink + t);
    }
  }
  // The prompt's last tokens: pieces of a cluster's size, counted from the end.
  std::vector<std::vector<int64_t>> local;
  for (int64_t t = layer.prompt - tail; t < layer.prompt; ++t) {
    if (local.empty() || (layer.prompt - t) % params.cluster == 0) local.emplace_back();
    local.back().push_back(t);
  }
  bool prompt_tail = true;
  std::vector<Head> state(static_cast<size_t>(heads));
  for (int h = 0; h < heads && clustered <= params.capacity(); ++h) {
    for (const auto& [id, tokens] : units[h * members / layer.group]) {
      state[h].units.insert(id);
      state[h].tokens.insert(tokens.begin(), tokens.end());
    }
  }
  auto next = static_cast<uint32_t>(clusters);
  Cells cells;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t token = layer.prompt + step;
    const bool compares = params.trigger == LouisKvParams::Trigger::kBoundary ||
                          (params.trigger == LouisKvParams::Trigger::kEveryToken && !pages);
    const bool compared = compares && token - 1 >= layer.first_query;
    double similarity = 0;
    for (int h = 0; compared && h < layer.query_heads; ++h) {
      const Vector &a = layer.Query(h, token), &b = layer.Query(h, token - 1);
      similarity +=
          brute::Dot(a, b) / std::sqrt(brute::Dot(a, a) * brute::Dot(b, b)) / layer.query_heads;
    }
    const bool boundary = params.trigger == LouisKvParams::Trigger::kStride
                              ? step % params.stride == 0
                              : step == 0 || (compared && similarity < params.tau);
    int64_t in_units = 0;
    for (const auto& [id, tokens] : units[0]) in_units += static_cast<int64_t>(tokens.size());
    const bool retrieves = (boundary || params.trigger == LouisKvParams::Trigger::kEveryToken) &&
                           in_units > params.capacity();
    std::vector<int64_t> evicted(static_cast<size_t>(heads));
    for (int h = 0; retrieves && h < heads; ++h) {
      evicted[h] = std::ssize(state[h].units);  // all are brought anew
      Retrieve(layer, params, units[h * members / layer.group], h, members, token, state[h]);
    }
    if (token >= params.sink) {
      int64_t buffered = 0;
      for (const auto& segment : local) buffered += static_cast<int64_t>(segment.size());
      if (buffered == params.window) {
        for (int h = 0; h < layer.kv_heads; ++h) units[h][next] = local.front();
        for (int h = 0; h < heads; ++h) {
          Head& head = state[h];
          if (static_cast<int64_t>(head.tokens.size() + local.front().size()) > params.capacity()) {
            ++evicted[h];
            continue;
          }
          head.units.insert(next);
          head.tokens.insert(local.front().begin(), local.front().end());
        }
        ++next;
        local.erase(local.begin());
      }
      const bool begins = pages ? step % params.cluster == 0 : boundary;
      if (begins || prompt_tail || local.empty() ||
          static_cast<int64_t>(local.back().size()) >= std::max<int64_t>(1, params.window / 2)) {
        local.emplace_back();
      }
      prompt_tail = false;
      local.back().push_back(token);
    }
    auto& row = cells.emplace_back(static_cast<size_t>(heads));
    for (int h = 0; h < heads; ++h) {
      brute::Cell& cell = row[h];
      cell.selected = state[h].units;
      if (retrieves) cell.recalled_now = cell.selected;
      cell.evicted = evicted[h];
      cell.ambiguous = state[h].ambiguous;
      cell.triggered = boundary;
      cell.selected_now = retrieves;
      cell.compared = compared;
      cell.similarity = similarity;
      cell.attended.assign(static_cast<size_t>(token + 1), false);
      for (int64_t t = 0; t < std::min(params.sink, token + 1); ++t) cell.attended[t] = true;
      for (int64_t t : state[h].tokens) cell.attended[t] = true;
      for (const auto& segment : local) {
        for (int64_t t : segment) cell.attended[t] = true;
      }
    }
  }
  return cells;
}

std::vector<RandomTraceOptions> Shapes() {
  return {{},
          {.kv_heads = 1, .group = 1, .seed = 2},
          {.kv_heads = 3, .group = 2, .dim = 17, .prompt = 160, .steps = 33, .seed = 3},
          {.group = 7, .dim = 64, .prompt = 129, .steps = 41, .prompt_queries = 0, .seed = 4},
          {.kv_heads = 2, .group = 4, .dim = 8, .prompt = 40, .steps = 90, .seed = 5},
          {.prompt = 3, .steps = 60, .seed = 6},
          {.dim = 128, .prompt = 700, .steps = 20, .prompt_queries = 5, .seed = 7}};
}

class LouisKvOnShape : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const LayerTensors tensors{trace, 0};
  const Layer layer{trace, 0};

  void Expect(const LouisKvParams& params, double share = 0.8) {
    ExpectSame(Replayed(LouisKvPolicy(params), tensors), LouisKv(layer, params), layer, share);
  }
};
INSTANTIATE_TEST_SUITE_P(Random, LouisKvOnShape, testing::ValuesIn(Shapes()));

LouisKvParams Small() { return {.budget = 72, .sink = 8, .window = 24, .tau = 0.75, .cluster = 6}; }

TEST_P(LouisKvOnShape, MatchesThePaper) {
  for (const double tau : {-1.0, 0.7, 0.85, 1.0}) {
    for (const bool prompt_window : {true, false}) {
      LouisKvParams params = Small();
      params.tau = tau;
      params.prompt_window = prompt_window;
      Expect(params);
    }
  }
}

TEST_P(LouisKvOnShape, AblationsMatch) {
  for (const auto trigger : {LouisKvParams::Trigger::kBoundary, LouisKvParams::Trigger::kEveryToken,
                             LouisKvParams::Trigger::kStride}) {
    for (const auto units : {LouisKvParams::Units::kClusters, LouisKvParams::Units::kPages}) {
      for (const auto group :
           {LouisKvParams::Group::kConsistent, LouisKvParams::Group::kQueryHead}) {
        LouisKvParams params = Small();
        params.trigger = trigger;
        params.stride = 5;
        params.units = units;
        params.group = group;
        Expect(params);
      }
    }
  }
}

TEST_P(LouisKvOnShape, AwkwardSizesMatch) {
  Expect({.budget = 12, .sink = 0, .window = 1, .cluster = 1});
  Expect({.budget = 60, .sink = 20, .window = 7, .cluster = 30, .iterations = 1});
  Expect({.budget = 90, .sink = 3, .window = 40, .cluster = 11, .iterations = 12});
}

// After a retrieval the whole budget but the free part of the local buffer is attended.
TEST_P(LouisKvOnShape, RetrievalsFillTheBudget) {
  const LouisKvParams params = Small();
  const Replayed log(LouisKvPolicy(params), tensors);
  for (int step = 0; step < layer.steps; ++step) {
    for (int head = 0; head < log.access.heads; ++head) {
      const auto at = static_cast<size_t>(step * log.access.heads + head);
      const int64_t attended = log.access.attended_tokens[at];
      ASSERT_LE(attended, params.budget);
      if (log.access.flags[at] & traces::kSelectedNow) {
        ASSERT_GT(attended, params.sink + params.capacity());
      }
    }
  }
}

TEST(LouisKv, ContextsThatFitMoveNothing) {
  for (const int64_t prompt : {1, 30, 84}) {  // up to 112: the buffer need not be full
    const traces::Trace trace = RandomTrace({.prompt = prompt, .steps = 28});
    const LayerTensors tensors(trace, 0);
    const Replayed log(LouisKvPolicy({.budget = 128, .sink = 16, .window = 16}), tensors);
    EXPECT_EQ(log.access.recalled_now.total(), 0);
    for (int step = 0; step < 28; ++step) {
      EXPECT_EQ(log.fidelity.mass[step], 1.0f);
      EXPECT_EQ(log.access.attended_tokens[int64_t{step} * log.access.heads], prompt + 1 + step);
    }
  }
}

TEST(LouisKv, MatchesThePaperOnRealTensors) {
  traces::Trace trace = traces::ReadTrace(kRealTrace);
  ASSERT_GE(trace.info.prompt_tokens(), 3000);
  trace.info.set_decode_steps(12);
  trace.info.set_prompt_tokens(3000);
  for (traces::Tensor& tensor : trace.tensors) {
    if (tensor.spec.kind == traces::TensorKind::kQuery) tensor.spec.first_token = 2999;
  }
  const int index = trace.Layers().back();
  const LayerTensors tensors(trace, index);
  const Layer layer(trace, index);
  for (const double tau : {0.7, 1.0}) {
    const LouisKvParams params{.budget = 768, .tau = tau};
    const Replayed log(LouisKvPolicy(params), tensors);
    ExpectSame(log, LouisKv(layer, params), layer, 0.5);
    EXPECT_GT(log.access.recalled_now.total(), 0);
  }
}

double Inertia(const std::vector<Vector>& keys, const std::vector<int64_t>& cluster,
               int64_t clusters) {
  std::vector<Vector> sums(static_cast<size_t>(clusters), Vector(keys[0].size()));
  std::vector<double> sizes(static_cast<size_t>(clusters));
  for (size_t t = 0; t < keys.size(); ++t) {
    ++sizes[cluster[t]];
    for (size_t d = 0; d < keys[t].size(); ++d) sums[cluster[t]][d] += keys[t][d];
  }
  double total = 0;
  for (size_t t = 0; t < keys.size(); ++t) {
    Vector mean = sums[cluster[t]];
    for (double& x : mean) x /= sizes[cluster[t]];
    total += SquaredDistance(keys[t], mean);
  }
  return total;
}

std::vector<int64_t> Labels(const KeyClusters& clusters) {
  std::vector<int64_t> label(clusters.tokens.size(), -1);
  for (size_t c = 0; c + 1 < clusters.offsets.size(); ++c) {
    for (uint32_t at = clusters.offsets[c]; at < clusters.offsets[c + 1]; ++at) {
      label[clusters.tokens[at]] = static_cast<int64_t>(c);
      EXPECT_TRUE(at == clusters.offsets[c] || clusters.tokens[at - 1] < clusters.tokens[at]);
    }
  }
  return label;
}

// What 8 bits cost: clusters as tight as those of the keys themselves, within two percent.
TEST(KeyClusters, EightBitsClusterRealKeysAsWellAsDoubles) {
  const traces::Trace trace = traces::ReadTrace(kRealTrace);
  const int index = trace.Layers().back();
  const LayerTensors tensors(trace, index);
  constexpr int64_t kFirst = 64, kCount = 2000, kClusters = 125, kIterations = 5;
  for (int head = 0; head < tensors.kv_heads(); ++head) {
    std::vector<Vector> keys;
    std::vector<float> key(static_cast<size_t>(tensors.head_dim()));
    for (int64_t t = kFirst; t < kFirst + kCount; ++t) {
      tensors.ReadKeys(head, t, 1, key.data());
      keys.emplace_back(key.begin(), key.end());
    }
    const std::vector<int64_t> label =
        Labels(ClusterKeys(tensors, head, kFirst, kCount, kClusters, kIterations));
    // Plain k-means of the keys: means that are not rounded.
    std::vector<Vector> scaled = keys;
    for (Vector& k : scaled) {
      for (double& x : k) x *= 1 << 20;
    }
    const std::vector<int64_t> exact = Lloyd(scaled, kClusters, kIterations);
    EXPECT_LT(Inertia(keys, label, kClusters), 1.02 * Inertia(keys, exact, kClusters));
  }
}

// Enough clusters for several groups, of which later assignments leave some out.
TEST(KeyClusters, ManyClustersMatchPlainKMeans) {
  for (const int dim : {3, 16, 64}) {
    constexpr int64_t kCount = 2600, kClusters = 1300, kIterations = 4;
    const traces::Trace trace =
        RandomTrace({.kv_heads = 1, .dim = dim, .prompt = kCount, .steps = 1});
    const std::vector<int64_t> label =
        Labels(ClusterKeys(LayerTensors(trace, 0), 0, 0, kCount, kClusters, kIterations));
    const auto keys = WholeKeys(Layer(trace, 0), 0, 0, kCount);
    EXPECT_EQ(label, Lloyd(keys, kClusters, kIterations)) << dim;
  }
}

TEST(KeyClusters, EqualKeysShareTheFirstCluster) {
  traces::Trace trace = RandomTrace({.kv_heads = 1, .prompt = 50, .steps = 2});
  auto* values = reinterpret_cast<float*>(trace.tensors[0].data.data());
  for (int64_t i = 0; i < trace.tensors[0].spec.elements(); ++i) values[i] = 3;
  const KeyClusters same = ClusterKeys(LayerTensors(trace, 0), 0, 0, 50, 5, 3);
  EXPECT_EQ(same.offsets, (std::vector<uint32_t>{0, 50, 50, 50, 50, 50}));
  for (int64_t i = 0; i < trace.tensors[0].spec.elements(); ++i) values[i] = 0;
  EXPECT_EQ(ClusterKeys(LayerTensors(trace, 0), 0, 0, 50, 5, 3).offsets, same.offsets);
}

TEST(LocalBuffer, StepsOfARunAddUp) {
  LouisKvParams params;
  params.sink = 8, params.window = 32, params.cluster = 4;
  const auto boundary = [](int step) { return step % 7 == 3; };
  for (const int64_t prompt : {4, 20, 500}) {
    SCOPED_TRACE(prompt);
    const std::vector<LocalStep> steps = LocalSteps(params, prompt, 200, boundary);
    ASSERT_EQ(steps.size(), 200U);
    int64_t tokens = PromptParts(params, prompt).local, left = 0;
    for (int step = 0; step < 200; ++step) {
      // What belongs to the sink never enters.
      tokens += (prompt + step < params.sink ? 0 : 1) - steps[step].leaving;
      left += steps[step].leaving;
      EXPECT_EQ(steps[step].tokens, tokens) << step;
      EXPECT_LE(tokens, params.window);
      EXPECT_LE(steps[step].leaving, params.longest_segment());
    }
    EXPECT_GT(left, 100);
  }
  // Pages do not ask for boundaries.
  params.units = LouisKvParams::Units::kPages;
  const auto never = [](int) -> bool { throw std::logic_error("asked"); };
  const std::vector<LocalStep> pages = LocalSteps(params, 500, 200, never);
  EXPECT_EQ(std::ranges::count(pages, 4, &LocalStep::leaving), 200 / 4);
}

TEST(LocalBuffer, HoldsTheWindowAndLosesWholeSegments) {
  const LouisKvParams params{.sink = 4, .window = 10, .cluster = 4};
  LocalBuffer buffer(params, 100);
  EXPECT_EQ(buffer.tokens(), 10);
  EXPECT_EQ(buffer.Append(false), 2);  // the odd piece of the prompt is the oldest
  EXPECT_EQ(buffer.tokens(), 9);
  EXPECT_EQ(buffer.Append(false), 0);
  EXPECT_EQ(buffer.Append(true), 4);
  EXPECT_EQ(buffer.tokens(), 7);
  // A segment without a boundary is cut at half the window.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(buffer.Append(false), 0);
  EXPECT_EQ(buffer.Append(false), 4);
  EXPECT_EQ(buffer.tokens(), 7);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(buffer.Append(false), 0);
  EXPECT_EQ(buffer.Append(false), 2);  // the two tokens before the boundary
  EXPECT_EQ(buffer.Append(false), 0);
  EXPECT_EQ(buffer.Append(false), 5);
}

TEST(LouisKv, APromptOfJustTheBudgetIsAttendedWhole) {
  // 80 tokens beside sink and window, and none of the prompt in the local buffer.
  const auto method = MakeMethod(
      "louiskv", {{"budget", "128"}, {"sink", "16"}, {"window", "32"}, {"prompt_window", "off"}});
  RandomTraceOptions options;
  options.layers = 3;
  options.prompt = 16 + 80;
  options.steps = 3;
  const traces::AccessLog log =
      methods::Replay(RandomTrace(options), "", "louiskv", *method.method);
  for (const traces::LayerAccess& layer : log.layers) {
    if (layer.dense) continue;
    for (size_t cell = 0; cell < layer.attended_tokens.size(); ++cell) {
      EXPECT_EQ(layer.attended_tokens[cell],
                options.prompt + static_cast<int64_t>(cell) / layer.heads + 1);
    }
  }
}

}  // namespace
}  // namespace stallcast::methods
