// The papers' algorithms in double precision, one token and one page at a time, sharing no code
// with the policies.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "models/methods/arkvale/params.h"
#include "models/methods/freekv/params.h"
#include "models/methods/quest/params.h"
#include "traces/format/trace_file.h"

namespace stallcast::methods::brute {

using Vector = std::vector<double>;

/// One layer in double precision.
struct Layer {
  Layer() = default;
  Layer(const traces::Trace& trace, int layer);

  int kv_heads, query_heads, group, dim, steps;
  int64_t prompt, first_query;
  double scale;
  std::vector<std::vector<Vector>> keys;     ///< [KV head][token]
  std::vector<std::vector<Vector>> queries;  ///< [query head][token - first_query]
  std::vector<std::vector<Vector>> values;   ///< [KV head][token]; empty where not captured

  const Vector& Query(int head, int64_t token) const { return queries[head][token - first_query]; }
};

/// What a (step, head) cell must hold.
struct Cell {
  std::set<uint32_t> selected, recalled_now, recalled_ahead;
  std::set<uint32_t> resident_after;  ///< selectable pages on the GPU when the step is over
  std::vector<bool> attended;         ///< by token
  int64_t evicted = 0;                ///< pages that left the GPU
  bool triggered = false, selected_now = false, selected_ahead = false;
  double similarity = 0;
  bool compared = false;  ///< whether there is a similarity
  /// A choice so far hung on scores that differ by less than float can tell: nothing is claimed
  /// about this cell.
  bool ambiguous = false;
};

/// [step][head]
using Cells = std::vector<std::vector<Cell>>;

inline double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline Vector Softmax(Vector logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double& x : logits) sum += x = std::exp(x - max);
  for (double& x : logits) x /= sum;
  return logits;
}

/// The nearest number of 8 significant bits, ties to even.
inline double Bf16(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(value / unit) * unit;
}

struct Bounds {
  Vector high, low;
};

inline Bounds Summarize(const Layer& layer, int kv_head, int64_t page, int64_t page_tokens,
                        bool cuboid_mean) {
  Bounds bounds{Vector(layer.dim), Vector(layer.dim)};
  for (int i = 0; i < layer.dim; ++i) {
    double high = -1e300, low = 1e300;
    for (int64_t t = page * page_tokens; t < (page + 1) * page_tokens; ++t) {
      high = std::max(high, layer.keys[kv_head][t][i]);
      low = std::min(low, layer.keys[kv_head][t][i]);
    }
    if (cuboid_mean) {
      const double centre = (high + low) / 2;
      double distance = 0;
      for (int64_t t = page * page_tokens; t < (page + 1) * page_tokens; ++t) {
        distance += std::abs(centre - layer.keys[kv_head][t][i]);
      }
      const double radius = distance / static_cast<double>(page_tokens);
      // Kept in the cache's type.
      high = Bf16(static_cast<float>(centre + radius));
      low = Bf16(static_cast<float>(centre - radius));
    }
    bounds.high[i] = high;
    bounds.low[i] = low;
  }
  return bounds;
}

// Score of each page in [first, end) for one query head at a token.
inline Vector PageScores(const Layer& layer, int query_head, int64_t token, int64_t first,
                         int64_t end, int64_t page_tokens, bool cuboid_mean) {
  Vector scores;
  for (int64_t page = first; page < end; ++page) {
    const Bounds b = Summarize(layer, query_head / layer.group, page, page_tokens, cuboid_mean);
    const Vector& q = layer.Query(query_head, token);
    double score = 0;
    for (int i = 0; i < layer.dim; ++i) score += std::max(q[i] * b.high[i], q[i] * b.low[i]);
    scores.push_back(score);
  }
  return scores;
}

struct Choice {
  std::set<uint32_t> ids;
  bool ambiguous = false;
};

// The `count` best among `candidates`; scores[id - first].
inline Choice Top(const std::set<uint32_t>& candidates, const Vector& scores, int64_t first,
                  int64_t count) {
  std::vector<uint32_t> order(candidates.begin(), candidates.end());
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return scores[a - first] > scores[b - first]; });
  Choice choice;
  const int64_t taken = std::min<int64_t>(count, static_cast<int64_t>(order.size()));
  choice.ids.insert(order.begin(), order.begin() + taken);
  if (taken > 0 && taken < static_cast<int64_t>(order.size())) {
    const double in = scores[order[taken - 1] - first], out = scores[order[taken] - first];
    choice.ambiguous = in - out <= 1e-5 * std::max(std::abs(in), std::abs(out));
  }
  return choice;
}

