// Methods that drop tokens for good, and those whose heads are of two kinds, against their papers
// in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "models/methods/common/head_kinds.h"
#include "models/methods/h2o/policy.h"
#include "models/methods/raas/policy.h"
#include "models/methods/rkv/policy.h"
#include "models/methods/snapkv/policy.h"
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
using Tokens = std::set<uint32_t>;

// Weights that a query head's query at a token gives to `tokens`, softmax over them.
std::map<uint32_t, double> WeightsOver(const Layer& layer, int query_head, int64_t token,
                                       const Tokens& tokens) {
  Vector logits;
  for (const uint32_t t : tokens) {
    logits.push_back(layer.scale * brute::Dot(layer.Query(query_head, token),
                                              layer.keys[query_head / layer.group][t]));
  }
  const Vector weights = brute::Softmax(logits);
  std::map<uint32_t, double> of;
  size_t i = 0;
  for (const uint32_t t : tokens) of[t] = weights[i++];
  return of;
}

Tokens UpTo(int64_t end) { return brute::Range(0, end); }

// Sum over the queries at [first, end) of their weights for all tokens that they see, the mean of
// query heads [first_head, end_head).
Vector Observed(const Layer& layer, int first_head, int end_head, int64_t first, int64_t end,
                int64_t tokens) {
  Vector sum(static_cast<size_t>(tokens));
  for (int head = first_head; head < end_head; ++head) {
    for (int64_t query = first; query < end; ++query) {
      for (const auto& [t, weight] : WeightsOver(layer, head, query, UpTo(query + 1))) {
        if (t < tokens) sum[t] += weight / (end_head - first_head);
      }
    }
  }
  return sum;
}

struct Window {
  Window(const Layer& layer, int64_t queries)
      : first(std::max(layer.first_query, layer.prompt - queries)),
        end(std::max(first + 1, layer.prompt)) {}
  int64_t first, end;
};

// A step's cell of a head that attends `kept`.
Cell Attending(const Tokens& kept, int64_t context, int64_t evicted, bool ambiguous) {
  Cell cell;
  cell.attended.assign(static_cast<size_t>(context), false);
  for (const uint32_t t : kept) cell.attended[t] = true;
  cell.evicted = evicted;
  cell.ambiguous = ambiguous;
  return cell;
}

Cells SnapKv(const Layer& layer, const SnapKvParams& params) {
  const bool alone = params.group == SnapKvParams::Group::kQueryHead;
  const int members = alone ? 1 : layer.group;
  Cells cells(static_cast<size_t>(layer.steps));
  for (int first = 0; first < layer.query_heads; first += members) {
    Tokens kept = UpTo(layer.prompt);
    bool ambiguous = false;
    if (layer.prompt > params.budget) {
      const int64_t before = layer.prompt - params.window;
      const Window window(layer, params.window);
      const Vector sums = Observed(layer, first, first + members, window.first, window.end, before);
      Vector smooth;
      for (int64_t t = 0; t < before; ++t) {
        double sum = 0;
        for (int64_t i = t - params.kernel / 2; i <= t + params.kernel / 2; ++i) {
          if (i >= 0 && i < before) sum += sums[i];
        }
        smooth.push_back(sum);
      }
      const Choice best = brute::Top(UpTo(before), smooth, 0, params.budget - params.window);
      kept = best.ids;
      ambiguous = best.ambiguous;
      for (int64_t t = before; t < layer.prompt; ++t) kept.insert(static_cast<uint32_t>(t));
    }
    for (int step = 0; step < layer.steps; ++step) {
      kept.insert(static_cast<uint32_t>(layer.prompt + step));
      cells[step].push_back(Attending(kept, layer.prompt + step + 1, 0, ambiguous));
    }
  }
  return cells;
}

