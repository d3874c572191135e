// PRKV against its paper in double precision: static set, restructured pages, dynamic selection.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/methods/prkv/policy.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

using brute::Cells;
using brute::Choice;
using brute::Layer;
using brute::Vector;

// Weights that a query head's query gives to tokens [0, tokens).
Vector WeightsOf(const Layer& layer, int query_head, int64_t query, int64_t tokens) {
  Vector logits;
  for (int64_t t = 0; t < tokens; ++t) {
    logits.push_back(layer.scale * brute::Dot(layer.Query(query_head, query),
                                              layer.keys[query_head / layer.group][t]));
  }
  return brute::Softmax(logits);
}

// One KV head's cache.
struct Head {
  std::vector<int64_t> order;
  int64_t static_pages = 0;
  std::set<uint32_t> gpu;  // dynamic pages
  bool static_ambiguous = false, ambiguous = false;
};

Vector ScorePages(const Layer& layer, const PrkvParams& params, int head, const Head& state,
                  int64_t query, int64_t end) {
  std::vector<Vector> rows(static_cast<size_t>(layer.group));
  for (int64_t page = state.static_pages; page < end; ++page) {
    // A layer of nothing but this page, summarised as any other.
    Layer one = {};
    one.dim = layer.dim;
    one.keys.resize(1);
    for (int64_t i = page * params.page; i < (page + 1) * params.page; ++i) {
      const int64_t token =
          i < static_cast<int64_t>(state.order.size()) ? state.order[static_cast<size_t>(i)] : i;
      one.keys[0].push_back(layer.keys[head][token]);
    }
    brute::Bounds bounds =
        brute::Summarize(one, 0, 0, params.page, params.summary == PageSummary::kCuboidMean);
    for (Vector* side : {&bounds.high, &bounds.low}) {
      for (double& x : *side) x = brute::Bf16(x);
    }
    for (int m = 0; m < layer.group; ++m) {
      const Vector& q = layer.Query(head * layer.group + m, query);
      double score = 0;
      for (int i = 0; i < layer.dim; ++i) {
        score += std::max(q[i] * bounds.high[i], q[i] * bounds.low[i]);
      }
      rows[m].push_back(params.pooling == Pooling::kSoftmaxMean ? layer.scale * score : score);
    }
  }
  if (rows[0].empty()) return {};
  if (params.pooling != Pooling::kMean) {
    for (Vector& row : rows) row = brute::Softmax(row);
  }
  return brute::MeanOf(rows);
}

