#include "models/methods/louiskv/key_clusters.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>

#include "models/methods/common/vector_kernels.h"
#include "traces/common/error.h"

namespace stallcast::methods {
namespace {

constexpr float kLargest = 127;
// Products of 8-bit numbers are at most 127^2, so sums of so many are exact in a float.
constexpr int64_t kMaxDim = 256;
constexpr int64_t kBlockTokens = 256;

// Keys of the range in whole numbers, [token][dim], widened to floats for the inner loops.
std::vector<float> Quantised(const LayerTensors& tensors, int kv_head, int64_t first,
                             int64_t count) {
  const int64_t dim = tensors.head_dim();
  std::vector<float> keys(static_cast<size_t>(count * dim));
  tensors.ReadKeys(kv_head, first, count, keys.data());
  float largest = 0;
  for (float key : keys) largest = std::max(largest, std::abs(key));
  const float scale = largest > 0 ? kLargest / largest : 0;
  for (float& key : keys) key = std::nearbyint(key * scale);
  return keys;
}

// The nearest centroid of each key. |k - c|^2 = |k|^2 - (2 k . c - |c|^2), and |k|^2 is the same
// for all centroids.
void Assign(const std::vector<float>& keys, const std::vector<int32_t>& centroids, int64_t dim,
            std::vector<int32_t>& cluster) {
  const auto count = static_cast<int64_t>(cluster.size());
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
    const int64_t end = std::min((block + 1) * kBlockTokens, count);
    std::vector<float> dots(static_cast<size_t>(kRowBlock * kPanel));
    std::vector<int32_t> best(kBlockTokens, INT32_MIN), closeness(kPanel);
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t begin = p * kPanel, columns = std::min(kPanel, clusters - begin);
      for (int64_t t = block * kBlockTokens; t < end; t += kRowBlock) {
        const int64_t rows = std::min(kRowBlock, end - t);
        PanelDots(keys.data() + t * dim, rows, dim, packed.data() + p * dim * kPanel, columns,
                  dots.data(), kPanel);
        for (int64_t r = 0; r < rows; ++r) {
          int32_t most = INT32_MIN;
          for (int64_t c = 0; c < columns; ++c) {
            closeness[c] = 2 * static_cast<int32_t>(dots[r * kPanel + c]) - norms[begin + c];
            most = std::max(most, closeness[c]);
          }
          int32_t& so_far = best[t + r - block * kBlockTokens];
          if (most <= so_far) continue;
          so_far = most;
          const auto at = std::find(closeness.begin(), closeness.begin() + columns, most);
          cluster[t + r] = static_cast<int32_t>(begin + (at - closeness.begin()));
        }
      }
    }
  });
}

// floor(a / b) for b > 0.
int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void MoveCentroids(const std::vector<float>& keys, const std::vector<int32_t>& cluster, int64_t dim,
                   std::vector<int32_t>& centroids) {
  std::vector<int32_t> sums(centroids.size());
  std::vector<int32_t> sizes(centroids.size() / static_cast<size_t>(dim));
  for (size_t t = 0; t < cluster.size(); ++t) {
    int32_t* sum = sums.data() + cluster[t] * dim;
    const float* key = keys.data() + static_cast<int64_t>(t) * dim;
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
                        int64_t clusters, int64_t iterations) {
  const int64_t dim = tensors.head_dim();
  if (dim > kMaxDim) {
    throw Error(fmt::format("keys of {} dimensions cannot be clustered", dim),
                fmt::format("layer {}", tensors.layer()),
                fmt::format("use a model whose heads have at most {}", kMaxDim));
  }
  const std::vector<float> keys = Quantised(tensors, kv_head, first, count);
  std::vector<int32_t> centroids;
  centroids.reserve(static_cast<size_t>(clusters * dim));
  for (int64_t c = 0; c < clusters; ++c) {
    const auto seed = keys.begin() + (2 * c + 1) * count / (2 * clusters) * dim;
    centroids.insert(centroids.end(), seed, seed + dim);
  }
  std::vector<int32_t> cluster(static_cast<size_t>(count));
  for (int64_t i = 0; i < iterations; ++i) {
    if (i > 0) MoveCentroids(keys, cluster, dim, centroids);
    Assign(keys, centroids, dim, cluster);
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
