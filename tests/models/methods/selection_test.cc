// Methods that select from a cache which the GPU or the host holds whole (ClusterKV, SparQ,
// Twilight), against their papers in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/methods/clusterkv/policy.h"
#include "models/methods/common/key_clusters.h"
#include "models/methods/sparq/policy.h"
#include "models/methods/twilight/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"

namespace stallcast::methods {
namespace {

using brute::Cell;
using brute::Cells;
using brute::Choice;
using brute::Layer;
using brute::Vector;

Cells ClusterKv(const Layer& layer, const LayerTensors& tensors, const ClusterKvParams& params) {
  Cells cells(static_cast<size_t>(layer.steps));
  for (int head = 0; head < layer.query_heads; ++head) {
    const int kv_head = head / layer.group;
    std::vector<std::vector<uint32_t>> clusters;
    const auto add = [&](int64_t first, int64_t count, int64_t lists) {
      const KeyClusters found =
          ClusterKeys(tensors, kv_head, first, count, lists, params.iterations);
      for (int64_t c = 0; c < lists; ++c) {
        std::vector<uint32_t> tokens;
        for (uint32_t at = found.offsets[c]; at < found.offsets[c + 1]; ++at) {
          tokens.push_back(static_cast<uint32_t>(first) + found.tokens[at]);
        }
        if (!tokens.empty()) clusters.push_back(tokens);
      }
    };
    add(params.sink, layer.prompt - params.sink, params.lists);
    std::set<uint32_t> before;
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t token = layer.prompt + step;
      if (step > 0 && step % params.update == 0) {
        add(token - params.update, params.update, params.update_lists);
      }
      Cell& cell = cells[step].emplace_back();
      cell.selected_now = true;
      Vector scores;
      for (const auto& tokens : clusters) {
        Vector centroid(static_cast<size_t>(layer.dim));
        for (const uint32_t t : tokens) {
          for (int i = 0; i < layer.dim; ++i) centroid[i] += layer.keys[kv_head][t][i];
        }
        for (double& x : centroid) {
          x = brute::Bf16(static_cast<float>(x / static_cast<double>(tokens.size())));
        }
        scores.push_back(brute::Dot(layer.Query(head, token), centroid));
      }
      std::vector<uint32_t> order(clusters.size());
      std::iota(order.begin(), order.end(), 0u);
      std::ranges::stable_sort(order, [&](auto a, auto b) { return scores[a] > scores[b]; });
      for (size_t i = 0; i + 1 < order.size(); ++i) {
        const double a = scores[order[i]], b = scores[order[i + 1]];
        cell.ambiguous = cell.ambiguous || a - b <= 1e-5 * std::abs(a);
      }
      cell.attended.assign(static_cast<size_t>(token + 1), false);
      int64_t room = params.budget - params.sink;
      for (const uint32_t c : order) {
        if (room == 0) break;
        cell.selected.insert(c);
        for (size_t i = 0; i < clusters[c].size() && room > 0; ++i, --room) {
          cell.attended[clusters[c][i]] = true;
        }
      }
      const int64_t local = layer.prompt + step / params.update * params.update;
      for (int64_t t = 0; t <= token; ++t) {
        if (t < params.sink || t >= local) cell.attended[t] = true;
      }
      cell.recalled_now = brute::Minus(cell.selected, before);
      cell.evicted = std::ssize(brute::Minus(before, cell.selected));
      before = cell.selected;
    }
  }
  return cells;
}

Cells SparQ(const Layer& layer, const SparQParams& params) {
  Cells cells(static_cast<size_t>(layer.steps));
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t token = layer.prompt + step, before = token + 1 - params.window;
    for (int head = 0; head < layer.kv_heads; ++head) {
      Cell& cell = cells[step].emplace_back();
      cell.selected_now = token + 1 > params.budget;
      Vector size(static_cast<size_t>(layer.dim));
      for (int g = 0; g < layer.group; ++g) {
        for (int i = 0; i < layer.dim; ++i) {
          size[i] += std::abs(layer.Query(head * layer.group + g, token)[i]);
        }
      }
      const Choice channels = brute::Top(brute::Range(0, layer.dim), size, 0, params.channels);
      std::vector<Vector> rows;
      for (int g = 0; g < layer.group && before > 0; ++g) {
        const Vector& query = layer.Query(head * layer.group + g, token);
        double held = 0, all = 0;
        for (int i = 0; i < layer.dim; ++i) {
          all += std::abs(query[i]);
          if (channels.ids.contains(static_cast<uint32_t>(i))) held += std::abs(query[i]);
        }
        // The paper divides by sqrt(d held / all).
        Vector logits;
        for (int64_t t = 0; t < before; ++t) {
          double dot = 0;
          for (const uint32_t i : channels.ids) dot += query[i] * layer.keys[head][t][i];
          logits.push_back(dot / std::sqrt(layer.dim * held / all));
        }
        rows.push_back(brute::Softmax(logits));
      }
      if (before > 0) {
        const Choice best = brute::Top(brute::Range(0, before), brute::MeanOf(rows), 0,
                                       params.budget - params.window);
        cell.selected = best.ids;
        cell.ambiguous = best.ambiguous || channels.ambiguous;
      }
      for (int64_t t = 0; t <= token; ++t) {
        cell.attended.push_back(t >= before || cell.selected.contains(static_cast<uint32_t>(t)));
      }
    }
  }
  return cells;
}

