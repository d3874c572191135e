#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/device/piece.cuh"
#include "kernels/movement.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

struct Route {
  PiecePlace from, to;
};

/// Pieces numbered by lists of equal length.
struct Listed {
  int32_t pieces_max;
  const int32_t* count;  // null: pieces_max
  __device__ uint32_t Begin(uint32_t*) const {
    return max(count == nullptr ? pieces_max : min(*count, pieces_max), 0);
  }
};

struct FromPacked : Listed {
  const int32_t* slot;
  const int32_t* head;
  __device__ Route operator()(uint32_t piece, const uint32_t*) const {
    return {{piece, 0}, {slot[piece], head[piece]}};
  }
};

struct ToPool : Listed {
  const int32_t* slots;
  Divider by_page;
  __device__ Route operator()(uint32_t piece, const uint32_t*) const {
    const uint32_t page = by_page.Quotient(piece);
    const int32_t head = by_page.Remainder(piece, page);
    return {{slots[page], head}, {page, head}};
  }
};

struct FromPool : Listed {
  const int64_t* source;
  const int32_t* slot;
  const int32_t* head;
  Divider by_page;
  __device__ Route operator()(uint32_t piece, const uint32_t*) const {
    const auto place = static_cast<uint32_t>(source[piece]);
    const uint32_t page = by_page.Quotient(place);
    const int32_t from_head = by_page.Remainder(place, page);
    return {{page, from_head}, {slot[piece], head[piece]}};
  }
};

/// The missed units of rows one after another: scratch[r] is the first piece after row r's.
struct ByRow {
  MissedUnits missed;
  CacheSlots place;
  int32_t kv_heads;
  bool packed;  // from a buffer that holds the pieces in this order, else from the pool

  __device__ uint32_t Begin(uint32_t* scratch) const {
    if (threadIdx.x < 32) {
      const int lane = static_cast<int>(threadIdx.x);
      uint32_t before = 0;
      for (int first = 0; first < missed.rows; first += 32) {
        uint32_t sum = first + lane < missed.rows ? Count(first + lane) : 0;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
          const uint32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
          if (lane >= offset) sum += other;
        }
        if (first + lane < missed.rows) scratch[first + lane] = before + sum;
        before += __shfl_sync(0xffffffffu, sum, 31);
      }
    }
    __syncthreads();
    return scratch[missed.rows - 1];
  }

  __device__ Route operator()(uint32_t piece, const uint32_t* scratch) const {
    int begin = 0, end = missed.rows - 1;  // the first row that ends after the piece
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (scratch[middle] <= piece) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    const int i = static_cast<int>(piece - (begin > 0 ? scratch[begin - 1] : 0));
    const int64_t entry = int64_t{begin} * missed.k + i;
    const int row = missed.first_row + begin;
    const int sequence = row / kv_heads;
    const int head = row - sequence * kv_heads;
    const PiecePlace to{
        int64_t{sequence} * place.slots_a_sequence + place.first_slot + missed.slot[entry], head};
    if (packed) return {{piece, 0}, to};
    return {{int64_t{sequence} * place.pool_pages + place.first_page + missed.unit[entry], head},
            to};
  }

 private:
  __device__ uint32_t Count(int row) const {
    if (missed.flag != nullptr && (missed.flag[row] != 0) != missed.flagged) return 0;
    return missed.count[row];
  }
};

template <int kThreads, int kLoads, class Router>
void Launch(const PagedKv& from, const PagedKv& to, const Router& route, int64_t pieces,
            int64_t blocks_max, const char* name, cudaStream_t stream, size_t scratch_bytes = 0) {
  if (pieces == 0) return;
  if (to.head_dim % 8 != 0 || to.head_dim < 8 || to.page_tokens < 1 || to.kv_heads < 1) {
    throw Error("a page of " + std::to_string(to.page_tokens) + " tokens and heads of " +
                    std::to_string(to.head_dim) + " cannot be moved",
                name, "use whole pages and a head dimension that is a multiple of 8");
  }
  const int64_t chunks = pieces * to.page_tokens * (to.head_dim / 4);
  if (pieces < 0 || chunks > INT32_MAX) {
    throw Error(std::to_string(pieces) + " pieces in one launch", name,
                "move at most 32 GiB at a time");
  }
  if (blocks_max < 1) throw Error("no blocks to run on", name, "allow at least one block");
  const int64_t tile = kThreads * kLoads;
  const auto blocks = static_cast<unsigned>(std::min((chunks + tile - 1) / tile, blocks_max));
  CopyPieces<kThreads, kLoads>
      <<<blocks, kThreads, scratch_bytes, stream>>>(from, to, PieceShape(to), route);
  CheckLaunch(name);
}

