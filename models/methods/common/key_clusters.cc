#include "models/methods/common/key_clusters.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "models/methods/vector_kernels.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

constexpr float kLargest = 127;
// Products of 8-bit numbers are at most 127^2, so sums of so many are exact in a float.
constexpr int64_t kMaxDim = 256;
constexpr int64_t kBlockTokens = 256;

// Keys of a range in whole numbers, as floats for the inner loops. They are made when read, which
// takes far less time than what is done with them, and no memory.
class QuantisedKeys {
 public:
  QuantisedKeys(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                Channels channels)
      : tensors_(tensors), kv_head_(kv_head), first_(first), count_(count), channels_(channels) {
    if (channels_.count == 0) channels_.count = tensors.head_dim();
    float largest = 0;
    std::vector<float> keys(static_cast<size_t>(kBlockTokens * dim()));
    for (int64_t t = 0; t < count; t += kBlockTokens) {
      const int64_t tokens = std::min(kBlockTokens, count - t);
      ReadChannels(first + t, tokens, keys.data());
      for (int64_t i = 0; i < tokens * dim(); ++i) largest = std::max(largest, std::abs(keys[i]));
    }
    scale_ = largest > 0 ? kLargest / largest : 0;
  }

  int64_t dim() const { return channels_.count; }
  int64_t count() const { return count_; }
  /// `out` is [token][dim].
  void Read(int64_t token, int64_t count, float* out) const {
    ReadChannels(first_ + token, count, out);
    for (int64_t i = 0; i < count * dim(); ++i) out[i] = std::nearbyint(out[i] * scale_);
  }

 private:
  void ReadChannels(int64_t token, int64_t count, float* out) const {
    if (dim() == tensors_.head_dim()) {
      tensors_.ReadKeys(kv_head_, token, count, out);
      return;
    }
    const int64_t all = tensors_.head_dim();
    std::vector<float> keys(static_cast<size_t>(count * all));
    tensors_.ReadKeys(kv_head_, token, count, keys.data());
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(keys.data() + t * all + channels_.first, dim(), out + t * dim());
    }
  }

  const LayerTensors& tensors_;
  int kv_head_;
  int64_t first_, count_;
  Channels channels_;
  float scale_ = 0;
};

// The nearest centroid of each key. |k - c|^2 = |k|^2 - (2 k . c - |c|^2), and |k|^2 is the same
// for all centroids.
void Assign(const QuantisedKeys& keys, const std::vector<int32_t>& centroids,
            std::vector<int32_t>& cluster) {
  const int64_t dim = keys.dim(), count = keys.count();
  const auto clusters = static_cast<int64_t>(centroids.size()) / dim;
  const int64_t panels = (clusters + kPanel - 1) / kPanel;
  std::vector<float> packed(static_cast<size_t>(panels * dim * kPanel));
  std::vector<int32_t> norms(static_cast<size_t>(clusters));
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t begin = p * kPanel, columns = std::min(kPanel, clusters - begin);
    const std::vector<float> wide(centroids.begin() + begin * dim,
                                  centroids.begin() + (begin + columns) * dim);
    PackPanel(wide.data(), columns, dim, packed.data() + p * dim * kPanel);
  }
  for (int64_t c = 0; c < clusters; ++c) {
    for (int64_t i = 0; i < dim; ++i) norms[c] += centroids[c * dim + i] * centroids[c * dim + i];
  }
  const int64_t blocks = (count + kBlockTokens - 1) / kBlockTokens;
  tbb::parallel_for(int64_t{0}, blocks, [&](int64_t block) {
    const int64_t tokens = std::min(kBlockTokens, count - block * kBlockTokens);
    std::vector<float> block_keys(static_cast<size_t>(kBlockTokens * dim));
    keys.Read(block * kBlockTokens, tokens, block_keys.data());
    std::vector<float> dots(static_cast<size_t>(kRowBlock * kPanel));
    std::vector<int32_t> best(kBlockTokens, INT32_MIN), closeness(kPanel);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t begin = p * kPanel, columns = std::min(kPanel, clusters - begin);
      for (int64_t t = 0; t < tokens; t += kRowBlock) {
        const int64_t rows = std::min(kRowBlock, tokens - t);
        PanelDots(block_keys.data() + t * dim, rows, dim, packed.data() + p * dim * kPanel, columns,
                  dots.data(), kPanel);
        for (int64_t r = 0; r < rows; ++r) {
          int32_t most = INT32_MIN;
          for (int64_t c = 0; c < columns; ++c) {
            closeness[c] = 2 * static_cast<int32_t>(dots[r * kPanel + c]) - norms[begin + c];
            most = std::max(most, closeness[c]);
          }
          int32_t& so_far = best[t + r];
          if (most <= so_far) continue;
          so_far = most;
          const auto at = std::find(closeness.begin(), closeness.begin() + columns, most);
          cluster[block * kBlockTokens + t + r] =
              static_cast<int32_t>(begin + (at - closeness.begin()));
        }
      }
    }
  });
}

