// Filling device memory with what a run or a measurement starts from: random weights and scores, a
// trace's keys and values.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// values[i] uniform in [-range, range], a function of i and seed alone.
void FillRandom(__nv_bfloat16* values, int64_t count, float range, uint64_t seed,
                cudaStream_t stream);

/// Positive and of several magnitudes, their logarithms about normal, as page scores are behind a
/// softmax; a function of i and seed alone.
void FillScores(float* scores, int64_t count, uint64_t seed, cudaStream_t stream);

/// Keys and values of a sequence, [head][tokens][head_dim].
struct SequenceKv {
  const __nv_bfloat16* keys = nullptr;
  const __nv_bfloat16* values = nullptr;
  int32_t heads = 0;
  int64_t tokens = 0;
};

/// The same as if its tokens were numbered `by` more: of a cache whose places are not the tokens'
/// numbers.
inline SequenceKv Renumbered(SequenceKv kv, int64_t by, int32_t head_dim) {
  kv.keys -= by * head_dim;
  kv.values -= by * head_dim;
  return kv;
}

/// Copies tokens first_token .. first_token + count - 1 into a cache: token t goes to place t %
/// page_tokens of slot_of[t / page_tokens]; head h of the cache is head h % source.heads.
void FillTokens(const SequenceKv& source, int64_t first_token, int64_t count, const PagedKv& cache,
                const int32_t* slot_of, cudaStream_t stream);

/// Copies whole pages head by head: for each head h of the cache and i < count, page
/// pages[h * count + i] of the source goes to slots[h * count + i]. Negative pages are left out.
void FillPages(const SequenceKv& source, const int32_t* pages, const int32_t* slots, int32_t count,
               const PagedKv& cache, cudaStream_t stream);

}  // namespace stallcast::kernels
