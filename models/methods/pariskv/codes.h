// ParisKV's index and the two stages of its retrieval (paper 4.1, 4.2.2, appendix B).
//
// Sums run in the order written here, without fused multiplies, and everything up to the choice of
// candidates depends on sums, signs and comparisons alone: a GPU that keeps the order gets the same
// codes and candidates to the last bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace stallcast::methods {

/// Bonus of a collision by its tier, and the share of the collided keys up to which a tier reaches.
inline constexpr int kTiers = 6;
inline constexpr std::array<double, kTiers> kTierShares{0.05, 0.15, 0.30, 0.50, 0.75, 1.0};

/// What all heads and layers share: the rotation's signs and the quantiser.
struct CodeBook {
  /// `subspaces` must divide `head_dim` into 2 to 8 dimensions each: Error otherwise.
  CodeBook(int head_dim, int subspaces, bool rotation, uint64_t seed);

  int dim, subspaces, sub_dim;
  int clusters;  ///< sign patterns of a subspace, 2^sub_dim
  int hadamard;  ///< rotated together: the largest power of two that divides dim; 1: no rotation
  std::vector<float> sign;         ///< [dim], +-1
  std::array<float, 8> level;      ///< magnitudes
  std::array<float, 7> threshold;  ///< of magnitudes relative to the subspace's radius

  /// Signs, then an unnormalised Walsh-Hadamard transform of each `hadamard` dimensions, strides
  /// ascending: sqrt(hadamard) times a rotation.
  void Rotate(const float* in, float* out) const;
};

/// Random signs: bit 0 of splitmix64 after i + 1 steps from `seed`.
float RotationSign(uint64_t seed, int i);

/// The index of one (layer, KV head), token by token: per subspace a sign pattern (bit j:
/// coordinate j is not negative) and a weight (bf16), and per coordinate 4 bits (sign, magnitude;
/// the even coordinate low).
class KeyCodes {
 public:
  explicit KeyCodes(const CodeBook& book) : book_(&book) {}
  void Reserve(int64_t tokens);
  void Append(const float* key);
  int64_t size() const { return size_; }
  const uint8_t* ids(int64_t token) const { return ids_.data() + token * book_->subspaces; }
  const uint8_t* codes(int64_t token) const { return codes_.data() + token * book_->dim / 2; }
  const float* weights(int64_t token) const { return weights_.data() + token * book_->subspaces; }

 private:
  const CodeBook* book_;
  int64_t size_ = 0;
  std::vector<uint8_t> ids_, codes_;
  std::vector<float> weights_;  // bf16 values, widened
};

/// Bytes of a token's index, a KV head.
constexpr int64_t CodeBytes(int64_t head_dim, int64_t subspaces) {
  return subspaces + head_dim / 2 + 2 * subspaces;
}

/// How many of the first `tokens` keys lie in each cluster: [subspace][cluster].
std::vector<int32_t> ClusterCounts(const CodeBook& book, const KeyCodes& codes, int64_t tokens);

/// Stage 1, of a rotated query: the bonus of each cluster, [subspace][cluster]. Clusters are taken
/// whole, best first (equal ones by number); one that `before` keys precede is of the first tier
/// whose share of rho * tokens exceeds `before`, and beyond the last it gets nothing.
std::vector<uint8_t> CollisionTable(const CodeBook& book, const float* rotated,
                                    std::span<const int32_t> counts, double rho, int64_t tokens);
/// Least `before` that is no longer of tier t: the ceiling of the t-th share.
std::array<int32_t, kTiers> TierLimits(double rho, int64_t tokens);

/// The sum of a key's bonuses, for the first `scores.size()` keys.
void CollisionScores(const CodeBook& book, const KeyCodes& codes, std::span<const uint8_t> table,
                     std::span<uint8_t> scores);

/// The `count` largest scores, ascending by id; those that tie with the last are cut by id.
std::vector<uint32_t> BestBuckets(std::span<const uint8_t> scores, int64_t count);

/// Stage 2: estimates of a rotated query's products with keys (paper, equation 24).
class Estimator {
 public:
  Estimator(const CodeBook& book, const float* rotated);
  float operator()(const KeyCodes& codes, int64_t token) const;

 private:
  const CodeBook& book_;
  std::vector<float> products_;  // [dim][code]: of a coordinate and what its code stands for
};

}  // namespace stallcast::methods
