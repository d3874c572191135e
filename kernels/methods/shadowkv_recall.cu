// What ShadowKV's selection brings: values read from the host, keys made from their factors.
#include <algorithm>
#include <string>

#include "kernels/device/divide.cuh"
#include "kernels/device/row_sums.cuh"
#include "kernels/device/tensor_core.cuh"
#include "kernels/methods/shadowkv.h"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kFetchThreads = 512;  // two such are a block of the plan's
constexpr int kFetchLoads = 4;      // of a thread, in flight together
constexpr int kThreads = 256;
constexpr int kTile = 64;  // missed tokens that a block rebuilds at once
// One on each of an H200's multiprocessors: two would leave the fetch beside them no registers.
constexpr int kBlocksAtOnce = 132;

__device__ int MissedOf(const MissedChunks& missed, int row) {
  return max(0, min(missed.count[row], missed.k));
}

// A warp reads 32 * kFetchLoads vectors of 16 bytes that follow one another, over all missed
// chunks, and looks up the next ones while they come: few blocks would otherwise wait for the lists
// as long as for the host. ends: of SumRows(); the cache begins at its values.
template <int kDim>
__global__ void __launch_bounds__(kFetchThreads, 2)  // runs beside a block of RebuildKernel
    FetchKernel(const uint4* __restrict__ pool, int64_t pool_tokens, const MissedChunks missed,
                const Divider by_chunk, uint4* __restrict__ cache, uint32_t row_stride,
                uint32_t token_stride) {
  extern __shared__ uint32_t ends[];
  constexpr uint32_t kVectors = kDim / 8;  // of a token
  constexpr uint32_t kWarpTile = 32 * kFetchLoads;
  const uint32_t chunks = SumRows(
      missed.rows, [&](int row) { return static_cast<uint32_t>(MissedOf(missed, row)); }, ends);
  const uint32_t vectors = chunks * static_cast<uint32_t>(missed.chunk) * kVectors;
  const uint32_t step = gridDim.x * (kFetchThreads * kFetchLoads);
  uint32_t from[kFetchLoads], to[kFetchLoads];
  const auto look_up = [&](uint32_t first) {
#pragma unroll
    for (int load = 0; load < kFetchLoads; ++load) {
      const uint32_t index = first + load * 32 + threadIdx.x % 32;
      if (index >= vectors) return;
      const uint32_t piece = by_chunk.Quotient(index);
      const uint32_t vector = by_chunk.Remainder(index, piece);
      const auto [row, place] = FindRow(piece, ends, missed.rows);
      const int64_t entry = int64_t{row} * missed.k + place;
      const int64_t chunk = missed.chunk_of[int64_t{row} * missed.candidates + missed.unit[entry]];
      from[load] =
          static_cast<uint32_t>((row * pool_tokens + chunk * missed.chunk) * kVectors) + vector;
      const int token =
          missed.at + missed.slot[entry] * missed.chunk + static_cast<int>(vector / kVectors);
      to[load] = row * row_stride + token * token_stride + vector % kVectors;
    }
  };
  uint32_t tile = (blockIdx.x * (kFetchThreads / 32) + threadIdx.x / 32) * kWarpTile;
  look_up(tile);
  for (; tile < vectors; tile += step) {
    uint4 data[kFetchLoads];
    uint32_t target[kFetchLoads];
    const uint32_t here = vectors - tile, lane = threadIdx.x % 32;
#pragma unroll
    for (int load = 0; load < kFetchLoads; ++load) {
      if (load * 32 + lane < here) data[load] = __ldcs(pool + from[load]);
      target[load] = to[load];
    }
    if (here > step) look_up(tile + step);
#pragma unroll
    for (int load = 0; load < kFetchLoads; ++load) {
      if (load * 32 + lane < here) __stcs(cache + target[load], data[load]);
    }
  }
}

/// Bytes between rows of so many elements in shared memory: with a multiple of 16 elements an odd
/// number of 16 bytes, so that eight rows which are read at once meet all banks.
__host__ __device__ constexpr int Pitch(int elements) { return 2 * elements + 16; }

template <int kDim>
int SharedBytes(int rank) {
  return kDim * Pitch(rank) + kTile * std::max(Pitch(rank), Pitch(kDim));
}

