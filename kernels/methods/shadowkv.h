// ShadowKV's kernels: what stands for a chunk, low-rank factors of the keys, and what a selection
// brings: values from the host, keys made from the factors.
//
// A row is a (sequence, KV head): row = sequence * kv_heads + head. A chunk is `chunk` tokens that
// follow one another. Head dimensions are 64 or 128, data is 16-byte aligned; else: Error.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/runtime/token_view.h"

namespace stallcast::kernels {

/// Of each of `chunks` chunks of each row of `keys`: the mean key, landmarks
/// [row][chunks][head_dim] bf16, and the least cosine of one of its keys with that mean before
/// rounding, cohesion [row][chunks].
void SummarizeChunks(const TokenView& keys, int32_t rows, int32_t chunks, int32_t chunk,
                     int32_t head_dim, __nv_bfloat16* landmarks, float* cohesion,
                     cudaStream_t stream);

/// Leaves out of each row the `outliers` chunks outlier[row][outliers], ascending, and keeps the
/// first `candidates` of the others: their numbers go to chunk_of [row][candidates], their
/// landmarks, of landmarks [row][chunks][head_dim], to kept [row][candidates][head_dim].
void KeepCandidates(const __nv_bfloat16* landmarks, int32_t chunks, const int32_t* outlier,
                    int32_t outliers, int32_t rows, int32_t candidates, int32_t head_dim,
                    int32_t* chunk_of, __nv_bfloat16* kept, cudaStream_t stream);

/// What a selection brings, as AssignSlots() writes it: row r misses count[r] <= k candidates
/// unit[r * k + i], whose chunk is chunk_of[r * candidates + unit], and which go to tokens
/// at + slot[r * k + i] * chunk and on of row r of the cache.
struct MissedChunks {
  const int32_t* unit = nullptr;
  const int32_t* slot = nullptr;
  const int32_t* count = nullptr;
  const int32_t* chunk_of = nullptr;
  int32_t rows = 0, k = 0, candidates = 0;
  int32_t chunk = 0, at = 0;
};

/// Values of all missed chunks, from a pool in pinned host memory, [row][pool_tokens][head_dim], to
/// the values of `cache` (value_offset on from its keys), read by at most `blocks` blocks of 1,024
/// threads (each two of 512) with 16-byte loads.
void FetchValues(const __nv_bfloat16* pool, int64_t pool_tokens, const MissedChunks& missed,
                 const TokenView& cache, int32_t head_dim, int32_t blocks, cudaStream_t stream);

/// Factors of the keys before RoPE, as KeyFactorizer makes them: u [sequence][tokens][rank],
/// shared by the heads of a sequence, and basis [row][head_dim][rank] (singular values in it); the
/// key of a token t of a row is basis u[t]. rank is a multiple of 16, at most 256.
struct KeyFactors {
  const __nv_bfloat16* u = nullptr;
  const __nv_bfloat16* basis = nullptr;
  int64_t tokens = 0;
  int32_t rank = 0;
};

/// Keys of all missed chunks, made of their factors and turned by RoPE (rotate-half, by their
/// positions, which are their tokens' numbers), to the keys of `cache`.
void RebuildKeys(const KeyFactors& factors, const MissedChunks& missed, int32_t kv_heads,
                 const float* inverse_frequencies, float attention_scaling, const TokenView& cache,
                 int32_t head_dim, cudaStream_t stream);

/// The best factors of rank `rank` of the keys of a sequence, [tokens][kv_heads * head_dim], by
/// their singular value decomposition in single precision (cuSOLVER's one-sided Jacobi method,
/// which torch.svd takes). cuSOLVER is loaded at first use; where it is missing: Error.
class KeyFactorizer {
 public:
  /// Whether cuSOLVER is there.
  static bool Available();
  /// Takes its memory: two copies of the keys in single precision and cuSOLVER's own.
  KeyFactorizer(int64_t tokens, int32_t kv_heads, int32_t head_dim, int32_t rank);
  ~KeyFactorizer();
  /// `keys`: row h is KV head h, before RoPE; u [tokens][rank], basis [kv_heads][head_dim][rank].
  /// Where the keys have fewer singular values than `rank`, the other columns are zeros. The host
  /// waits for all of it; no graph can hold it.
  void Run(const TokenView& keys, __nv_bfloat16* u, __nv_bfloat16* basis, cudaStream_t stream);
  /// How often the last run went over all pairs of channels until they were orthogonal.
  int32_t Sweeps() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::kernels
