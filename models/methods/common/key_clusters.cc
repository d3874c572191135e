#include "models/methods/common/key_clusters.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>

#include "models/methods/vector_kernels.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

constexpr float kLargest = 127;
// Sums of products of 8-bit numbers stay far below 2^31.
constexpr int64_t kMaxDim = 256;
constexpr int64_t kBlockTokens = 256;
// Distances are below 1e4: more than a few roundings of floats of that size.
constexpr float kRounding = 0.01f;
// Of centroids, in whole panels. Their bounds take as much memory as keys of 128 dimensions do.
constexpr int64_t kMostGroups = 64;

// Keys of a range in whole numbers.
class QuantisedKeys {
 public:
  QuantisedKeys(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                Channels channels)
      : dim_(channels.count > 0 ? channels.count : tensors.head_dim()),
        values_(static_cast<size_t>(count * dim_)) {
    const int64_t width = tensors.head_dim();
    std::vector<float> keys(static_cast<size_t>(kBlockTokens * width));
    const auto each = [&](auto use) {
      for (int64_t t = 0; t < count; t += kBlockTokens) {
        const int64_t tokens = std::min(kBlockTokens, count - t);
        tensors.ReadKeys(kv_head, first + t, tokens, keys.data());
        for (int64_t k = 0; k < tokens; ++k) {
          const float* key = keys.data() + k * width + channels.first;
          for (int64_t i = 0; i < dim_; ++i) use((t + k) * dim_ + i, key[i]);
        }
      }
    };
    float largest = 0;
    each([&](int64_t, float key) { largest = std::max(largest, std::abs(key)); });
    const float scale = largest > 0 ? kLargest / largest : 0;
    each([&](int64_t at, float key) {
      values_[at] = static_cast<int8_t>(std::nearbyint(key * scale));
    });
  }

  int64_t dim() const { return dim_; }
  int64_t count() const { return std::ssize(values_) / dim_; }
  const int8_t* Key(int64_t token) const { return values_.data() + token * dim_; }
  XXH128_hash_t Hash() const { return XXH3_128bits(values_.data(), values_.size()); }

 private:
  int64_t dim_;
  std::vector<int8_t> values_;
};

// Clusters found before by this program, the last ones: a budget or a threshold changes none.
class KnownClusters {
 public:
  using Key = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t, int64_t>;
  static Key KeyOf(const QuantisedKeys& keys, int64_t clusters, int64_t iterations) {
    const XXH128_hash_t hash = keys.Hash();
    return {hash.low64, hash.high64, keys.count(), keys.dim(), clusters, iterations};
  }

  std::optional<KeyClusters> Find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
  }

  void Add(const Key& key, const KeyClusters& clusters) {
    const std::lock_guard lock(mutex_);
    if (!known_.emplace(key, clusters).second) return;
    order_.push_back(key);
    tokens_ += clusters.tokens.size();
    while (tokens_ > kMostTokens && order_.size() > 1) {
      const auto oldest = known_.find(order_.front());
      tokens_ -= oldest->second.tokens.size();
      known_.erase(oldest);
      order_.pop_front();
    }
  }

 private:
  static constexpr size_t kMostTokens = size_t{16} << 20;  // of 4 bytes

  mutable std::mutex mutex_;
  std::map<Key, KeyClusters> known_;
  std::deque<Key> order_;
  size_t tokens_ = 0;
};

// floor(a / b) for b > 0.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Lloyd's algorithm. The first assignment compares each key with each centroid. Later ones know by
// the triangle inequality how near a group of centroids can have come: none was nearer than the
// bound, and none has moved further than the one that moved most. They look into a group only where
// it may hold a centroid as near as the key's own.
class Lloyd {
 public:
  Lloyd(const QuantisedKeys& keys, int64_t clusters);

  void Assign();
  void MoveCentroids();
  int32_t cluster(int64_t token) const { return cluster_[token]; }

