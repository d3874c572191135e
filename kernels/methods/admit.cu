// WG-KV: admitted keys and values to their heads' pages, in order. One kernel counts what each part
// of a row admits; with the counts of the parts before it a CTA of the second knows where its own
// go. Rows of one part, a step's promotions above all, take the second kernel alone.
#include <string>

#include "kernels/device/block_scan.cuh"
#include "kernels/methods/page_marks.cuh"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPart = 1024;  // tokens of a CTA
constexpr int kEach = kPart / kThreads;

int Parts(int tokens) { return (tokens + kPart - 1) / kPart; }

__global__ void __launch_bounds__(kThreads)
    CountKernel(const float* __restrict__ scores, int64_t score_stride, int tokens, float threshold,
                int32_t* __restrict__ counts) {
  __shared__ uint32_t scratch[32];
  const int row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kPart;
  uint32_t mine = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int token = first + i * kThreads + static_cast<int>(threadIdx.x);
    mine += token < tokens && scores[row * score_stride + token] >= threshold ? 1 : 0;
  }
  uint32_t total;
  BlockExclusiveSum(mine, scratch, total);
  if (threadIdx.x == 0) counts[row * gridDim.x + blockIdx.x] = static_cast<int32_t>(total);
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads)
    AdmitKernel(const TokenView view, const float* __restrict__ scores, int64_t score_stride,
                int tokens, float threshold, const PagedKv cache, const int32_t* __restrict__ table,
                int max_pages, int32_t* lengths, const AdmittedTokens list,
                const int32_t* __restrict__ counts, const PageMarks marks) {
  __shared__ uint32_t scratch[32];
  __shared__ int32_t chosen[kPart];
  __shared__ int before_all;
  const int row = static_cast<int>(blockIdx.y);
  const int part = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t before = 0;
  for (int p = thread; p < part; p += kThreads) before += counts[row * gridDim.x + p];
  uint32_t total;
  BlockExclusiveSum(before, scratch, total);
  if (thread == 0) before_all = static_cast<int>(total);
  __syncthreads();
  const int begin = before_all;
  const int length = lengths[row];
  // A thread has kEach tokens in a row, so that what it keeps is in order.
  bool keep[kEach];
  uint32_t mine = 0;
  const int first = part * kPart + thread * kEach;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    keep[i] = first + i < tokens && scores[row * score_stride + first + i] >= threshold;
    mine += keep[i] ? 1 : 0;
    if (list.flags != nullptr && first + i < tokens) {
      list.flags[row * list.stride + first + i] = keep[i] ? 1 : 0;
    }
  }
  uint32_t at = BlockExclusiveSum(mine, scratch, total);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (!keep[i]) continue;
    if (list.numbers != nullptr) list.numbers[row * list.stride + begin + at] = first + i;
    chosen[at++] = first + i;
  }
  __syncthreads();
  // Where a row is one part, nobody else needs its length.
  if (gridDim.x == 1 && thread == 0) {
    lengths[row] = length + static_cast<int>(total);
    if (list.counts != nullptr) list.counts[row] = static_cast<int>(total);
    Mark(marks, row, length + static_cast<int>(total), cache.page_tokens);
  }
  constexpr int kTogether = 2 * kLanes;
  const int lane = thread % kTogether;
  const bool value = lane >= kLanes;
  for (int i = thread / kTogether; i < static_cast<int>(total); i += kThreads / kTogether) {
    const __nv_bfloat16* from = view.data + row * view.row_stride +
                                int64_t{chosen[i]} * view.token_stride +
                                (value ? view.value_offset : 0);
    const int place = length + begin + i;
    const int64_t slot = table[int64_t{row} * max_pages + place / cache.page_tokens];
    __nv_bfloat16* to = cache.data + slot * cache.slot_stride +
                        place % cache.page_tokens * cache.token_stride +
                        (value ? cache.kv_stride : 0);
    __stcs(reinterpret_cast<uint4*>(to) + lane % kLanes,
           __ldcs(reinterpret_cast<const uint4*>(from) + lane % kLanes));
  }
}

__global__ void LengthsKernel(const int32_t* __restrict__ counts, int parts, int rows,
                              int32_t* __restrict__ lengths, int32_t* __restrict__ admitted,
                              int page_tokens, const PageMarks marks) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= rows) return;
  int total = 0;
  for (int p = 0; p < parts; ++p) total += counts[row * parts + p];
  if (admitted != nullptr) admitted[row] = total;
  total += lengths[row];
  lengths[row] = total;
  Mark(marks, row, total, page_tokens);
}

}  // namespace

int64_t AdmitWorkspace(int32_t rows, int32_t tokens) { return int64_t{rows} * Parts(tokens); }

void Admit(const TokenView& tokens_view, const float* scores, int64_t score_stride, int32_t rows,
           int32_t tokens, float threshold, const PagedKv& cache, const int32_t* table,
           int32_t max_pages, int32_t* lengths, const AdmittedTokens& list, int32_t* workspace,
           cudaStream_t stream, const PageMarks& marks) {
  if (cache.head_dim != 64 && cache.head_dim != 128) {
    throw Error("a head dimension of " + std::to_string(cache.head_dim), "Admit", "use 64 or 128");
  }
  if (rows <= 0 || tokens <= 0) return;
  const dim3 grid(static_cast<unsigned>(Parts(tokens)), static_cast<unsigned>(rows));
  const bool one_part = Parts(tokens) == 1;
  if (!one_part) {
    CountKernel<<<grid, kThreads, 0, stream>>>(scores, score_stride, tokens, threshold, workspace);
    CheckLaunch("Admit");
  }
  const auto kernel = cache.head_dim == 128 ? AdmitKernel<16> : AdmitKernel<8>;
  kernel<<<grid, kThreads, 0, stream>>>(tokens_view, scores, score_stride, tokens, threshold, cache,
                                        table, max_pages, lengths, list, workspace, marks);
  CheckLaunch("Admit");
  if (one_part) return;
  LengthsKernel<<<static_cast<unsigned>((rows + 127) / 128), 128, 0, stream>>>(
      workspace, Parts(tokens), rows, lengths, list.counts, cache.page_tokens, marks);
  CheckLaunch("Admit");
}

}  // namespace stallcast::kernels
