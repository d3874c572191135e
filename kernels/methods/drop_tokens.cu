// WG-KV's eviction: where a row's keys lie, and compaction of its pages. A CTA moves a few channels
// of a row's keys or values, batch by batch of tokens: all are read before any is written, and no
// batch writes where a later one reads, for tokens only ever move towards the front.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/methods/page_marks.cuh"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kLanes = 4;  // 16 bytes each: a CTA's share of a token
constexpr int kTogether = kThreads / kLanes;
constexpr int kEach = 8;  // tokens of a thread in a batch

__device__ int64_t SlotOf(const GrowingRows& rows, int row, int token) {
  return rows.table[int64_t{row} * rows.max_pages + token / rows.cache.page_tokens];
}

__global__ void ListKernel(const GrowingRows rows, int oldest, int queries, int unseen,
                           const ObservedKeys keys) {
  const int row = static_cast<int>(blockIdx.y);
  const int key = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int length = rows.lengths[row], admitted = length - rows.window;
  if (key == 0) {
    keys.counts[row] = length;
    keys.admitted[row] = admitted;
  }
  if (key >= length) return;
  const int in_window = key - admitted;
  const int token = in_window < 0 ? rows.window + key : (oldest + in_window) % rows.window;
  const int64_t at = int64_t{row} * keys.stride + key;
  keys.places[at] = static_cast<int32_t>(SlotOf(rows, row, token) * rows.cache.page_tokens +
                                         token % rows.cache.page_tokens);
  keys.positions[at] = max(unseen, in_window < 0 ? 0 : in_window + 1 + queries - rows.window);
}

__global__ void __launch_bounds__(kThreads)
    DropKernel(const GrowingRows rows, const int32_t* __restrict__ dropped_of, int stride,
               const int32_t* __restrict__ count_of) {
  const int row = static_cast<int>(blockIdx.y);
  const int32_t* dropped = dropped_of + int64_t{row} * stride;
  const int admitted = rows.lengths[row] - rows.window;
  const int count = CountBelow(dropped, count_of[row], admitted);
  if (count == 0) return;
  const int kept = admitted - count;
  const PagedKv& cache = rows.cache;
  const int slices = cache.head_dim / (8 * kLanes);
  const auto slice = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  __nv_bfloat16* data = cache.data + slice / slices * cache.kv_stride +
                        (slice % slices * kLanes + thread % kLanes) * 8;
  const auto at = [&](int n) {
    const int token = rows.window + n;
    return reinterpret_cast<uint4*>(data + SlotOf(rows, row, token) * cache.slot_stride +
                                    token % cache.page_tokens * cache.token_stride);
  };
  // What stands before the first that is dropped stays there.
  for (int begin = dropped[0]; begin < kept; begin += kTogether * kEach) {
    uint4 moved[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int place = begin + i * kTogether + thread / kLanes;
      if (place < kept) moved[i] = *at(NthLeftOut(dropped, count, place));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int place = begin + i * kTogether + thread / kLanes;
      if (place < kept) *at(place) = moved[i];
    }
  }
}

__global__ void ShortenKernel(const GrowingRows rows, const int32_t* __restrict__ dropped,
                              int stride, const int32_t* __restrict__ count,
                              const PageMarks marks) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows.rows) return;
  const int length = rows.lengths[row] - CountBelow(dropped + int64_t{row} * stride, count[row],
                                                    rows.lengths[row] - rows.window);
  rows.lengths[row] = length;
  Mark(marks, row, length, rows.cache.page_tokens);
}

}  // namespace

void ListObservedKeys(const GrowingRows& rows, int32_t oldest, int32_t queries, int32_t unseen,
                      const ObservedKeys& keys, cudaStream_t stream) {
  if (queries > rows.window) {
    throw Error(std::to_string(queries) + " queries of a window of " + std::to_string(rows.window),
                "ListObservedKeys", "observe no more than the window");
  }
  if (rows.rows <= 0 || keys.stride <= 0) return;
  const dim3 grid(static_cast<unsigned>((keys.stride + 255) / 256),
                  static_cast<unsigned>(rows.rows));
  ListKernel<<<grid, 256, 0, stream>>>(rows, oldest, queries, unseen, keys);
  CheckLaunch("ListObservedKeys");
}

void DropTokens(const GrowingRows& rows, const int32_t* dropped, int32_t stride,
                const int32_t* count, const PageMarks& marks, cudaStream_t stream) {
  if (rows.cache.head_dim != 64 && rows.cache.head_dim != 128) {
    throw Error("a head dimension of " + std::to_string(rows.cache.head_dim), "DropTokens",
                "use 64 or 128");
  }
  if (rows.rows <= 0 || stride <= 0) return;
  const auto slices = static_cast<unsigned>(2 * rows.cache.head_dim / (8 * kLanes));
  DropKernel<<<dim3(slices, static_cast<unsigned>(rows.rows)), kThreads, 0, stream>>>(
      rows, dropped, stride, count);
  CheckLaunch("DropTokens");
  ShortenKernel<<<static_cast<unsigned>((rows.rows + 127) / 128), 128, 0, stream>>>(
      rows, dropped, stride, count, marks);
  CheckLaunch("DropTokens");
}

}  // namespace stallcast::kernels
