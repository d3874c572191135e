// Which row a piece is of, where a block has the pieces of all rows before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "traces/common/error.h"

namespace stallcast::kernels {

/// Shared memory of SumRows(). More rows than fit what every launch may have: Error.
inline size_t RowSumsBytes(int32_t rows) {
  constexpr int32_t kRowsMax = 8192;
  if (rows > kRowsMax) {
    throw Error(std::to_string(rows) + " rows in one recall", "recall", "use a smaller batch");
  }
  return static_cast<size_t>(rows) * sizeof(uint32_t);
}

/// Pieces of rows one after another, count(r) of row r: scratch[r] becomes the first piece after
/// row r's. Called by all threads of a block; gives the number of pieces. At least one row.
template <class Count>
__device__ uint32_t SumRows(int rows, const Count& count, uint32_t* scratch) {
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    uint32_t before = 0;
    for (int first = 0; first < rows; first += 32) {
      uint32_t sum = first + lane < rows ? count(first + lane) : 0;
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += other;
      }
      if (first + lane < rows) scratch[first + lane] = before + sum;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  __syncthreads();
  return scratch[rows - 1];
}

struct InRow {
  int row, place;
};
/// The row that holds a piece, and its place among the row's.
__device__ inline InRow FindRow(uint32_t piece, const uint32_t* scratch, int rows) {
  int begin = 0, end = rows - 1;  // the first row that ends after the piece
  while (begin < end) {
    const int middle = (begin + end) / 2;
    if (scratch[middle] <= piece) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return {begin, static_cast<int>(piece - (begin > 0 ? scratch[begin - 1] : 0))};
}

}  // namespace stallcast::kernels
