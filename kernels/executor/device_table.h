// Small tables that every step reads on the device, made on the host before the run.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/runtime/upload.h"

namespace stallcast::kernels {

/// `rows` x `columns` integers a step.
class StepTable {
 public:
  StepTable() = default;
  /// value(step, row, column)
  template <class F>
  StepTable(int steps, int64_t rows, int64_t columns, const F& value) : size_(rows * columns) {
    std::vector<int32_t> all;
    all.reserve(static_cast<size_t>(steps * size_));
    for (int step = 0; step < steps; ++step) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
          all.push_back(static_cast<int32_t>(value(step, row, column)));
        }
      }
    }
    data_ = Uploaded(all);
  }
  const int32_t* At(int step) const { return data_.get() + step * size_; }

 private:
  Buffer<int32_t> data_;
  int64_t size_ = 0;
};

}  // namespace stallcast::kernels
