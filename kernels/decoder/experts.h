// A mixture of experts in a decode step: which rows take which experts, and the experts' GEMMs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

/// Rows that take one expert, at places first to first + rows - 1.
struct alignas(16) ExpertGroup {
  static constexpr int32_t kRowsMax = 8;
  int32_t expert, first, rows, unused;
};

/// Who takes which expert, on the device. A pair is a row and one of the `active` experts that it
/// takes. Pairs are sorted by expert, then by row: each has a place, 0 to pairs() - 1. An expert
/// that more than ExpertGroup::kRowsMax rows take has several groups.
struct Routing {
  int32_t rows = 0, experts = 0, active = 0;
  int32_t* groups = nullptr;     ///< how many of `group` there are
  ExpertGroup* group = nullptr;  ///< [pairs], ascending by expert
  int32_t* row_of = nullptr;     ///< [place]
  int32_t* place_of = nullptr;   ///< [row][active], best expert first
  float* weight = nullptr;       ///< [row][active], of a row they add up to 1
  int32_t pairs() const { return rows * active; }
};

/// The memory of a Routing.
class RoutingMemory {
 public:
  RoutingMemory() = default;
  RoutingMemory(int32_t rows, int32_t experts, int32_t active);
  const Routing& routing() const { return routing_; }

 private:
  Routing routing_;
  Buffer<int32_t> groups_, row_of_, place_of_;
  Buffer<ExpertGroup> group_;
  Buffer<float> weight_;
};

/// Fills in `to` from logits [rows][experts]: each row's `active` largest, ties to the smaller
/// expert, weighted by the softmax over them (that over all experts, made to add up to 1). NaN
/// counts as the least. With `chosen` ([rows][active], of a row all different) these experts take
/// the places of the best ones, whose weights stay. Errors: more than 512 experts, 32 active ones
/// or 8,192 pairs.
void Route(const __nv_bfloat16* logits, const int32_t* chosen, const Routing& to,
           cudaStream_t stream);

/// Whether GroupedGemm() and, with `sums`, GroupedGemmSum() have such a shape on the current
/// device: n a multiple of 8, k of 64, and the pairs fit in shared memory.
bool HasGroupedGemm(const Routing& of, int64_t n, int64_t k, bool sums);

/// c[place][n] = a[row_of[place]][k] B^T, where B is b[expert][n][k] of the place's expert. bf16,
/// float accumulation, 16-byte aligned. Each taken expert's weights are read once a group. Errors:
/// a shape that it does not have.
void GroupedGemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                 const Routing& routing, int64_t n, int64_t k, cudaStream_t stream);

/// c[row][n] = the sum over the row's experts of weight * (a[place][k] B^T), added in the order of
/// the row's experts; with `adds` that much more than it was.
void GroupedGemmSum(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                    const Routing& routing, int64_t n, int64_t k, bool adds, cudaStream_t stream);

}  // namespace stallcast::kernels
