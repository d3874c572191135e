#include "models/methods/vector_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/methods/vector_kernels.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After highway.h: it has a part for each target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stallcast::methods {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, kPanel / 2>;
using V = hn::Vec<D>;

// Far below every logit, far above where arithmetic on it could overflow.
constexpr float kNever = -1e30f;

// Rows times two vectors of accumulators must fit the registers: 32 with AVX-512, else 16.
constexpr int64_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
static_assert(kRowBlock % kRows == 0);

void Dots(const float* HWY_RESTRICT rows, int64_t row_count, int64_t dim,
          const float* HWY_RESTRICT panel, int64_t columns, float* HWY_RESTRICT out,
          int64_t out_stride) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < row_count; first += kRows) {
    // Rows past the last repeat it, so that the loop below has a fixed length.
    const float* row[kRows];
    float* to[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t at = std::min(first + r, row_count - 1);
      row[r] = rows + at * dim;
      to[r] = out + at * out_stride;
    }
    for (int64_t c = 0; c < columns; c += 2 * lanes) {
      V sum0[kRows], sum1[kRows];
      for (int64_t r = 0; r < kRows; ++r) sum0[r] = sum1[r] = hn::Zero(d);
      const float* HWY_RESTRICT column = panel + c;
      for (int64_t i = 0; i < dim; ++i, column += kPanel) {
        const V k0 = hn::LoadU(d, column);
        const V k1 = hn::LoadU(d, column + lanes);
        for (int64_t r = 0; r < kRows; ++r) {
          const V q = hn::Set(d, row[r][i]);
          sum0[r] = hn::MulAdd(q, k0, sum0[r]);
          sum1[r] = hn::MulAdd(q, k1, sum1[r]);
        }
      }
      for (int64_t r = 0; r < kRows; ++r) {
        hn::StoreU(sum0[r], d, to[r] + c);
        hn::StoreU(sum1[r], d, to[r] + c + lanes);
      }
    }
  }
}

// Two dimensions at once: 16-bit products are added in pairs.
#if HWY_TARGET == HWY_SCALAR
void Closeness(const int16_t* HWY_RESTRICT rows, int64_t row_count, int64_t dim,
               const int16_t* HWY_RESTRICT panel, const int32_t* HWY_RESTRICT norms,
               int32_t* HWY_RESTRICT out, int32_t* HWY_RESTRICT most) {
  for (int64_t r = 0; r < row_count; ++r, rows += dim, out += kPanel) {
    std::fill_n(out, kPanel, 0);
    for (int64_t i = 0; i < dim; ++i) {
      const int16_t* column = panel + i / 2 * 2 * kPanel + i % 2;
      for (int64_t c = 0; c < kPanel; ++c) out[c] += rows[i] * column[2 * c];
    }
    for (int64_t c = 0; c < kPanel; ++c) out[c] = 2 * out[c] - norms[c];
    most[r] = *std::max_element(out, out + kPanel);
  }
}
#else
void Closeness(const int16_t* HWY_RESTRICT rows, int64_t row_count, int64_t dim,
               const int16_t* HWY_RESTRICT panel, const int32_t* HWY_RESTRICT norms,
               int32_t* HWY_RESTRICT out, int32_t* HWY_RESTRICT most) {
  const hn::CappedTag<int32_t, kPanel / 2> d;
  const hn::Repartition<int16_t, decltype(d)> narrow;
  using Wide = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < row_count; first += kRows) {
    const int16_t* row[kRows];
    int64_t at[kRows];
    Wide largest[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      at[r] = std::min(first + r, row_count - 1);
      row[r] = rows + at[r] * dim;
      largest[r] = hn::Set(d, std::numeric_limits<int32_t>::min());
    }
    for (int64_t c = 0; c < kPanel; c += 2 * lanes) {
      // Some machines add the odd products to a sum of their own.
      Wide sum0[kRows], sum1[kRows], odd0[kRows], odd1[kRows];
      for (int64_t r = 0; r < kRows; ++r) {
        sum0[r] = sum1[r] = odd0[r] = odd1[r] = hn::Zero(d);
      }
      const int16_t* HWY_RESTRICT column = panel + 2 * c;
      for (int64_t i = 0; i < dim; i += 2, column += 2 * kPanel) {
        const auto k0 = hn::LoadU(narrow, column);
        const auto k1 = hn::LoadU(narrow, column + 2 * lanes);
        for (int64_t r = 0; r < kRows; ++r) {
          int32_t pair;
          std::memcpy(&pair, row[r] + i, sizeof(pair));
          const auto q = hn::BitCast(narrow, hn::Set(d, pair));
          sum0[r] = hn::ReorderWidenMulAccumulate(d, q, k0, sum0[r], odd0[r]);
          sum1[r] = hn::ReorderWidenMulAccumulate(d, q, k1, sum1[r], odd1[r]);
        }
      }
      const Wide n0 = hn::LoadU(d, norms + c), n1 = hn::LoadU(d, norms + c + lanes);
      for (int64_t r = 0; r < kRows; ++r) {
        const Wide dot0 = hn::RearrangeToOddPlusEven(sum0[r], odd0[r]);
        const Wide dot1 = hn::RearrangeToOddPlusEven(sum1[r], odd1[r]);
        const Wide close0 = hn::Sub(hn::Add(dot0, dot0), n0);
        const Wide close1 = hn::Sub(hn::Add(dot1, dot1), n1);
        hn::StoreU(close0, d, out + at[r] * kPanel + c);
        hn::StoreU(close1, d, out + at[r] * kPanel + c + lanes);
        largest[r] = hn::Max(largest[r], hn::Max(close0, close1));
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      most[at[r]] = hn::GetLane(hn::MaxOfLanes(d, largest[r]));
    }
  }
}
#endif

