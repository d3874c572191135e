#include "models/methods/pariskv/codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/methods/common/bf16.h"
#include "models/methods/common/hadamard.h"
#include "models/methods/pariskv/levels.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

constexpr int kMaxSubDim = 8;  // a sign pattern is a byte
constexpr int kMaxScore = 255;
constexpr int kCodes = 2 * kMagnitudes;

}  // namespace

float RotationSign(uint64_t seed, int i) {
  uint64_t z = seed + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return ((z ^ (z >> 31)) & 1) != 0 ? -1.0f : 1.0f;
}

CodeBook::CodeBook(int head_dim, int subspace_count, bool rotation, uint64_t seed)
    : dim(head_dim), subspaces(subspace_count) {
  if (subspaces < 1 || dim % subspaces != 0 || dim / subspaces < 2 ||
      dim / subspaces > kMaxSubDim || subspaces * kTiers > kMaxScore) {
    throw Error(fmt::format("{} subspaces of a head dimension of {}", subspaces, dim), "pariskv",
                fmt::format("give at most {} that divide it into 2 to {} dimensions each",
                            kMaxScore / kTiers, kMaxSubDim));
  }
  sub_dim = dim / subspaces;
  clusters = 1 << sub_dim;
  hadamard = rotation ? dim & -dim : 1;
  for (int i = 0; i < dim; ++i) sign.push_back(rotation ? RotationSign(seed, i) : 1.0f);
  const MagnitudeLevels levels = LloydMaxLevels(sub_dim);
  std::copy(levels.level.begin(), levels.level.end(), level.begin());
  std::copy(levels.threshold.begin(), levels.threshold.end(), threshold.begin());
}

void CodeBook::Rotate(const float* in, float* out) const {
  for (int i = 0; i < dim; ++i) out[i] = in[i] * sign[i];
  for (int at = 0; at < dim; at += hadamard) {
    WalshHadamard(std::span(out + at, static_cast<size_t>(hadamard)));
  }
}

void KeyCodes::Reserve(int64_t tokens) {
  ids_.reserve(static_cast<size_t>(tokens * book_->subspaces));
  codes_.reserve(static_cast<size_t>(tokens * book_->dim / 2));
  weights_.reserve(static_cast<size_t>(tokens * book_->subspaces));
}

void KeyCodes::Append(const float* key) {
  const CodeBook& book = *book_;
  std::vector<float> rotated(static_cast<size_t>(book.dim));
  book.Rotate(key, rotated.data());
  codes_.resize(codes_.size() + static_cast<size_t>(book.dim / 2));
  uint8_t* codes = codes_.data() + size_ * book.dim / 2;
  for (int b = 0; b < book.subspaces; ++b) {
    const float* y = rotated.data() + int64_t{b} * book.sub_dim;
    float energy = 0;
    for (int j = 0; j < book.sub_dim; ++j) energy += y[j] * y[j];
    const float radius = std::sqrt(energy);
    int id = 0;
    float aligned = 0;  // radius times the alignment of reconstruction and direction
    for (int j = 0; j < book.sub_dim; ++j) {
      const float magnitude = std::abs(y[j]);
      int bin = 0;
      for (const float threshold : book.threshold) bin += magnitude >= threshold * radius ? 1 : 0;
      if (energy == 0) bin = 0;
      aligned += book.level[static_cast<size_t>(bin)] * magnitude;
      const bool negative = y[j] < 0;
      if (!negative) id |= 1 << j;
      const int at = b * book.sub_dim + j;
      codes[at / 2] |= static_cast<uint8_t>((bin | (negative ? 8 : 0)) << (at % 2 * 4));
    }
    ids_.push_back(static_cast<uint8_t>(id));
    // ||k|| r / alpha, with alpha = aligned / radius.
    weights_.push_back(energy > 0 ? RoundToBf16(energy / aligned) : 0);
  }
  ++size_;
}

std::vector<int32_t> ClusterCounts(const CodeBook& book, const KeyCodes& codes, int64_t tokens) {
  std::vector<int32_t> counts(static_cast<size_t>(book.subspaces * book.clusters));
  for (int64_t token = 0; token < tokens; ++token) {
    const uint8_t* ids = codes.ids(token);
    for (int b = 0; b < book.subspaces; ++b) ++counts[b * book.clusters + ids[b]];
  }
  return counts;
}

