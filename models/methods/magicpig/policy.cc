#include "models/methods/magicpig/policy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <vector>

#include "models/methods/common/log_cells.h"
#include "models/methods/common/random_bits.h"
#include "models/methods/vector_kernels.h"

namespace stallcast::methods {

float HashDirection(int64_t hash, int64_t i, int64_t dim) {
  return RandomBell(static_cast<uint64_t>(hash * dim + i));
}

namespace {

// The hashes of vectors of `dim` elements: [table].
class Hasher {
 public:
  Hasher(const MagicPigParams& params, int64_t dim)
      : params_(params), dim_(dim), hashes_(params.bits * params.tables) {
    const int64_t panels = Panels();
    panels_.resize(static_cast<size_t>(panels * dim * kPanel));
    tbb::parallel_for(int64_t{0}, panels, [&](int64_t p) {
      const int64_t columns = std::min(kPanel, hashes_ - p * kPanel);
      std::vector<float> vectors;
      for (int64_t hash = p * kPanel; hash < p * kPanel + columns; ++hash) {
        for (int64_t i = 0; i < dim; ++i) vectors.push_back(HashDirection(hash, i, dim));
      }
      PackPanel(vectors.data(), columns, dim, panels_.data() + p * dim * kPanel);
    });
  }

  /// codes[r * tables + table] for `count` <= kRowBlock rows.
  void Hash(const float* rows, int64_t count, uint16_t* codes) const {
    const int64_t stride = Panels() * kPanel;
    std::vector<float> dots(static_cast<size_t>(kRowBlock * stride + kPanel));
    for (int64_t p = 0; p < Panels(); ++p) {
      PanelDots(rows, count, dim_, panels_.data() + p * dim_ * kPanel,
                std::min(kPanel, hashes_ - p * kPanel), dots.data() + p * kPanel, stride);
    }
    for (int64_t r = 0; r < count; ++r) {
      const float* of_row = dots.data() + r * stride;
      for (int64_t table = 0; table < params_.tables; ++table) {
        uint32_t code = 0;
        for (int64_t bit = 0; bit < params_.bits; ++bit) {
          code = 2 * code + (of_row[table * params_.bits + bit] > 0 ? 1 : 0);
        }
        codes[r * params_.tables + table] = static_cast<uint16_t>(code);
      }
    }
  }

 private:
  int64_t Panels() const { return (hashes_ + kPanel - 1) / kPanel; }

  const MagicPigParams& params_;
  int64_t dim_, hashes_;
  std::vector<float> panels_;
};

// The hashed tokens of a KV head by table and bucket.
class Tables {
 public:
  Tables(const LayerTensors& tensors, const MagicPigParams& params, const Hasher& hasher,
         int kv_head)
      : params_(params), tokens_(params.Hashed(tensors.prompt_tokens())) {
    const std::vector<uint16_t> codes = Codes(tensors, hasher, kv_head);
    const int64_t tables = params.tables, buckets = params.buckets();
    bounds_.resize(static_cast<size_t>(tables * (buckets + 1)));
    ids_.resize(static_cast<size_t>(tables * tokens_));
    tbb::parallel_for(int64_t{0}, tables, [&](int64_t table) {
      uint32_t* bounds = bounds_.data() + table * (buckets + 1);
      for (int64_t t = 0; t < tokens_; ++t) ++bounds[codes[t * tables + table] + 1];
      for (int64_t b = 0; b < buckets; ++b) bounds[b + 1] += bounds[b];
      std::vector<uint32_t> next(bounds, bounds + buckets);
      for (int64_t t = 0; t < tokens_; ++t) {
        ids_[table * tokens_ + next[codes[t * tables + table]]++] = static_cast<uint32_t>(t);
      }
    });
  }