HWY_INLINE float Total(D d, V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

float Sum(D d, const float* values, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sum = hn::Add(sum, hn::LoadU(d, values + i));
  float total = Total(d, sum);
  for (; i < count; ++i) total += values[i];
  return total;
}

void Accumulate(OnlineSoftmax& softmax, float* HWY_RESTRICT dots, int64_t first, int64_t count,
                float scale, std::span<const AttendedRanges::Range> attended) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded = (count + lanes - 1) / lanes * lanes;
  std::fill(dots + count, dots + padded, kNever);
  V largest = hn::Set(d, kNever);
  for (int64_t i = 0; i < padded; i += lanes) largest = hn::Max(largest, hn::LoadU(d, dots + i));
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest)) * scale;
  if (max > softmax.max) {
    const double shrink = std::exp(static_cast<double>(softmax.max) - max);
    softmax.total *= shrink;
    softmax.covered *= shrink;
    softmax.max = max;
  }
  const V factor = hn::Set(d, scale);
  const V shift = hn::Set(d, softmax.max);
  V sum = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += lanes) {
    const V weight = hn::Exp(d, hn::MulSub(hn::LoadU(d, dots + i), factor, shift));
    hn::StoreU(weight, d, dots + i);
    sum = hn::Add(sum, weight);
  }
  const float total = Total(d, sum);
  softmax.total += static_cast<double>(total);
  auto range = std::partition_point(attended.begin(), attended.end(),
                                    [&](const auto& r) { return r.end <= first; });
  for (; range != attended.end() && range->begin < first + count; ++range) {
    const int64_t begin = std::max<int64_t>(range->begin - first, 0);
    const int64_t end = std::min<int64_t>(range->end - first, count);
    // A whole panel takes the same sum as the total, so that full attendance is exactly 1.
    softmax.covered +=
        static_cast<double>(end - begin == count ? total : Sum(d, dots + begin, end - begin));
  }
}

// Logits of one vector less `less`, those past `count` replaced by kNever. Multiplied and
// subtracted at once in the last vector as in all others: equal scores give equal logits, wherever
// they stand.
HWY_INLINE V Logits(D d, const float* row, int64_t i, int64_t count, V scale, V less) {
  const V logits = hn::MulSub(hn::LoadU(d, row + i), scale, less);
  if (i + static_cast<int64_t>(hn::Lanes(d)) <= count) return logits;
  const auto valid = hn::FirstN(d, static_cast<size_t>(count - i));
  return hn::IfThenElse(valid, logits, hn::Set(d, kNever));
}

float LogSumExp(const float* HWY_RESTRICT row, int64_t count, float scale) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  V largest = hn::Set(d, kNever);
  for (int64_t i = 0; i < count; i += lanes) {
    largest = hn::Max(largest, Logits(d, row, i, count, factor, hn::Zero(d)));
  }
  const float max = hn::GetLane(hn::MaxOfLanes(d, largest));
  V sum = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    sum = hn::Add(sum, hn::Exp(d, Logits(d, row, i, count, factor, hn::Set(d, max))));
  }
  return max + std::log(Total(d, sum));
}

