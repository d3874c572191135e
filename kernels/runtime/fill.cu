#include <algorithm>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;

__device__ uint64_t Mix(uint64_t x) {  // the finalizer of splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__global__ void FillRandomKernel(__nv_bfloat16* values, int64_t count, float range, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    const auto unit = static_cast<float>(Mix(seed ^ Mix(i)) >> 40) * 0x1p-23f - 1;
    values[i] = __float2bfloat16(range * unit);
  }
}

__global__ void FillScoresKernel(float* scores, int64_t count, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    // Four uniform numbers of 16 bits add up to what is about normal, of deviation 2^16 / sqrt(3).
    const uint64_t bits = Mix(seed ^ Mix(i));
    uint32_t sum = 0;
    for (int part = 0; part < 4; ++part)
      sum += static_cast<uint32_t>(bits >> (16 * part)) & 0xffffu;
    scores[i] = expf(1.7320508F * (static_cast<float>(sum) * 0x1p-16F - 2));
  }
}

unsigned Blocks(int64_t count) {
  return static_cast<unsigned>(std::min<int64_t>((count + kThreads - 1) / kThreads, 8192));
}

/// A thread copies 8 channels of a key or a value.
__device__ void CopyToken(const SequenceKv& source, int64_t token, int32_t head, bool value,
                          int32_t channel, const PagedKv& cache, int64_t slot) {
  const __nv_bfloat16* from = (value ? source.values : source.keys) +
                              (head % source.heads * source.tokens + token) * cache.head_dim +
                              channel;
  __nv_bfloat16* to = cache.data + slot * cache.slot_stride + (value ? cache.kv_stride : 0) +
                      token % cache.page_tokens * cache.token_stride + head * cache.head_stride +
                      channel;
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
}

/// blockIdx.y: key or value of a head.
__global__ void FillTokensKernel(SequenceKv source, int64_t first, int64_t count, PagedKv cache,
                                 const int32_t* slot_of) {
  const int32_t chunks = cache.head_dim / 8;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t token = first + index / chunks;
  if (token >= first + count) return;
  CopyToken(source, token, static_cast<int32_t>(blockIdx.y / 2), blockIdx.y % 2 != 0,
            static_cast<int32_t>(index % chunks) * 8, cache, slot_of[token / cache.page_tokens]);
}

/// blockIdx.y: key or value of a head; blockIdx.x: the page.
__global__ void FillPagesKernel(SequenceKv source, const int32_t* pages, const int32_t* slots,
                                PagedKv cache) {
  const auto head = static_cast<int32_t>(blockIdx.y / 2);
  const int64_t entry = int64_t{head} * gridDim.x + blockIdx.x;
  const int64_t page = pages[entry];
  if (page < 0) return;
  const int32_t chunks = cache.head_dim / 8;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < cache.page_tokens * chunks;
       i += kThreads) {
    CopyToken(source, page * cache.page_tokens + i / chunks, head, blockIdx.y % 2 != 0,
              i % chunks * 8, cache, slots[entry]);
  }
}

}  // namespace

void FillRandom(__nv_bfloat16* values, int64_t count, float range, uint64_t seed,
                cudaStream_t stream) {
  if (count <= 0) return;
  FillRandomKernel<<<Blocks(count), kThreads, 0, stream>>>(values, count, range, seed);
  CheckLaunch("FillRandom");
}

void FillScores(float* scores, int64_t count, uint64_t seed, cudaStream_t stream) {
  if (count <= 0) return;
  FillScoresKernel<<<Blocks(count), kThreads, 0, stream>>>(scores, count, seed);
  CheckLaunch("FillScores");
}

void FillTokens(const SequenceKv& source, int64_t first_token, int64_t count, const PagedKv& cache,
                const int32_t* slot_of, cudaStream_t stream) {
  if (count <= 0) return;
  const int64_t chunks = count * (cache.head_dim / 8);
  const dim3 grid(static_cast<unsigned>((chunks + kThreads - 1) / kThreads),
                  static_cast<unsigned>(2 * cache.kv_heads));
  FillTokensKernel<<<grid, kThreads, 0, stream>>>(source, first_token, count, cache, slot_of);
  CheckLaunch("FillTokens");
}

void FillPages(const SequenceKv& source, const int32_t* pages, const int32_t* slots, int32_t count,
               const PagedKv& cache, cudaStream_t stream) {
  if (count <= 0) return;
  const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(2 * cache.kv_heads));
  FillPagesKernel<<<grid, kThreads, 0, stream>>>(source, pages, slots, cache);
  CheckLaunch("FillPages");
}

}  // namespace stallcast::kernels
