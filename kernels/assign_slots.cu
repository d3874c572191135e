// Which selected units are cached, and which slots take the others: a block a row.
#include <string>

#include "kernels/cuda_error.h"
#include "kernels/device/ascending.cuh"
#include "kernels/device/block_scan.cuh"
#include "kernels/selection.h"
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

struct Held {
  int32_t unit;  // -1: the slot is free
  float score;
};

// Whether `a` gives way before `b`: a free slot first, then the lower score, then the larger id.
__device__ bool GivesWay(Held a, Held b) {
  if (a.unit < 0 || b.unit < 0) return a.unit < b.unit;
  return a.score < b.score || (a.score == b.score && a.unit > b.unit);
}

__global__ void __launch_bounds__(kThreads)
    AssignSlotsKernel(const int32_t* __restrict__ all_ids, int k, int slots, int32_t* slot_unit,
                      int32_t* missed_unit, int32_t* missed_slot, int32_t* __restrict__ missed,
                      const int32_t* __restrict__ rows_enabled, const SlotVictims victims) {
  __shared__ uint32_t scratch[32];
  extern __shared__ uint32_t bits[];
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
  uint32_t* cached = bits;                     // by selected unit
  uint32_t* available = bits + (k + 31) / 32;  // by slot

  for (int word = thread; word < (k + 31) / 32; word += kThreads) cached[word] = 0;
  __syncthreads();
  for (int first = 0; first < slots; first += kThreads) {
    const int slot = first + thread;
    const int found = slot < slots ? Find(ids, k, slot_unit[slot]) : 0;
    if (slot < slots && found >= 0) atomicOr(cached + found / 32, 1u << (found % 32));
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

  if (victims.scores != nullptr) {
    // The rank of an available slot among them is how many give way before it.
    auto* units = reinterpret_cast<int32_t*>(available + (slots + 31) / 32);
    auto* scores = reinterpret_cast<float*>(units + slots);
    for (int slot = thread; slot < slots; slot += kThreads) {
      const int32_t unit = units[slot] = slot_unit[slot];
      scores[slot] = unit < 0 ? 0 : victims.scores[int64_t{row} * victims.units + unit];
    }
    __syncthreads();
    for (int slot = thread; slot < slots; slot += kThreads) {
      if (!Bit(available, slot)) continue;
      uint32_t rank = 0;
      for (int other = 0; other < slots && rank < count; ++other) {
        if (other == slot || !Bit(available, other)) continue;
        const bool both_free = units[slot] < 0 && units[other] < 0;
        rank += both_free ? other < slot
                          : GivesWay({units[other], scores[other]}, {units[slot], scores[slot]});
      }
      if (rank < count) {
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