// out[j] = log of the mean over rows of exp(scale * row[j] - normal of the row).
void LogMean(std::span<const float* const> rows, std::span<const float> normal, int64_t count,
             float scale, float* HWY_RESTRICT out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  const V log_rows = hn::Set(d, std::log(static_cast<float>(rows.size())));
  const auto log = [&](size_t r, int64_t i) HWY_ATTR {
    return Logits(d, rows[r], i, count, factor, hn::Set(d, normal[r]));
  };
  for (int64_t i = 0; i < count; i += lanes) {
    V largest = log(0, i);
    for (size_t r = 1; r < rows.size(); ++r) largest = hn::Max(largest, log(r, i));
    V sum = hn::Zero(d);
    for (size_t r = 0; r < rows.size(); ++r) {
      sum = hn::Add(sum, hn::Exp(d, hn::Sub(log(r, i), largest)));
    }
    hn::StoreU(hn::Sub(hn::Add(largest, hn::Log(d, sum)), log_rows), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace stallcast::methods
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stallcast::methods {

HWY_EXPORT(Dots);
HWY_EXPORT(Closeness);
HWY_EXPORT(Accumulate);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(LogMean);

void PackPanel(const float* columns, int64_t count, int64_t dim, float* panel) {
  if (count < kPanel) std::memset(panel, 0, sizeof(float) * static_cast<size_t>(dim * kPanel));
  // In tiles whose source and target lines both stay in L1.
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < dim; i0 += kTile) {
    const int64_t i1 = std::min(dim, i0 + kTile);
    for (int64_t c0 = 0; c0 < count; c0 += kTile) {
      const int64_t c1 = std::min(count, c0 + kTile);
      for (int64_t i = i0; i < i1; ++i) {
        for (int64_t c = c0; c < c1; ++c) panel[i * kPanel + c] = columns[c * dim + i];
      }
    }
  }
}

void PanelDots(const float* rows, int64_t row_count, int64_t dim, const float* panel,
               int64_t columns, float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(Dots)(rows, row_count, dim, panel, columns, out, out_stride);
}

void PackWholePanel(const int16_t* columns, int64_t count, int64_t dim, int16_t* panel) {
  if (count < kPanel) std::memset(panel, 0, sizeof(int16_t) * static_cast<size_t>(dim * kPanel));
  for (int64_t i = 0; i < dim; i += 2) {
    for (int64_t c = 0; c < count; ++c) {
      std::memcpy(panel + i * kPanel + 2 * c, columns + c * dim + i, 2 * sizeof(int16_t));
    }
  }
}

void PanelCloseness(const int16_t* rows, int64_t row_count, int64_t dim, const int16_t* panel,
                    const int32_t* norms, int32_t* out, int32_t* most) {
  HWY_DYNAMIC_DISPATCH(Closeness)(rows, row_count, dim, panel, norms, out, most);
}

void AddToSoftmax(OnlineSoftmax& softmax, float* dots, int64_t first, int64_t count, float scale,
                  std::span<const AttendedRanges::Range> attended) {
  HWY_DYNAMIC_DISPATCH(Accumulate)(softmax, dots, first, count, scale, attended);
}

static std::vector<float> LogSumExps(std::span<const float* const> rows, int64_t count,
                                     float scale) {
  std::vector<float> sums;
  for (const float* row : rows) {
    sums.push_back(HWY_DYNAMIC_DISPATCH(LogSumExp)(row, count, scale));
  }
  return sums;
}

void LogMeanSoftmax(std::span<const float* const> rows, int64_t count, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(LogMean)(rows, LogSumExps(rows, count, scale), count, scale, out);
}

void LogMaxSoftmax(std::span<const float* const> rows, int64_t count, float scale, float* out) {
  const std::vector<float> normal = LogSumExps(rows, count, scale);
  std::fill(out, out + count, -std::numeric_limits<float>::infinity());
  for (size_t r = 0; r < rows.size(); ++r) {
    const float* row = rows[r];
    for (int64_t i = 0; i < count; ++i) out[i] = std::max(out[i], row[i] * scale - normal[r]);
  }
}

}  // namespace stallcast::methods
#endif  // HWY_ONCE
