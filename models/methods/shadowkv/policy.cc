#include "models/methods/shadowkv/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "models/methods/common/bf16.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/unit_scores.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

float SummarizeChunk(const float* keys, int64_t tokens, int64_t dim, float* mean) {
  std::fill(mean, mean + dim, 0.0f);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < dim; ++i) mean[i] += keys[t * dim + i];
  }
  for (int64_t i = 0; i < dim; ++i) mean[i] /= static_cast<float>(tokens);
  float least = 1;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* key = keys + t * dim;
    double product = 0, of_key = 0, of_mean = 0;
    for (int64_t i = 0; i < dim; ++i) {
      product += double{key[i]} * double{mean[i]};
      of_key += double{key[i]} * double{key[i]};
      of_mean += double{mean[i]} * double{mean[i]};
    }
    const double norms = std::sqrt(of_key * of_mean);
    least = std::min(least, norms > 0 ? static_cast<float>(product / norms) : 0.0f);
  }
  for (int64_t i = 0; i < dim; ++i) mean[i] = RoundToBf16(mean[i]);
  return least;
}

namespace {

using Chunks = std::vector<uint32_t>;

// What a KV head's chunks are between two factorizations; all ascending.
struct Region {
  Chunks outliers, candidates;
};

Region Divide(const std::vector<float>& cohesion, int64_t chunks, int64_t outliers) {
  std::vector<float> unlike(cohesion.begin(), cohesion.begin() + chunks);
  for (float& x : unlike) x = -x;
  Region region{.outliers = Best(unlike, 0, outliers), .candidates = {}};
  auto outlier = region.outliers.begin();
  for (uint32_t chunk = 0; chunk < static_cast<uint32_t>(chunks); ++chunk) {
    if (outlier != region.outliers.end() && *outlier == chunk) {
      ++outlier;
    } else {
      region.candidates.push_back(chunk);
    }
  }
  return region;
}

// The candidates that a group's rows of scores, by chunk, rank highest.
Chunks Choose(const std::vector<const float*>& rows, const Chunks& candidates, float scale,
              int64_t count) {
  const size_t size = candidates.size();
  std::vector<float> of_candidates(rows.size() * (size + kPanel)), pooled;
  std::vector<const float*> packed;
  for (size_t r = 0; r < rows.size(); ++r) {
    float* to = of_candidates.data() + r * (size + kPanel);
    for (size_t i = 0; i < size; ++i) to[i] = rows[r][candidates[i]];
    packed.push_back(to);
  }
  PoolScores(Pooling::kSoftmaxMax, packed, static_cast<int64_t>(size), scale, pooled);
  Chunks best = Best(pooled, 0, count);
  for (uint32_t& at : best) at = candidates[at];
  return best;
}

}  // namespace

void ShadowKvPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                            AttendedRanges& attended) const {
  const int heads = tensors.kv_heads(), group = tensors.group();
  const int64_t prompt = tensors.prompt_tokens(), chunk = params_.chunk;
  // Of the longest region; no region: nothing will be scored.
  const int64_t all =
      std::max<int64_t>(1, params_.RegionChunks(params_.Indexed(prompt, tensors.steps() - 1)));
  std::vector<std::vector<float>> cohesion(static_cast<size_t>(heads),
                                           std::vector<float>(static_cast<size_t>(all)));
  UnitScores scores(tensors, UnitScores::Kind::kVector,
                    std::vector<int64_t>(static_cast<size_t>(heads), all), prompt + tensors.steps(),
                    [&](int head, int64_t first, int64_t count, float* columns) {
                      const int64_t dim = tensors.head_dim();
                      std::vector<float> keys(static_cast<size_t>(chunk * dim));
                      for (int64_t c = first; c < first + count; ++c, columns += dim) {
                        if ((c + 1) * chunk > prompt + tensors.steps()) break;
                        tensors.ReadKeys(head, c * chunk, chunk, keys.data());
                        cohesion[head][c] = SummarizeChunk(keys.data(), chunk, dim, columns);
                      }
                    });
  LogCells cells(access, attended, heads);
  std::vector<Region> regions(static_cast<size_t>(heads));
  std::vector<Chunks> held(static_cast<size_t>(heads)), chosen;
  const int period = params_.update > 0 ? static_cast<int>(params_.update) : tensors.steps();
  for (int begin = 0; begin < tensors.steps(); begin += period) {
    const int end = std::min(tensors.steps(), begin + period);
    const int64_t indexed = params_.Indexed(prompt, begin), chunks = params_.RegionChunks(indexed);
    if (!params_.Sparse(indexed)) {
      for (int step = begin; step < end; ++step) {
        for (int head = 0; head < heads; ++head) {
          attended.Add(0, prompt + step + 1);
          cells.End({});
        }
      }
      continue;
    }
    for (int head = 0; head < heads; ++head) {
      regions[head] = Divide(cohesion[head], chunks, params_.outliers);
      held[head].clear();
    }
    for (int64_t token = prompt + begin, next; token < prompt + end; token = next) {
      next = std::min(scores.Load(token), prompt + end);
      // Selections do not depend on each other: a block of steps, all heads at once.
      chosen.resize(static_cast<size_t>((next - token) * heads));
      tbb::parallel_for(0, static_cast<int>(chosen.size()), [&](int cell) {
        const int head = cell % heads;
        std::vector<const float*> rows;
        for (int g = 0; g < group; ++g) {
          rows.push_back(scores.Of(head * group + g, token + cell / heads));
        }
        chosen[cell] =
            Choose(rows, regions[head].candidates, tensors.softmax_scale(), params_.chosen());
      });
      for (size_t cell = 0; cell < chosen.size(); ++cell) {
        const size_t head = cell % static_cast<size_t>(heads);
        Chunks whole, missed;
        std::ranges::merge(regions[head].outliers, chosen[cell], std::back_inserter(whole));
        std::ranges::set_difference(chosen[cell], held[head], std::back_inserter(missed));
        for (const uint32_t c : whole) attended.Add(c * chunk, (c + 1) * chunk);
        attended.Add(chunks * chunk, token + static_cast<int64_t>(cell) / heads + 1);
        const auto evicted = std::ssize(held[head]) + std::ssize(missed) - std::ssize(chosen[cell]);
        cells.End({.flags = traces::kSelectedNow,
                   .selected = chosen[cell],
                   .recalled_now = missed,
                   .evicted = static_cast<int32_t>(evicted)});
        held[head] = chosen[cell];
      }
    }
  }
}

}  // namespace stallcast::methods