std::array<int32_t, kTiers> TierLimits(double rho, int64_t tokens) {
  std::array<int32_t, kTiers> limits;
  for (int t = 0; t < kTiers; ++t) {
    limits[t] = static_cast<int32_t>(std::ceil(kTierShares[t] * rho * static_cast<double>(tokens)));
  }
  return limits;
}

std::vector<uint8_t> CollisionTable(const CodeBook& book, const float* rotated,
                                    std::span<const int32_t> counts, double rho, int64_t tokens) {
  const std::array<int32_t, kTiers> limits = TierLimits(rho, tokens);
  std::vector<uint8_t> table(static_cast<size_t>(book.subspaces * book.clusters));
  std::vector<float> score(static_cast<size_t>(book.clusters));
  std::vector<int> order(static_cast<size_t>(book.clusters));
  for (int b = 0; b < book.subspaces; ++b) {
    for (int c = 0; c < book.clusters; ++c) {
      float sum = 0;
      for (int j = 0; j < book.sub_dim; ++j) {
        const float q = rotated[b * book.sub_dim + j];
        sum += (c >> j & 1) != 0 ? q : -q;
      }
      score[c] = sum;
    }
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int x, int y) { return score[x] > score[y] || (score[x] == score[y] && x < y); });
    int32_t before = 0;
    for (int c : order) {
      const auto tier = std::find_if(limits.begin(), limits.end(),
                                     [before](int32_t limit) { return before < limit; });
      table[b * book.clusters + c] = static_cast<uint8_t>(limits.end() - tier);
      before += counts[b * book.clusters + c];
    }
  }
  return table;
}

void CollisionScores(const CodeBook& book, const KeyCodes& codes, std::span<const uint8_t> table,
                     std::span<uint8_t> scores) {
  const uint8_t* ids = codes.ids(0);
  for (uint8_t& score : scores) {
    int sum = 0;
    for (int b = 0; b < book.subspaces; ++b) sum += table[b * book.clusters + ids[b]];
    score = static_cast<uint8_t>(sum);
    ids += book.subspaces;
  }
}

std::vector<uint32_t> BestBuckets(std::span<const uint8_t> scores, int64_t count) {
  std::array<int64_t, kMaxScore + 1> histogram{};
  for (const uint8_t score : scores) ++histogram[score];
  count = std::min<int64_t>(count, static_cast<int64_t>(scores.size()));
  // Every bucket above `last` is taken whole, and `ties` of its own.
  int last = kMaxScore;
  int64_t ties = count;
  while (last > 0 && ties > histogram[static_cast<size_t>(last)]) {
    ties -= histogram[static_cast<size_t>(last)];
    --last;
  }
  std::vector<uint32_t> best;
  best.reserve(static_cast<size_t>(count));
  for (uint32_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > last || (scores[i] == last && ties-- > 0)) best.push_back(i);
  }
  return best;
}

Estimator::Estimator(const CodeBook& book, const float* rotated) : book_(book) {
  for (int i = 0; i < book.dim; ++i) {
    for (int code = 0; code < kCodes; ++code) {
      const float level = book.level[static_cast<size_t>(code % kMagnitudes)];
      products_.push_back((code >= kMagnitudes ? -level : level) * rotated[i]);
    }
  }
}

float Estimator::operator()(const KeyCodes& codes, int64_t token) const {
  const uint8_t* code = codes.codes(token);
  const float* weights = codes.weights(token);
  const float* products = products_.data();
  float estimate = 0;
  for (int b = 0, i = 0; b < book_.subspaces; ++b) {
    float dot = 0;
    for (const int end = i + book_.sub_dim; i < end; ++i, products += kCodes) {
      dot += products[code[i / 2] >> (i % 2 * 4) & (kCodes - 1)];
    }
    estimate += weights[b] * dot;
  }
  // Key and query are each sqrt(hadamard) too long.
  return estimate / static_cast<float>(book_.hadamard);
}

}  // namespace stallcast::methods
