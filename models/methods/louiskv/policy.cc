#include "models/methods/louiskv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "models/methods/common/bf16.h"
#include "models/methods/common/key_clusters.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/similarity.h"
#include "models/methods/common/unit_scores.h"
#include "models/methods/louiskv/local_buffer.h"

namespace stallcast::methods {
namespace {

using Trigger = LouisKvParams::Trigger;

struct Segment {
  int64_t begin, end;  // tokens
};

// What does not depend on the selection: where segments begin, when they leave, when to retrieve.
struct Schedule {
  struct Step {
    bool boundary = false, retrieves = false;
    float similarity = std::numeric_limits<float>::quiet_NaN();
    int64_t segments = 0;     // that have left before the step
    int64_t leaving = 0;      // 1 if one leaves in the step
    int64_t local_begin = 0;  // first token of the local buffer at the step's attention
  };
  Schedule(const LayerTensors& tensors, const LouisKvParams& params);

  PromptParts parts;
  std::vector<Step> steps;
  std::vector<Segment> segments;  // in the order of leaving
};

Schedule::Schedule(const LayerTensors& tensors, const LouisKvParams& params)
    : parts(params, tensors.prompt_tokens()) {
  LocalBuffer buffer(params, tensors.prompt_tokens());
  int64_t local_begin = parts.sink + parts.clustered;
  for (int i = 0; i < tensors.steps(); ++i) {
    const int64_t token = tensors.prompt_tokens() + i;
    Step& step = steps.emplace_back();
    if (params.compares()) {
      step.similarity = AdjacentSimilarity(tensors, 0, tensors.query_heads(), token);
    }
    step.boundary = params.trigger == Trigger::kStride
                        ? i % params.stride == 0
                        : i == 0 || step.similarity < static_cast<float>(params.tau);
    step.segments = static_cast<int64_t>(segments.size());
    const int64_t units =
        segments.empty() ? parts.clustered : segments.back().end - params.sink;  // tokens
    step.retrieves =
        (step.boundary || params.trigger == Trigger::kEveryToken) && units > params.capacity();
    const bool begins =
        params.units == LouisKvParams::Units::kPages ? i % params.cluster == 0 : step.boundary;
    if (token < params.sink) {
      local_begin = token + 1;
    } else if (const int64_t left = buffer.Append(begins); left > 0) {
      segments.push_back({local_begin, local_begin + left});
      local_begin += left;
      step.leaving = 1;
    }
    step.local_begin = local_begin;
  }
}

// The units of a KV head that hold tokens, in order of their ids.
struct Units {
  std::vector<uint32_t> ids;
  std::vector<uint32_t> offsets{0};  // into tokens
  std::vector<uint32_t> tokens;      // ascending in a unit

  void Close(uint32_t id) {
    if (tokens.size() == offsets.back()) return;
    ids.push_back(id);
    offsets.push_back(static_cast<uint32_t>(tokens.size()));
  }
  std::span<const uint32_t> Tokens(size_t unit) const {
    return std::span(tokens).subspan(offsets[unit], offsets[unit + 1] - offsets[unit]);
  }
};

Units UnitsOf(const LayerTensors& tensors, const LouisKvParams& params, const Schedule& schedule,
              int kv_head) {
  const PromptParts& parts = schedule.parts;
  Units units;
  if (params.units == LouisKvParams::Units::kPages) {
    for (int64_t c = 0; c < parts.clusters; ++c) {
      const int64_t end = std::min((c + 1) * params.cluster, parts.clustered);
      for (int64_t t = c * params.cluster; t < end; ++t) {
        units.tokens.push_back(static_cast<uint32_t>(parts.sink + t));
      }
      units.Close(static_cast<uint32_t>(c));
    }
  } else if (parts.clusters > 0) {
    const KeyClusters clusters = ClusterKeys(tensors, kv_head, parts.sink, parts.clustered,
                                             parts.clusters, params.iterations);
    for (int64_t c = 0; c < parts.clusters; ++c) {
      for (uint32_t at = clusters.offsets[c]; at < clusters.offsets[c + 1]; ++at) {
        units.tokens.push_back(static_cast<uint32_t>(parts.sink) + clusters.tokens[at]);
      }
      units.Close(static_cast<uint32_t>(c));
    }
  }
  auto id = static_cast<uint32_t>(parts.clusters);
  for (const Segment& segment : schedule.segments) {
    for (int64_t t = segment.begin; t < segment.end; ++t) {
      units.tokens.push_back(static_cast<uint32_t>(t));
    }
    units.Close(id++);
  }
  return units;
}

// The mean key of each unit, as the GPU keeps it.
void FillCentroids(const LayerTensors& tensors, int kv_head, const Units& units, int64_t first,
                   int64_t count, float* columns) {
  const int64_t dim = tensors.head_dim();
  std::vector<float> key(static_cast<size_t>(dim));
  std::vector<double> sum(static_cast<size_t>(dim));
  for (int64_t u = first; u < first + count; ++u) {
    std::fill(sum.begin(), sum.end(), 0.0);
    const auto tokens = units.Tokens(static_cast<size_t>(u));
    for (uint32_t token : tokens) {
      tensors.ReadKeys(kv_head, token, 1, key.data());
      for (int64_t i = 0; i < dim; ++i) sum[i] += static_cast<double>(key[i]);
    }
    for (int64_t i = 0; i < dim; ++i) {
      *columns++ = RoundToBf16(static_cast<float>(sum[i] / static_cast<double>(tokens.size())));
    }
  }
}

// What a selection head attends beside sink and local buffer.
class Critical {
 public:
  Critical(const Units& units, int64_t capacity) : units_(units), capacity_(capacity) {}

