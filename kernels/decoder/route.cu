// The router's choice, in one block: a warp ranks the experts of a row, then a thread an expert
// looks for the rows that take it. So few pairs are sorted sooner than a sort would begin.
#include <algorithm>
#include <string>

#include "kernels/decoder/experts.h"
#include "kernels/device/row_sums.cuh"
#include "kernels/runtime/cuda_error.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;
constexpr int kExpertsMax = 512, kActiveMax = 32, kPairsMax = 8192;
constexpr unsigned kFullWarp = 0xffffffff;

/// Larger for a larger logit, and of equal ones for the smaller expert; never 0.
__device__ uint64_t Rank(float logit, int expert) {
  if (isnan(logit)) logit = -INFINITY;
  const uint32_t bits = __float_as_uint(logit + 0.0F);  // -0 is 0
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | static_cast<uint32_t>(INT32_MAX - expert);
}

__device__ int ExpertOf(uint64_t rank) { return INT32_MAX - static_cast<int>(rank & 0xffffffffu); }

__device__ float LogitOf(uint64_t rank) {
  const auto order = static_cast<uint32_t>(rank >> 32);
  return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/// kEach: experts a lane. Shared memory: an expert of each pair, then rows and groups up to each
/// expert.
template <int kEach>
__global__ void __launch_bounds__(kThreads)
    RouteKernel(const __nv_bfloat16* logits, const int32_t* chosen, Routing to) {
  extern __shared__ int32_t expert_of[];  // by pair
  const int pairs = to.rows * to.active;
  auto* const rows_until = reinterpret_cast<uint32_t*>(expert_of + pairs);
  auto* const groups_until = rows_until + to.experts;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;

  for (int row = thread / 32; row < to.rows; row += kWarps) {
    uint64_t rank[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int expert = lane + 32 * i;
      rank[i] = expert < to.experts
                    ? Rank(__bfloat162float(logits[int64_t{row} * to.experts + expert]), expert)
                    : 0;
    }
    uint64_t mine = 0, first = 0;  // the lane's of the best, and the best
    for (int j = 0; j < to.active; ++j) {
      uint64_t best = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) best = max(best, rank[i]);
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        best = max(best, __shfl_xor_sync(kFullWarp, best, lanes));
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (rank[i] == best) rank[i] = 0;
      }
      if (j == 0) first = best;
      if (lane == j) mine = best;
    }
    const bool holds = lane < to.active;
    // Equal logits weigh the same, infinite ones too.
    const float less = LogitOf(mine) == LogitOf(first) ? 0 : LogitOf(mine) - LogitOf(first);
    const float part = holds ? __expf(less) : 0;
    float sum = part;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(kFullWarp, sum, lanes);
    if (holds) {
      const int pair = row * to.active + lane;
      expert_of[pair] = chosen != nullptr ? chosen[pair] : ExpertOf(mine);
      to.weight[pair] = part / sum;
    }
  }
  __syncthreads();

  const int expert = thread;
  uint32_t rows = 0;
  if (expert < to.experts) {
    for (int pair = 0; pair < pairs; ++pair) rows += expert_of[pair] == expert;
    rows_until[expert] = rows;
    groups_until[expert] = (rows + ExpertGroup::kRowsMax - 1) / ExpertGroup::kRowsMax;
  }
  __syncthreads();
  SumRows(
      to.experts, [&](int of) { return rows_until[of]; }, rows_until);
  const uint32_t groups = SumRows(
      to.experts, [&](int of) { return groups_until[of]; }, groups_until);
  if (thread == 0) *to.groups = static_cast<int32_t>(groups);
  if (expert >= to.experts || rows == 0) return;
  const auto before = static_cast<int32_t>(rows_until[expert] - rows);
  int32_t place = before;
  for (int pair = 0; pair < pairs; ++pair) {
    if (expert_of[pair] != expert) continue;
    to.row_of[place] = pair / to.active;
    to.place_of[pair] = place++;
  }
  auto group = static_cast<int32_t>(expert > 0 ? groups_until[expert - 1] : 0);
  for (int32_t first = before; first < place; first += ExpertGroup::kRowsMax) {
    to.group[group++] = {expert, first, min(place - first, ExpertGroup::kRowsMax), 0};
  }
}

}  // namespace

RoutingMemory::RoutingMemory(int32_t rows, int32_t experts, int32_t active)
    : groups_(1),
      row_of_(int64_t{rows} * active),
      place_of_(int64_t{rows} * active),
      group_(int64_t{rows} * active),
      weight_(int64_t{rows} * active) {
  routing_ = {rows,         experts,       active,          groups_.get(),
              group_.get(), row_of_.get(), place_of_.get(), weight_.get()};
  Zero(groups_);  // before the first Route() nobody takes any
}

void Route(const __nv_bfloat16* logits, const int32_t* chosen, const Routing& to,
           cudaStream_t stream) {
  if (to.rows < 0 || to.active < 1 || to.active > to.experts || to.active > kActiveMax ||
      to.experts > kExpertsMax || int64_t{to.rows} * to.active > kPairsMax) {
    throw Error(std::to_string(to.rows) + " rows with " + std::to_string(to.active) + " of " +
                    std::to_string(to.experts) + " experts each",
                "Route", "use at most 512 experts, 32 active ones and 8,192 pairs");
  }
  if (to.rows == 0) return;
  const size_t shared =
      (static_cast<size_t>(to.pairs()) + 2 * static_cast<size_t>(to.experts)) * sizeof(int32_t);
  const auto launch = [&](auto kernel) {
    kernel<<<1, kThreads, shared, stream>>>(logits, chosen, to);
    CheckLaunch("Route");
  };
  if (to.experts <= 32) {
    launch(RouteKernel<1>);
  } else if (to.experts <= 64) {
    launch(RouteKernel<2>);
  } else if (to.experts <= 128) {
    launch(RouteKernel<4>);
  } else if (to.experts <= 256) {
    launch(RouteKernel<8>);
  } else {
    launch(RouteKernel<16>);
  }
}

}  // namespace stallcast::kernels
