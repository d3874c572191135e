#include "capture/calibrate/host/measure_attention.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "capture/calibrate/timing/stopwatch.h"
#include "capture/calibrate/transfers/layer_pages.h"
#include "kernels/attention/host_attention.h"
#include "kernels/runtime/host_cores.h"

namespace stallcast::capture {
namespace {

constexpr int kRows = 8, kGroup = 4, kDim = 128, kTrials = 9;
constexpr int64_t kLayer = LayerPages::kPool;
constexpr int64_t kTokenBytes = int64_t{kRows} * 2 * kDim * 2;
constexpr int64_t kMany = kLayer / kTokenBytes, kFew = kMany / 8;

// Seconds to attend so many tokens of the pools, each time of another layer.
double Seconds(const LayerPools& pools, int64_t tokens, int threads) {
  const std::vector<uint16_t> query(size_t{kRows} * kGroup * kDim, 0x3f80);  // ones
  std::vector<uint16_t> output(query.size());
  const std::vector<int64_t> lengths(kRows, tokens);
  int layer = 0;
  return Stopwatch::Median(kTrials, [&] {
    std::vector<const uint16_t*> keys, values;
    layer = (layer + 1) % pools.Count(kLayer);
    const auto* pool = reinterpret_cast<const uint16_t*>(pools.Pool(layer, kLayer));
    for (int row = 0; row < kRows; ++row) {
      keys.push_back(pool + row * 2 * kMany * kDim);
      values.push_back(keys.back() + kMany * kDim);
    }
    const auto begin = std::chrono::steady_clock::now();
    kernels::HostAttention({.query = query.data(),
                            .keys = keys,
                            .values = values,
                            .tokens = lengths,
                            .group = kGroup,
                            .head_dim = kDim,
                            .scale = 1,
                            .output = output.data()},
                           threads);
    return SecondsSince(begin);
  });
}

}  // namespace

void MeasureHostAttention(const LayerPools& pools, hardware::Profile& profile) {
  const kernels::OnCore core = kernels::OnFastestCore();
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::vector<double> counts, rates;
  for (int threads = 1; threads <= all; threads *= 2) {
    const double few = Seconds(pools, kFew, threads), many = Seconds(pools, kMany, threads);
    // Noise must not make a byte cost nothing.
    const double longer = std::max(many - few, many / 2);
    counts.push_back(threads);
    rates.push_back(static_cast<double>((kMany - kFew) * kTokenBytes) / longer);
  }
  profile.host.attention_rate = {counts, rates};
}

}  // namespace stallcast::capture
