// The inner loops of a replay, vectorised for the machine that runs them (Highway).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "models/methods/layer_tensors.h"

namespace stallcast::methods {

/// Columns that PanelDots() multiplies at once; a panel of 128-dimensional keys is 128 KiB, in L2.
inline constexpr int64_t kPanel = 256;
/// Rows that it multiplies at once.
inline constexpr int64_t kRowBlock = 8;

/// Packs `count` <= kPanel columns, [column][dim], as [dim][kPanel]; the rest is zero.
void PackPanel(const float* columns, int64_t count, int64_t dim, float* panel);

/// out[r * out_stride + c] = dot(row r, column c) for `row_count` <= kRowBlock rows, [row][dim].
/// Columns are written in whole vectors: up to kPanel a row, those past `columns` are zero.
void PanelDots(const float* rows, int64_t row_count, int64_t dim, const float* panel,
               int64_t columns, float* out, int64_t out_stride);

/// Packs `count` <= kPanel columns of whole numbers, [column][dim] with an even dim, as
/// [dim / 2][kPanel][2]; the rest is zero.
void PackWholePanel(const int16_t* columns, int64_t count, int64_t dim, int16_t* panel);

/// How near each column is to each row, exactly: out[r * kPanel + c] = 2 dot(row r, column c) -
/// norms[c], which is |row|^2 less the squared distance where a norm is |column|^2. `most` has the
/// largest of each row. Sums must stay under 2^31. Products of 16 bits are twice as fast as those
/// of floats.
void PanelCloseness(const int16_t* rows, int64_t row_count, int64_t dim, const int16_t* panel,
                    const int32_t* norms, int32_t* out, int32_t* most);

/// One row's softmax, panel by panel: weights relative to the largest logit so far.
struct OnlineSoftmax {
  float max = -std::numeric_limits<float>::infinity();
  double total = 0;    ///< sum of exp(logit - max)
  double covered = 0;  ///< the same over the attended tokens
};

/// Adds `count` tokens from `first` on, of which `attended` ones are covered. `dots` (times
/// `scale`: logits) has room for kPanel values and is overwritten. `attended` is ascending; ranges
/// outside the panel are ignored.
void AddToSoftmax(OnlineSoftmax& softmax, float* dots, int64_t first, int64_t count, float scale,
                  std::span<const AttendedRanges::Range> attended);

/// out[j] = log of the mean over rows r of softmax(scale * row r)[j], for j < count: ranks as the
/// mean of the softmaxes does, without its underflow. Rows and `out` must have room for
/// count + kPanel values; what lies past `count` is not used.
void LogMeanSoftmax(std::span<const float* const> rows, int64_t count, float scale, float* out);
/// The same of the largest of the softmaxes.
void LogMaxSoftmax(std::span<const float* const> rows, int64_t count, float scale, float* out);

}  // namespace stallcast::methods
