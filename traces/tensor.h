// Captured query, key, value and gate tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stallcast::traces {

enum class TensorKind : uint8_t { kQuery = 1, kKey = 2, kValue = 3, kGate = 4 };
enum class DType : uint8_t { kBf16 = 1, kFp16 = 2, kFp32 = 3 };

std::string_view Name(TensorKind kind);
std::string_view Name(DType dtype);
/// Bytes of one element.
int64_t ElementBytes(DType dtype);

/// One layer's tensor over a range of tokens: all heads, laid out [head][token][dim].
/// Queries and keys are after RoPE (design, "Trace container").
struct TensorSpec {
  TensorKind kind = TensorKind::kKey;
  DType dtype = DType::kBf16;
  int32_t layer = 0;
  int32_t heads = 0;
  int32_t head_dim = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;

  int64_t elements() const { return int64_t{heads} * tokens * head_dim; }
  int64_t bytes() const { return elements() * ElementBytes(dtype); }
  int64_t end_token() const { return first_token + tokens; }
  bool operator==(const TensorSpec&) const = default;
};

/// A tensor and its elements, little-endian.
struct Tensor {
  TensorSpec spec;
  std::vector<std::byte> data;  ///< spec.bytes() long

  /// The elements of `count` consecutive tokens of `head`; `token` counts from the sequence's
  /// start, not from spec.first_token. The range must lie inside the tensor.
  std::span<const std::byte> Rows(int head, int64_t token, int64_t count) const;
  /// Widens the same rows to float: `out` takes count * head_dim values.
  void ToFloat(int head, int64_t token, int64_t count, float* out) const;
};

/// What the bits of an element stand for.
float FromBf16(uint16_t bits);
float FromFp16(uint16_t bits);

/// How many elements are infinite or NaN.
int64_t CountNonFinite(const Tensor& tensor);

}  // namespace stallcast::traces