Cells Twilight(const Layer& layer, const TwilightParams& params) {
  Cells cells = brute::Quest(
      layer, {.budget = params.base, .page = params.page, .group = QuestParams::Group::kQueryHead});
  const double levels = std::pow(2.0, static_cast<double>(params.bits)) - 1;
  for (int step = 0; step < layer.steps; ++step) {
    for (int head = 0; head < layer.query_heads; ++head) {
      Cell& cell = cells[step][head];
      cell.selected_now = true;
      cell.selected.clear();
      std::vector<uint32_t> offered;
      Vector logits;
      for (uint32_t t = 0; t < cell.attended.size(); ++t) {
        if (!cell.attended[t]) continue;
        offered.push_back(t);
        const Vector& key = layer.keys[head / layer.group][t];
        const double low = *std::ranges::min_element(key);
        const double width = (*std::ranges::max_element(key) - low) / levels;
        double dot = 0;
        for (int i = 0; i < layer.dim; ++i) {
          const double at = (key[i] - low) / width;
          // Between two values a float may go either way.
          cell.ambiguous = cell.ambiguous || std::abs(at - std::floor(at) - 0.5) < 1e-5;
          dot += layer.Query(head, layer.prompt + step)[i] * (low + width * std::nearbyint(at));
        }
        logits.push_back(layer.scale * dot);
      }
      const Vector weights = brute::Softmax(logits);
      std::vector<size_t> order(offered.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, [&](auto a, auto b) { return weights[a] > weights[b]; });
      std::fill(cell.attended.begin(), cell.attended.end(), false);
      double held = 0;
      for (const size_t i : order) {
        if (held >= params.top_p) break;
        held += weights[i];
        cell.ambiguous = cell.ambiguous || std::abs(held - params.top_p) < 1e-5;
        cell.attended[offered[i]] = true;
      }
    }
  }
  return cells;
}

class Selection : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const LayerTensors tensors{trace, 0};
  const Layer layer{trace, 0};
};
INSTANTIATE_TEST_SUITE_P(
    Random, Selection,
    testing::Values(
        RandomTraceOptions{},
        RandomTraceOptions{.kv_heads = 1, .group = 4, .dim = 17, .steps = 40, .seed = 2},
        RandomTraceOptions{.group = 1, .dim = 32, .prompt = 500, .steps = 30, .seed = 3}));

TEST_P(Selection, ClusterKv) {
  const ClusterKvParams params{
      .budget = 64, .sink = 4, .lists = 20, .update = 16, .update_lists = 3, .iterations = 4};
  ExpectSame(Replayed(ClusterKvPolicy(params), tensors), ClusterKv(layer, tensors, params), layer);
}

TEST_P(Selection, SparQ) {
  const SparQParams params{.budget = 60, .channels = 6, .window = 12};
  ExpectSame(Replayed(SparQPolicy(params), tensors), SparQ(layer, params), layer);
}

TEST_P(Selection, Twilight) {
  for (const double share : {0.3, 0.85}) {
    const TwilightParams params{.base = 96, .page = 8, .top_p = share};
    ExpectSame(Replayed(TwilightPolicy(params), tensors), Twilight(layer, params), layer, 0.5);
  }
}

TEST(TopP, TakesTheFewestTokensThatHoldTheShare) {
  const std::vector<uint32_t> ids{3, 5, 8, 9};
  const std::vector<double> weights{0.1, 0.4, 0.4, 0.1};
  using Tokens = std::vector<uint32_t>;
  EXPECT_EQ(TopP(ids, weights, 0), (Tokens{5}));
  EXPECT_EQ(TopP(ids, weights, 0.3), (Tokens{5}));
  EXPECT_EQ(TopP(ids, weights, 0.5), (Tokens{5, 8}));
  EXPECT_EQ(TopP(ids, weights, 0.85), (Tokens{3, 5, 8}));
  EXPECT_EQ(TopP(ids, weights, 1), ids);
  EXPECT_EQ(TopP({&ids[0], 1}, {&weights[0], 1}, 0.9), (Tokens{3}));
}

}  // namespace
}  // namespace stallcast::methods