// A block takes tiles of 64 missed tokens of a row; each of its eight warps 16 of the tokens and
// half of the channel pairs that RoPE turns together. Shared memory holds the row's basis [kDim]
// [rank] and the tokens' factors [kTile][rank], then in their place the keys [kTile][kDim].
template <int kDim>
__global__ void __launch_bounds__(kThreads, 2)
    RebuildKernel(const KeyFactors factors, const MissedChunks missed, const Divider by_chunk,
                  int kv_heads, const float* __restrict__ inverse_frequencies, float scaling,
                  const TokenView cache) {
  constexpr int kHalf = kDim / 2;
  constexpr int kColumns = kHalf / 16;  // of 8 channels, that a warp has of each half
  extern __shared__ __align__(16) char shared[];
  const int row = static_cast<int>(blockIdx.y);
  const int tokens = MissedOf(missed, row) * missed.chunk;
  int first = static_cast<int>(blockIdx.x) * kTile;
  if (first >= tokens) return;

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int rank = factors.rank, pitch = Pitch(rank);
  char* tile = shared + kDim * pitch;
  const auto basis_at = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const auto tile_at = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
  const __nv_bfloat16* basis = factors.basis + int64_t{row} * kDim * rank;
  const uint64_t read_once = EvictFirst();
  for (int channel = thread / 8; channel < kDim; channel += kThreads / 8) {
    for (int r = thread % 8 * 8; r < rank; r += 64) {
      CopyAsync(basis_at + channel * pitch + 2 * r, basis + channel * rank + r, 16, read_once);
    }
  }

  const int32_t* unit = missed.unit + int64_t{row} * missed.k;
  const int32_t* slot = missed.slot + int64_t{row} * missed.k;
  const int32_t* chunk_of = missed.chunk_of + int64_t{row} * missed.candidates;
  // A missed token's number in the sequence.
  const auto number = [&](int token) {
    const uint32_t place = by_chunk.Quotient(token);
    return chunk_of[unit[place]] * missed.chunk +
           static_cast<int>(by_chunk.Remainder(token, place));
  };
  const __nv_bfloat16* u = factors.u + row / kv_heads * factors.tokens * rank;
  const int warp_token = warp % 4 * 16, warp_column = warp / 4 * kColumns;
  const uint32_t a_at = tile_at + (warp_token + lane % 16) * pitch + lane / 16 * 16;
  // Of a column in the lower half and of its partner in the upper.
  const uint32_t b_at =
      basis_at + (lane / 16 * kHalf + warp_column * 8 + lane % 8) * pitch + lane / 8 % 2 * 16;

  for (; first < tokens; first += static_cast<int>(gridDim.x) * kTile) {
    // What is past the last token repeats it, and is not stored.
    const __nv_bfloat16* from = u + int64_t{number(min(first + thread / 4, tokens - 1))} * rank;
    for (int r = thread % 4 * 8; r < rank; r += 32) {
      CopyAsync(tile_at + thread / 4 * pitch + 2 * r, from + r, 16, read_once);
    }
    CommitCopies();

    float sine[2][kColumns][2], cosine[2][kColumns][2];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int token = first + warp_token + part * 8 + lane / 4;
      const auto position = static_cast<float>(number(min(token, tokens - 1)));
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int channel = (warp_column + j) * 8 + lane % 4 * 2 + c;
          sincosf(position * inverse_frequencies[channel], &sine[part][j][c], &cosine[part][j][c]);
        }
      }
    }
    WaitForCopies<0>();
    __syncthreads();

    float low[kColumns][4] = {}, high[kColumns][4] = {};
#pragma unroll 2
    for (int r = 0; r < rank; r += 16) {
      uint32_t a[4];
      LoadMatrices(a, a_at + 2 * r);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        uint32_t b[4];
        LoadMatrices(b, b_at + j * 8 * pitch + 2 * r);
        MultiplyAdd(low[j], a, b[0], b[1]);
        MultiplyAdd(high[j], a, b[2], b[3]);
      }
    }
    __syncthreads();  // the keys take the factors' place

#pragma unroll
    for (int part = 0; part < 2; ++part) {
      char* to = tile + (warp_token + part * 8 + lane / 4) * Pitch(kDim) +
                 2 * (warp_column * 8 + lane % 4 * 2);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        float lower[2], upper[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const float x = low[j][2 * part + c], y = high[j][2 * part + c];
          const float s = sine[part][j][c], k = cosine[part][j][c];
          lower[c] = scaling * (x * k - y * s);
          upper[c] = scaling * (y * k + x * s);
        }
        *reinterpret_cast<uint32_t*>(to + 16 * j) = PackBf16(lower[0], lower[1]);
        *reinterpret_cast<uint32_t*>(to + 16 * j + 2 * kHalf) = PackBf16(upper[0], upper[1]);
      }
    }
    __syncthreads();

    constexpr int kVectors = kDim / 8;
