// A block a row or a line each. Plain, as operators of a framework are that know of no other.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>
#include <numeric>
#include <vector>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/upload.h"
#include "kernels/selection/selection.h"
#include "kernels/selection/selection_passes.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

/// The first place of a row's segment.
struct RowBegin {
  int units;
  __host__ __device__ int operator()(int row) const { return row * units; }
};

__device__ int64_t ListOf(const SelectUnitsArgs& args, int row) {
  return row / (args.heads / args.kv_heads);
}

// Tokens of a unit, none for one that the row does not have.
__device__ int SizeOf(const SelectUnitsArgs& args, int64_t list, int unit) {
  if (args.units_of != nullptr && unit >= args.units_of[list]) return 0;
  const int32_t* offsets = args.lists.offsets + list * args.lists.offsets_stride;
  return offsets[unit + 1] - offsets[unit];
}

template <class Combine>
__device__ float OverBlock(float value, Combine combine) {
  __shared__ float of_warp[kThreads / 32];
#pragma unroll
  for (int o = 16; o > 0; o /= 2) value = combine(value, __shfl_xor_sync(kAll, value, o));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warp[0];
  for (int i = 1; i < kThreads / 32; ++i) value = combine(value, of_warp[i]);
  return value;
}

__global__ void __launch_bounds__(kThreads)
    SoftmaxKernel(const SelectUnitsArgs args, float* weights) {
  const int row = static_cast<int>(blockIdx.x) / args.group;
  const int64_t list = ListOf(args, row);
  const float* scores = args.scores + int64_t{blockIdx.x} * args.units;
  weights += int64_t{blockIdx.x} * args.units;
  float max = -INFINITY;
  for (int u = static_cast<int>(threadIdx.x); u < args.units; u += kThreads) {
    if (SizeOf(args, list, u) > 0) max = fmaxf(max, scores[u] * args.scale);
  }
  max = OverBlock(max, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int u = static_cast<int>(threadIdx.x); u < args.units; u += kThreads) {
    const float weight = SizeOf(args, list, u) > 0 ? __expf(scores[u] * args.scale - max) : 0.0f;
    weights[u] = weight;
    sum += weight;
  }
  sum = OverBlock(sum, [](float a, float b) { return a + b; });
  for (int u = static_cast<int>(threadIdx.x); u < args.units; u += kThreads) {
    if (sum > 0) weights[u] /= sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    SizesKernel(const SelectUnitsArgs args, const int32_t* order, int32_t* sizes) {
  const int row = static_cast<int>(blockIdx.y);
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= args.units) return;
  const int64_t at = int64_t{row} * args.units + i;
  sizes[at] = SizeOf(args, ListOf(args, row), order[at] - row * args.units);
}

// ends[i] = sum of values[0 .. i], a block a row.
__global__ void __launch_bounds__(kThreads)
    RunningSumKernel(const int32_t* values, int units, int32_t* ends) {
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  values += int64_t{blockIdx.x} * units;
  ends += int64_t{blockIdx.x} * units;
  int before = 0;
  for (int first = 0; first < units; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    int value = i < units ? values[i] : 0, total;
    Scan(storage).InclusiveSum(value, value, total);
    if (i < units) ends[i] = before + value;
    before += total;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    FitKernel(const int32_t* sizes, const int32_t* ends, int64_t all, int budget, int32_t* taken,
              int64_t* count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  int take = 0;
  if (i < all) {
    take = max(0, min(sizes[i], budget - (ends[i] - sizes[i])));
    taken[i] = take;
  }
  const unsigned takers = __ballot_sync(kAll, take > 0);
  if (threadIdx.x % 32 == 0 && takers != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(count), __popc(takers));
  }
}

__global__ void __launch_bounds__(kThreads)
    ListKernel(const SelectUnitsArgs args, const int32_t* order, const int32_t* sizes,
               const int32_t* ends, const int32_t* taken) {
  __shared__ int units, tokens;
  const int row = static_cast<int>(blockIdx.x);
  const int64_t list = ListOf(args, row);
  const int head = row % args.heads * args.kv_heads / args.heads;
  const int64_t base = row / args.heads * args.pool_tokens;
  const int32_t* offsets = args.lists.offsets + list * args.lists.offsets_stride;
  const int32_t* members = args.lists.members + list * args.lists.members_stride;
  int32_t* ids = args.unit_ids + int64_t{row} * args.budget;
  int64_t* source = args.source + int64_t{row} * args.budget;
  order += int64_t{row} * args.units, sizes += int64_t{row} * args.units;
  ends += int64_t{row} * args.units, taken += int64_t{row} * args.units;
  if (threadIdx.x == 0) units = tokens = 0;
  __syncthreads();
  // Half a warp a unit.
  for (int i = static_cast<int>(threadIdx.x / 16); i < args.units; i += kThreads / 16) {
    if (taken[i] == 0) continue;
    const int lane = static_cast<int>(threadIdx.x % 16);
    const int begin = ends[i] - sizes[i], unit = order[i] - row * args.units;
    for (int t = lane; t < taken[i]; t += 16) {
      source[begin + t] = (base + members[offsets[unit] + t]) * args.kv_heads + head;
    }
    if (lane != 0) continue;
    ids[atomicAdd(&units, 1)] = unit;
    atomicAdd(&tokens, taken[i]);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    args.unit_count[row] = units;
    args.token_count[row] = tokens;
  }
}

// Segments of all rows: begins and ends.
auto Begins(int units) {
  return thrust::make_transform_iterator(thrust::make_counting_iterator(0), RowBegin{units});
}

void SortRows(void* workspace, size_t& bytes, const float* mean, float* sorted,
              const int32_t* numbers, int32_t* order, int rows, int units, cudaStream_t stream) {
  const auto begins = Begins(units);
  Check(cub::DeviceSegmentedRadixSort::SortPairsDescending(workspace, bytes, mean, sorted, numbers,
                                                           order, rows * units, rows, begins,
                                                           begins + 1, 0, 32, stream),
        "cub::DeviceSegmentedRadixSort::SortPairsDescending");
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

SelectionPasses::SelectionPasses(int32_t rows, int32_t group, int32_t units)
    : weights_(int64_t{rows} * group * units),
      mean_(int64_t{rows} * units),
      sorted_(mean_.size()),
      order_(mean_.size()),
      sizes_(mean_.size()),
      ends_(mean_.size()),
      taken_(mean_.size()),
      count_(1) {
  std::vector<int32_t> numbers(static_cast<size_t>(mean_.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  numbers_ = Uploaded(numbers);
  size_t bytes = 0;
  SortRows(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, rows, units, nullptr);
  sort_ = Buffer<char>(static_cast<int64_t>(std::max<size_t>(bytes, 1)));
}

void SelectionPasses::Softmax(const SelectUnitsArgs& args, cudaStream_t stream) {
  SoftmaxKernel<<<static_cast<unsigned>(args.rows * args.group), kThreads, 0, stream>>>(
      args, weights_.get());
  CheckLaunch("SelectionPasses::Softmax");
}

void SelectionPasses::Mean(const SelectUnitsArgs& args, cudaStream_t stream) {
  MeanOverRows(weights_.get(), args.rows, args.group, args.units, mean_.get(), stream);
}

void SelectionPasses::Sort(const SelectUnitsArgs& args, cudaStream_t stream) {
  auto bytes = static_cast<size_t>(sort_.bytes());
  SortRows(sort_.get(), bytes, mean_.get(), sorted_.get(), numbers_.get(), order_.get(), args.rows,
           args.units, stream);
}

void SelectionPasses::Sizes(const SelectUnitsArgs& args, cudaStream_t stream) {
  SizesKernel<<<dim3(Blocks(args.units), static_cast<unsigned>(args.rows)), kThreads, 0, stream>>>(
      args, order_.get(), sizes_.get());
  CheckLaunch("SelectionPasses::Sizes");
}

void SelectionPasses::RunningSum(const SelectUnitsArgs& args, cudaStream_t stream) {
  RunningSumKernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(
      sizes_.get(), args.units, ends_.get());
  CheckLaunch("SelectionPasses::RunningSum");
}

void SelectionPasses::Fit(const SelectUnitsArgs& args, cudaStream_t stream) {
  const int64_t all = int64_t{args.rows} * args.units;
  Check(cudaMemsetAsync(count_.get(), 0, sizeof(int64_t), stream), "cudaMemsetAsync");
  FitKernel<<<Blocks(all), kThreads, 0, stream>>>(sizes_.get(), ends_.get(), all, args.budget,
                                                  taken_.get(), count_.get());
  CheckLaunch("SelectionPasses::Fit");
}

void SelectionPasses::List(const SelectUnitsArgs& args, cudaStream_t stream) {
  ListKernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(
      args, order_.get(), sizes_.get(), ends_.get(), taken_.get());
  CheckLaunch("SelectionPasses::List");
}

}  // namespace stallcast::kernels
