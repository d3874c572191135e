// ParisKV, stage 2 and fetch: estimates from 4-bit codes, and rows read from the host.
#include <algorithm>
#include <string>

#include "kernels/methods/pariskv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // candidates of a thread group, in flight together
constexpr unsigned kAll = 0xffffffffu;

// A lane has one subspace of a candidate: its part of the query stays in registers, its codes and
// weights are consecutive over lanes. Levels of all 16 codes lie in 16 banks, so that any lookups
// of a warp meet no conflict.
template <int kParts, int kSub>
__global__ void __launch_bounds__(kThreads)
    RerankKernel(const __grid_constant__ CodeTables tables, const float* __restrict__ rotated,
                 const uint8_t* __restrict__ codes, const __nv_bfloat16* __restrict__ weights,
                 int capacity, const int32_t* __restrict__ candidates, int share, int count,
                 float factor, float* __restrict__ estimates) {
  constexpr int kGroups = kThreads / kParts;
  __shared__ float level[16];
  const int thread = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  const int part = thread % kParts;
  if (thread < 16)
    level[thread] = (thread & 8) != 0 ? -tables.level[thread & 7] : tables.level[thread];
  float query[kSub];
#pragma unroll
  for (int j = 0; j < kSub; ++j) query[j] = rotated[(int64_t{row} * kParts + part) * kSub + j];
  __syncthreads();
  const int64_t index_row = int64_t{row / share} * capacity;
  candidates += int64_t{row} * count;
  estimates += int64_t{row} * count;
  const int step = static_cast<int>(gridDim.x) * kGroups * kAtOnce;
  for (int first = static_cast<int>(blockIdx.x) * kGroups * kAtOnce + thread / kParts;
       first - thread / kParts < count; first += step) {
    uint32_t code[kAtOnce];
    float weight[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int at = min(first + i * kGroups, count - 1);
      const int64_t place = (index_row + candidates[at]) * kParts + part;
      if constexpr (kSub == 8) {
        code[i] = __ldcs(reinterpret_cast<const uint32_t*>(codes) + place);
      } else {
        code[i] = __ldcs(reinterpret_cast<const uint16_t*>(codes) + place);
      }
      weight[i] = __bfloat162float(__ldcs(weights + place));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float dot = 0;
#pragma unroll
      for (int j = 0; j < kSub; ++j) dot += level[code[i] >> (4 * j) & 15] * query[j];
      float estimate = weight[i] * dot;
#pragma unroll
      for (int lanes = 1; lanes < kParts; lanes *= 2) {
        estimate += __shfl_xor_sync(kAll, estimate, lanes);
      }
      const int at = first + i * kGroups;
      if (part == 0 && at < count) estimates[at] = estimate * factor;
    }
  }
}

// kLanes lanes read a key and as many its value, 16 bytes each.
template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    FetchKernel(const TokenView pool, const int32_t* __restrict__ places,
                const int32_t* __restrict__ candidates, int rows, int share, int k, int count,
                int first, const TokenView to, int at) {
  constexpr int kTogether = 2 * kLanes;
  constexpr int kGroups = kThreads / kTogether;
  const int lane = static_cast<int>(threadIdx.x) % kTogether;
  const int offset = lane % kLanes * 8;
  const int pieces = rows * k;
  const int step = static_cast<int>(gridDim.x) * kGroups;
  for (int base =
           static_cast<int>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / kTogether;
       base < pieces; base += step * kAtOnce) {
    uint4 data[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = base + i * step;
      if (piece >= pieces) break;
      const int row = piece / k;
      int token = places[piece];
      if (candidates != nullptr) token = candidates[int64_t{row} * count + token];
      const __nv_bfloat16* from = pool.data + row / share * pool.row_stride +
                                  int64_t{token + first} * pool.token_stride +
                                  (lane >= kLanes ? pool.value_offset : 0);
      data[i] = __ldcs(reinterpret_cast<const uint4*>(from + offset));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int piece = base + i * step;
      if (piece >= pieces) break;
      const int row = piece / k;
      __nv_bfloat16* out = to.data + row * to.row_stride +
                           int64_t{at + piece - row * k} * to.token_stride +
                           (lane >= kLanes ? to.value_offset : 0);
      __stcs(reinterpret_cast<uint4*>(out + offset), data[i]);
    }
  }
}

}  // namespace

void Rerank(const CodeTables& tables, const float* rotated, const KeyIndex& index,
            const int32_t* candidates, int32_t rows, int32_t share, int32_t count, float* estimates,
            cudaStream_t stream) {
  if (rows <= 0 || count <= 0) return;
  constexpr int kBlocksAtOnce = 1056;  // eight on each of an H200's multiprocessors
  const int groups = kThreads / tables.subspaces * kAtOnce;
  const dim3 grid(static_cast<unsigned>(
                      std::min((count + groups - 1) / groups, std::max(1, kBlocksAtOnce / rows))),
                  static_cast<unsigned>(rows));
  const int sub = tables.head_dim / tables.subspaces;
  const auto kernel = tables.subspaces == 32  ? RerankKernel<32, 4>
                      : tables.subspaces == 8 ? RerankKernel<8, 8>
                      : sub == 8              ? RerankKernel<16, 8>
                                              : RerankKernel<16, 4>;
  const float factor = tables.rotation ? 1.0f / static_cast<float>(tables.head_dim) : 1.0f;
  kernel<<<grid, kThreads, 0, stream>>>(tables, rotated, index.codes, index.weights, index.capacity,
                                        candidates, share, count, factor, estimates);
  CheckLaunch("Rerank");
}

void FetchTokens(const TokenView& pool, const int32_t* places, const int32_t* candidates,
                 int32_t rows, int32_t share, int32_t k, int32_t count, int32_t first,
                 const TokenView& to, int32_t at, int32_t head_dim, int32_t blocks,
                 cudaStream_t stream) {
  if (head_dim != 64 && head_dim != 128) {
    throw Error("a head dimension of " + std::to_string(head_dim), "FetchTokens", "use 64 or 128");
  }
  if (blocks < 1) throw Error("no blocks to run on", "FetchTokens", "allow at least one block");
  if (rows <= 0 || k <= 0) return;
  const int64_t groups = kThreads / (head_dim / 4);
  const auto grid =
      static_cast<unsigned>(std::min<int64_t>(blocks, (int64_t{rows} * k + groups - 1) / groups));
  const auto kernel = head_dim == 128 ? FetchKernel<16> : FetchKernel<8>;
  kernel<<<grid, kThreads, 0, stream>>>(pool, places, candidates, rows, share, k, count, first, to,
                                        at);
  CheckLaunch("FetchTokens");
}

}  // namespace stallcast::kernels
