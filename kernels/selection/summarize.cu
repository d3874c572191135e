// Page summaries: a warp reduces a page of one KV head, 16 bytes a lane.
#include <string>

#include "kernels/device/vector.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kChannels = 8;  // of a lane: 16 bytes of bf16
constexpr unsigned kAll = 0xffffffffu;

struct Channels {
  float value[kChannels];
};

__device__ Channels Load(const __nv_bfloat16* from) {
  const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(from));
  Channels out;
  ToFloat(reinterpret_cast<const Bf16x8&>(raw), out.value);
  return out;
}

__device__ void Store(const Channels& values, __nv_bfloat16* to) {
  Store8(to, ToBf16(values.value));
}

// Combines the lanes that hold the same channels of different tokens.
template <int kLanes, class Combine>
__device__ void ReduceOverTokens(Channels& values, Combine combine) {
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
    for (float& value : values.value) {
      value = combine(value, __shfl_xor_sync(kAll, value, offset));
    }
  }
}

struct Shape {
  int32_t max_pages, first_page, pages, rows, summary_pages;
  const int32_t* first_page_of;  // by row; null: first_page
  const int32_t* last_page_of;   // by row; null: all pages
};

template <int kDim, SummaryKind kKind>
__global__ void __launch_bounds__(kWarps * 32)
    SummarizeKernel(PagedKv cache, const int32_t* __restrict__ slots, Shape shape,
                    __nv_bfloat16* __restrict__ summaries) {
  constexpr int kLanes = kDim / kChannels;  // that share a token
  constexpr int kTokens = 32 / kLanes;      // that a warp reads at once
  const int64_t task = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (task >= int64_t{shape.rows} * shape.pages) return;
  const int row = static_cast<int>(task / shape.pages);
  const int page = (shape.first_page_of == nullptr ? shape.first_page : shape.first_page_of[row]) +
                   static_cast<int>(task % shape.pages);
  if (page < 0 || (shape.last_page_of != nullptr && page > shape.last_page_of[row])) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int channel = lane % kLanes * kChannels;
  const int first = lane / kLanes;
  const int64_t slot = slots[int64_t{row} * shape.max_pages + page];
  const __nv_bfloat16* keys =
      cache.data + slot * cache.slot_stride + row % cache.kv_heads * cache.head_stride + channel;
  const float inverse_tokens = 1.0f / static_cast<float>(cache.page_tokens);
  constexpr int kVectors = kKind == SummaryKind::kMean ? 1 : 2;
  __nv_bfloat16* out =
      summaries + (int64_t{row} * shape.summary_pages + page) * kVectors * kDim + channel;

  if constexpr (kKind == SummaryKind::kMean) {
    Channels sum = {};
#pragma unroll 8
    for (int t = first; t < cache.page_tokens; t += kTokens) {
      const Channels key = Load(keys + t * cache.token_stride);
#pragma unroll
      for (int i = 0; i < kChannels; ++i) sum.value[i] += key.value[i];
    }
    ReduceOverTokens<kLanes>(sum, [](float a, float b) { return a + b; });
#pragma unroll
    for (float& value : sum.value) value *= inverse_tokens;
    if (first == 0) Store(sum, out);
  } else {
    Channels low, high;
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      low.value[i] = INFINITY;
      high.value[i] = -INFINITY;
    }
#pragma unroll 8
    for (int t = first; t < cache.page_tokens; t += kTokens) {
      const Channels key = Load(keys + t * cache.token_stride);
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        low.value[i] = fminf(low.value[i], key.value[i]);
        high.value[i] = fmaxf(high.value[i], key.value[i]);
      }
    }
    ReduceOverTokens<kLanes>(low, [](float a, float b) { return fminf(a, b); });
    ReduceOverTokens<kLanes>(high, [](float a, float b) { return fmaxf(a, b); });

    if constexpr (kKind == SummaryKind::kCuboidMean) {
      // The keys are read once more, from a cache.
      Channels centre, radius = {};
#pragma unroll
      for (int i = 0; i < kChannels; ++i) centre.value[i] = (high.value[i] + low.value[i]) / 2;
#pragma unroll 8
      for (int t = first; t < cache.page_tokens; t += kTokens) {
        const Channels key = Load(keys + t * cache.token_stride);
#pragma unroll
        for (int i = 0; i < kChannels; ++i)
          radius.value[i] += fabsf(centre.value[i] - key.value[i]);
      }
      ReduceOverTokens<kLanes>(radius, [](float a, float b) { return a + b; });
#pragma unroll
      for (int i = 0; i < kChannels; ++i) {
        low.value[i] = centre.value[i] - radius.value[i] * inverse_tokens;
        high.value[i] = centre.value[i] + radius.value[i] * inverse_tokens;
      }
    }
    if (first == 0) {
      Store(low, out);
      Store(high, out + kDim);
    }
  }
}

template <int kDim>
void Launch(SummaryKind kind, const PagedKv& cache, const int32_t* slots, const Shape& shape,
            __nv_bfloat16* summaries, cudaStream_t stream) {
  const int64_t tasks = int64_t{shape.rows} * shape.pages;
  const auto blocks = static_cast<unsigned>((tasks + kWarps - 1) / kWarps);
  constexpr int kThreads = kWarps * 32;
  switch (kind) {
    case SummaryKind::kMinMax:
      SummarizeKernel<kDim, SummaryKind::kMinMax>
          <<<blocks, kThreads, 0, stream>>>(cache, slots, shape, summaries);
      break;
    case SummaryKind::kCuboidMean:
      SummarizeKernel<kDim, SummaryKind::kCuboidMean>
          <<<blocks, kThreads, 0, stream>>>(cache, slots, shape, summaries);
      break;
    case SummaryKind::kMean:
      SummarizeKernel<kDim, SummaryKind::kMean>
          <<<blocks, kThreads, 0, stream>>>(cache, slots, shape, summaries);
      break;
  }
  CheckLaunch("Summarize");
}

}  // namespace

void Summarize(SummaryKind kind, const PagedKv& cache, const int32_t* slots, int32_t max_pages,
               int32_t first_page, int32_t pages, int32_t rows, __nv_bfloat16* summaries,
               int32_t summary_pages, cudaStream_t stream, const int32_t* first_page_of,
               const int32_t* last_page_of) {
  if (pages <= 0 || rows <= 0) return;
  const Shape shape{max_pages, first_page, pages, rows, summary_pages, first_page_of, last_page_of};
  switch (cache.head_dim) {
    case 64:
      return Launch<64>(kind, cache, slots, shape, summaries, stream);
    case 128:
      return Launch<128>(kind, cache, slots, shape, summaries, stream);
    case 256:
      return Launch<256>(kind, cache, slots, shape, summaries, stream);
    default:
      throw Error("heads of " + std::to_string(cache.head_dim) + " channels", "Summarize",
                  "use a model whose heads have 64, 128 or 256");
  }
}

}  // namespace stallcast::kernels