  /// Tokens, counted from the first hashed one, that meet a query of such codes; ascending.
  std::vector<uint32_t> Sample(const uint16_t* codes) const {
    std::vector<uint8_t> met(static_cast<size_t>(tokens_));
    const auto enough = static_cast<uint8_t>(params_.collisions);
    for (int64_t table = 0; table < params_.tables; ++table) {
      const uint32_t* bounds = bounds_.data() + table * (params_.buckets() + 1) + codes[table];
      const uint32_t* ids = ids_.data() + table * tokens_;
      for (uint32_t i = bounds[0]; i < bounds[1]; ++i) {
        uint8_t& count = met[ids[i]];
        count = static_cast<uint8_t>(count + (count < enough ? 1 : 0));
      }
    }
    std::vector<uint32_t> sampled;
    for (int64_t t = 0; t < tokens_; ++t) {
      if (met[t] >= enough) sampled.push_back(static_cast<uint32_t>(t));
    }
    return sampled;
  }

 private:
  std::vector<uint16_t> Codes(const LayerTensors& tensors, const Hasher& hasher,
                              int kv_head) const {
    const int64_t dim = tensors.head_dim();
    std::vector<float> keys(static_cast<size_t>(kPanel * dim));
    std::vector<double> sum(static_cast<size_t>(dim));
    for (int64_t t = 0; t < tokens_; t += kPanel) {
      const int64_t count = std::min(kPanel, tokens_ - t);
      tensors.ReadKeys(kv_head, params_.sink + t, count, keys.data());
      for (int64_t k = 0; k < count * dim; ++k) sum[k % dim] += static_cast<double>(keys[k]);
    }
    std::vector<float> mean;
    for (const double x : sum) mean.push_back(static_cast<float>(x / static_cast<double>(tokens_)));
    std::vector<uint16_t> codes(static_cast<size_t>(tokens_ * params_.tables));
    tbb::parallel_for(int64_t{0}, (tokens_ + kRowBlock - 1) / kRowBlock, [&](int64_t block) {
      const int64_t first = block * kRowBlock, count = std::min(kRowBlock, tokens_ - first);
      std::vector<float> rows(static_cast<size_t>(kRowBlock * dim));
      tensors.ReadKeys(kv_head, params_.sink + first, count, rows.data());
      for (int64_t i = 0; i < count * dim; ++i) rows[i] -= mean[i % dim];
      hasher.Hash(rows.data(), count, codes.data() + first * params_.tables);
    });
    return codes;
  }

  const MagicPigParams& params_;
  int64_t tokens_;
  std::vector<uint32_t> bounds_;  // [table][bucket + 1]
  std::vector<uint32_t> ids_;     // [table][token in order of its bucket]
};

}  // namespace

void MagicPigPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                            AttendedRanges& attended) const {
  const int heads = tensors.query_heads(), group = tensors.group();
  const int64_t prompt = tensors.prompt_tokens(), steps = tensors.steps();
  const bool sparse = params_.Hashed(prompt) > 0;
  std::vector<std::vector<uint32_t>> sampled(static_cast<size_t>(steps * heads));
  const Hasher hasher(params_, tensors.head_dim());
  for (int kv_head = 0; sparse && kv_head < tensors.kv_heads(); ++kv_head) {
    const Tables tables(tensors, params_, hasher, kv_head);
    tbb::parallel_for(int64_t{0}, steps * group, [&](int64_t task) {
      const int64_t step = task / group;
      const auto head = static_cast<int>(kv_head * group + task % group);
      std::vector<uint16_t> codes(static_cast<size_t>(params_.tables));
      hasher.Hash(tensors.Query(head, prompt + step).data(), 1, codes.data());
      sampled[step * heads + head] = tables.Sample(codes.data());
    });
  }
  LogCells cells(access, attended, heads);
  for (int64_t step = 0; step < steps; ++step) {
    for (int head = 0; head < heads; ++head) {
      if (!sparse) {
        attended.Add(0, prompt + step + 1);
        cells.End({});
        continue;
      }
      attended.Add(0, params_.sink);
      for (const uint32_t t : sampled[step * heads + head]) {
        attended.Add(params_.sink + t, params_.sink + t + 1);
      }
      attended.Add(prompt - params_.window, prompt + step + 1);
      cells.End({.flags = traces::kSelectedNow});
    }
  }
}

}  // namespace stallcast::methods
