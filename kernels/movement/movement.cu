#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/device/row_sums.cuh"
#include "kernels/movement/movement.h"
#include "kernels/movement/piece.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/device_attribute.h"
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

struct MissedByRow {
  MissedUnits missed;
  CacheSlots place;
  int32_t kv_heads;
  bool packed;  // from a buffer that holds the pieces in this order, else from the pool

  __device__ uint32_t Begin(uint32_t* scratch) const {
    return SumRows(
        missed.rows, [this](int row) { return Count(row); }, scratch);
  }

  __device__ Route operator()(uint32_t piece, const uint32_t* scratch) const {
    const InRow at = FindRow(piece, scratch, missed.rows);
    const int64_t entry = int64_t{at.row} * missed.k + at.place;
    const int row = missed.first_row + at.row;
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

struct ChosenByRow {
  ChosenTokens chosen;
  int32_t kv_heads;
  bool packed;

  __device__ uint32_t Begin(uint32_t* scratch) const {
    return SumRows(
        chosen.rows, [this](int row) { return static_cast<uint32_t>(chosen.count[row]); }, scratch);
  }

  __device__ Route operator()(uint32_t piece, const uint32_t* scratch) const {
    const InRow at = FindRow(piece, scratch, chosen.rows);
    const int sequence = at.row / chosen.heads, member = chosen.heads / kv_heads;
    const int head = at.row - sequence * chosen.heads;
    const PiecePlace to{
        int64_t{sequence} * chosen.slots_a_sequence + int64_t{head % member} * chosen.k + at.place,
        head / member};
    if (packed) return {{piece, 0}, to};
    const int64_t source = chosen.source[int64_t{at.row} * chosen.k + at.place];
    return {{source / kv_heads, head / member}, to};
  }
};

template <int kThreads, int kLoads, int kBlocks = 1, class Router>
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
  CopyPieces<kThreads, kLoads, kBlocks>
      <<<blocks, kThreads, scratch_bytes, stream>>>(from, to, PieceShape(to), route);
  CheckLaunch(name);
}

/// Blocks of 256 threads that fill the device.
int64_t DeviceBlocks() { return int64_t{8} * DeviceAttribute(cudaDevAttrMultiProcessorCount); }

/// Reads the host's memory with `blocks` blocks of 1,024 threads, each as two halves that have few
/// enough registers to run beside a block of SkinnyGemm(): whole ones would wait for its end.
template <class Router>
void ReadHost(const PagedKv& from, const PagedKv& to, const Router& route, int64_t pieces,
              int32_t blocks, const char* name, cudaStream_t stream, size_t scratch_bytes = 0) {
  constexpr int kThreads = 512, kBlocks = 3;  // 40 registers a thread
  Launch<kThreads, 4, kBlocks>(from, to, route, pieces, int64_t{2} * blocks, name, stream,
                               scratch_bytes);
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
  ReadHost(Pool(pool, cache, cache.kv_heads, rows), cache,
           FromPool{{pieces_max, count}, source, slot, head, Divider(std::max(cache.kv_heads, 1))},
           pieces_max, blocks, "ZeroCopyGather", stream);
}

void ScatterMissed(const __nv_bfloat16* pieces, const MissedUnits& missed, const CacheSlots& place,
                   const PagedKv& cache, cudaStream_t stream) {
  Launch<256, 4>(Pool(pieces, cache, 1, false), cache,
                 MissedByRow{missed, place, cache.kv_heads, true}, int64_t{missed.rows} * missed.k,
                 DeviceBlocks(), "ScatterMissed", stream, RowSumsBytes(missed.rows));
}

void ZeroCopyMissed(const __nv_bfloat16* pool, const MissedUnits& missed, const CacheSlots& place,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream) {
  ReadHost(Pool(pool, cache, cache.kv_heads, rows), cache,
           MissedByRow{missed, place, cache.kv_heads, false}, int64_t{missed.rows} * missed.k,
           blocks, "ZeroCopyMissed", stream, RowSumsBytes(missed.rows));
}

void ZeroCopyTokens(const PagedKv& pool, const ChosenTokens& chosen, const PagedKv& cache,
                    int32_t blocks, cudaStream_t stream) {
  ReadHost(pool, cache, ChosenByRow{chosen, cache.kv_heads, false}, int64_t{chosen.rows} * chosen.k,
           blocks, "ZeroCopyTokens", stream, RowSumsBytes(chosen.rows));
}

void ScatterTokens(const __nv_bfloat16* pieces, const ChosenTokens& chosen, const PagedKv& cache,
                   cudaStream_t stream) {
  Launch<256, 4>(Pool(pieces, cache, 1, false), cache, ChosenByRow{chosen, cache.kv_heads, true},
                 int64_t{chosen.rows} * chosen.k, DeviceBlocks(), "ScatterTokens", stream,
                 RowSumsBytes(chosen.rows));
}

}  // namespace stallcast::kernels
