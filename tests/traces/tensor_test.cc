#include "traces/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/traces/sample.h"
#include "traces/common/error.h"

namespace stallcast::traces {
namespace {

// A one-head tensor of one row holding every bit pattern of two bytes.
Tensor EveryPattern(DType dtype) {
  Tensor tensor;
  tensor.spec = SampleSpec(TensorKind::kKey, dtype, 0, 0, 1);
  tensor.spec.heads = 1;
  tensor.spec.head_dim = 1 << 16;
  tensor.data.resize(tensor.spec.bytes());
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    std::memcpy(tensor.data.data() + 2 * bits, &pattern, 2);
  }
  return tensor;
}

// The value of a float of `exponent_bits` and `mantissa_bits`, from its definition.
double Defined(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const double sign = bits >> 15 ? -1 : 1;
  const int top = (1 << exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & top;
  const double mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = top / 2;
  if (exponent == top) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign *
         std::ldexp(mantissa + std::ldexp(1, mantissa_bits), exponent - bias - mantissa_bits);
}

void ExpectWidens(DType dtype, int exponent_bits, int mantissa_bits) {
  const Tensor tensor = EveryPattern(dtype);
  std::vector<float> values(1 << 16);
  tensor.ToFloat(0, 0, 1, values.data());
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const double want = Defined(bits, exponent_bits, mantissa_bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(values[bits])) << bits;
    } else {
      ASSERT_EQ(values[bits], want) << bits;
      ASSERT_EQ(std::signbit(values[bits]), std::signbit(want)) << bits;
    }
  }
}

TEST(TensorTest, Bf16WidensExactly) { ExpectWidens(DType::kBf16, 8, 7); }
TEST(TensorTest, Fp16WidensExactly) { ExpectWidens(DType::kFp16, 5, 10); }

TEST(TensorTest, CountsInfinitiesAndNans) {
  // Both signs of infinity and all NaNs: every pattern with all exponent bits set.
  EXPECT_EQ(CountNonFinite(EveryPattern(DType::kBf16)), 2 << 7);
  EXPECT_EQ(CountNonFinite(EveryPattern(DType::kFp16)), 2 << 10);
  Tensor tensor;
  tensor.spec = SampleSpec(TensorKind::kKey, DType::kFp32, 0, 0, 1);
  const float values[8] = {0, 1, INFINITY, -INFINITY, NAN, 3.4e38f, -1e-45f, 2};
  tensor.data.resize(32);
  std::memcpy(tensor.data.data(), values, 32);
  EXPECT_EQ(CountNonFinite(tensor), 3);
}

TEST(TensorTest, RowsFindHeadAndToken) {
  const TensorSpec spec = SampleSpec(TensorKind::kValue, DType::kFp32, 2, 100, 50);
  const Tensor tensor = SampleTensor(spec);
  const std::span<const std::byte> rows = tensor.Rows(1, 120, 3);
  ASSERT_EQ(rows.size(), 3u * 4 * 4);
  EXPECT_EQ(rows[0], SampleByte(spec, 1, 120, 0));
  EXPECT_EQ(rows[47], SampleByte(spec, 1, 122, 15));
  EXPECT_EQ(tensor.Rows(0, 150, 0).size(), 0u);
  float values[12];
  tensor.ToFloat(1, 120, 3, values);
  EXPECT_EQ(std::memcmp(values, rows.data(), 48), 0);
}

TEST(TensorTest, RowsOutsideAreErrors) {
  const Tensor tensor = SampleTensor(SampleSpec(TensorKind::kValue, DType::kFp32, 2, 100, 50));
  EXPECT_THROW(tensor.Rows(2, 100, 1), Error);
  EXPECT_THROW(tensor.Rows(-1, 100, 1), Error);
  EXPECT_THROW(tensor.Rows(0, 99, 1), Error);
  EXPECT_THROW(tensor.Rows(0, 149, 2), Error);
  EXPECT_THROW(tensor.Rows(0, 100, -1), Error);
  EXPECT_THROW(tensor.Rows(0, 100, std::numeric_limits<int64_t>::max()), Error);
}

}  // namespace
}  // namespace stallcast::traces
