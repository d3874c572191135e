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

struct FromPacked {
  const int32_t* slot;
  const int32_t* head;
  __device__ Route operator()(uint32_t piece) const {
    return {{piece, 0}, {slot[piece], head[piece]}};
  }
};

struct ToPool {
  const int32_t* slots;
  Divider by_page;
  __device__ Route operator()(uint32_t piece) const {
    const uint32_t page = by_page.Quotient(piece);
    const int32_t head = by_page.Remainder(piece, page);
    return {{slots[page], head}, {page, head}};
  }
};

struct FromPool {
  const int64_t* source;
  const int32_t* slot;
  const int32_t* head;
  Divider by_page;
  __device__ Route operator()(uint32_t piece) const {
    const auto place = static_cast<uint32_t>(source[piece]);
    const uint32_t page = by_page.Quotient(place);
    const int32_t from_head = by_page.Remainder(place, page);
    return {{page, from_head}, {slot[piece], head[piece]}};
  }
};

template <int kThreads, int kLoads, class Router>
void Launch(const PagedKv& from, const PagedKv& to, const Router& route, int64_t pieces,
            const int32_t* count, int64_t blocks_max, const char* name, cudaStream_t stream) {
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
  CopyPieces<kThreads, kLoads><<<blocks, kThreads, 0, stream>>>(
      from, to, PieceShape(to), route, static_cast<int32_t>(pieces), count);
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
  Launch<256, 4>(Pool(pieces, cache, 1, false), cache, FromPacked{slot, head}, pieces_max, count,
                 DeviceBlocks(), "ScatterPages", stream);
}

void TransposePages(const PagedKv& cache, const int32_t* slots, int32_t pages, __nv_bfloat16* hnd,
                    cudaStream_t stream) {
  Launch<256, 4>(cache, Pool(hnd, cache, cache.kv_heads, false),
                 ToPool{slots, Divider(std::max(cache.kv_heads, 1))},
                 int64_t{pages} * cache.kv_heads, nullptr, DeviceBlocks(), "TransposePages",
                 stream);
}

void ZeroCopyGather(const __nv_bfloat16* pool, const int64_t* source, const int32_t* slot,
                    const int32_t* head, int32_t pieces_max, const int32_t* count,
                    const PagedKv& cache, bool rows, int32_t blocks, cudaStream_t stream) {
  Launch<1024, 4>(Pool(pool, cache, cache.kv_heads, rows), cache,
                  FromPool{source, slot, head, Divider(std::max(cache.kv_heads, 1))}, pieces_max,
                  count, blocks, "ZeroCopyGather", stream);
}

}  // namespace stallcast::kernels
