// Hopper's own instructions (sm_90a): barriers in shared memory, copies that end a barrier's phase,
// and products of a warpgroup's 64 rows with tiles in shared memory that run while the warps go on.
#pragma once

#include <cstdint>

namespace stallcast::kernels {

// ---- Barriers. A phase ends when as many threads have arrived as the barrier was made for; phases
// have parities 0, 1, 0, ...

inline __device__ void InitBarrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes barriers that this thread has just made known to the copies below.
inline __device__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

inline __device__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives when all copies that this thread has begun are done.
inline __device__ void ArriveWithCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Arrives; the phase then also waits for so many bytes to be copied.
inline __device__ void ArriveAndExpect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// One thread copies consecutive bytes, a multiple of 16, to shared memory for a barrier that
/// expects them.
inline __device__ void CopyBulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Whether the phase of this parity has ended; it may wait a little for it.
inline __device__ bool HasEnded(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

inline __device__ void Await(uint32_t barrier, uint32_t parity) {
  while (!HasEnded(barrier, parity)) {
  }
}

/// Makes what this thread sees of shared memory visible to its products.
inline __device__ void PublishToProducts() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int kRegisters>
__device__ void GrowRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void ShrinkRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// ---- Products. Tiles are columns of 128 bytes (64 bf16, 128 8-bit numbers), or of 64, at 1 KiB
// addresses, the 16-byte pieces of a row permuted by its number (128-byte or 64-byte swizzle).

/// Where in its row a piece lies.
template <int kRowBytes = 128>
__host__ __device__ constexpr int SwizzledPiece(int row, int piece) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  return piece ^ (row / (128 / kRowBytes) % (kRowBytes / 16));
}

/// A tile in a column; `next_columns` is the distance in bytes to the next column, of use where the
/// product runs over rows.
template <int kRowBytes = 128>
__device__ uint64_t Tile(uint32_t address, uint32_t next_columns = 16) {
  static_assert(kRowBytes == 128 || kRowBytes == 64);
  constexpr uint64_t kSwizzle = uint64_t{kRowBytes == 128 ? 1 : 2} << 62;
  constexpr uint64_t kEightRows = 8 * kRowBytes >> 4;
  return kSwizzle | kEightRows << 32 | uint64_t{next_columns >> 4} << 16 | (address & 0x3ffff) >> 4;
}

/// The same tile some bytes on in its rows, a multiple of 16 within them.
inline __device__ uint64_t FurtherInRows(uint64_t tile, int bytes) { return tile + (bytes >> 4); }

/// Before the first product, and after registers were changed that products read or add to.
inline __device__ void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline __device__ void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ void AwaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving uses of registers over the wait for a product.
template <int kCount>
__device__ void Pin(float (&values)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(values[i][j])::"memory");
  }
}
template <class Integer, int kCount>
__device__ void Pin(Integer (&values)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(values[i][j])::"memory");
  }
}

// Sums that a product reads and writes; `in` is "+f" for floats, "+r" for integers.
#define STALLCAST_4(in, c, n) in(c[n][0]), in(c[n][1]), in(c[n][2]), in(c[n][3])
#define STALLCAST_32(in, c, n)                                                         \
  STALLCAST_4(in, c, n), STALLCAST_4(in, c, n + 1), STALLCAST_4(in, c, n + 2),         \
      STALLCAST_4(in, c, n + 3), STALLCAST_4(in, c, n + 4), STALLCAST_4(in, c, n + 5), \
      STALLCAST_4(in, c, n + 6), STALLCAST_4(in, c, n + 7)

/// c (64 x 128) = a (64 x 16) b^T (128 x 16), or c += with `add`; both run along their rows. Of c a
/// warp has 16 rows, a thread as of mma.sync's tiles of 8 columns.
inline __device__ void MultiplyRows(float (&c)[16][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}"
      : STALLCAST_32("+f", c, 0), STALLCAST_32("+f", c, 8)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

/// The same of 8-bit whole numbers: c (64 x 128) = a (64 x 32) b^T (128 x 32), or c += with `add`.
inline __device__ void MultiplyRows(int32_t (&c)[16][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p;\n"
      "}"
      : STALLCAST_32("+r", c, 0), STALLCAST_32("+r", c, 8)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

/// c += a (64 x 16, a thread's part as of mma.sync) b (16 x columns); b's rows run along c's
/// columns.
inline __device__ void AddProduct(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : STALLCAST_32("+f", c, 0), STALLCAST_32("+f", c, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
inline __device__ void AddProduct(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : STALLCAST_32("+f", c, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef STALLCAST_32
#undef STALLCAST_4

}  // namespace stallcast::kernels
