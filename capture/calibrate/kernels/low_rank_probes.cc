// Probes of ShadowKV's low-rank keys.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/methods/shadowkv.h"
#include "kernels/runtime/fill.h"
#include "models/methods/shadowkv/params.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

constexpr int32_t kDim = 128;

// It sweeps until all pairs of channels are orthogonal: keys of a quarter of the rank take 0.76
// times as long as these random ones, a synthetic trace's of full rank 1.2 times
// (capture/results/hardware-notes.md).
KernelProbe FactorizeProbe(int64_t tokens, int32_t kv_heads) {
  const auto rank = static_cast<int32_t>(methods::ShadowKvParams{}.rank);
  return {
      plan::FactorizeKeys{1, tokens, kv_heads, kDim, rank},
      [=] {
        auto keys = std::make_shared<Buffer<Bf16>>(tokens * kv_heads * kDim);
        kernels::FillRandom(keys->get(), keys->size(), 1, 4, nullptr);
        auto u = Zeroed<Bf16>(tokens * rank), basis = Zeroed<Bf16>(int64_t{kv_heads} * kDim * rank);
        auto factorizer = std::make_shared<kernels::KeyFactorizer>(tokens, kv_heads, kDim, rank);
        return [=](int, cudaStream_t stream) {
          factorizer->Run({keys->get(), tokens * kDim, kDim, 0}, u->get(), basis->get(), stream);
        };
      },
      /*after_stream=*/false, /*sustained=*/false, /*waits=*/true};
}

// Chunks at random of a context of 32K; any of the budget's may miss.
KernelProbe RebuildProbe(int32_t rows, int32_t kv_heads, int32_t missed) {
  const methods::ShadowKvParams params;
  const auto rank = static_cast<int32_t>(params.rank), chunk = static_cast<int32_t>(params.chunk);
  return {plan::RebuildKeys{rows, int64_t{rows} * missed * chunk, rank, kDim},
          [=] {
            constexpr int32_t kTokens = 32768;
            const int32_t candidates = kTokens / chunk;
            const int64_t of_tokens = int64_t{rows} / kv_heads * kTokens * rank;
            const auto k = static_cast<int32_t>(params.chosen());
            const int64_t capacity = params.budget;
            auto factors = std::make_shared<ColdMemory>(of_tokens + int64_t{rows} * kDim * rank);
            auto cache = std::make_shared<ColdMemory>(rows * capacity * kDim);
            std::vector<int32_t> units(static_cast<size_t>(int64_t{rows} * k));
            std::mt19937 random(6);
            for (int32_t& unit : units) unit = static_cast<int32_t>(random() % candidates);
            std::vector<int32_t> slots = Numbers(std::ssize(units));
            for (int32_t& slot : slots) slot %= k;
            std::vector<int32_t> numbers = Numbers(int64_t{rows} * candidates);
            for (int32_t& number : numbers) number %= candidates;
            std::vector<float> turns;
            for (int i = 0; i < kDim / 2; ++i) turns.push_back(std::exp(-0.14F * i));
            auto unit = Shared(units), slot = Shared(slots), chunk_of = Shared(numbers);
            auto count = Shared(std::vector<int32_t>(static_cast<size_t>(rows), missed));
            auto frequencies = Shared(turns);
            return [=](int i, cudaStream_t stream) {
              const Bf16* u = factors->At(i);
              kernels::RebuildKeys({u, u + of_tokens, kTokens, rank},
                                   {unit->get(), slot->get(), count->get(), chunk_of->get(), rows,
                                    k, candidates, chunk, 0},
                                   kv_heads, frequencies->get(), 1,
                                   {cache->At(i), capacity * kDim, kDim, 0}, kDim, stream);
            };
          },
          /*after_stream=*/true};
}

}  // namespace

std::vector<KernelProbe> LowRankProbes() {
  std::vector<KernelProbe> probes;
  for (const int32_t missed : {4, 16, 64, 256}) {
    probes.push_back(RebuildProbe(4, 4, missed));
    probes.push_back(RebuildProbe(8, 8, missed));
    probes.push_back(RebuildProbe(32, 8, missed));
  }
  if (kernels::KeyFactorizer::Available()) {
    for (const int64_t tokens : {4096, 16384, 65536}) {
      probes.push_back(FactorizeProbe(tokens, 8));
      probes.push_back(FactorizeProbe(tokens, 4));
    }
  }
  return probes;
}

}  // namespace stallcast::capture
