#include "models/methods/output_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stallcast::methods {

OutputSums::OutputSums(const LayerTensors& tensors, int64_t rows)
    : tensors_(tensors),
      dim_(tensors.value_dim()),
      values_(static_cast<size_t>(kPanel * dim_)),
      panels_(static_cast<size_t>((dim_ + kPanel - 1) / kPanel * kPanel * kPanel)),
      products_(static_cast<size_t>(kRowBlock * kPanel)) {
  for (Part& part : parts_) {
    part.weights.resize(static_cast<size_t>(kRowBlock * kPanel));
    part.sums.resize(static_cast<size_t>(rows * dim_));
  }
}

void OutputSums::LoadPanel(int kv_head, int64_t begin, int64_t count) {
  tensors_.ReadValues(kv_head, begin, count, values_.data());
  for (int64_t c = 0; c < dim_; c += kPanel) {
    const int64_t columns = std::min(kPanel, dim_ - c);
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(values_.data() + t * dim_ + c, columns, Panel(c) + t * kPanel);
    }
  }
  begin_ = begin;
}

void OutputSums::SetRow(int64_t r, const float* weights, int64_t count, float shrink,
                        std::span<const AttendedRanges::Range> attended) {
  float* kept = parts_[0].weights.data() + r * kPanel;
  float* rest = parts_[1].weights.data() + r * kPanel;
  std::fill_n(kept, kPanel, 0.0f);
  std::copy_n(weights, count, rest);
  std::fill_n(rest + count, kPanel - count, 0.0f);
  shrink_[r] = shrink;
  int64_t moved = 0;
  auto range = std::partition_point(attended.begin(), attended.end(),
                                    [&](const auto& a) { return a.end <= begin_; });
  for (; range != attended.end() && range->begin < begin_ + count; ++range) {
    const int64_t first = std::max<int64_t>(range->begin - begin_, 0);
    const int64_t last = std::min<int64_t>(range->end - begin_, count);
    std::copy(rest + first, rest + last, kept + first);
    std::fill(rest + first, rest + last, 0.0f);
    moved += last - first;
  }
  parts_[0].empty &= moved == 0;
  parts_[1].empty &= moved == count;
}

void OutputSums::Add(int64_t row, int64_t count) {
  for (Part& part : parts_) {
    for (int64_t c = 0; c < dim_; c += kPanel) {
      const int64_t columns = std::min(kPanel, dim_ - c);
      if (part.empty) {
        std::fill(products_.begin(), products_.end(), 0.0f);
      } else {
        PanelDots(part.weights.data(), count, kPanel, Panel(c), columns, products_.data(), kPanel);
      }
      for (int64_t r = 0; r < count; ++r) {
        float* sums = part.sums.data() + (row + r) * dim_ + c;
        const float* product = products_.data() + r * kPanel;
        for (int64_t i = 0; i < columns; ++i) sums[i] = sums[i] * shrink_[r] + product[i];
      }
    }
    part.empty = true;
  }
}

double OutputSums::RelativeError(int64_t row, const OnlineSoftmax& softmax, double sink) const {
  double difference = 0, norm = 0;
  for (int64_t i = row * dim_; i < (row + 1) * dim_; ++i) {
    const double kept = parts_[0].sums[i];
    const double full = (kept + parts_[1].sums[i]) / (softmax.total + sink);
    const double sparse = softmax.covered > 0 ? kept / (softmax.covered + sink) : 0;
    difference += (sparse - full) * (sparse - full);
    norm += full * full;
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace stallcast::methods