  std::span<const uint32_t> ids() const { return ids_; }
  bool Fits(size_t unit) const {
    return static_cast<int64_t>(tokens_.size() + units_.Tokens(unit).size()) <= capacity_;
  }
  void Add(size_t unit) { Add(unit, std::ssize(units_.Tokens(unit))); }
  void Replace(std::span<const Taken> taken) {
    ids_.clear();
    tokens_.clear();
    for (const Taken& unit : taken) Add(unit.unit, unit.tokens);
  }
  /// Makes tokens() ascending after changes.
  void Sort() { std::sort(tokens_.begin(), tokens_.end()); }
  std::span<const uint32_t> tokens() const { return tokens_; }

 private:
  void Add(size_t unit, int64_t tokens) {
    const auto all = units_.Tokens(unit).first(static_cast<size_t>(tokens));
    ids_.push_back(units_.ids[unit]);
    tokens_.insert(tokens_.end(), all.begin(), all.end());
  }

  const Units& units_;
  int64_t capacity_;
  std::vector<uint32_t> ids_, tokens_;
};

}  // namespace

void LouisKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                           AttendedRanges& attended) const {
  const Schedule schedule(tensors, params_);
  const bool alone = params_.group == LouisKvParams::Group::kQueryHead;
  const int heads = alone ? tensors.query_heads() : tensors.kv_heads();
  const int members = tensors.query_heads() / heads;
  const int64_t first_segment = schedule.parts.clusters;

  std::vector<Units> units(static_cast<size_t>(tensors.kv_heads()));
  tbb::parallel_for(0, tensors.kv_heads(),
                    [&](int head) { units[head] = UnitsOf(tensors, params_, schedule, head); });
  std::vector<int64_t> counts;
  for (const Units& of_head : units) counts.push_back(std::ssize(of_head.ids));
  UnitScores scores(tensors, UnitScores::Kind::kVector, counts,
                    tensors.prompt_tokens() + tensors.steps(),
                    [&](int head, int64_t first, int64_t count, float* columns) {
                      FillCentroids(tensors, head, units[head], first, count, columns);
                    });

  // Units of a KV head among the clusters and the first `segments` segments.
  const auto known = [&](int kv_head, int64_t segments) {
    const std::vector<uint32_t>& ids = units[kv_head].ids;
    return std::lower_bound(ids.begin(), ids.end(),
                            static_cast<uint32_t>(first_segment + segments)) -
           ids.begin();
  };
  std::vector<Critical> critical;
  for (int head = 0; head < heads; ++head) {
    const int kv_head = head * members / tensors.group();
    critical.emplace_back(units[kv_head], params_.capacity());
    if (schedule.parts.clustered > params_.capacity()) continue;  // the first step retrieves
    for (int64_t u = 0; u < known(kv_head, 0); ++u) critical.back().Add(static_cast<size_t>(u));
    critical.back().Sort();
  }

  LogCells cells(access, attended, heads);
  std::vector<int32_t> evicted(static_cast<size_t>(heads));
  int64_t loaded_end = 0;
  for (int i = 0; i < tensors.steps(); ++i) {
    const Schedule::Step& step = schedule.steps[static_cast<size_t>(i)];
    const int64_t token = tensors.prompt_tokens() + i;
    if (step.retrieves && token >= loaded_end) loaded_end = scores.Load(token);
    tbb::parallel_for(0, heads, [&](int head) {
      const int kv_head = head * members / tensors.group();
      Critical& mine = critical[head];
      const auto segment = static_cast<size_t>(known(kv_head, step.segments));
      evicted[head] = 0;
      if (step.retrieves) {
        evicted[head] = static_cast<int32_t>(mine.ids().size());  // all make room for what comes
        std::vector<const float*> rows;
        for (int m = 0; m < members; ++m) rows.push_back(scores.Of(head * members + m, token));
        std::vector<float> pooled;
        PoolScores(Pooling::kSoftmaxMean, rows, static_cast<int64_t>(segment),
                   tensors.softmax_scale(), pooled);
        mine.Replace(BestWithin(pooled, units[kv_head].offsets, params_.capacity()));
      }
      if (step.leaving > 0) {
        if (mine.Fits(segment)) {
          mine.Add(segment);
        } else {
          ++evicted[head];
        }
      }
      if (step.retrieves || step.leaving > 0) mine.Sort();
    });
    for (int head = 0; head < heads; ++head) {
      attended.Add(0, std::min(params_.sink, token + 1));
      for (uint32_t t : critical[head].tokens()) attended.Add(t, int64_t{t} + 1);
      attended.Add(step.local_begin, token + 1);
      LogCell cell{.similarity = step.similarity,
                   .selected = critical[head].ids(),
                   .evicted = evicted[head]};
      if (step.boundary) cell.flags |= traces::kTriggered;
      if (step.retrieves) {
        cell.flags |= traces::kSelectedNow;
        cell.recalled_now = critical[head].ids();
      }
      cells.End(cell);
    }
  }
}

}  // namespace stallcast::methods