inline std::set<uint32_t> Range(int64_t first, int64_t end) {
  std::set<uint32_t> ids;
  for (int64_t i = first; i < end; ++i) ids.insert(static_cast<uint32_t>(i));
  return ids;
}

inline std::set<uint32_t> Minus(const std::set<uint32_t>& a, const std::set<uint32_t>& b) {
  std::set<uint32_t> out;
  for (uint32_t x : a) {
    if (!b.contains(x)) out.insert(x);
  }
  return out;
}

inline Vector MeanOf(const std::vector<Vector>& rows) {
  Vector mean(rows[0].size());
  for (const Vector& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(rows.size());
  }
  return mean;
}

// Attended tokens: those whose page is in `pages`, is a sink page or is in the window.
inline std::vector<bool> Attend(int64_t context, int64_t page_tokens, int64_t sink_pages,
                                int64_t window_first, const std::set<uint32_t>& pages) {
  std::vector<bool> attended;
  for (int64_t t = 0; t < context; ++t) {
    const int64_t page = t / page_tokens;
    attended.push_back(page < sink_pages || page >= window_first ||
                       pages.contains(static_cast<uint32_t>(page)));
  }
  return attended;
}

inline int64_t PagesOf(int64_t tokens, int64_t page) { return (tokens + page - 1) / page; }

inline Layer::Layer(const traces::Trace& trace, int index) {
  const traces::Tensor& k = *trace.Find(traces::TensorKind::kKey, index);
  const traces::Tensor& q = *trace.Find(traces::TensorKind::kQuery, index);
  kv_heads = k.spec.heads;
  query_heads = q.spec.heads;
  group = query_heads / kv_heads;
  dim = k.spec.head_dim;
  prompt = trace.info.prompt_tokens();
  steps = static_cast<int>(trace.info.decode_steps());
  first_query = q.spec.first_token;
  scale = trace.info.model().softmax_scale() > 0 ? trace.info.model().softmax_scale()
                                                 : 1 / std::sqrt(static_cast<double>(dim));
  const auto read = [](const traces::Tensor& tensor) {
    std::vector<std::vector<Vector>> out(static_cast<size_t>(tensor.spec.heads));
    std::vector<float> row(static_cast<size_t>(tensor.spec.head_dim));
    for (int h = 0; h < tensor.spec.heads; ++h) {
      for (int64_t t = tensor.spec.first_token; t < tensor.spec.end_token(); ++t) {
        tensor.ToFloat(h, t, 1, row.data());
        out[h].emplace_back(row.begin(), row.end());
      }
    }
    return out;
  };
  keys = read(k);
  queries = read(q);
  if (const traces::Tensor* v = trace.Find(traces::TensorKind::kValue, index)) values = read(*v);
}

inline Cells Quest(const Layer& layer, const QuestParams& params) {
  Cells cells;
  const bool alone = params.group == QuestParams::Group::kQueryHead;
  const int heads = alone ? layer.query_heads : layer.kv_heads;
  const int members = layer.query_heads / heads;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    const int64_t last = PagesOf(context, params.page) - 1;
    auto& row = cells.emplace_back();
    for (int head = 0; head < heads; ++head) {
      Cell& cell = row.emplace_back();
      if (last + 1 <= params.budget / params.page) {
        cell.selected = Range(0, last);
      } else {
        Vector score;
        for (int m = 0; m < members; ++m) {
          const Vector one = PageScores(layer, head * members + m, context - 1, 0, last,
                                        params.page, /*cuboid_mean=*/false);
          if (m == 0) score = one;
          for (size_t i = 0; m > 0 && i < one.size(); ++i) {
            score[i] = params.group == QuestParams::Group::kMax ? std::max(score[i], one[i])
                                                                : score[i] + one[i];
          }
        }
        const Choice top = Top(Range(0, last), score, 0, params.budget / params.page - 1);
        cell.selected = top.ids;
        cell.ambiguous = top.ambiguous;
        cell.selected_now = true;
      }
      cell.resident_after = cell.selected;
      cell.attended = Attend(context, params.page, 0, last, cell.selected);
    }
  }
  return cells;
}