 private:
  int16_t* Centroid(int64_t c) { return centroids_.data() + c * width_; }
  int64_t groups() const { return (panels_ + group_ - 1) / group_; }
  int32_t NormOf(int64_t c) const {
    const int16_t* centroid = centroids_.data() + c * width_;
    return std::inner_product(centroid, centroid + width_, centroid, int32_t{0});
  }
  void AssignBlock(int64_t first, int64_t count, const std::vector<int16_t>& panels,
                   const std::vector<float>& moved);

  const QuantisedKeys& keys_;
  int64_t clusters_, width_, panels_, group_;
  std::vector<int16_t> centroids_;  // [cluster][width]
  std::vector<int32_t> norms_;      // by cluster, to the end of the last panel
  std::vector<float> moved_;        // by cluster, since the last assignment
  std::vector<int32_t> cluster_;    // by token
  std::vector<float> bounds_;       // [token][group]: no centroid of it was nearer
};

Lloyd::Lloyd(const QuantisedKeys& keys, int64_t clusters)
    : keys_(keys),
      clusters_(clusters),
      width_(keys.dim() + keys.dim() % 2),
      panels_((clusters + kPanel - 1) / kPanel),
      group_((panels_ + kMostGroups - 1) / kMostGroups),
      centroids_(static_cast<size_t>(panels_ * kPanel * width_)),
      norms_(static_cast<size_t>(panels_ * kPanel), std::numeric_limits<int32_t>::max()),
      moved_(static_cast<size_t>(clusters), std::numeric_limits<float>::infinity()),
      cluster_(static_cast<size_t>(keys.count())),
      bounds_(static_cast<size_t>(keys.count() * groups())) {
  for (int64_t c = 0; c < clusters; ++c) {
    const int8_t* seed = keys.Key((2 * c + 1) * keys.count() / (2 * clusters));
    std::copy_n(seed, keys.dim(), Centroid(c));
    norms_[c] = NormOf(c);
  }
}

void Lloyd::Assign() {
  std::vector<int16_t> panels(centroids_.size());
  std::vector<float> moved(static_cast<size_t>(groups()));
  for (int64_t p = 0; p < panels_; ++p) {
    const int64_t first = p * kPanel, count = std::min(kPanel, clusters_ - first);
    PackWholePanel(Centroid(first), count, width_, panels.data() + first * width_);
    float& furthest = moved[p / group_];
    furthest = std::max(furthest,
                        *std::max_element(moved_.begin() + first, moved_.begin() + first + count));
  }
  tbb::parallel_for(
      int64_t{0}, (keys_.count() + kBlockTokens - 1) / kBlockTokens, [&](int64_t block) {
        const int64_t first = block * kBlockTokens;
        AssignBlock(first, std::min(kBlockTokens, keys_.count() - first), panels, moved);
      });
}

void Lloyd::AssignBlock(int64_t first, int64_t count, const std::vector<int16_t>& panels,
                        const std::vector<float>& moved) {
  // Of the centroid that is nearest so far: |k - c|^2 = |k|^2 - closeness.
  std::vector<int32_t> closeness(static_cast<size_t>(count)), norms(static_cast<size_t>(count));
  std::vector<float> nearest(static_cast<size_t>(count));
  std::vector<int16_t> rows(static_cast<size_t>(count * width_));
  const auto distance = [&](int64_t t, int32_t close) {
    return static_cast<float>(std::sqrt(static_cast<double>(int64_t{norms[t]} - close)));
  };
  for (int64_t t = 0; t < count; ++t) {
    const int8_t* key = keys_.Key(first + t);
    const int16_t* own = Centroid(cluster_[first + t]);
    std::copy_n(key, keys_.dim(), rows.data() + t * width_);
    norms[t] = std::inner_product(key, key + keys_.dim(), key, int32_t{0});
    closeness[t] = 2 * std::inner_product(key, key + keys_.dim(), own, int32_t{0}) -
                   norms_[cluster_[first + t]];
    nearest[t] = distance(t, closeness[t]);
  }
  std::vector<int32_t> close(static_cast<size_t>(kRowBlock * kPanel)), most(kRowBlock);
  for (int64_t g = 0; g < groups(); ++g) {
    for (int64_t begin = 0; begin < count; begin += kRowBlock) {
      const int64_t end = std::min(begin + kRowBlock, count);
      const auto bound = [&](int64_t t) -> float& { return bounds_[(first + t) * groups() + g]; };
      bool near = false;
      for (int64_t t = begin; t < end; ++t) {
        bound(t) -= moved[g];
        near |= bound(t) <= nearest[t] + kRounding;
      }
      if (!near) continue;
      for (int64_t t = begin; t < end; ++t) bound(t) = std::numeric_limits<float>::infinity();
      for (int64_t p = g * group_; p < std::min(panels_, (g + 1) * group_); ++p) {
        PanelCloseness(rows.data() + begin * width_, end - begin, width_,
                       panels.data() + p * kPanel * width_, norms_.data() + p * kPanel,
                       close.data(), most.data());
        for (int64_t t = begin; t < end; ++t) {
          const int32_t best = most[t - begin];
          bound(t) = std::min(bound(t), distance(t, best));
          if (best < closeness[t]) continue;
          const int32_t* row = close.data() + (t - begin) * kPanel;
          const auto c =
              static_cast<int32_t>(p * kPanel + (std::find(row, row + kPanel, best) - row));
          if (best == closeness[t] && c >= cluster_[first + t]) continue;
          closeness[t] = best;
          cluster_[first + t] = c;
          nearest[t] = distance(t, best);
        }
      }
    }
  }
}

