// WG-KV's gate. Many tokens: a CTA takes 128 tokens of one head, whose normalised keys stay in
// shared memory while the hidden units pass by in tiles of 64; a hidden unit is activated and
// weighed in the registers that its product ends in. A few tokens: a warp a hidden unit.
#include <string>

#include "kernels/device/tensor_core.cuh"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr float kEpsilon = 1e-6f;
constexpr int kThreads = 256;
constexpr int kTokens = 128;  // of a CTA
constexpr int kUnits = 64;    // of a tile
constexpr int kFew = 8;       // tokens up to which a warp takes a unit
constexpr int kFewThreads = 256;
constexpr int kTogether = 8;                          // hidden units of a warp, all in flight
constexpr int kShare = kFewThreads / 32 * kTogether;  // of a CTA
static_assert(kShare == kUnits);

__device__ float WarpSum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAll, value, lanes);
  return value;
}

__device__ float Gelu(float x) { return 0.5f * x * (1 + erff(x * 0.70710678f)); }
__device__ float Sigmoid(float x) { return 1 / (1 + __expf(-x)); }

/// One warp: a key over its root mean square, times the norm's weight; lane l has elements
/// l * kEach and on.
template <int kEach>
__device__ void Normalise(const __nv_bfloat16* key, const __nv_bfloat16* norm,
                          __nv_bfloat162 (&out)[kEach / 2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float x[kEach], squares = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = __bfloat162float(key[lane * kEach + i]);
    squares += x[i] * x[i];
  }
  const float factor = rsqrtf(WarpSum(squares) / (32 * kEach) + kEpsilon);
#pragma unroll
  for (int i = 0; i < kEach; i += 2) {
    const float a = norm == nullptr ? 1 : __bfloat162float(norm[lane * kEach + i]);
    const float b = norm == nullptr ? 1 : __bfloat162float(norm[lane * kEach + i + 1]);
    out[i / 2] = __floats2bfloat162_rn(x[i] * factor * a, x[i + 1] * factor * b);
  }
}