inline Cells ArkVale(const Layer& layer, const ArkValeParams& params) {
  const bool published = params.variant == ArkValeParams::Variant::kPublished;
  const int heads = published ? 1 : layer.kv_heads;
  const int members = layer.query_heads / heads;
  const int64_t sink = params.sink / params.page, window = params.window / params.page;
  const int64_t slots = params.budget / params.page - sink - window;
  int64_t ranked = slots;
  if (published) {
    const int64_t topk =
        params.topk > 0 ? params.topk : std::min<int64_t>(1280, params.budget / 2) / params.page;
    ranked = std::min(slots, std::max<int64_t>(0, topk - sink - (window - 1)));
  }
  const auto scores = [&](int head, int64_t token, int64_t end) {
    std::vector<Vector> rows;
    for (int m = 0; m < members; ++m) {
      rows.push_back(PageScores(layer, head * members + m, token, sink, end, params.page, true));
    }
    return MeanOf(rows);
  };
  std::vector<std::set<uint32_t>> resident(static_cast<size_t>(heads));
  std::vector<bool> ambiguous(static_cast<size_t>(heads));
  int64_t seen = std::max(sink, PagesOf(layer.prompt, params.page) - window);
  for (int head = 0; head < heads; ++head) {
    const int64_t query = std::max(layer.first_query, layer.prompt - 1);
    const Choice top = Top(Range(sink, seen), scores(head, query, seen), sink, slots);
    resident[head] = top.ids;
    ambiguous[head] = top.ambiguous;
  }
  Cells cells;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    const int64_t end = std::max(sink, PagesOf(context, params.page) - window);
    auto& row = cells.emplace_back();
    for (int head = 0; head < heads; ++head) {
      std::set<uint32_t>& gpu = resident[head];
      const auto before = std::ssize(gpu);
      for (int64_t page = seen; page < end; ++page) {
        if (static_cast<int64_t>(gpu.size()) < slots) gpu.insert(static_cast<uint32_t>(page));
      }
      Cell& cell = row.emplace_back();
      if (end - sink > slots) {
        cell.selected_now = true;
        const Vector score = scores(head, context - 1, end);
        const Choice top = Top(Range(sink, end), score, sink, ranked);
        cell.recalled_now = Minus(top.ids, gpu);
        ambiguous[head] = ambiguous[head] || top.ambiguous;
        // One victim a recalled page: the cached page with the lowest score of this query.
        for (uint32_t page : cell.recalled_now) {
          if (static_cast<int64_t>(gpu.size()) == slots) {
            std::set<uint32_t> others = Minus(gpu, top.ids);
            const Choice kept = Top(others, score, sink, static_cast<int64_t>(others.size()) - 1);
            ambiguous[head] = ambiguous[head] || kept.ambiguous;
            gpu.erase(*Minus(others, kept.ids).begin());
          }
          gpu.insert(page);
        }
      }
      cell.selected = cell.resident_after = gpu;
      // What was there, left the window or was recalled, and is not there now.
      cell.evicted = before + (end - seen) + std::ssize(cell.recalled_now) - std::ssize(gpu);
      cell.attended = Attend(context, params.page, sink, end, gpu);
      cell.ambiguous = ambiguous[head];
    }
    seen = end;
  }
  return cells;
}