Cells H2o(const Layer& layer, const H2oParams& params) {
  const bool last = params.worth == H2oParams::Worth::kLast;
  Cells cells(static_cast<size_t>(layer.steps));
  for (int head = 0; head < layer.kv_heads; ++head) {
    const int first = head * layer.group;
    const Window window(layer, last ? 1 : layer.prompt);
    Vector worth =
        Observed(layer, first, first + layer.group, window.first, window.end, layer.prompt);
    worth.resize(static_cast<size_t>(layer.prompt + layer.steps));
    Tokens kept = UpTo(layer.prompt);
    bool ambiguous = false;
    // Keeps so many, of which the last `recent` whatever they are worth.
    const auto drop = [&](int64_t count, int64_t recent) {
      if (std::ssize(kept) <= count) return int64_t{0};
      Tokens older = kept, stay;
      for (int64_t i = 0; i < recent; ++i) {
        stay.insert(*older.rbegin());
        older.erase(*older.rbegin());
      }
      const Choice best = brute::Top(older, worth, 0, count - recent);
      ambiguous = ambiguous || best.ambiguous;
      stay.insert(best.ids.begin(), best.ids.end());
      const auto dropped = std::ssize(kept) - std::ssize(stay);
      kept = stay;
      return static_cast<int64_t>(dropped);
    };
    drop(params.budget, params.recent);
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t token = layer.prompt + step;
      const int64_t evicted = drop(params.budget - 1, std::max<int64_t>(0, params.recent - 1));
      kept.insert(static_cast<uint32_t>(token));
      cells[step].push_back(Attending(kept, token + 1, evicted, ambiguous));
      if (last) std::ranges::fill(worth, 0);
      for (int g = 0; g < layer.group; ++g) {
        for (const auto& [t, weight] : WeightsOver(layer, first + g, token, kept)) {
          worth[t] += weight / layer.group;
        }
      }
    }
  }
  return cells;
}

Cells Raas(const Layer& layer, const RaasParams& params) {
  const int64_t budget = params.budget / params.page;
  Cells cells(static_cast<size_t>(layer.steps));
  for (int head = 0; head < layer.kv_heads; ++head) {
    std::map<uint32_t, int> time;  // by page
    bool ambiguous = false;
    const auto weights = [&](int64_t token) {
      std::map<uint32_t, double> mean;
      for (int g = 0; g < layer.group; ++g) {
        Vector logits;
        for (const auto& [page, when] : time) {
          logits.push_back(layer.scale * brute::PageScores(layer, head * layer.group + g, token,
                                                           page, page + 1, params.page, false)[0]);
        }
        if (logits.empty()) continue;
        const Vector of_head = brute::Softmax(logits);
        size_t i = 0;
        for (const auto& [page, when] : time) mean[page] += of_head[i++] / layer.group;
      }
      return mean;
    };
    const int64_t prompt_pages = layer.prompt / params.page;
    for (int64_t page = 0; page < prompt_pages; ++page) time[static_cast<uint32_t>(page)] = 0;
    int64_t pinned = prompt_pages;
    if (params.prompt == RaasParams::Prompt::kEvicted) {
      pinned = 0;
      Vector scores;
      for (const auto& [page, weight] : weights(std::max(layer.first_query, layer.prompt - 1))) {
        scores.push_back(weight);
      }
      const Choice best = brute::Top(UpTo(prompt_pages), scores, 0, budget - 1);
      ambiguous = best.ambiguous;
      time.clear();
      for (const uint32_t page : best.ids) time[page] = 0;
    }
    std::map<uint32_t, double> weight;
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t token = layer.prompt + step;
      int64_t evicted = 0;
      if (step > 0 && token % params.page == 0) {
        const auto filled = static_cast<uint32_t>(token / params.page - 1);
        time[filled] = step;
        weight[filled] = 1e9;
        if (std::ssize(time) - pinned >= budget) {
          uint32_t victim = filled;
          for (const auto& [page, when] : time) {
            if (page < static_cast<uint32_t>(pinned)) continue;
            if (std::pair(when, weight[page]) < std::pair(time[victim], weight[victim])) {
              victim = page;
            }
          }
          for (const auto& [page, when] : time) {
            if (page != victim && when == time[victim] &&
                std::abs(weight[page] - weight[victim]) <= 1e-5 * weight[victim]) {
              ambiguous = true;
            }
          }
          time.erase(victim);
          evicted = params.page;
        }
      }
      weight = weights(token);
      for (const auto& [page, w] : weight) {
        if (w > params.alpha) time[page] = step;
        ambiguous = ambiguous || std::abs(w - params.alpha) < 1e-5 * params.alpha;
      }
      Tokens kept;
      for (int64_t t = 0; t <= token; ++t) {
        const auto page = static_cast<uint32_t>(t / params.page);
        if (t / params.page == token / params.page || time.contains(page)) {
          kept.insert(static_cast<uint32_t>(t));
        }
      }
      cells[step].push_back(Attending(kept, token + 1, evicted, ambiguous));
    }
  }
  return cells;
}