/// 16-byte pieces of a row, permuted by its number so that a column of 8 rows meets every bank.
template <int kInputs>
__device__ uint32_t At(int row, int piece) {
  return row * kInputs * 2 + ((piece & ~7) + ((piece ^ row) & 7)) * 16;
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    GateKernel(const GateWeights weights, const TokenView before, const TokenView after, int tokens,
               float* __restrict__ scores, int64_t score_stride, int64_t token_stride) {
  constexpr int kInputs = 2 * kDim, kPieces = kInputs / 8, kEach = kDim / 32;
  constexpr int kTileBytes = kUnits * kInputs * 2;
  extern __shared__ __align__(128) unsigned char shared[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int head = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kTokens;
  const auto inputs = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const uint32_t tiles = inputs + kTokens * kInputs * 2;
  const __nv_bfloat16* w1 = weights.w1 + int64_t{head} * weights.hidden * kInputs;
  const auto load = [&](int tile) {
    const uint32_t to = tiles + tile % 2 * kTileBytes;
#pragma unroll
    for (int i = 0; i < kUnits * kPieces / kThreads; ++i) {
      const int at = i * kThreads + thread;
      CopyAsync(to + At<kInputs>(at / kPieces, at % kPieces),
                w1 + (int64_t{tile} * kUnits + at / kPieces) * kInputs + at % kPieces * 8);
    }
    CommitCopies();
  };
  load(0);
  // 16 tokens a warp, several at a time.
#pragma unroll 4
  for (int i = 0; i < 16; ++i) {
    const int row = warp * 16 + i;
    const int token = min(first + row, tokens - 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const TokenView& view = half == 0 ? before : after;
      __nv_bfloat162 x[kEach / 2];
      Normalise<kEach>(view.data + head * view.row_stride + token * view.token_stride,
                       half == 0 ? weights.pre_norm : weights.post_norm, x);
      const int element = half * kDim + lane * kEach;
      auto* to = reinterpret_cast<__nv_bfloat162*>(shared + At<kInputs>(row, element / 8) +
                                                   element % 8 * 2);
#pragma unroll
      for (int pair = 0; pair < kEach / 2; ++pair) to[pair] = x[pair];
    }
  }
  // Warps lie 4 x 2 over tokens and units: 32 tokens and half of a tile's units each.
  const int own_row = warp / 2 * 32, own_unit = warp % 2 * (kUnits / 2);
  float total[2][2] = {};
  const int tile_count = weights.hidden / kUnits;
  for (int tile = 0; tile < tile_count; ++tile) {
    WaitForCopies<0>();
    __syncthreads();
    if (tile + 1 < tile_count) load(tile + 1);
    const uint32_t units = tiles + tile % 2 * kTileBytes;
    float product[2][kUnits / 16][4] = {};
#pragma unroll 4
    for (int k = 0; k < kInputs / 16; ++k) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        LoadMatrices(a[m], inputs + At<kInputs>(own_row + m * 16 + lane % 16, 2 * k + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < kUnits / 32; ++n) {
        uint32_t b[4];
        LoadMatrices(b, units + At<kInputs>(own_unit + n * 16 + lane % 8 + lane / 16 * 8,
                                            2 * k + lane / 8 % 2));
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MultiplyAdd(product[m][2 * n], a[m], b[0], b[1]);
          MultiplyAdd(product[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
    const int64_t unit = int64_t{head} * weights.hidden + tile * kUnits + own_unit + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kUnits / 16; ++n) {
      const float2 bias =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(weights.b1 + unit + n * 8));
      const float2 weight =
          __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(weights.w2 + unit + n * 8));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          total[m][r] += Gelu(product[m][n][2 * r] + bias.x) * weight.x +
                         Gelu(product[m][n][2 * r + 1] + bias.y) * weight.y;
        }
      }
    }
  }
  // The two halves of the units meet in shared memory.
  __syncthreads();
  auto* sums = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = total[m][r];
      sum += __shfl_xor_sync(kAll, sum, 1);
      sum += __shfl_xor_sync(kAll, sum, 2);
      if (lane % 4 == 0) {
        sums[warp % 2 * kTokens + own_row + m * 16 + r * 8 + lane / 4] = sum;
      }
    }
  }
  __syncthreads();
  if (thread < kTokens && first + thread < tokens) {
    scores[head * score_stride + (first + thread) * token_stride] =
        Sigmoid(sums[thread] + sums[kTokens + thread] + __bfloat162float(weights.b2[head]));
  }
}

// A CTA has a share of the hidden units of one head and token. The last CTA of a head and token
// adds the shares in order.
template <int kDim>
__global__ void __launch_bounds__(kFewThreads)
    GateFewKernel(const GateWeights weights, const TokenView before, const TokenView after,
                  float* __restrict__ scores, int64_t score_stride, int64_t token_stride,
                  float* partial, unsigned* arrived) {
  constexpr int kInputs = 2 * kDim, kEach = kDim / 32, kWide = kInputs / 32;
  constexpr int kWarps = kFewThreads / 32;
  __shared__ __align__(16) __nv_bfloat162 input[kDim];
  __shared__ float sums[kWarps];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int head = static_cast<int>(blockIdx.y), token = static_cast<int>(blockIdx.z);
  const int shares = static_cast<int>(gridDim.x);
  // Weights do not wait for the keys.
  const int64_t first =
      int64_t{head} * weights.hidden + static_cast<int>(blockIdx.x) * kShare + warp;
  __nv_bfloat162 row[kTogether][kWide / 2];
#pragma unroll
  for (int u = 0; u < kTogether; ++u) {
    const auto* from =
        reinterpret_cast<const __nv_bfloat162*>(weights.w1 + (first + u * kWarps) * kInputs) +
        lane * kWide / 2;
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) row[u][i] = from[i];
  }
  if (warp < 2) {
    const TokenView& view = warp == 0 ? before : after;
    __nv_bfloat162 x[kEach / 2];
    Normalise<kEach>(view.data + head * view.row_stride + token * view.token_stride,
                     warp == 0 ? weights.pre_norm : weights.post_norm, x);
#pragma unroll
    for (int pair = 0; pair < kEach / 2; ++pair) {
      input[warp * kDim / 2 + lane * kEach / 2 + pair] = x[pair];
    }
  }
  __syncthreads();
  float own[kWide];
