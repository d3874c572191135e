// Which selected units are cached, and which slots take the others: a block a row.
#include <string>

#include "kernels/device/ascending.cuh"
#include "kernels/device/block_scan.cuh"
#include "kernels/runtime/cuda_error.h"
#include "kernels/selection/selection.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kMaxWords = 48 * 1024 / 4 - 1024;  // of shared memory, less the scan's

// Index of `unit` in the ascending ids, or -1.
__device__ int Find(const int32_t* ids, int count, int32_t unit) {
  const int at = CountBelow(ids, count, unit);
  return at < count && ids[at] == unit ? at : -1;
}

__device__ bool Bit(const uint32_t* words, int at) {
  return (words[at / 32] >> (at % 32) & 1) != 0;
}

constexpr uint64_t kStays = UINT64_MAX;

// Slots give way in the order of these: free ones by their number, then held ones by score, the
// larger unit first among equals.
__device__ uint64_t GivesWayAt(int slot, int32_t unit, float score) {
  if (unit < 0) return static_cast<uint64_t>(slot);
  const uint32_t bits = __float_as_uint(score + 0.0f);  // +0 for -0, which is no less
  const uint32_t ascending = bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
  return uint64_t{min(max(ascending, 1u), ~1u)} << 32 | ~static_cast<uint32_t>(unit);
}

__global__ void __launch_bounds__(kThreads)
    AssignSlotsKernel(const int32_t* __restrict__ all_ids, int k, int slots, int32_t* slot_unit,
                      int32_t* missed_unit, int32_t* missed_slot, int32_t* __restrict__ missed,
                      const int32_t* __restrict__ rows_enabled, const SlotVictims victims) {
  __shared__ uint32_t scratch[32];
  extern __shared__ uint64_t keys[];  // by slot, where there are scores
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  if (rows_enabled != nullptr && rows_enabled[row] == 0) {
    if (thread == 0) missed[row] = 0;
    return;
  }
  const int32_t* ids = all_ids + int64_t{row} * k;
  slot_unit += int64_t{row} * slots;
  missed_unit += int64_t{row} * k;
  missed_slot += int64_t{row} * k;
  const bool scored = victims.scores != nullptr;
  // Bits, by selected unit and by slot.
  uint32_t* cached = reinterpret_cast<uint32_t*>(keys + (scored ? slots : 0));
  uint32_t* available = cached + (k + 31) / 32;

  for (int word = thread; word < (k + 31) / 32; word += kThreads) cached[word] = 0;
  __syncthreads();
  for (int first = 0; first < slots; first += kThreads) {
    const int slot = first + thread;
    const int32_t unit = slot < slots ? slot_unit[slot] : -1;
    const float score =
        scored && unit >= 0 ? victims.scores[int64_t{row} * victims.units + unit] : 0;
    const int found = slot < slots ? Find(ids, k, unit) : 0;
    if (slot < slots && found >= 0) atomicOr(cached + found / 32, 1u << (found % 32));
    if (slot < slots && scored) keys[slot] = found < 0 ? GivesWayAt(slot, unit, score) : kStays;
    const uint32_t free = __ballot_sync(0xffffffffu, found < 0);
    if (slot < slots && thread % 32 == 0) available[slot / 32] = free;
  }
  __syncthreads();

  uint32_t count = 0;
  for (int first = 0; first < k; first += kThreads) {
    const int at = first + thread;
    const bool miss = at < k && !Bit(cached, at);
    uint32_t found;
    const uint32_t rank = count + BlockExclusiveSum(miss ? 1 : 0, scratch, found);
    if (miss) missed_unit[rank] = ids[at];
    count += found;
    __syncthreads();  // scratch is used again
  }
  if (thread == 0) missed[row] = static_cast<int32_t>(count);
  __syncthreads();

  if (scored) {
    // A warp a slot: its rank among those available is how many give way before it.
    const int lane = thread % 32;
    for (int slot = thread / 32; slot < slots; slot += kThreads / 32) {
      const uint64_t key = keys[slot];
      if (key == kStays) continue;
      uint32_t rank = 0;
      for (int first = 0; first < slots && rank < count; first += 32) {
        const int other = first + lane;
        rank += __popc(__ballot_sync(0xffffffffu, other < slots && keys[other] < key));
      }
      if (lane == 0 && rank < count) {
        missed_slot[rank] = slot;
        slot_unit[slot] = missed_unit[rank];
      }
    }
    return;
  }

  uint32_t taken = 0;
  for (int first = 0; first < slots && taken < count; first += kThreads) {
    const int slot = first + thread;
    const bool free = slot < slots && Bit(available, slot);
    uint32_t found;
    const uint32_t rank = taken + BlockExclusiveSum(free ? 1 : 0, scratch, found);
    if (free && rank < count) {
      missed_slot[rank] = slot;
      slot_unit[slot] = missed_unit[rank];
    }
    taken += found;
    __syncthreads();
  }
}

}  // namespace

void AssignSlots(const int32_t* ids, int32_t rows, int32_t k, int32_t slots, int32_t* slot_unit,
                 int32_t* missed_unit, int32_t* missed_slot, int32_t* missed,
                 const int32_t* rows_enabled, const SlotVictims& victims, cudaStream_t stream) {
  if (k > slots) {
    throw Error(std::to_string(k) + " units selected for " + std::to_string(slots) + " slots",
                "AssignSlots", "select no more units than there are slots");
  }
  const int64_t words =
      (int64_t{k} + 31) / 32 + (int64_t{slots} + 31) / 32 + (victims.scores ? 2 * slots : 0);
  if (words > kMaxWords) {
    throw Error(std::to_string(slots) + " slots a row", "AssignSlots",
                "use a smaller budget or larger pages");
  }
  if (rows <= 0) return;
  AssignSlotsKernel<<<static_cast<unsigned>(rows), kThreads,
                      static_cast<size_t>(words) * sizeof(uint32_t), stream>>>(
      ids, k, slots, slot_unit, missed_unit, missed_slot, missed, rows_enabled, victims);
  CheckLaunch("AssignSlots");
}

}  // namespace stallcast::kernels