Cells Rkv(const Layer& layer, const RkvParams& params) {
  Cells cells(static_cast<size_t>(layer.steps));
  for (int head = 0; head < layer.kv_heads; ++head) {
    const std::vector<Vector>& keys = layer.keys[head];
    bool ambiguous = false;
    std::vector<uint32_t> kept;
    const auto compress = [&](int64_t token) {
      const int64_t n = std::ssize(kept), before = n - params.window;
      if (n <= params.budget) return int64_t{0};
      const int64_t first = std::max(layer.first_query, token - params.window);
      const int64_t end = std::max(first + 1, token);
      Vector attention(static_cast<size_t>(before));
      for (int64_t query = first; query < end; ++query) {
        Vector logits;
        for (int64_t t = 0; t < before; ++t) {
          double most = -1e300;
          for (int g = 0; g < layer.group; ++g) {
            most =
                std::max(most, layer.scale * brute::Dot(layer.Query(head * layer.group + g, query),
                                                        keys[kept[t]]));
          }
          logits.push_back(most);
        }
        const Vector weights = brute::Softmax(logits);
        for (int64_t t = 0; t < before; ++t) {
          attention[t] += weights[t] / static_cast<double>(end - first);
        }
      }
      Vector columns(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        Vector row;
        int64_t last = 0;
        for (int64_t j = 0; j < n; ++j) {
          const Vector &a = keys[kept[i]], &b = keys[kept[j]];
          row.push_back(i == j ? 0
                               : brute::Dot(a, b) / std::sqrt(brute::Dot(a, a) * brute::Dot(b, b)));
          if (row.back() > params.threshold) last = j;
          ambiguous = ambiguous || std::abs(row.back() - params.threshold) < 1e-6;
        }
        row[last] = 0;
        for (int64_t j = 0; j < n; ++j) columns[j] += row[j] / static_cast<double>(n);
      }
      const Vector redundancy = brute::Softmax(columns);
      Vector worth;
      for (int64_t t = 0; t < before; ++t) {
        double most = 0;
        for (int64_t i = t - params.kernel / 2; i <= t + params.kernel / 2; ++i) {
          if (i >= 0 && i < before) most = std::max(most, attention[i]);
        }
        worth.push_back(params.lambda * most - (1 - params.lambda) * redundancy[t]);
      }
      const Choice best = brute::Top(UpTo(before), worth, 0, params.budget - params.window);
      ambiguous = ambiguous || best.ambiguous;
      std::vector<uint32_t> stay;
      for (const uint32_t at : best.ids) stay.push_back(kept[at]);
      stay.insert(stay.end(), kept.begin() + before, kept.end());
      kept = stay;
      return n - std::ssize(kept);
    };
    for (int64_t t = 0; t < layer.prompt; ++t) kept.push_back(static_cast<uint32_t>(t));
    compress(layer.prompt);
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t token = layer.prompt + step;
      const int64_t evicted =
          std::ssize(kept) == params.budget + params.buffer ? compress(token) : 0;
      kept.push_back(static_cast<uint32_t>(token));
      cells[step].push_back(
          Attending(Tokens(kept.begin(), kept.end()), token + 1, evicted, ambiguous));
    }
  }
  return cells;
}

class Eviction : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const LayerTensors tensors{trace, 0, 64};
  const Layer layer{trace, 0};
};
INSTANTIATE_TEST_SUITE_P(
    Random, Eviction,
    testing::Values(RandomTraceOptions{.prompt_queries = 16},
                    RandomTraceOptions{.group = 1, .prompt_queries = 0, .seed = 2},
                    RandomTraceOptions{.kv_heads = 1,
                                       .group = 4,
                                       .dim = 17,
                                       .prompt = 30,
                                       .steps = 90,
                                       .prompt_queries = 30,
                                       .seed = 3},
                    RandomTraceOptions{
                        .dim = 32, .prompt = 600, .steps = 40, .prompt_queries = 8, .seed = 4}));

