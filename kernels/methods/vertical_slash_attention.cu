// Prefill attention over a vertical-slash mask (WG-KV, section 4.2). A CTA takes 128 queries of one
// head, a warp 16 of them. Keys come in tiles of 64, first the admitted columns before the window
// of the tile's first query, gathered by their numbers and seen by all of its queries; then the
// keys from there to the diagonal, masked one by one. Everything else is never read. The next tile
// is copied while this one is multiplied; two CTAs share a multiprocessor, so that one's softmax
// runs beside the other's products.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/methods/wgkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STALLCAST_WGMMA 1
#include "kernels/device/warpgroup.cuh"
#endif

namespace stallcast::kernels {
namespace {

constexpr int kHeadDim = 128;
constexpr int kQueries = 128;
constexpr int kKeys = 64;
constexpr int kThreads = 256;
constexpr int kRowBytes = 128;                    // 64 elements: half a vector
constexpr int kTileBytes = kKeys * kHeadDim * 2;  // of keys, or of values
constexpr int kQueryBytes = kQueries * kHeadDim * 2;
constexpr int kStageBytes = 2 * kTileBytes;
constexpr int kSharedBytes = kQueryBytes + 2 * kStageBytes + 1024;  // to align by 1,024

/// Where 16 bytes of a tile lie: halves of vectors apart, and in a half the pieces of a row
/// permuted by its number (the tensor cores' 128-byte swizzle).
template <int kRows>
__device__ uint32_t At(int row, int piece) {
  return piece / 8 * (kRows * kRowBytes) + row * kRowBytes + ((piece % 8) ^ (row % 8)) * 16;
}

#ifdef STALLCAST_WGMMA

__device__ void MultiplyScores(float (&c)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;}"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
        "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "l"(a), "l"(b), "r"(add));
}

__device__ void MultiplyValues(float (&c)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
        "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
        "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
        "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
        "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]),
        "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]),
        "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
        "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]),
        "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]),
        "+f"(c[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ void FinishProducts() {
  CommitProducts();
  AwaitProducts<0>();
}

/// Scores of the warpgroup's 64 queries (at `queries`, rows of a tile of 128) and 64 keys.
__device__ void Scores(float (&s)[32], uint32_t queries, uint32_t keys, int warp) {
  const uint32_t own = queries + warp / 4 * 64 * kRowBytes;
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    const uint32_t in_half = k % 4 * 32;
    MultiplyScores(s, Tile(own + k / 4 * kQueries * kRowBytes + in_half),
                   Tile(keys + k / 4 * kKeys * kRowBytes + in_half), k > 0);
  }
  FinishProducts();
}

/// Adds weights times values, 16 keys at a time.
__device__ void AddValues(float (&o)[64], const uint32_t (&weights)[4][4], uint32_t values) {
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    MultiplyValues(o, weights[k], Tile(values + k * 16 * kRowBytes, kKeys * kRowBytes));
  }
  FinishProducts();
}

#else

__device__ void PublishToProducts() {}

__device__ void Scores(float (&s)[32], uint32_t queries, uint32_t keys, int warp) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (float& x : s) x = 0;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t q[4];
    LoadMatrices(q, queries + At<kQueries>(warp * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t b[4];
      LoadMatrices(b, keys + At<kKeys>(n * 16 + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      MultiplyAdd(s + n * 8, q, b[0], b[1]);
      MultiplyAdd(s + n * 8 + 4, q, b[2], b[3]);
    }
  }
}

__device__ void AddValues(float (&o)[64], const uint32_t (&weights)[4][4], uint32_t values) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t b[4];
      LoadTransposed(b, values + At<kKeys>(k * 16 + lane % 16, 2 * n + lane / 16));
      MultiplyAdd(o + n * 8, weights[k], b[0], b[1]);
      MultiplyAdd(o + n * 8 + 4, weights[k], b[2], b[3]);
    }
  }
}

#endif

