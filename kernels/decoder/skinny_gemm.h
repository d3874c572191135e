// GEMMs with a weight for the few rows of a decoding batch.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace stallcast::kernels {

/// Whether SkinnyGemm() has this shape on the current device: m up to 8, n a multiple of 8, k of
/// 128, and A fits in shared memory beside the 64 KiB through which B streams.
bool HasSkinnyGemm(int64_t m, int64_t n, int64_t k);

/// C[m, n] = A[m, k] B[n, k]^T like Gemm, float accumulation, all 16-byte aligned. Errors: a shape
/// that it does not have.
void SkinnyGemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int64_t m,
                int64_t n, int64_t k, cudaStream_t stream);

}  // namespace stallcast::kernels