TEST_P(Eviction, SnapKv) {
  for (const auto group : {SnapKvParams::Group::kMean, SnapKvParams::Group::kQueryHead}) {
    const SnapKvParams params{.budget = 60, .window = 8, .group = group};
    ExpectSame(Replayed(SnapKvPolicy(params), tensors), SnapKv(layer, params), layer, 0.5);
  }
}

TEST_P(Eviction, H2o) {
  for (const auto worth : {H2oParams::Worth::kAccumulated, H2oParams::Worth::kLast}) {
    for (const int64_t recent : {0, 20}) {
      const H2oParams params{.budget = 50, .recent = recent, .worth = worth};
      ExpectSame(Replayed(H2oPolicy(params), tensors), H2o(layer, params), layer, 0.5);
    }
  }
}

TEST_P(Eviction, Raas) {
  for (const auto prompt : {RaasParams::Prompt::kPinned, RaasParams::Prompt::kEvicted}) {
    const RaasParams params{.budget = 40, .page = 8, .alpha = 0.05, .prompt = prompt};
    ExpectSame(Replayed(RaasPolicy(params), tensors), Raas(layer, params), layer, 0.5);
  }
}

TEST_P(Eviction, Rkv) {
  const RkvParams params{.budget = 48, .buffer = 16, .lambda = 0.3};
  ExpectSame(Replayed(RkvPolicy(params), tensors), Rkv(layer, params), layer, 0.5);
}

// The plan of R-KV follows from the number of tokens alone, as the policy's cache does.
TEST_P(Eviction, RkvAttendsAsManyTokensAsItsPlanSays) {
  const RkvParams params{.budget = 48, .buffer = 16};
  const Replayed log(RkvPolicy(params), tensors);
  for (int step = 0; step < layer.steps; ++step) {
    EXPECT_EQ(log.access.attended_tokens[int64_t{step} * layer.kv_heads],
              params.Attended(layer.prompt, step));
    EXPECT_EQ(log.access.evicted[int64_t{step} * layer.kv_heads] > 0,
              params.Compresses(layer.prompt, step));
  }
}

TEST_P(Eviction, RaasAttendsAsManyPagesAsItsPlanSays) {
  for (const auto prompt : {RaasParams::Prompt::kPinned, RaasParams::Prompt::kEvicted}) {
    const RaasParams params{.budget = 40, .page = 8, .prompt = prompt};
    const Replayed log(RaasPolicy(params), tensors);
    for (int step = 0; step < layer.steps; ++step) {
      const int64_t context = layer.prompt + step + 1;
      const int64_t pages = params.Kept(layer.prompt, context);
      EXPECT_EQ(log.access.attended_tokens[int64_t{step} * layer.kv_heads],
                (pages - 1) * params.page + (context - 1) % params.page + 1)
          << step;
    }
  }
}

TEST_P(Eviction, HeadsThatNeedMostKeepEverything) {
  const HeadKinds kinds{.share = 0.4, .sink = 4, .window = 30, .observe = 8};
  const Replayed log(HeadKindsPolicy(kinds), tensors);
  const Window window(layer, kinds.observe);
  Vector missed;
  for (int head = 0; head < layer.kv_heads; ++head) {
    const Vector weights = Observed(layer, head * layer.group, (head + 1) * layer.group,
                                    window.first, window.end, layer.prompt);
    double sum = 0;
    for (int64_t t = 4; t < layer.prompt - 30; ++t) sum += weights[t];
    missed.push_back(sum);
  }
  const Choice whole = brute::Top(UpTo(layer.kv_heads), missed, 0, 1);
  Cells cells(static_cast<size_t>(layer.steps));
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    for (int head = 0; head < layer.kv_heads; ++head) {
      const bool all = whole.ids.contains(static_cast<uint32_t>(head));
      Tokens kept;
      for (int64_t t = 0; t < context; ++t) {
        if (all || t < 4 || t >= context - 30) kept.insert(static_cast<uint32_t>(t));
      }
      cells[step].push_back(
          Attending(kept, context, !all && context > 34 ? 1 : 0, whole.ambiguous));
    }
  }
  ExpectSame(log, cells, layer);
}

}  // namespace
}  // namespace stallcast::methods