#pragma unroll
    for (int i = thread; i < kTile * kVectors; i += kThreads) {
      const int token = first + i / kVectors;
      if (token >= tokens) break;
      const uint32_t place = by_chunk.Quotient(token);
      const int64_t to =
          missed.at + int64_t{slot[place]} * missed.chunk + by_chunk.Remainder(token, place);
      const char* key = tile + i / kVectors * Pitch(kDim) + i % kVectors * 16;
      __stcs(reinterpret_cast<uint4*>(cache.data + row * cache.row_stride +
                                      to * cache.token_stride + i % kVectors * 8),
             *reinterpret_cast<const uint4*>(key));
    }
    __syncthreads();  // the next tokens' factors take the keys' place
  }
}

// Of all that rows of `k` chunks may miss, in vectors of 16 bytes.
int64_t CheckMissed(const MissedChunks& missed, int32_t head_dim, const char* name) {
  if (head_dim != 64 && head_dim != 128) {
    throw Error("a head dimension of " + std::to_string(head_dim), name, "use 64 or 128");
  }
  if (missed.chunk < 1) {
    throw Error("chunks of " + std::to_string(missed.chunk) + " tokens", name,
                "use chunks of at least one");
  }
  if (missed.rows <= 0 || missed.k <= 0) return 0;
  const int64_t vectors = int64_t{missed.rows} * missed.k * (head_dim / 8);
  if (vectors > INT32_MAX / missed.chunk) {
    throw Error(std::to_string(missed.rows) + " rows of " + std::to_string(missed.k) +
                    " chunks in one recall",
                name, "bring at most 32 GiB at a time");
  }
  return vectors * missed.chunk;
}

}  // namespace

void FetchValues(const __nv_bfloat16* pool, int64_t pool_tokens, const MissedChunks& missed,
                 const TokenView& cache, int32_t head_dim, int32_t blocks, cudaStream_t stream) {
  const int64_t vectors = CheckMissed(missed, head_dim, "FetchValues");
  if (blocks < 1) throw Error("no blocks to run on", "FetchValues", "allow at least one block");
  if (vectors == 0) return;
  // Places are counted in vectors.
  constexpr int64_t kVector = 8;
  if (missed.rows * std::max(pool_tokens * head_dim, cache.row_stride) / kVector > UINT32_MAX) {
    throw Error(std::to_string(missed.rows) + " rows of " + std::to_string(pool_tokens) + " tokens",
                "FetchValues", "use a smaller batch");
  }
  constexpr int64_t kAtOnce = kFetchThreads * kFetchLoads;
  const auto grid = static_cast<unsigned>(
      std::min<int64_t>(int64_t{2} * blocks, (vectors + kAtOnce - 1) / kAtOnce));
  const auto kernel = head_dim == 128 ? FetchKernel<128> : FetchKernel<64>;
  kernel<<<grid, kFetchThreads, RowSumsBytes(missed.rows), stream>>>(
      reinterpret_cast<const uint4*>(pool), pool_tokens, missed,
      Divider(static_cast<uint32_t>(missed.chunk * (head_dim / kVector))),
      reinterpret_cast<uint4*>(cache.data + cache.value_offset),
      static_cast<uint32_t>(cache.row_stride / kVector),
      static_cast<uint32_t>(cache.token_stride / kVector));
  CheckLaunch("FetchValues");
}

void RebuildKeys(const KeyFactors& factors, const MissedChunks& missed, int32_t kv_heads,
                 const float* inverse_frequencies, float attention_scaling, const TokenView& cache,
                 int32_t head_dim, cudaStream_t stream) {
  const int64_t vectors = CheckMissed(missed, head_dim, "RebuildKeys");
  if (factors.rank < 16 || factors.rank > 256 || factors.rank % 16 != 0) {
    throw Error("factors of rank " + std::to_string(factors.rank), "RebuildKeys",
                "use a multiple of 16, up to 256");
  }
  if (kv_heads < 1 || missed.rows > 65535) {
    throw Error(std::to_string(missed.rows) + " rows of " + std::to_string(kv_heads) + " KV heads",
                "RebuildKeys", "use a smaller batch");
  }
  if (vectors == 0) return;
  const int tiles = (missed.k * missed.chunk + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>(std::min(tiles, std::max(1, kBlocksAtOnce / missed.rows))),
                  static_cast<unsigned>(missed.rows));
  const auto kernel = head_dim == 128 ? RebuildKernel<128> : RebuildKernel<64>;
  const int bytes =
      head_dim == 128 ? SharedBytes<128>(factors.rank) : SharedBytes<64>(factors.rank);
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute(RebuildKeys)");
  kernel<<<grid, kThreads, static_cast<size_t>(bytes), stream>>>(
      factors, missed, Divider(static_cast<uint32_t>(missed.chunk)), kv_heads, inverse_frequencies,
      attention_scaling, cache);
  CheckLaunch("RebuildKeys");
}

}  // namespace stallcast::kernels