/// Blocks of 256 threads that fill the device.
int64_t DeviceBlocks() {
  int device = 0, multiprocessors = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return int64_t{8} * multiprocessors;
}

/// A layout of `pages` with pages of its own; the copies read pools through it and never write.
PagedKv Pool(const __nv_bfloat16* data, const PagedKv& like, int32_t kv_heads, bool nhd) {
  auto* pool = const_cast<__nv_bfloat16*>(data);
  return nhd ? NhdPages(pool, like.page_tokens, kv_heads, like.head_dim)
             : HndPages(pool, like.page_tokens, kv_heads, like.head_dim);
}

}  // namespace

void ScatterPages(const __nv_bfloat16* pieces, const int32_t* slot, const int32_t* head,
                  int32_t pieces_max, const int32_t* count, const PagedKv& cache,
                  cudaStream_t stream) {
  Launch<256, 4>(Pool(pieces, cache, 1, false), cache, FromPacked{{pieces_max, count}, slot, head},
                 pieces_max, DeviceBlocks(), "ScatterPages", stream);
}

void TransposePages(const PagedKv& cache, const int32_t* slots, int32_t pages, __nv_bfloat16* hnd,
                    cudaStream_t stream) {
  Launch<256, 4>(
      cache, Pool(hnd, cache, cache.kv_heads, false),
      ToPool{{pages * cache.kv_heads, nullptr}, slots, Divider(std::max(cache.kv_heads, 1))},
      int64_t{pages} * cache.kv_heads, DeviceBlocks(), "TransposePages", stream);
}

void ZeroCopyGather(const __nv_bfloat16* pool, const int64_t* source, const int32_t* slot,
                    const int32_t* head, int32_t pieces_max, const int32_t* count,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream) {
  Launch<1024, 4>(
      Pool(pool, cache, cache.kv_heads, rows), cache,
      FromPool{{pieces_max, count}, source, slot, head, Divider(std::max(cache.kv_heads, 1))},
      pieces_max, blocks, "ZeroCopyGather", stream);
}

namespace {

size_t ScratchBytes(const MissedUnits& missed) {
  constexpr int32_t kRowsMax = 8192;  // of the shared memory that every launch may have
  if (missed.rows > kRowsMax) {
    throw Error(std::to_string(missed.rows) + " rows in one recall", "recall",
                "use a smaller batch");
  }
  return static_cast<size_t>(missed.rows) * sizeof(uint32_t);
}

}  // namespace

void ScatterMissed(const __nv_bfloat16* pieces, const MissedUnits& missed, const CacheSlots& place,
                   const PagedKv& cache, cudaStream_t stream) {
  Launch<256, 4>(Pool(pieces, cache, 1, false), cache, ByRow{missed, place, cache.kv_heads, true},
                 int64_t{missed.rows} * missed.k, DeviceBlocks(), "ScatterMissed", stream,
                 ScratchBytes(missed));
}

void ZeroCopyMissed(const __nv_bfloat16* pool, const MissedUnits& missed, const CacheSlots& place,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream) {
  Launch<1024, 4>(Pool(pool, cache, cache.kv_heads, rows), cache,
                  ByRow{missed, place, cache.kv_heads, false}, int64_t{missed.rows} * missed.k,
                  blocks, "ZeroCopyMissed", stream, ScratchBytes(missed));
}

}  // namespace stallcast::kernels
