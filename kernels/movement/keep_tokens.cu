#include <algorithm>
#include <string>

#include "kernels/device/vector.cuh"
#include "kernels/movement/keep_tokens.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 256;

/// A token's key or value of a head.
__device__ __nv_bfloat16* At(const PagedKv& cache, int64_t slot, int64_t place, int kv, int head) {
  return cache.data + slot * cache.slot_stride + kv * cache.kv_stride + place * cache.token_stride +
         head * cache.head_stride;
}

/// Where a kept token of a sequence comes from and goes to: a page of each and the place in it.
struct Move {
  int64_t from_page, from_place, to_slot, to_place;
};

struct PageMoves {
  KeptPages kept;
  int32_t page_tokens, kv_heads;

  __device__ Move Of(int sequence, int head, int64_t token) const {
    const auto index = static_cast<int32_t>(token / page_tokens);
    const int64_t place = token % page_tokens;
    const int32_t chosen_end = kept.sink + kept.chosen;
    if (index < kept.sink) return {index, place, index, place};
    if (index < chosen_end) {
      const int64_t set = int64_t{sequence} * kept.sets + (kept.sets == 1 ? 0 : head);
      return {kept.sink + kept.units[set * kept.chosen + index - kept.sink], place, index, place};
    }
    const int32_t page = kept.first_window + index - chosen_end;
    return {page, place, chosen_end + page % kept.window, place};
  }
};

struct RingMoves {
  KeptRing kept;
  int32_t from_page_tokens, to_page_tokens;

  __device__ Move Of(int /*sequence*/, int /*head*/, int64_t place) const {
    int64_t token = place;
    if (place >= kept.sink && kept.tokens > kept.sink + kept.window) {
      const int64_t first = kept.tokens - kept.window;
      const int64_t ahead = (place - first) % kept.window;
      token = first + (ahead < 0 ? ahead + kept.window : ahead);
    }
    return {token / from_page_tokens, token % from_page_tokens, place / to_page_tokens,
            place % to_page_tokens};
  }
};

/// A thread moves 16 bytes; neighbours move the same token's.
template <class Moves>
__global__ void __launch_bounds__(kThreads)
    KeepKernel(PagedKv prompt, int32_t prompt_pages, PagedKv cache, int32_t cache_slots,
               Moves moves, int64_t tokens) {
  const int vectors = cache.head_dim / 8;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int channel = static_cast<int>(index % vectors) * 8;
  const int64_t row = index / vectors;
  const int head = static_cast<int>(row % cache.kv_heads);
  const int kv = static_cast<int>(row / cache.kv_heads % 2);
  const int64_t token = row / cache.kv_heads / 2;
  if (token >= tokens) return;
  const auto sequence = static_cast<int>(blockIdx.y);
  const Move move = moves.Of(sequence, head, token);
  const int64_t from = int64_t{sequence} * prompt_pages + move.from_page;
  const int64_t to = int64_t{sequence} * cache_slots + move.to_slot;
  Store8(At(cache, to, move.to_place, kv, head) + channel,
         Load8(At(prompt, from, move.from_place, kv, head) + channel));
}

template <class Moves>
void Keep(const PagedKv& prompt, int32_t prompt_pages, const PagedKv& cache, int32_t cache_slots,
          const Moves& moves, int64_t tokens, int32_t sequences, cudaStream_t stream) {
  if (cache.head_dim < 8 || cache.head_dim % 8 != 0) {
    throw Error("heads of " + std::to_string(cache.head_dim), "KeepTokens",
                "use a head dimension that is a multiple of 8");
  }
  const int64_t threads = tokens * 2 * cache.kv_heads * (cache.head_dim / 8);
  if (threads <= 0 || sequences <= 0) return;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  KeepKernel<<<dim3(blocks, static_cast<unsigned>(sequences)), kThreads, 0, stream>>>(
      prompt, prompt_pages, cache, cache_slots, moves, tokens);
  CheckLaunch("KeepTokens");
}

}  // namespace

void KeepPages(const PagedKv& prompt, int32_t prompt_pages, const KeptPages& kept,
               const PagedKv& cache, int32_t sequences, cudaStream_t stream) {
  const int64_t pages = int64_t{kept.sink} + kept.chosen + kept.pages - kept.first_window;
  Keep(prompt, prompt_pages, cache, kept.sink + kept.chosen + kept.window,
       PageMoves{kept, cache.page_tokens, cache.kv_heads}, pages * cache.page_tokens, sequences,
       stream);
}

void KeepRing(const PagedKv& prompt, int32_t prompt_pages, const KeptRing& kept,
              const PagedKv& cache, int32_t cache_pages, int32_t sequences, cudaStream_t stream) {
  Keep(prompt, prompt_pages, cache, cache_pages,
       RingMoves{kept, prompt.page_tokens, cache.page_tokens},
       std::min(kept.tokens, kept.sink + kept.window), sequences, stream);
}

}  // namespace stallcast::kernels
