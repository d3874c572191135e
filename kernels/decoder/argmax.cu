#include <cooperative_groups.h>

#include <cstdint>
#include <string>

#include "kernels/decoder/decoder.h"
#include "kernels/device/vector.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kLoads = 4;
constexpr int kClusterBlocks = 8;

/// The largest logit seen; NaN never wins, equal logits go to the smaller index.
struct Best {
  float logit = -INFINITY;
  int32_t index = INT32_MAX;
  __device__ void Take(float other, int32_t other_index) {
    if (other > logit || (other == logit && other_index < index)) {
      logit = other;
      index = other_index;
    }
  }
};

__device__ Best WarpBest(Best best) {
  for (int lane = 16; lane > 0; lane /= 2) {
    const float logit = __shfl_xor_sync(~0u, best.logit, lane);
    const int32_t index = __shfl_xor_sync(~0u, best.index, lane);
    best.Take(logit, index);
  }
  return best;
}

__device__ Best BlockBest(Best best) {
  __shared__ Best of_warp[kThreads / 32];
  best = WarpBest(best);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  return threadIdx.x < 32 ? WarpBest(of_warp[threadIdx.x]) : Best();
}

/// `parts` blocks a row: one, or a cluster, whose blocks hand their results to its first.
__global__ void __launch_bounds__(kThreads)
    ArgMaxKernel(const __nv_bfloat16* logits, int32_t vocabulary, uint32_t parts, int32_t* token) {
  const uint32_t part = blockIdx.x % parts;
  const int64_t row = blockIdx.x / parts;
  const __nv_bfloat16* first = logits + row * vocabulary;
  const int stride = static_cast<int>(parts) * kThreads;
  const int start = static_cast<int>(part) * kThreads + static_cast<int>(threadIdx.x);
  Best best;
  const int vectors = vocabulary % 8 == 0 ? vocabulary / 8 : 0;
  for (int tile = start; tile < vectors; tile += stride * kLoads) {
    Bf16x8 packed[kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int vector = tile + load * stride;
      if (vector < vectors) packed[load] = Load8(first + int64_t{vector} * 8);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int vector = tile + load * stride;
      if (vector >= vectors) break;
      float values[8];
      ToFloat(packed[load], values);
#pragma unroll
      for (int i = 0; i < 8; ++i) best.Take(values[i], vector * 8 + i);
    }
  }
  for (int index = vectors * 8 + start; index < vocabulary; index += stride) {
    best.Take(__bfloat162float(first[index]), index);
  }
  best = BlockBest(best);
#if __CUDA_ARCH__ >= 900
  if (parts > 1) {
    __shared__ Best of_block[kClusterBlocks];
    const auto cluster = cooperative_groups::this_cluster();
    // Shared memory of a block that has not started must not be written.
    cluster.sync();
    if (threadIdx.x == 0) *cluster.map_shared_rank(&of_block[part], 0) = best;
    cluster.sync();
    if (part != 0) return;
    for (uint32_t i = 0; i < parts; ++i) best.Take(of_block[i].logit, of_block[i].index);
  }
#endif
  if (threadIdx.x == 0) token[row] = best.index == INT32_MAX ? 0 : best.index;
}

/// Whether the code in use was compiled for clusters: what the driver makes of an older
/// architecture's was not, whatever the device.
bool HasClusters() {
  static const bool compiled = [] {
    cudaFuncAttributes attributes{};
    Check(cudaFuncGetAttributes(&attributes, ArgMaxKernel), "cudaFuncGetAttributes");
    return attributes.ptxVersion >= 90;
  }();
  return compiled && DeviceAttribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

/// A cluster (sm_90) a row while there are fewer rows than multiprocessors: a row as large as a
/// vocabulary is much for one.
uint32_t BlocksOfARow(int64_t rows, int32_t vocabulary) {
  const bool worthwhile =
      vocabulary > 8 * kThreads &&
      rows * kClusterBlocks <= DeviceAttribute(cudaDevAttrMultiProcessorCount) && HasClusters();
  return worthwhile ? kClusterBlocks : 1;
}

}  // namespace

void ArgMax(const __nv_bfloat16* logits, int64_t rows, int32_t vocabulary, int32_t* token,
            cudaStream_t stream) {
  if (vocabulary < 1 || rows < 0 || rows > INT32_MAX / kClusterBlocks) {
    throw Error(std::to_string(rows) + " rows of " + std::to_string(vocabulary) + " logits",
                "ArgMax", "use at least one logit a row");
  }
  if (rows == 0) return;
  const uint32_t parts = BlocksOfARow(rows, vocabulary);
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {parts, 1, 1};
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(static_cast<unsigned>(rows) * parts);
  launch.blockDim = dim3(kThreads);
  launch.stream = stream;
  launch.attrs = &cluster;
  launch.numAttrs = parts > 1 ? 1 : 0;
  Check(cudaLaunchKernelEx(&launch, ArgMaxKernel, logits, vocabulary, parts, token), "ArgMax");
}

}  // namespace stallcast::kernels
