// Cosines of queries with those of the step before. One block serves all rows, which are few, so
// that the flag over all of them needs neither a reset nor atomics.
#include <string>

#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int64_t kMaxHeads = 12 * 1024;  // whose cosines fit in shared memory

// The cosine of two vectors, on all lanes; 0 where one of them is zero.
__device__ float WarpCosine(const __nv_bfloat16* a, const __nv_bfloat16* b, int dim) {
  float ab = 0, aa = 0, bb = 0;
  for (int i = 2 * static_cast<int>(threadIdx.x % 32); i < dim; i += 64) {
    const float2 x = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(a + i));
    const float2 y = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(b + i));
    ab += x.x * y.x + x.y * y.y;
    aa += x.x * x.x + x.y * x.y;
    bb += y.x * y.x + y.y * y.y;
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    ab += __shfl_xor_sync(0xffffffffu, ab, offset);
    aa += __shfl_xor_sync(0xffffffffu, aa, offset);
    bb += __shfl_xor_sync(0xffffffffu, bb, offset);
  }
  return aa > 0 && bb > 0 ? ab / (sqrtf(aa) * sqrtf(bb)) : 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    QuerySimilarityKernel(const __nv_bfloat16* __restrict__ query,
                          const __nv_bfloat16* __restrict__ previous, int rows, int group,
                          int head_dim, float tau, float* __restrict__ similarity,
                          int32_t* __restrict__ flags, int32_t* __restrict__ any) {
  extern __shared__ float cosines[];
#pragma unroll 4
  for (int head = static_cast<int>(threadIdx.x / 32); head < rows * group; head += kThreads / 32) {
    const int64_t at = int64_t{head} * head_dim;
    const float cosine = WarpCosine(query + at, previous + at, head_dim);
    if (threadIdx.x % 32 == 0) cosines[head] = cosine;
  }
  __syncthreads();
  int drifted = 0;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads) {
    float sum = 0;
    for (int head = row * group; head < (row + 1) * group; ++head) sum += cosines[head];
    const float mean = sum / static_cast<float>(group);
    const int below = mean < tau ? 1 : 0;
    similarity[row] = mean;
    flags[row] = below;
    drifted |= below;
  }
  drifted = __syncthreads_or(drifted);
  if (threadIdx.x == 0) *any = drifted != 0 ? 1 : 0;
}

}  // namespace

void QuerySimilarity(const __nv_bfloat16* query, const __nv_bfloat16* previous, int32_t rows,
                     int32_t group, int32_t head_dim, float tau, float* similarity, int32_t* flags,
                     int32_t* any, cudaStream_t stream) {
  const int64_t heads = int64_t{rows} * group;
  if (heads > kMaxHeads) {
    throw Error(
        std::to_string(heads) + " query heads", "QuerySimilarity",
        "use a smaller batch: at most " + std::to_string(kMaxHeads) + " over all sequences");
  }
  const size_t shared = static_cast<size_t>(heads) * sizeof(float);
  QuerySimilarityKernel<<<1, kThreads, shared, stream>>>(query, previous, rows, group, head_dim,
                                                         tau, similarity, flags, any);
  CheckLaunch("QuerySimilarity");
}

}  // namespace stallcast::kernels