Cells Prkv(const Layer& layer, const PrkvParams& params) {
  const int64_t budget_pages = (params.budget - params.window) / params.page;
  const int64_t window_pages = params.window / params.page;
  const auto end_of = [&](int64_t context) {
    return std::max<int64_t>(0, brute::PagesOf(context, params.page) - window_pages);
  };
  int64_t overlap_pages = -1;
  std::vector<Head> heads(static_cast<size_t>(layer.kv_heads));
  bool layer_ambiguous = false;

  const auto restructure = [&](int64_t context) {
    const int64_t end = end_of(context), tokens = end * params.page;
    const int64_t first = std::max(tokens, layer.first_query);
    const int64_t last = std::max(context, first + 1) - 1;
    int64_t pages = static_cast<int64_t>(params.static_ratio * static_cast<double>(budget_pages));
    if (params.static_rule == PrkvParams::StaticRule::kOverlap) {
      if (overlap_pages < 0) {
        int64_t common = 0;
        for (int h = 0; h < layer.query_heads; ++h) {
          const auto all = brute::Range(0, tokens);
          const Choice a =
              brute::Top(all, WeightsOf(layer, h, first, tokens), 0, budget_pages * params.page);
          const Choice b =
              brute::Top(all, WeightsOf(layer, h, last, tokens), 0, budget_pages * params.page);
          common += static_cast<int64_t>(a.ids.size() - brute::Minus(a.ids, b.ids).size());
          layer_ambiguous = layer_ambiguous || a.ambiguous || b.ambiguous;
        }
        overlap_pages = common / layer.query_heads / params.page;
      }
      pages = overlap_pages;
    }
    for (int h = 0; h < layer.kv_heads; ++h) {
      Head& head = heads[h];
      while (static_cast<int64_t>(head.order.size()) < tokens) {
        head.order.push_back(static_cast<int64_t>(head.order.size()));
      }
      head.static_pages = pages;
      if (pages == 0) continue;
      std::vector<Vector> rows;
      for (int m = 0; m < layer.group; ++m) {
        for (int64_t q = first; q <= last; ++q) {
          rows.push_back(WeightsOf(layer, h * layer.group + m, q, tokens));
        }
      }
      const Vector weight = brute::MeanOf(rows);
      Vector in_order;
      for (int64_t token : head.order) in_order.push_back(weight[token]);
      const Choice top = brute::Top(brute::Range(0, tokens), in_order, 0, pages * params.page);
      std::vector<int64_t> order;
      for (uint32_t place : top.ids) order.push_back(head.order[place]);
      for (uint32_t place : brute::Minus(brute::Range(0, tokens), top.ids)) {
        order.push_back(head.order[place]);
      }
      head.order = order;
      // Later orders are made from this one.
      head.static_ambiguous = head.static_ambiguous || top.ambiguous;
    }
  };
  const auto choose = [&](int h, int64_t query, int64_t end) {
    const Head& head = heads[h];
    return brute::Top(brute::Range(head.static_pages, end),
                      ScorePages(layer, params, h, head, query, end), head.static_pages,
                      budget_pages - head.static_pages);
  };

  const bool has_static =
      params.static_rule == PrkvParams::StaticRule::kOverlap ||
      static_cast<int64_t>(params.static_ratio * static_cast<double>(budget_pages)) > 0;
  int64_t seen = end_of(layer.prompt);
  if (has_static && seen > budget_pages) restructure(layer.prompt);
  for (int h = 0; h < layer.kv_heads; ++h) {
    const Choice top = choose(h, std::max(layer.first_query, layer.prompt - 1), seen);
    heads[h].gpu = top.ids;
    heads[h].ambiguous = top.ambiguous;
  }
  Cells cells;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1, end = end_of(context);
    std::vector<int64_t> evicted(heads.size());
    for (int64_t page = seen; page < end; ++page) {
      for (int h = 0; h < layer.kv_heads; ++h) {
        Head& head = heads[h];
        if (static_cast<int64_t>(head.gpu.size()) < budget_pages - head.static_pages) {
          head.gpu.insert(static_cast<uint32_t>(page));
        } else {
          ++evicted[h];
        }
      }
    }
    seen = end;
    const bool anew = has_static && step > 0 && step % params.update == 0 && end > budget_pages;
    if (anew) restructure(context);
    auto& row = cells.emplace_back(static_cast<size_t>(layer.kv_heads));
    for (int h = 0; h < layer.kv_heads; ++h) {
      Head& head = heads[h];
      brute::Cell& cell = row[h];
      cell.selected_now = end > budget_pages;
      cell.triggered = anew;
      if (cell.selected_now) {
        const Choice top = choose(h, context - 1, end);
        // Every dynamic page is chosen anew: what was there before only says what moves.
        if (!anew) {
          cell.recalled_now = brute::Minus(top.ids, head.gpu);
          evicted[h] += std::ssize(brute::Minus(head.gpu, top.ids));
        }
        cell.ambiguous = top.ambiguous || (head.ambiguous && !anew);
        head.gpu = top.ids;
        head.ambiguous = top.ambiguous;
      }
      cell.ambiguous = cell.ambiguous || head.static_ambiguous || layer_ambiguous;
      cell.selected = head.gpu;
      cell.evicted = evicted[h];
      cell.attended.assign(static_cast<size_t>(context), false);
      for (int64_t t = end * params.page; t < context; ++t) cell.attended[t] = true;
      const auto attend = [&](int64_t page) {
        for (int64_t i = page * params.page; i < (page + 1) * params.page; ++i) {
          const bool moved = i < static_cast<int64_t>(head.order.size());
          cell.attended[moved ? head.order[static_cast<size_t>(i)] : i] = true;
        }
      };
      for (int64_t page = 0; page < head.static_pages; ++page) attend(page);
      for (uint32_t page : head.gpu) attend(page);
    }
  }
  return cells;
}

std::vector<RandomTraceOptions> Shapes() {
  return {{.prompt_queries = 40},
          {.kv_heads = 1, .group = 1, .prompt_queries = 16, .seed = 2},
          {.kv_heads = 3,
           .group = 2,
           .dim = 17,
           .prompt = 160,
           .steps = 33,
           .prompt_queries = 9,
           .seed = 3},
          {.group = 7, .dim = 64, .prompt = 129, .steps = 41, .prompt_queries = 0, .seed = 4},
          {.kv_heads = 2,
           .group = 4,
           .dim = 8,
           .prompt = 40,
           .steps = 90,
           .prompt_queries = 40,
           .seed = 5},
          {.prompt = 3, .steps = 80, .prompt_queries = 3, .seed = 6},
          {.dim = 128, .prompt = 700, .steps = 20, .prompt_queries = 16, .seed = 7}};
}

