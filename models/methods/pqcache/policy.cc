#include "models/methods/pqcache/policy.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "models/methods/common/bf16.h"
#include "models/methods/common/key_clusters.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {
namespace {

// The code book of a KV head and the codes of all tokens from the sink on.
class CodedKeys {
 public:
  CodedKeys(const LayerTensors& tensors, const PqCacheParams& params, int kv_head)
      : params_(params), dim_(tensors.head_dim()), part_(dim_ / params.subspaces) {
    const int64_t clustered = params.Clustered(tensors.prompt_tokens());
    tokens_ = clustered + tensors.steps();
    codes_.resize(static_cast<size_t>(params.subspaces * tokens_));
    centroids_.resize(static_cast<size_t>(params.subspaces * params.centroids() * part_));
    std::vector<float> key(static_cast<size_t>(dim_));
    for (int64_t s = 0; s < params.subspaces; ++s) {
      const KeyClusters clusters =
          ClusterKeys(tensors, kv_head, params.sink, clustered, params.centroids(),
                      params.iterations, {s * part_, part_});
      for (int64_t c = 0; c < params.centroids(); ++c) {
        std::vector<double> sum(static_cast<size_t>(part_));
        const uint32_t first = clusters.offsets[c], end = clusters.offsets[c + 1];
        for (uint32_t at = first; at < end; ++at) {
          const uint32_t token = clusters.tokens[at];
          codes_[s * tokens_ + token] = static_cast<uint8_t>(c);
          tensors.ReadKeys(kv_head, params.sink + token, 1, key.data());
          for (int64_t i = 0; i < part_; ++i) sum[i] += static_cast<double>(key[s * part_ + i]);
        }
        for (int64_t i = 0; i < part_ && end > first; ++i) {
          Centroid(s, c)[i] = RoundToBf16(static_cast<float>(sum[i] / (end - first)));
        }
        empty_.push_back(first == end);
      }
    }
    for (int64_t token = clustered; token < tokens_; ++token) {
      tensors.ReadKeys(kv_head, params.sink + token, 1, key.data());
      for (int64_t s = 0; s < params.subspaces; ++s) {
        codes_[s * tokens_ + token] = Nearest(s, key.data() + s * part_);
      }
    }
  }

  /// Estimated products of a query with `count` tokens from the sink on.
  void Score(std::span<const float> query, int64_t count, float* out) const {
    std::fill(out, out + count, 0.0f);
    std::vector<float> table(static_cast<size_t>(params_.centroids()));
    for (int64_t s = 0; s < params_.subspaces; ++s) {
      for (int64_t c = 0; c < params_.centroids(); ++c) {
        double sum = 0;
        for (int64_t i = 0; i < part_; ++i) {
          sum += double{query[s * part_ + i]} * double{Centroid(s, c)[i]};
        }
        table[c] = static_cast<float>(sum);
      }
      const uint8_t* codes = codes_.data() + s * tokens_;
      for (int64_t t = 0; t < count; ++t) out[t] += table[codes[t]];
    }
  }

 private:
  float* Centroid(int64_t subspace, int64_t c) {
    return centroids_.data() + (subspace * params_.centroids() + c) * part_;
  }
  const float* Centroid(int64_t subspace, int64_t c) const {
    return centroids_.data() + (subspace * params_.centroids() + c) * part_;
  }
  uint8_t Nearest(int64_t subspace, const float* key) const {
    double least = std::numeric_limits<double>::infinity();
    int64_t nearest = 0;
    for (int64_t c = 0; c < params_.centroids(); ++c) {
      if (empty_[subspace * params_.centroids() + c]) continue;
      double square = 0;
      for (int64_t i = 0; i < part_; ++i) {
        const double apart = double{key[i]} - double{Centroid(subspace, c)[i]};
        square += apart * apart;
      }
      if (square < least) {
        least = square;
        nearest = c;
      }
    }
    return static_cast<uint8_t>(nearest);
  }

  const PqCacheParams& params_;
  int64_t dim_, part_, tokens_ = 0;
  std::vector<uint8_t> codes_;    // [subspace][token]
  std::vector<float> centroids_;  // [subspace][centroid][part of the key]
  std::vector<bool> empty_;       // [subspace][centroid]
};

// Blocks of a layer on the GPU.
class BlockCache {
 public:
  BlockCache(const PqCacheParams& params, int64_t tokens)
      : params_(params),
        held_(static_cast<size_t>(tokens / params.block + 1)),
        uses_(held_.size()),
        step_uses_(held_.size()) {}

