// A buffer of fixed size for each row's units: who is there, who comes, who leaves.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/runtime/paged_kv.h"

namespace stallcast::kernels {

/// The units that the slots of each row hold. The unit with the least time leaves first, the
/// smallest of equals.
struct HotBuffer {
  int32_t slots = 0;           ///< of a row, at most kMostHotSlots
  int32_t* unit = nullptr;     ///< [rows][slots], -1: free
  int32_t* time = nullptr;     ///< [rows][slots]: of the last use, or of coming
  bool renewed_by_use = true;  ///< least recently used leaves; else first in, first out
};
inline constexpr int32_t kMostHotSlots = 1024;

/// A step's use of it. Each row takes the ascending ids[row * k ..], which stay or come; `written`
/// (-1: none) comes without being fetched.
struct HotBufferUse {
  const int32_t* ids = nullptr;      ///< [rows][k]
  const int32_t* written = nullptr;  ///< [rows]
  const int32_t* newest = nullptr;   ///< [rows]: the slot that ends a row's table
  int32_t k = 0;                     ///< less than HotBuffer::slots
  int32_t time = 0;
  // Filled in:
  int32_t *missed_unit = nullptr, *missed_slot = nullptr;  ///< [rows][k]
  int32_t* missed = nullptr;                               ///< [rows]
  int32_t* written_slot = nullptr;                         ///< [rows], -1: none
  int32_t* table = nullptr;  ///< [rows][k + 1]: slots of ids, then `newest`
};

/// Error: more than kMostHotSlots slots, or no slot beside the k.
void UseHotBuffer(const HotBuffer& buffer, const HotBufferUse& use, int32_t rows,
                  cudaStream_t stream);

/// Copies each row's keys and values of page from[row] of its sequence to page to[row] (-1: none).
/// A sequence has `slots` pages of the cache.
void MovePages(const PagedKv& cache, const int32_t* from, const int32_t* to, int32_t slots,
               int32_t rows, cudaStream_t stream);

}  // namespace stallcast::kernels
