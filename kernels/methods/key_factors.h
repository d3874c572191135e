// What a singular value decomposition of keys takes, and what KeyFactorizer keeps of it.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/runtime/token_view.h"

namespace stallcast::kernels {

/// Keys of `tokens` tokens in single precision, heads side by side: channel c of token t at
/// t + c * tokens or, not `by_channel`, at t * kv_heads * head_dim + c. head_dim is a multiple of
/// 64.
void WidenKeys(const TokenView& keys, int64_t tokens, int32_t kv_heads, int32_t head_dim,
               bool by_channel, float* matrix, cudaStream_t stream);

/// The first `rank` of `count` singular vectors, vectors [count][size], as bf16 [size][rank], where
/// `scaled` times their singular values, values [count]. Those that are missing, or whose value is
/// zero, are zeros. rank is a multiple of 8.
void RoundFactor(const float* vectors, int64_t size, int32_t count, const float* values,
                 bool scaled, int32_t rank, __nv_bfloat16* factor, cudaStream_t stream);

}  // namespace stallcast::kernels