#pragma unroll
  for (int i = 0; i < kWide; i += 2) {
    const float2 pair = __bfloat1622float2(input[lane * kWide / 2 + i / 2]);
    own[i] = pair.x;
    own[i + 1] = pair.y;
  }
  float total = 0;
#pragma unroll
  for (int u = 0; u < kTogether; ++u) {
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) {
      const float2 w = __bfloat1622float2(row[u][i]);
      dot += w.x * own[2 * i] + w.y * own[2 * i + 1];
    }
    dot = WarpSum(dot);
    const int64_t at = first + u * kWarps;
    total += Gelu(dot + __bfloat162float(weights.b1[at])) * __bfloat162float(weights.w2[at]);
  }
  if (lane == 0) sums[warp] = total;
  __syncthreads();
  const int output = token * static_cast<int>(gridDim.y) + head;
  if (threadIdx.x == 0) {
    float share = 0;
    for (int w = 0; w < kWarps; ++w) share += sums[w];
    __stcg(partial + output * shares + blockIdx.x, share);
    __threadfence();
    // Back to zero with the last.
    const bool last = atomicInc(arrived + output, static_cast<unsigned>(shares - 1)) ==
                      static_cast<unsigned>(shares - 1);
    if (last) {
      __threadfence();
      float sum = __bfloat162float(weights.b2[head]);
      for (int s = 0; s < shares; ++s) sum += __ldcg(partial + output * shares + s);
      scores[head * score_stride + token * token_stride] = Sigmoid(sum);
    }
  }
}

}  // namespace

int64_t GateMlpWorkspace(const GateWeights& weights) {
  return int64_t{kFew} * weights.kv_heads * (1 + weights.hidden / kShare);
}

void GateMlp(const GateWeights& weights, const TokenView& before_rope, const TokenView& after_rope,
             int32_t tokens, float* scores, int64_t score_stride, int64_t token_stride,
             float* workspace, cudaStream_t stream) {
  if ((weights.head_dim != 64 && weights.head_dim != 128) || weights.hidden < kUnits ||
      weights.hidden % kUnits != 0) {
    throw Error("a gate of " + std::to_string(weights.hidden) + " units for heads of " +
                    std::to_string(weights.head_dim),
                "GateMlp", "use head dimensions of 64 or 128 and a multiple of 64 units");
  }
  if (tokens <= 0 || weights.kv_heads <= 0) return;
  const auto heads = static_cast<unsigned>(weights.kv_heads);
  if (tokens <= kFew) {
    const auto kernel = weights.head_dim == 128 ? GateFewKernel<128> : GateFewKernel<64>;
    const auto shares = static_cast<unsigned>(weights.hidden / kShare);
    auto* arrived = reinterpret_cast<unsigned*>(workspace);
    kernel<<<dim3(shares, heads, static_cast<unsigned>(tokens)), kFewThreads, 0, stream>>>(
        weights, before_rope, after_rope, scores, score_stride, token_stride,
        workspace + kFew * heads, arrived);
  } else {
    const auto kernel = weights.head_dim == 128 ? GateKernel<128> : GateKernel<64>;
    const int bytes = (kTokens + 2 * kUnits) * 2 * weights.head_dim * 2;
    Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "cudaFuncSetAttribute");
    const dim3 grid(static_cast<unsigned>((tokens + kTokens - 1) / kTokens), heads);
    kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(
        weights, before_rope, after_rope, tokens, scores, score_stride, token_stride);
  }
  CheckLaunch("GateMlp");
}

}  // namespace stallcast::kernels
