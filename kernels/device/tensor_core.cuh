// Asynchronous copies to shared memory and the warp's matrix instructions.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace stallcast::kernels {

/// 16 bytes, past L1.
__device__ inline void CopyAsync(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}

__device__ inline void LoadTransposed(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}

/// c[0..3] += A (16 x 16) B (16 x 8), bf16 into float.
__device__ inline void MultiplyAdd(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 2^x by the hardware; -infinity gives 0.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace stallcast::kernels