__global__ void __launch_bounds__(kThreads, 2)
    VerticalSlashKernel(const VerticalSlashArgs args, float scale) {
  extern __shared__ unsigned char shared[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // The last queries see most: their tiles start first.
  const int tile = static_cast<int>(gridDim.x) - 1 - static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int sequence = static_cast<int>(blockIdx.z);
  const int row = sequence * args.kv_heads + head / args.group;
  const int first = tile * kQueries;
  const int64_t query_stride = int64_t{args.kv_heads} * args.group * kHeadDim;
  const int64_t query_at = int64_t{sequence} * args.tokens * query_stride + head * kHeadDim;
  const __nv_bfloat16* kv = args.kv.data + row * args.kv.row_stride;
  const int32_t* columns = args.columns + int64_t{row} * args.tokens;
  const uint8_t* admitted = args.admitted + int64_t{row} * args.tokens;

  const uint32_t queries =
      (static_cast<uint32_t>(__cvta_generic_to_shared(shared)) + 1023) / 1024 * 1024;
  const uint32_t stages = queries + kQueryBytes;
  const int piece = thread % 16;
#pragma unroll
  for (int i = 0; i < kQueries / 16; ++i) {
    const int q = i * 16 + thread / 16;
    const int token = min(first + q, args.tokens - 1);
    CopyAsync(queries + At<kQueries>(q, piece),
              args.query + query_at + token * query_stride + piece * 8);
  }

  const int slash = max(0, first - args.window + 1);  // first key that is not seen by all or none
  const int vertical = CountBelow(columns, args.column_counts[row], slash);
  const int vertical_tiles = (vertical + kKeys - 1) / kKeys;
  const int slash_end = min(first + kQueries, args.tokens);
  const int tiles = vertical_tiles + (slash_end - slash + kKeys - 1) / kKeys;
  // The numbers of a tile's keys are read a tile before its keys are, so that no copy waits for
  // them.
  int token[kKeys / 16];
  const auto find = [&](int t) {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const int k = i * 16 + thread / 16;
      token[i] = t < vertical_tiles ? columns[min(t * kKeys + k, vertical - 1)]
                                    : min(slash + (t - vertical_tiles) * kKeys + k, slash_end - 1);
    }
  };
  const auto load = [&](int t) {
    const uint32_t keys = stages + t % 2 * kStageBytes;
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const int k = i * 16 + thread / 16;
      const __nv_bfloat16* from = kv + token[i] * args.kv.token_stride + piece * 8;
      CopyAsync(keys + At<kKeys>(k, piece), from);
      CopyAsync(keys + kTileBytes + At<kKeys>(k, piece), from + args.kv.value_offset);
    }
    CommitCopies();
  };
  find(0);
  load(0);
  find(1);

  float output[64] = {};
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  const int own[2] = {first + warp * 16 + lane / 4, first + warp * 16 + lane / 4 + 8};
  for (int t = 0; t < tiles; ++t) {
    WaitForCopies<0>();
    PublishToProducts();
    __syncthreads();
    if (t + 1 < tiles) {
      load(t + 1);
      find(t + 2);
    }
    const uint32_t keys = stages + t % 2 * kStageBytes;
    float score[32];
    Scores(score, queries, keys, warp);
    if (t >= vertical_tiles) {
      const int begin = slash + (t - vertical_tiles) * kKeys;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const int query = own[i / 2 % 2];
        const bool seen = key <= query &&
                          (query - key < args.window || (key < args.tokens && admitted[key] != 0));
        if (!seen) score[i] = -INFINITY;
      }
    } else if (t == vertical_tiles - 1) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (t * kKeys + i / 4 * 8 + lane % 4 * 2 + i % 2 >= vertical) score[i] = -INFINITY;
      }
    }
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = maximum[r];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 2 % 2 == r) largest = fmaxf(largest, score[i]);
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      // Of a query that has seen nothing yet everything stays zero.
      const float base = largest == -INFINITY ? 0 : largest * scale;
      factor[r] = largest == maximum[r] ? 1 : Exp2(maximum[r] * scale - base);
      maximum[r] = largest;
      sum[r] *= factor[r];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        if (i / 2 % 2 != r) continue;
        score[i] = Exp2(score[i] * scale - base);
        sum[r] += score[i];
      }
    }
    // Maxima soon stop moving: most tiles spare this.
    if (__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
      for (int i = 0; i < 64; ++i) output[i] *= factor[i / 2 % 2];
    }
    uint32_t weights[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[k][i] = PackBf16(score[k * 8 + i * 2], score[k * 8 + i * 2 + 1]);
      }
    }
    AddValues(output, weights, keys + kTileBytes);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
    if (own[r] >= args.tokens) continue;
    const float factor = 1 / sum[r];
    __nv_bfloat16* to = args.output + query_at + own[r] * query_stride + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      *reinterpret_cast<uint32_t*>(to + i * 8) =
          PackBf16(output[i * 4 + r * 2] * factor, output[i * 4 + r * 2 + 1] * factor);
    }
  }
}

}  // namespace

void VerticalSlashAttention(const VerticalSlashArgs& args, cudaStream_t stream) {
  if (args.head_dim != kHeadDim || args.window < 1 || args.group < 1) {
    throw Error("heads of " + std::to_string(args.head_dim) + " and a window of " +
                    std::to_string(args.window),
                "VerticalSlashAttention", "use a head dimension of 128 and a window of 1 or more");
  }
  if (args.sequences <= 0 || args.tokens <= 0) return;
  Check(cudaFuncSetAttribute(VerticalSlashKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kSharedBytes),
        "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>((args.tokens + kQueries - 1) / kQueries),
                  static_cast<unsigned>(args.kv_heads * args.group),
                  static_cast<unsigned>(args.sequences));
  VerticalSlashKernel<<<grid, kThreads, kSharedBytes, stream>>>(args, args.scale * 1.44269504f);
  CheckLaunch("VerticalSlashAttention");
}

}  // namespace stallcast::kernels
