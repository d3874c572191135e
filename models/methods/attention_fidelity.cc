#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "models/methods/attention_rule.h"
#include "models/methods/output_sums.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

// A logit without weight: far below every other, far above where arithmetic on it overflows.
constexpr float kHidden = -1e30f;

// Steps that a task takes: enough that packing the keys costs little beside multiplying them.
constexpr int kTaskSteps = 128;

// By [query head][step]; no errors without values.
struct Measured {
  std::vector<double> shares, errors;
};

// Steps [first, last) for the query heads of a KV head.
void MeasureKvHead(const LayerTensors& tensors, const AttentionRule& rule,
                   const AttendedRanges& attended, int kv_head, int first, int last,
                   Measured& measured) {
  const int64_t dim = tensors.head_dim();
  const int group = tensors.group();
  const int heads_a_selection = tensors.query_heads() / attended.heads();
  std::vector<float> keys(static_cast<size_t>(kPanel * dim));
  std::vector<float> panel(static_cast<size_t>(dim * kPanel));
  std::vector<float> dots(static_cast<size_t>(kRowBlock * kPanel));
  std::vector<OnlineSoftmax> rows(static_cast<size_t>(group * (last - first)));
  std::vector<AttendedRanges::Range> scratch;
  std::optional<OutputSums> outputs;
  if (tensors.has_values(kv_head)) outputs.emplace(tensors, std::ssize(rows));
  const int64_t tokens = tensors.prompt_tokens() + last;
  for (int64_t begin = 0; begin < tokens; begin += kPanel) {
    const int64_t columns = std::min(kPanel, tokens - begin);
    tensors.ReadKeys(kv_head, begin, columns, keys.data());
    PackPanel(keys.data(), columns, dim, panel.data());
    if (outputs) outputs->LoadPanel(kv_head, begin, columns);
    for (int g = 0; g < group; ++g) {
      const int head = kv_head * group + g;
      for (int step = first; step < last; step += static_cast<int>(kRowBlock)) {
        const int count = std::min(static_cast<int>(kRowBlock), last - step);
        const int64_t row = int64_t{g} * (last - first) + step - first;
        PanelDots(tensors.Query(head, tensors.prompt_tokens() + step).data(), count, dim,
                  panel.data(), columns, dots.data(), kPanel);
        for (int r = 0; r < count; ++r) {
          // A query sees its own token and those before, back to where its window begins.
          const int64_t token = tensors.prompt_tokens() + step + r;
          const int64_t hidden = std::clamp<int64_t>(rule.FirstSeen(token) - begin, 0, columns);
          int64_t seen = std::clamp<int64_t>(token + 1 - begin, 0, columns);
          if (hidden == seen) seen = 0;
          OnlineSoftmax& softmax = rows[row + r];
          const float max = softmax.max;
          float* weights = dots.data() + r * kPanel;
          const auto ranges =
              attended.Within(step + r, head / heads_a_selection, begin, begin + columns, scratch);
          float shrink = 1;  // of the weights before, where a larger logit comes
          if (seen > 0) {
            const float scale = rule.Cap(tensors.softmax_scale(), seen, weights);
            std::fill_n(weights, hidden, kHidden);
            AddToSoftmax(softmax, weights, begin, seen, scale, ranges);
            shrink = std::exp(max - softmax.max);
          }
          if (outputs) outputs->SetRow(r, weights, seen, shrink, ranges);
        }
        if (outputs) outputs->Add(row, count);
      }
    }
  }
  for (int g = 0; g < group; ++g) {
    for (int step = first; step < last; ++step) {
      const int64_t row = int64_t{g} * (last - first) + step - first;
      const size_t at = static_cast<size_t>(kv_head * group + g) * tensors.steps() + step;
      measured.shares[at] = rows[row].covered / rows[row].total;
      if (outputs) {
        const double sink = std::exp(rule.Sink(g) - rows[row].max);
        measured.errors[at] = outputs->RelativeError(row, rows[row], sink);
      }
    }
  }
}

// Mean over the heads of values[head][step], those that are NaN left out.
std::vector<float> MeanOfHeads(const std::vector<double>& values, int steps) {
  std::vector<float> means;
  if (values.empty()) return means;
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    int heads = 0;
    for (size_t at = step; at < values.size(); at += steps) {
      if (std::isnan(values[at])) continue;
      sum += values[at];
      ++heads;
    }
    means.push_back(static_cast<float>(sum / heads));
  }
  return means;
}

}  // namespace

AttentionFidelity MeasureAttention(const LayerTensors& tensors, const AttendedRanges& attended) {
  return MeasureAttention(tensors, traces::proto::Model(), attended);
}

AttentionFidelity MeasureAttention(const LayerTensors& tensors, const traces::proto::Model& model,
                                   const AttendedRanges& attended) {
  const int steps = tensors.steps();
  const int tasks_a_head = (steps + kTaskSteps - 1) / kTaskSteps;
  const size_t rows = static_cast<size_t>(tensors.query_heads()) * steps;
  Measured measured{std::vector<double>(rows),
                    std::vector<double>(tensors.has_values() ? rows : 0,
                                        std::numeric_limits<double>::quiet_NaN())};
  tbb::parallel_for(0, tensors.kv_heads() * tasks_a_head, [&](int task) {
    const int first = task % tasks_a_head * kTaskSteps;
    const int kv_head = task / tasks_a_head;
    const AttentionRule rule(model, tensors.source(kv_head));
    MeasureKvHead(tensors, rule, attended, kv_head, first, std::min(first + kTaskSteps, steps),
                  measured);
  });
  return {MeanOfHeads(measured.shares, steps), MeanOfHeads(measured.errors, steps)};
}

}  // namespace stallcast::methods
