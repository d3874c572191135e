// What attention kernels are made of: asynchronous copies to shared memory, tensor-core products
// of bf16 (sm_80 and later), base-2 exponentials.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace stallcast::kernels {

/// Copies the first `bytes` of 16 bytes to shared memory and makes the rest zero.
inline __device__ void CopyAsync(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

/// All 16 bytes.
inline __device__ void CopyAsync(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// A policy for what is read once: it leaves L2 before anything else.
inline __device__ uint64_t EvictFirst() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// The first `bytes` of 16 bytes, under a policy; the rest are made zero.
inline __device__ void CopyAsync(uint32_t to, const void* from, int bytes, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(bytes), "l"(policy)
               : "memory");
}

inline __device__ void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8 x 8 matrices; lane i gives the address of row i % 8 of matrix i / 8.
inline __device__ void LoadMatrices(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}

inline __device__ void LoadTransposed(uint32_t (&a)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(from)
               : "memory");
}

/// c += a (16 x 16, row-major) b (16 x 8, column-major). Of c a thread has row lane / 4 (c[0],
/// c[1]) and 8 further (c[2], c[3]), columns 2 * (lane % 4) and the next.
inline __device__ void MultiplyAdd(float* c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats as a pair of bf16, the first in the low half.
inline __device__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

/// 2^x in one instruction; -infinity gives 0, and so does what is under 2^-126.
inline __device__ float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace stallcast::kernels