// floor(a / b) for b > 0.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void MoveCentroids(const QuantisedKeys& keys, const std::vector<int32_t>& cluster,
                   std::vector<int32_t>& centroids) {
  const int64_t dim = keys.dim();
  std::vector<int32_t> sums(centroids.size());
  std::vector<int32_t> sizes(centroids.size() / static_cast<size_t>(dim));
  std::vector<float> key(static_cast<size_t>(dim));
  for (size_t t = 0; t < cluster.size(); ++t) {
    int32_t* sum = sums.data() + cluster[t] * dim;
    keys.Read(static_cast<int64_t>(t), 1, key.data());
    for (int64_t i = 0; i < dim; ++i) sum[i] += static_cast<int32_t>(key[i]);
    ++sizes[static_cast<size_t>(cluster[t])];
  }
  for (size_t c = 0; c < sizes.size(); ++c) {
    if (sizes[c] == 0) continue;
    for (size_t at = c * static_cast<size_t>(dim); at < (c + 1) * static_cast<size_t>(dim); ++at) {
      centroids[at] = static_cast<int32_t>(
          FloorDivide(int64_t{2} * sums[at] + sizes[c], int64_t{2} * sizes[c]));
    }
  }
}

}  // namespace

KeyClusters ClusterKeys(const LayerTensors& tensors, int kv_head, int64_t first, int64_t count,
                        int64_t clusters, int64_t iterations, Channels channels) {
  const QuantisedKeys keys(tensors, kv_head, first, count, channels);
  const int64_t dim = keys.dim();
  if (dim > kMaxDim) {
    throw Error(fmt::format("keys of {} dimensions cannot be clustered", dim),
                fmt::format("layer {}", tensors.layer()),
                fmt::format("use a model whose heads have at most {}", kMaxDim));
  }
  std::vector<float> seed(static_cast<size_t>(dim));
  std::vector<int32_t> centroids;
  centroids.reserve(static_cast<size_t>(clusters * dim));
  for (int64_t c = 0; c < clusters; ++c) {
    keys.Read((2 * c + 1) * count / (2 * clusters), 1, seed.data());
    centroids.insert(centroids.end(), seed.begin(), seed.end());
  }
  std::vector<int32_t> cluster(static_cast<size_t>(count));
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0) MoveCentroids(keys, cluster, centroids);
    Assign(keys, centroids, cluster);
  }
  KeyClusters out;
  out.offsets.resize(static_cast<size_t>(clusters) + 1);
  for (int32_t c : cluster) ++out.offsets[static_cast<size_t>(c) + 1];
  for (size_t c = 0; c < static_cast<size_t>(clusters); ++c) out.offsets[c + 1] += out.offsets[c];
  std::vector<uint32_t> next(out.offsets.begin(), out.offsets.end() - 1);
  out.tokens.resize(static_cast<size_t>(count));
  for (size_t t = 0; t < cluster.size(); ++t) {
    out.tokens[next[static_cast<size_t>(cluster[t])]++] = static_cast<uint32_t>(t);
  }
  return out;
}

}  // namespace stallcast::methods