  bool Holds(uint32_t token) const { return held_[Block(token)]; }
  void Use(std::span<const uint32_t> tokens) {
    for (const uint32_t token : tokens) ++step_uses_[Block(token)];
  }
  /// After a step: blocks that end before `end` may come. Returns how many have left.
  int64_t Update(int64_t end) {
    const int64_t capacity = params_.cache / params_.block, whole = end / params_.block;
    std::vector<float> used(step_uses_.begin(), step_uses_.begin() + whole);
    for (size_t b = 0; b < uses_.size(); ++b) uses_[b] += step_uses_[b];
    std::vector<uint32_t> stay;
    for (uint32_t b = 0; b < held_.size(); ++b) {
      if (held_[b]) stay.push_back(b);
    }
    const int64_t before = std::ssize(stay);
    int64_t came = 0;
    for (const uint32_t b : Best(used, 0, capacity)) {
      if (held_[b] || step_uses_[b] == 0) continue;
      stay.push_back(b);
      ++came;
    }
    std::ranges::sort(stay);
    std::vector<float> all(uses_.begin(), uses_.end());
    held_.assign(held_.size(), false);
    const std::vector<uint32_t> best = Best(stay, all, 0, capacity);
    for (const uint32_t b : best) held_[b] = true;
    std::ranges::fill(step_uses_, 0);
    return before + came - std::ssize(best);
  }

 private:
  size_t Block(uint32_t token) const { return token / static_cast<uint32_t>(params_.block); }

  const PqCacheParams& params_;
  std::vector<bool> held_;  // by block
  std::vector<int64_t> uses_, step_uses_;
};

}  // namespace

void PqCachePolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                           AttendedRanges& attended) const {
  const int heads = tensors.kv_heads(), group = tensors.group();
  const int64_t prompt = tensors.prompt_tokens();
  LogCells cells(access, attended, heads);
  if (!params_.Sparse(prompt)) {
    for (int step = 0; step < tensors.steps(); ++step) {
      for (int head = 0; head < heads; ++head) {
        attended.Add(0, prompt + step + 1);
        cells.End({});
      }
    }
    return;
  }
  if (tensors.head_dim() % params_.subspaces != 0) {
    throw Error(fmt::format("keys of {} channels cannot be cut into {} parts", tensors.head_dim(),
                            params_.subspaces),
                "pqcache", "give subspaces that divide them");
  }
  std::vector<std::optional<CodedKeys>> keys(static_cast<size_t>(heads));
  tbb::parallel_for(0, heads, [&](int head) { keys[head].emplace(tensors, params_, head); });
  BlockCache cache(params_, prompt + tensors.steps());
  std::vector<std::vector<uint32_t>> chosen(static_cast<size_t>(heads));
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t token = prompt + step;
    const int64_t candidates = params_.Candidates(prompt, token + 1);
    tbb::parallel_for(0, heads, [&](int head) {
      std::vector<float> scores(static_cast<size_t>(group * candidates + kPanel)), pooled;
      std::vector<const float*> rows;
      for (int g = 0; g < group; ++g) {
        float* row = scores.data() + g * candidates;
        keys[head]->Score(tensors.Query(head * group + g, token), candidates, row);
        rows.push_back(row);
      }
      PoolScores(Pooling::kSoftmaxMean, rows, candidates, tensors.softmax_scale(), pooled);
      chosen[head] = Best(pooled, static_cast<uint32_t>(params_.sink), params_.Chosen(prompt));
    });
    std::vector<std::vector<uint32_t>> missing(static_cast<size_t>(heads));
    for (int head = 0; head < heads; ++head) {
      for (const uint32_t t : chosen[head]) {
        if (!cache.Holds(t)) missing[head].push_back(t);
      }
      cache.Use(chosen[head]);
    }
    const int64_t left = cache.Update(params_.sink + candidates);
    for (int head = 0; head < heads; ++head) {
      attended.Add(0, params_.sink);
      for (const uint32_t t : chosen[head]) attended.Add(t, int64_t{t} + 1);
      attended.Add(params_.sink + candidates, token + 1);
      cells.End({.flags = traces::kSelectedNow,
                 .selected = chosen[head],
                 .recalled_now = missing[head],
                 .evicted = static_cast<int32_t>(left * params_.block)});
    }
  }
}

}  // namespace stallcast::methods
