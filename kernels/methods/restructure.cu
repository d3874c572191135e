// A token's place follows from the places moved to the front: no permutation is stored.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/device/page_runs.cuh"
#include "kernels/methods/restructure.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockTokens = 64;

// The place that token `i` of the new order had: the first ones as listed, then those between.
__device__ int PlaceBefore(const int32_t* first, int count, int i) {
  if (i < count) return first[i];
  return NthLeftOut(first, count, i - count);
}

__global__ void __launch_bounds__(kThreads)
    RestructureKernel(RunAddress from, RunAddress to, const int32_t* first, int count, int tokens,
                      int pieces) {
  __shared__ int places[kBlockTokens];
  const int row = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * kBlockTokens;
  const int here = min(kBlockTokens, tokens - begin);
  if (static_cast<int>(threadIdx.x) < here) {
    places[threadIdx.x] =
        PlaceBefore(first + int64_t{row} * count, count, begin + static_cast<int>(threadIdx.x));
  }
  __syncthreads();
  // A row of 16-byte pieces each of key and value.
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < here * 2 * pieces; i += kThreads) {
    const int token = i / (2 * pieces), piece = i % (2 * pieces);
    const bool value = piece >= pieces;
    const auto source = static_cast<uint32_t>(places[token]);
    const auto target = static_cast<uint32_t>(begin + token);
    const auto* a = value ? from.Value(row, source) : from.Key(row, source);
    auto* b = value ? to.Value(row, target) : to.Key(row, target);
    reinterpret_cast<uint4*>(b)[piece % pieces] =
        __ldcs(reinterpret_cast<const uint4*>(a) + piece % pieces);
  }
}

}  // namespace

void Restructure(const PageRuns& from, const PageRuns& to, const int32_t* first, int32_t count,
                 int32_t rows, int32_t tokens, cudaStream_t stream) {
  const int dim = from.cache.head_dim;
  if (dim % 8 != 0 || dim < 8 || dim != to.cache.head_dim || count > tokens) {
    throw Error("heads of " + std::to_string(dim) + " channels to " +
                    std::to_string(to.cache.head_dim) + ", " + std::to_string(count) + " of " +
                    std::to_string(tokens) + " tokens to the front",
                "Restructure", "use one head dimension that is a multiple of 8");
  }
  if (rows <= 0 || tokens <= 0) return;
  const dim3 grid(static_cast<unsigned>((tokens + kBlockTokens - 1) / kBlockTokens),
                  static_cast<unsigned>(rows));
  RestructureKernel<<<grid, kThreads, 0, stream>>>(RunAddress(from), RunAddress(to), first, count,
                                                   tokens, dim / 8);
  CheckLaunch("Restructure");
}

}  // namespace stallcast::kernels
