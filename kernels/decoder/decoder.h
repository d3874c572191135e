// The small kernels of a decoder layer, and its GEMMs.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// residual += input (input may be null), output = residual / rms(residual) * weight; rows of
/// width.
void AddRmsNorm(const __nv_bfloat16* input, __nv_bfloat16* residual, const __nv_bfloat16* weight,
                float epsilon, int64_t rows, int32_t width, __nv_bfloat16* output,
                cudaStream_t stream);

/// Channel-wise bounds of pages, kept up to date as keys are appended (Quest): token t widens the
/// bounds of page page_of[t] of its row in [sequence][kv_head][page][low, high][head_dim]; its
/// sequence is t. A page's first token starts them.
struct PageBounds {
  __nv_bfloat16* summaries = nullptr;  ///< null: none are kept
  const int32_t* page_of = nullptr;
  int32_t summary_pages = 0;
};

/// RoPE (rotate-half) on the queries and keys of `tokens` new tokens: the queries of `qkv`
/// ([tokens][query_heads + 2 kv_heads][d]) go to `query` ([tokens][query_heads][d]), keys and
/// values are appended to the cache: token t goes to slot_of[t], place_of[t] and has position
/// position_of[t].
void RopeAppend(const __nv_bfloat16* qkv, int64_t tokens, int32_t query_heads, const PagedKv& cache,
                const int32_t* slot_of, const int32_t* place_of, const int32_t* position_of,
                const float* inverse_frequencies, float attention_scaling, __nv_bfloat16* query,
                const PageBounds& bounds, cudaStream_t stream);

/// output = silu(gate) * up, from [rows][2 * width] (gate first).
void SwiGlu(const __nv_bfloat16* gate_up, int64_t rows, int32_t width, __nv_bfloat16* output,
            cudaStream_t stream);

/// token[row] = the index of the largest logit, ties to the smaller.
void ArgMax(const __nv_bfloat16* logits, int64_t rows, int32_t vocabulary, int32_t* token,
            cudaStream_t stream);

/// C[m, n] = A[m, k] B[n, k]^T, row-major bf16, float accumulation: B is a weight as frameworks
/// store it. Of cuBLASLt's algorithms and SkinnyGemm() one is chosen once a shape, by time, and
/// kept. All GEMMs share a workspace: one stream at a time.
class Gemm {
 public:
  Gemm();
  ~Gemm();
  void Run(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int64_t m, int64_t n,
           int64_t k, cudaStream_t stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::kernels
