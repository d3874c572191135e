// How much of the best 100 keys ParisKV's two stages find, beside the same votes over centroids
// that k-means learnt from the first keys (the comparison of the paper's figures 1 and 10).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <random>
#include <vector>

#include "models/methods/common/ranking.h"
#include "models/methods/pariskv/codes.h"

namespace stallcast::methods::recall {

struct Keys {
  int dim = 0;
  std::vector<float> keys;     ///< [token][dim]
  std::vector<float> queries;  ///< [query][dim]
  int64_t tokens() const { return static_cast<int64_t>(keys.size()) / dim; }
  int64_t count() const { return static_cast<int64_t>(queries.size()) / dim; }
};

/// Keys whose mean direction turns by half a circle from first to last, with 16 queries along noisy
/// copies of the last quarter's keys.
inline Keys DriftingKeys(int dim, int64_t tokens, uint32_t seed);

enum class Centroids : uint8_t {
  kSigns,   ///< sign patterns of normalised, rotated keys (ParisKV)
  kPlain,   ///< the same without rotation
  kLearnt,  ///< k-means of each subspace over the first `learn` keys, neither normed nor rotated
};

struct Setup {
  Centroids centroids = Centroids::kSigns;
  int64_t learn = 0;
  int subspaces = 0;  ///< 0: of 8 dimensions
  double rho = 0.25, beta = 0.2;
};

/// Shares of the `best` keys of largest product with the query, mean over queries.
struct Found {
  double coarse = 0;      ///< among as many of most votes
  double candidates = 0;  ///< among the share beta of most votes, which exact reranking would find
  double final = 0;       ///< among as many of the candidates, by 4-bit estimates
};
inline Found Of(const Keys& keys, const Setup& setup, int64_t best = 100);

namespace detail {

inline constexpr int kClusters = 256;
inline constexpr int kRounds = 10;

inline float Distance(const float* a, const float* b, int m) {
  float sum = 0;
  for (int j = 0; j < m; ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

inline int Nearest(const std::vector<float>& centroids, const float* x, int m) {
  int best = 0;
  float least = INFINITY;
  for (int c = 0; c < kClusters; ++c) {
    const float distance = Distance(centroids.data() + int64_t{c} * m, x, m);
    if (distance < least) least = distance, best = c;
  }
  return best;
}

// Lloyd's algorithm on dimensions [at, at + m) of the first `learn` keys, from keys at random.
inline std::vector<float> Learn(const Keys& keys, int64_t learn, int at, int m) {
  std::mt19937 random(17);
  std::vector<float> centroids;
  for (int c = 0; c < kClusters; ++c) {
    const float* key = keys.keys.data() + static_cast<int64_t>(random() % learn) * keys.dim + at;
    centroids.insert(centroids.end(), key, key + m);
  }
  for (int round = 0; round < kRounds; ++round) {
    std::vector<float> sums(centroids.size());
    std::vector<int> counts(kClusters);
    for (int64_t t = 0; t < learn; ++t) {
      const float* key = keys.keys.data() + t * keys.dim + at;
      const int c = Nearest(centroids, key, m);
      ++counts[c];
      for (int j = 0; j < m; ++j) sums[c * m + j] += key[j];
    }
    for (int c = 0; c < kClusters; ++c) {
      for (int j = 0; j < m && counts[c] > 0; ++j) {
        centroids[c * m + j] = sums[c * m + j] / static_cast<float>(counts[c]);
      }
    }
  }
  return centroids;
}

// The same tiers over learnt centroids: votes of all keys for each query, [query][token].
inline std::vector<std::vector<uint8_t>> LearntVotes(const Keys& keys, const Setup& setup,
                                                     int parts) {
  const int m = keys.dim / parts;
  const std::array<int32_t, kTiers> limits = TierLimits(setup.rho, keys.tokens());
  std::vector<std::vector<uint8_t>> votes(static_cast<size_t>(keys.count()),
                                          std::vector<uint8_t>(static_cast<size_t>(keys.tokens())));
  for (int b = 0; b < parts; ++b) {
    const std::vector<float> centroids = Learn(keys, setup.learn, b * m, m);
    std::vector<int> id, counts(kClusters);
    for (int64_t t = 0; t < keys.tokens(); ++t) {
      id.push_back(Nearest(centroids, keys.keys.data() + t * keys.dim + int64_t{b} * m, m));
      ++counts[id.back()];
    }
    for (int64_t q = 0; q < keys.count(); ++q) {
      const float* query = keys.queries.data() + q * keys.dim + int64_t{b} * m;
      const auto score = [&](int c) {
        return std::inner_product(query, query + m, centroids.data() + int64_t{c} * m, 0.0f);
      };
      std::vector<int> order(kClusters);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int x, int y) { return score(x) > score(y); });
      std::vector<uint8_t> bonus(kClusters);
      int32_t before = 0;
      for (const int c : order) {
        const auto tier = std::find_if(limits.begin(), limits.end(),
                                       [before](int32_t limit) { return before < limit; });
        bonus[c] = static_cast<uint8_t>(limits.end() - tier);
        before += counts[c];
      }
      for (int64_t t = 0; t < keys.tokens(); ++t) votes[q][t] += bonus[id[t]];
    }
  }
  return votes;
}

inline double Share(const std::vector<uint32_t>& found, const std::vector<uint32_t>& wanted) {
  std::vector<uint32_t> both;
  std::ranges::set_intersection(found, wanted, std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(wanted.size());
}

}  // namespace detail

inline Keys DriftingKeys(int dim, int64_t tokens, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> first(static_cast<size_t>(dim)), second(first.size());
  for (float& x : first) x = 2 * normal(random);
  for (float& x : second) x = 2 * normal(random);
  Keys keys{.dim = dim, .keys = {}, .queries = {}};
  for (int64_t t = 0; t < tokens; ++t) {
    const double turn = std::numbers::pi * static_cast<double>(t) / static_cast<double>(tokens);
    for (int i = 0; i < dim; ++i) {
      keys.keys.push_back(static_cast<float>(std::cos(turn)) * first[i] +
                          static_cast<float>(std::sin(turn)) * second[i] + normal(random));
    }
  }
  for (int q = 0; q < 16; ++q) {
    const int64_t like = tokens - 1 - static_cast<int64_t>(random() % (tokens / 4));
    for (int i = 0; i < dim; ++i) {
      keys.queries.push_back(keys.keys[like * dim + i] + normal(random));
    }
  }
  return keys;
}

inline Found Of(const Keys& keys, const Setup& setup, int64_t best) {
  const int parts = setup.subspaces > 0 ? setup.subspaces : keys.dim / 8;
  const int64_t tokens = keys.tokens();
  const CodeBook book(keys.dim, parts, setup.centroids == Centroids::kSigns, 1);
  KeyCodes codes(book);
  for (int64_t t = 0; t < tokens; ++t) codes.Append(keys.keys.data() + t * keys.dim);
  const std::vector<int32_t> counts = ClusterCounts(book, codes, tokens);
  std::vector<std::vector<uint8_t>> learnt;
  if (setup.centroids == Centroids::kLearnt) learnt = detail::LearntVotes(keys, setup, parts);

  Found found;
  for (int64_t q = 0; q < keys.count(); ++q) {
    const float* query = keys.queries.data() + q * keys.dim;
    std::vector<float> products, rotated(static_cast<size_t>(keys.dim));
    for (int64_t t = 0; t < tokens; ++t) {
      const float* key = keys.keys.data() + t * keys.dim;
      products.push_back(std::inner_product(key, key + keys.dim, query, 0.0f));
    }
    book.Rotate(query, rotated.data());
    std::vector<uint8_t> votes(static_cast<size_t>(tokens));
    if (learnt.empty()) {
      CollisionScores(book, codes, CollisionTable(book, rotated.data(), counts, setup.rho, tokens),
                      votes);
    } else {
      votes = learnt[q];
    }
    const std::vector<uint32_t> wanted = Best(products, 0, best);
    const std::vector<uint32_t> candidates = BestBuckets(
        votes, static_cast<int64_t>(std::ceil(setup.beta * static_cast<double>(tokens))));
    const Estimator estimate(book, rotated.data());
    std::vector<float> estimates;
    estimates.reserve(candidates.size());
    for (const uint32_t t : candidates) estimates.push_back(estimate(codes, t));
    std::vector<uint32_t> chosen = Best(estimates, 0, best);
    for (uint32_t& at : chosen) at = candidates[at];
    found.coarse += detail::Share(BestBuckets(votes, best), wanted);
    found.candidates += detail::Share(candidates, wanted);
    found.final += detail::Share(chosen, wanted);
  }
  const auto queries = static_cast<double>(keys.count());
  return {found.coarse / queries, found.candidates / queries, found.final / queries};
}

}  // namespace stallcast::methods::recall