inline Cells FreeKv(const Layer& layer, const FreeKvParams& params) {
  const int heads = layer.kv_heads;
  const int64_t sink = params.sink / params.page, window = params.window / params.page;
  const int64_t slots = params.budget / params.page - sink - window;
  const auto choose = [&](int head, int64_t token, int64_t end) {
    std::vector<Vector> rows;
    for (int m = 0; m < layer.group && end > sink; ++m) {
      Vector row = PageScores(layer, head * layer.group + m, token, sink, end, params.page,
                              params.summary == PageSummary::kCuboidMean);
      if (params.pooling == Pooling::kSoftmaxMean) {
        for (double& x : row) x *= layer.scale;
      }
      if (params.pooling != Pooling::kMean) row = Softmax(row);
      rows.push_back(row);
    }
    return rows.empty() ? Choice{} : Top(Range(sink, end), MeanOf(rows), sink, slots);
  };
  std::vector<std::set<uint32_t>> resident(static_cast<size_t>(heads));
  std::vector<bool> ambiguous(static_cast<size_t>(heads));
  int64_t seen = std::max(sink, PagesOf(layer.prompt, params.page) - window);
  for (int head = 0; head < heads; ++head) {
    const Choice top = choose(head, std::max(layer.first_query, layer.prompt - 1), seen);
    resident[head] = top.ids;
    ambiguous[head] = top.ambiguous;
  }
  Cells cells;
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1, token = context - 1;
    const int64_t end = std::max(sink, PagesOf(context, params.page) - window);
    auto& row = cells.emplace_back(static_cast<size_t>(heads));
    const bool select = end - sink > slots;
    bool any = false;
    for (int head = 0; head < heads; ++head) {
      Cell& cell = row[head];
      if (!select || !params.speculation || !params.correction) continue;
      if (token - 1 < layer.first_query) continue;
      cell.compared = true;
      for (int m = 0; m < layer.group; ++m) {
        const Vector& a = layer.Query(head * layer.group + m, token);
        const Vector& b = layer.Query(head * layer.group + m, token - 1);
        cell.similarity += Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b)) / layer.group;
      }
      cell.triggered = cell.similarity < params.tau;
      any = any || cell.triggered;
    }
    for (int head = 0; head < heads; ++head) {
      Cell& cell = row[head];
      std::set<uint32_t>& gpu = resident[head];
      cell.evicted = std::ssize(gpu) + (end - seen);
      for (int64_t page = seen; page < end; ++page) {
        if (static_cast<int64_t>(gpu.size()) < slots) gpu.insert(static_cast<uint32_t>(page));
      }
      const std::set<uint32_t> before = gpu;
      cell.ambiguous = ambiguous[head];
      if (select) {
        const Choice top = choose(head, token, end);
        // What was chosen before is forgotten: the whole region is chosen anew.
        ambiguous[head] = top.ambiguous;
        cell.ambiguous = cell.ambiguous || top.ambiguous;
        gpu = top.ids;
        const bool now = cell.triggered || !params.speculation;
        (now ? cell.recalled_now : cell.recalled_ahead) = Minus(gpu, before);
        cell.selected = now ? gpu : before;
        cell.selected_now = now || any;
        cell.selected_ahead = !cell.selected_now;
      } else {
        cell.selected = before;
      }
      cell.resident_after = gpu;
      cell.evicted +=
          std::ssize(cell.recalled_now) + std::ssize(cell.recalled_ahead) - std::ssize(gpu);
      cell.attended = Attend(context, params.page, sink, end, cell.selected);
    }
    seen = end;
  }
  return cells;
}

/// Attention weights of a query head at a step over all tokens it sees.
inline Vector Weights(const Layer& layer, int query_head, int step) {
  Vector logits;
  for (int64_t t = 0; t < layer.prompt + step + 1; ++t) {
    logits.push_back(layer.scale * Dot(layer.Query(query_head, layer.prompt + step),
                                       layer.keys[query_head / layer.group][t]));
  }
  return Softmax(logits);
}

/// Mean over query heads of the weight on the attended tokens; attended is [selection head][token].
inline double Mass(const Layer& layer, int step, const std::vector<std::vector<bool>>& attended) {
  const int members = layer.query_heads / static_cast<int>(attended.size());
  double mass = 0;
  for (int head = 0; head < layer.query_heads; ++head) {
    const Vector weights = Weights(layer, head, step);
    for (size_t t = 0; t < weights.size(); ++t) {
      if (attended[head / members][t]) mass += weights[t] / layer.query_heads;
    }
  }
  return mass;
}

/// Mean over query heads of ||sparse - full|| / ||full|| of the attention outputs, where sparse
/// takes the softmax over the attended tokens alone; attended as above. Nothing attended: output 0.
inline double OutputError(const Layer& layer, int step,
                          const std::vector<std::vector<bool>>& attended) {
  const int members = layer.query_heads / static_cast<int>(attended.size());
  double error = 0;
  for (int head = 0; head < layer.query_heads; ++head) {
    const Vector weights = Weights(layer, head, step);
    const std::vector<Vector>& values = layer.values[head / layer.group];
    Vector full(values[0].size()), sparse(values[0].size());
    double covered = 0;
    for (size_t t = 0; t < weights.size(); ++t) {
      const bool kept = attended[head / members][t];
      covered += kept ? weights[t] : 0;
      for (size_t i = 0; i < full.size(); ++i) {
        full[i] += weights[t] * values[t][i];
        sparse[i] += kept ? weights[t] * values[t][i] : 0;
      }
    }
    Vector difference(full.size());
    for (size_t i = 0; i < full.size(); ++i) {
      difference[i] = (covered > 0 ? sparse[i] / covered : 0) - full[i];
    }
    error += std::sqrt(Dot(difference, difference) / Dot(full, full)) / layer.query_heads;
  }
  return error;
}

}  // namespace stallcast::methods::brute
