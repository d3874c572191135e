// Which experts a run's rows take: random weights and inputs would not spread them as a trained
// router does, so they are set.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

/// [rows][active]: of `count` experts `distinct` are taken, each by as many rows as any other or
/// one more, and a row takes different ones. `distinct` is at least `active` and at most the
/// smaller of `count` and rows * active. A function of its arguments alone.
std::vector<int32_t> SpreadExperts(int32_t rows, int32_t active, int32_t count, int32_t distinct,
                                   uint64_t seed);

/// Choices on the device, other ones in each layer and step. On average over layers, as many
/// distinct experts are taken as `distinct` says, which need not be whole.
class ExpertChoices {
 public:
  ExpertChoices() = default;
  ExpertChoices(int32_t rows, int32_t active, int32_t count, double distinct);
  /// [rows][active]
  const int32_t* At(int step, int layer) const;

 private:
  int64_t size_ = 0;
  Buffer<int32_t> choices_;
};

}  // namespace stallcast::kernels
