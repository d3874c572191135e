// A block a row.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/device/block_scan.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/hot_buffer.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr uint64_t kStays = UINT64_MAX;

__device__ int Find(const int32_t* ids, int count, int32_t unit) {
  const int at = CountBelow(ids, count, unit);
  return at < count && ids[at] == unit ? at : -1;
}

// The least leaves first: free slots, then by time and unit.
__device__ uint64_t Order(int slot, int32_t unit, int32_t time) {
  if (unit < 0) return static_cast<uint64_t>(slot);
  const uint32_t ascending = static_cast<uint32_t>(time) ^ 0x80000000u;
  return uint64_t{max(ascending, 1u)} << 32 | static_cast<uint32_t>(unit);
}

__global__ void __launch_bounds__(kThreads) UseHotBufferKernel(HotBuffer buffer, HotBufferUse use) {
  __shared__ uint32_t scratch[32];
  __shared__ uint64_t order[kMostHotSlots];      // by slot
  __shared__ int32_t missed_at[kMostHotSlots];   // of each missed unit, its place in ids
  __shared__ uint32_t held[kMostHotSlots / 32];  // bits, by place in ids
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int k = use.k, slots = buffer.slots;
  const int32_t* ids = use.ids + int64_t{row} * k;
  int32_t* units = buffer.unit + int64_t{row} * slots;
  int32_t* times = buffer.time + int64_t{row} * slots;
  int32_t* missed_unit = use.missed_unit + int64_t{row} * k;
  int32_t* missed_slot = use.missed_slot + int64_t{row} * k;
  int32_t* table = use.table + int64_t{row} * (k + 1);
  const int32_t written = use.written[row];
  const int written_at = written < 0 ? -1 : Find(ids, k, written);

  for (int word = thread; word < (k + 31) / 32; word += kThreads) held[word] = 0;
  __syncthreads();
  for (int slot = thread; slot < slots; slot += kThreads) {
    const int32_t unit = units[slot];
    const int at = unit < 0 ? -1 : Find(ids, k, unit);
    order[slot] = at < 0 ? Order(slot, unit, times[slot]) : kStays;
    if (at < 0) continue;
    atomicOr(held + at / 32, 1u << (at % 32));
    table[at] = slot;
    if (buffer.renewed_by_use) times[slot] = use.time;
  }
  __syncthreads();

  uint32_t count = 0;
  for (int first = 0; first < k; first += kThreads) {
    const int at = first + thread;
    const bool miss = at < k && at != written_at && (held[at / 32] >> (at % 32) & 1) == 0;
    uint32_t found;
    const uint32_t rank = count + BlockExclusiveSum(miss ? 1 : 0, scratch, found);
    if (miss) missed_unit[rank] = ids[at], missed_at[rank] = at;
    count += found;
    __syncthreads();  // scratch is used again
  }
  if (thread == 0) {
    use.missed[row] = static_cast<int32_t>(count);
    table[k] = use.newest[row];
    if (written < 0) use.written_slot[row] = -1;
  }
  __syncthreads();

  // A warp a slot: its rank is how many leave before it.
  const uint32_t coming = count + (written < 0 ? 0 : 1);
  const int lane = thread % 32;
  for (int slot = thread / 32; slot < slots; slot += kThreads / 32) {
    const uint64_t own = order[slot];
    if (own == kStays) continue;
    uint32_t rank = 0;
    for (int first = 0; first < slots && rank < coming; first += 32) {
      const int other = first + lane;
      rank += __popc(__ballot_sync(0xffffffffu, other < slots && order[other] < own));
    }
    if (lane != 0 || rank >= coming) continue;
    times[slot] = use.time;
    if (rank < count) {
      missed_slot[rank] = slot;
      units[slot] = missed_unit[rank];
      table[missed_at[rank]] = slot;
    } else {
      use.written_slot[row] = slot;
      units[slot] = written;
      if (written_at >= 0) table[written_at] = slot;
    }
  }
}

__global__ void MovePagesKernel(PagedKv cache, const int32_t* __restrict__ from,
                                const int32_t* __restrict__ to, int32_t slots) {
  const int row = static_cast<int>(blockIdx.x);
  const int sequence = row / cache.kv_heads, head = row % cache.kv_heads;
  if (to[row] < 0) return;
  const auto page = [&](int32_t slot) {
    return cache.data + (int64_t{sequence} * slots + slot) * cache.slot_stride +
           head * cache.head_stride;
  };
  const __nv_bfloat16* source = page(from[row]);
  __nv_bfloat16* target = page(to[row]);
  const int vectors = cache.head_dim / 8;  // of 16 bytes
  for (int i = static_cast<int>(threadIdx.x); i < 2 * cache.page_tokens * vectors;
       i += static_cast<int>(blockDim.x)) {
    const int vector = i % vectors, token = i / vectors % cache.page_tokens;
    const int kv = i / vectors / cache.page_tokens;
    const int64_t at = kv * cache.kv_stride + token * cache.token_stride + vector * 8;
    *reinterpret_cast<uint4*>(target + at) = *reinterpret_cast<const uint4*>(source + at);
  }
}

}  // namespace

void UseHotBuffer(const HotBuffer& buffer, const HotBufferUse& use, int32_t rows,
                  cudaStream_t stream) {
  if (buffer.slots > kMostHotSlots) {
    throw UsageError(std::to_string(buffer.slots) + " units a buffer", "buffer",
                     "use a smaller one, or larger pages: a GPU run has " +
                         std::to_string(kMostHotSlots) + " at most");
  }
  if (use.k >= buffer.slots) {
    throw Error(std::to_string(use.k) + " units used of " + std::to_string(buffer.slots),
                "UseHotBuffer", "leave one for what is written");
  }
  if (rows <= 0) return;
  UseHotBufferKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(buffer, use);
  CheckLaunch("UseHotBuffer");
}

void MovePages(const PagedKv& cache, const int32_t* from, const int32_t* to, int32_t slots,
               int32_t rows, cudaStream_t stream) {
  if (rows <= 0) return;
  MovePagesKernel<<<static_cast<unsigned>(rows), 256, 0, stream>>>(cache, from, to, slots);
  CheckLaunch("MovePages");
}

}  // namespace stallcast::kernels
