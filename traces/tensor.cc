#include "traces/tensor.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "traces/common/error.h"

namespace stallcast::traces {
namespace {

template <typename Stored>
Stored Load(const std::byte* at) {
  Stored value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Elements whose exponent bits are all set: infinities and NaNs.
template <typename Stored>
int64_t CountTopExponent(std::span<const std::byte> data, Stored exponent) {
  int64_t found = 0;
  for (size_t at = 0; at + sizeof(Stored) <= data.size(); at += sizeof(Stored)) {
    found += (Load<Stored>(data.data() + at) & exponent) == exponent;
  }
  return found;
}

}  // namespace

float FromBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Exponent and mantissa move to their float places; the multiplication rebiases the exponent and
// normalises subnormals. Infinity and NaN need the float's own top exponent.
float FromFp16(uint16_t bits) {
  const uint32_t magnitude = uint32_t{bits & 0x7fffu} << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

static_assert(std::endian::native == std::endian::little, "tensor elements are little-endian");

std::string_view Name(TensorKind kind) {
  switch (kind) {
    case TensorKind::kQuery:
      return "query";
    case TensorKind::kKey:
      return "key";
    case TensorKind::kValue:
      return "value";
    case TensorKind::kGate:
      return "gate";
  }
  return "unknown";
}

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      return "fp16";
    case DType::kFp32:
      return "fp32";
  }
  return "unknown";
}

int64_t ElementBytes(DType dtype) { return dtype == DType::kFp32 ? 4 : 2; }

std::span<const std::byte> Tensor::Rows(int head, int64_t token, int64_t count) const {
  if (head < 0 || head >= spec.heads || count < 0 || token < spec.first_token ||
      token > spec.end_token() - count) {
    throw Error(
        fmt::format("head {}, {} tokens from {} on are outside the tensor ({} heads, tokens {} "
                    "to {})",
                    head, count, token, spec.heads, spec.first_token, spec.end_token()),
        fmt::format("{} of layer {}", Name(spec.kind), spec.layer),
        "ask for fewer steps or capture more tokens");
  }
  const int64_t row = spec.head_dim * ElementBytes(spec.dtype);
  const int64_t offset = (int64_t{head} * spec.tokens + token - spec.first_token) * row;
  return std::span(data).subspan(static_cast<size_t>(offset), static_cast<size_t>(count * row));
}

void Tensor::ToFloat(int head, int64_t token, int64_t count, float* out) const {
  const std::span<const std::byte> rows = Rows(head, token, count);
  const int64_t elements = count * spec.head_dim;
  const std::byte* in = rows.data();
  switch (spec.dtype) {
    case DType::kBf16:
      for (int64_t i = 0; i < elements; ++i) out[i] = FromBf16(Load<uint16_t>(in + 2 * i));
      break;
    case DType::kFp16:
      for (int64_t i = 0; i < elements; ++i) out[i] = FromFp16(Load<uint16_t>(in + 2 * i));
      break;
    case DType::kFp32:
      std::memcpy(out, in, rows.size());
      break;
  }
}

int64_t CountNonFinite(const Tensor& tensor) {
  switch (tensor.spec.dtype) {
    case DType::kBf16:
      return CountTopExponent<uint16_t>(tensor.data, 0x7f80);
    case DType::kFp16:
      return CountTopExponent<uint16_t>(tensor.data, 0x7c00);
    case DType::kFp32:
      return CountTopExponent<uint32_t>(tensor.data, 0x7f800000);
  }
  return 0;
}

}  // namespace stallcast::traces
