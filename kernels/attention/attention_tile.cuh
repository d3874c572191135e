// Attention of many queries by tiles, on tensor cores: a warp holds 32 queries and takes in 64 keys
// and values at a time, with a running softmax. A block's kernel chooses the tiles, loads them and
// says what is masked: causal, sparse or gathered.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/device/tensor_core.cuh"

namespace stallcast::kernels {

constexpr int kTileKeys = 64;
constexpr int kWarpQueries = 32;

/// Rows of a head's channels in shared memory, aligned to 1 KiB. The 16-byte pieces of a row lie
/// permuted by its number, so that one piece of 8 rows meets every bank once.
template <int kHeadDim>
struct TileRows {
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kPieces = kHeadDim / 8;

  __device__ static uint32_t At(int row, int piece) {
    return row * kRowBytes + ((piece ^ (row & 7)) * 16);
  }
  /// The address of the piece 2 * k further in the row, from that of piece 0 or 1.
  __device__ static uint32_t Further(uint32_t at, int k) { return at ^ (k * 32); }

  /// Begins to copy `rows` rows: row r is at base + offset_of(r), or zero where that is negative.
  template <int kThreads, int kRows, class OffsetOf>
  __device__ static void Load(uint32_t to, const __nv_bfloat16* base, const OffsetOf& offset_of) {
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    const int first = static_cast<int>(threadIdx.x) / kPieces;
#pragma unroll
    for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
      const int row = first + i * (kThreads / kPieces);
      const int64_t offset = offset_of(row);
      CopyAsync(to + At(row, piece), base + (offset < 0 ? 0 : offset) + piece * 8,
                offset < 0 ? 0 : 16);
    }
  }
};

/// A warp's queries. Of a 16 x 8 tile a thread has rows lane / 4 and 8 further, columns
/// 2 * (lane % 4) and the next.
template <int kHeadDim>
class WarpQueries {
  using Rows = TileRows<kHeadDim>;
  static constexpr int kDepth = kHeadDim / 16;
  static constexpr int kHalves = kWarpQueries / 16;

 public:
  /// score = queries * keys^T, both being addresses of shared memory: of the warp's 32 rows and of
  /// the tile's 64.
  __device__ void Score(uint32_t queries, uint32_t keys) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t query_at = queries + Rows::At(lane % 16, lane / 16);
    const uint32_t key_at = keys + Rows::At(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      uint32_t query[kHalves][4];
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        LoadMatrices(query[half], Rows::Further(query_at, k) + half * 16 * Rows::kRowBytes);
      }
#pragma unroll
      for (int n = 0; n < kTileKeys / 16; ++n) {
        uint32_t key[4];
        LoadMatrices(key, Rows::Further(key_at, k) + n * 16 * Rows::kRowBytes);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          if (k == 0) {
            for (float& value : score_[half][2 * n]) value = 0;
            for (float& value : score_[half][2 * n + 1]) value = 0;
          }
          MultiplyAdd(score_[half][2 * n], query[half], key[0], key[1]);
          MultiplyAdd(score_[half][2 * n + 1], query[half], key[2], key[3]);
        }
      }
    }
  }

  /// Leaves out what is not attended(query, key), numbers in the warp's queries and the tile's
  /// keys.
  template <class Attended>
  __device__ void Mask(const Attended& attended) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int query = half * 16 + lane / 4 + i / 2 * 8;
          const int key = n * 8 + lane % 4 * 2 + i % 2;
          if (!attended(query, key)) score_[half][n][i] = -INFINITY;
        }
      }
    }
  }

  /// Scores to weights 2^(scale * (score - largest)), what was summed before to the same largest.
  __device__ void Weigh(float scale) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float largest = maximum_[half][i];
#pragma unroll
        for (int n = 0; n < kTileKeys / 8; ++n) {
          largest = fmaxf(largest, fmaxf(score_[half][n][2 * i], score_[half][n][2 * i + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
        const float factor = Exp2((maximum_[half][i] - largest) * scale);
        maximum_[half][i] = largest;
        sum_[half][i] *= factor;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          output_[half][n][2 * i] *= factor;
          output_[half][n][2 * i + 1] *= factor;
        }
        const float shift = largest * scale;
#pragma unroll
        for (int n = 0; n < kTileKeys / 8; ++n) {
#pragma unroll
          for (int j = 2 * i; j < 2 * i + 2; ++j) {
            score_[half][n][j] = Exp2(score_[half][n][j] * scale - shift);
            sum_[half][i] += score_[half][n][j];
          }
        }
      }
    }
  }

  /// output += weights * values, the address of the tile's 64 rows.
  __device__ void AddValues(uint32_t values) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint32_t value_at = values + Rows::At(lane % 16, lane / 16);
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      uint32_t weight[kHalves][4];
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = score_[half][2 * k + i / 2];
          weight[half][i] = PackBf16(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t value[4];
        LoadTransposed(value, Rows::Further(value_at, n) + k * 16 * Rows::kRowBytes);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          MultiplyAdd(output_[half][2 * n], weight[half], value[0], value[1]);
          MultiplyAdd(output_[half][2 * n + 1], weight[half], value[2], value[3]);
        }
      }
    }
  }

  /// The attention of the first `queries` queries, row q at to + q * stride; zeros where all was
  /// masked.
  __device__ void Store(__nv_bfloat16* to, int64_t stride, int queries) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = sum_[half][i];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const float factor = sum > 0 ? 1 / sum : 0;
        const int query = half * 16 + i * 8 + lane / 4;
        if (query >= queries) continue;
        auto* row = reinterpret_cast<uint32_t*>(to + query * stride) + lane % 4;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          row[n * 4] =
              PackBf16(output_[half][n][2 * i] * factor, output_[half][n][2 * i + 1] * factor);
        }
      }
    }
  }

 private:
  /// In place of -infinity before the first key, so that differences are numbers.
  static constexpr float kNone = -1e30f;

  float score_[kHalves][kTileKeys / 8][4];
  float output_[kHalves][kHeadDim / 8][4] = {};
  float maximum_[kHalves][2] = {{kNone, kNone}, {kNone, kNone}};
  float sum_[kHalves][2] = {};
};

}  // namespace stallcast::kernels