class PrkvOnShape : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const Layer layer{trace, 0};

  void Expect(const PrkvParams& params) {
    PrkvPolicy policy(params);
    const LayerTensors tensors(trace, 0, policy.prompt_queries());
    // The brute force sees the same queries as the policy.
    Layer same = layer;
    same.first_query = std::max(layer.first_query, layer.prompt - params.window);
    for (auto& head : same.queries) {
      head.erase(head.begin(), head.begin() + (same.first_query - layer.first_query));
    }
    ExpectSame(Replayed(policy, tensors), Prkv(same, params), same, 0.5);
  }
};
INSTANTIATE_TEST_SUITE_P(Random, PrkvOnShape, testing::ValuesIn(Shapes()));

PrkvParams Small() { return {.budget = 80, .page = 8, .window = 16, .update = 12}; }

TEST_P(PrkvOnShape, MatchesThePaper) {
  for (const double ratio : {0.0, 0.25, 0.6, 1.0}) {
    for (const int64_t update : {1, 7, 1000}) {
      PrkvParams params = Small();
      params.static_ratio = ratio;
      params.update = update;
      Expect(params);
    }
  }
}

TEST_P(PrkvOnShape, PiecesMatch) {
  for (const auto summary : {PageSummary::kMinMax, PageSummary::kCuboidMean}) {
    for (const auto pooling : {Pooling::kMean, Pooling::kSoftmaxMean}) {
      PrkvParams params = Small();
      params.summary = summary;
      params.pooling = pooling;
      Expect(params);
    }
  }
  PrkvParams overlap = Small();
  overlap.static_rule = PrkvParams::StaticRule::kOverlap;
  Expect(overlap);
}

TEST(Prkv, NoStaticSetIsPageSelectionAlone) {
  const traces::Trace trace = RandomTrace({});
  const LayerTensors tensors(trace, 0);
  PrkvParams params = Small();
  params.static_ratio = 0;
  const Replayed log(PrkvPolicy(params), tensors);
  for (uint8_t flags : log.access.flags) EXPECT_FALSE(flags & traces::kTriggered);
  for (int64_t cell = 0; cell < log.access.selected.size(); ++cell) {
    EXPECT_EQ(log.access.selected[cell].size(), 8u);
  }
}

TEST(Prkv, AnAllStaticSetChangesOnlyAtUpdates) {
  const traces::Trace trace = RandomTrace({.prompt_queries = 16});
  const LayerTensors tensors(trace, 0, 16);
  PrkvParams params = Small();
  params.static_ratio = 1;
  const Replayed log(PrkvPolicy(params), tensors);
  EXPECT_EQ(log.access.selected.total(), 0);
  EXPECT_EQ(log.access.recalled_now.total(), 0);
  for (int step = 0; step < 70; ++step) {
    for (int head = 0; head < log.access.heads; ++head) {
      const auto at = static_cast<size_t>(step * log.access.heads + head);
      EXPECT_EQ((log.access.flags[at] & traces::kTriggered) != 0, step > 0 && step % 12 == 0);
      EXPECT_LE(log.access.attended_tokens[at], params.budget);
    }
  }
}

TEST(Prkv, MatchesThePaperOnRealTensors) {
  traces::Trace trace = traces::ReadTrace(kRealTrace);
  trace.info.set_decode_steps(6);
  const int index = trace.Layers().back();
  PrkvParams params{.budget = 1088, .update = 3};
  const Layer whole(trace, index);
  // Of a model with the trace's groups, and of one with smaller ones, which leave queries out.
  for (const int group : {whole.group, 4}) {
    SCOPED_TRACE(group);
    ASSERT_LE(group, whole.group);
    Layer layer = whole;
    layer.group = group;
    layer.query_heads = layer.kv_heads * group;
    layer.queries.clear();
    for (int head = 0; head < layer.query_heads; ++head) {
      layer.queries.push_back(
          whole.queries[static_cast<size_t>(head / group * whole.group + head % group)]);
    }
    const LayerTensors tensors(trace, index, params.window, group);
    const Replayed log(PrkvPolicy(params), tensors);
    ExpectSame(log, Prkv(layer, params), layer, 0.5);
    for (int step = 0; step < layer.steps; ++step) {
      const auto attended = AttendedByHead(log, step, layer.prompt + step + 1);
      ASSERT_NEAR(log.fidelity.mass[step], brute::Mass(layer, step, attended), 1e-5);
    }
  }
}

}  // namespace
}  // namespace stallcast::methods