void Lloyd::MoveCentroids() {
  const int64_t dim = keys_.dim();
  std::vector<int32_t> sums(static_cast<size_t>(clusters_ * dim));
  std::vector<int32_t> sizes(static_cast<size_t>(clusters_));
  for (int64_t t = 0; t < keys_.count(); ++t) {
    int32_t* sum = sums.data() + cluster_[t] * dim;
    const int8_t* key = keys_.Key(t);
    for (int64_t i = 0; i < dim; ++i) sum[i] += key[i];
    ++sizes[cluster_[t]];
  }
  for (int64_t c = 0; c < clusters_; ++c) {
    int64_t squares = 0;
    for (int64_t i = 0; i < dim && sizes[c] > 0; ++i) {
      const int64_t mean =
          FloorDivide(int64_t{2} * sums[c * dim + i] + sizes[c], int64_t{2} * sizes[c]);
      const int64_t by = mean - Centroid(c)[i];
      squares += by * by;
      Centroid(c)[i] = static_cast<int16_t>(mean);
    }
    moved_[c] = static_cast<float>(std::sqrt(static_cast<double>(squares)));
    norms_[c] = NormOf(c);
  }
}

}  // namespace

KeyClusters ClusterKeys(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                        int64_t clusters, int64_t iterations, Channels channels) {
  const QuantisedKeys keys(tensors, kv_head, first, count, channels);
  if (keys.dim() > kMaxDim) {
    throw Error(fmt::format("keys of {} dimensions cannot be clustered", keys.dim()),
                fmt::format("layer {}", tensors.layer()),
                fmt::format("use a model whose heads have at most {}", kMaxDim));
  }
  static KnownClusters known;
  const KnownClusters::Key key = KnownClusters::KeyOf(keys, clusters, iterations);
  if (std::optional<KeyClusters> found = known.Find(key)) return *std::move(found);
  Lloyd lloyd(keys, clusters);
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0) lloyd.MoveCentroids();
    lloyd.Assign();
  }
  KeyClusters out;
  out.offsets.resize(static_cast<size_t>(clusters) + 1);
  for (int64_t t = 0; t < count; ++t) ++out.offsets[static_cast<size_t>(lloyd.cluster(t)) + 1];
  for (size_t c = 0; c < static_cast<size_t>(clusters); ++c) out.offsets[c + 1] += out.offsets[c];
  std::vector<uint32_t> next(out.offsets.begin(), out.offsets.end() - 1);
  out.tokens.resize(static_cast<size_t>(count));
  for (int64_t t = 0; t < count; ++t) {
    out.tokens[next[static_cast<size_t>(lloyd.cluster(t))]++] = static_cast<uint32_t>(t);
  }
  known.Add(key, out);
  return out;
}

}  // namespace stallcast::methods
