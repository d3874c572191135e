#include "traces/format/tensor_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "traces/format/byte_planes.h"
#include "traces/format/chunk.h"

namespace stallcast::traces::format {
namespace {

// Bytes of one token's row of one head.
int64_t RowBytes(const TensorSpec& spec) { return spec.head_dim * ElementBytes(spec.dtype); }

// Where a head's rows of `part` lie among the elements of `whole`: contiguous, a head at a time.
int64_t RunOffset(const TensorSpec& whole, const TensorSpec& part, int head) {
  return (int64_t{head} * whole.tokens + part.first_token - whole.first_token) * RowBytes(whole);
}

}  // namespace

std::string FirstFault(const TensorSpec& spec) {
  if (spec.kind < TensorKind::kQuery || spec.kind > TensorKind::kGate) {
    return fmt::format("unknown tensor kind {}", static_cast<int>(spec.kind));
  }
  if (spec.dtype < DType::kBf16 || spec.dtype > DType::kFp32) {
    return fmt::format("unknown element type {}", static_cast<int>(spec.dtype));
  }
  if (spec.layer < 0) return fmt::format("layer {}", spec.layer);
  if (spec.heads < 1) return fmt::format("{} heads", spec.heads);
  if (spec.head_dim < 1) return fmt::format("head dimension {}", spec.head_dim);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (spec.first_token < 0 || spec.tokens < 0 || spec.tokens > kMost - spec.first_token) {
    return fmt::format("{} tokens from {} on", spec.tokens, spec.first_token);
  }
  const int64_t token_elements = int64_t{spec.heads} * spec.head_dim;
  if (token_elements > kMost / 4 || spec.tokens > kMost / 4 / token_elements) {
    return "more elements than memory can address";
  }
  return "";
}

std::string ParseTensorMeta(const std::string& message, uint64_t raw_size, TensorMeta* meta) {
  proto::Tensor tensor;
  if (!tensor.ParseFromString(message)) return "its description cannot be parsed";
  if (tensor.kind() > 255 || tensor.dtype() > 255) return "unknown tensor kind or element type";
  TensorSpec& spec = meta->spec;
  spec.kind = static_cast<TensorKind>(tensor.kind());
  spec.dtype = static_cast<DType>(tensor.dtype());
  spec.layer = tensor.layer();
  spec.heads = tensor.heads();
  spec.head_dim = tensor.head_dim();
  spec.first_token = tensor.first_token();
  spec.tokens = tensor.tokens();
  meta->encoding = tensor.encoding();
  meta->elements_checksum = tensor.elements_checksum();
  if (std::string fault = FirstFault(spec); !fault.empty()) return fault;
  if (meta->encoding != proto::Tensor::PLAIN && meta->encoding != proto::Tensor::BYTE_PLANES) {
    return fmt::format("unknown encoding {}", static_cast<int>(meta->encoding));
  }
  if (static_cast<uint64_t>(spec.bytes()) != raw_size) {
    return fmt::format("describes {} bytes but holds {}", spec.bytes(), raw_size);
  }
  return "";
}

std::string EncodeTensor(const TensorSpec& whole, std::span<const std::byte> elements,
                         const TensorSpec& part, std::vector<std::byte>* encoded) {
  encoded->resize(static_cast<size_t>(part.bytes()));
  const auto run_bytes = static_cast<size_t>(part.tokens * RowBytes(part));
  for (int head = 0; head < part.heads; ++head) {
    const auto offset = static_cast<size_t>(RunOffset(whole, part, head));
    SplitPlanes(elements.subspan(offset, run_bytes), static_cast<int>(ElementBytes(part.dtype)),
                part.elements(), head * part.tokens * part.head_dim, encoded->data());
  }
  proto::Tensor tensor;
  tensor.set_kind(static_cast<uint32_t>(part.kind));
  tensor.set_dtype(static_cast<uint32_t>(part.dtype));
  tensor.set_layer(part.layer);
  tensor.set_heads(part.heads);
  tensor.set_head_dim(part.head_dim);
  tensor.set_first_token(part.first_token);
  tensor.set_tokens(part.tokens);
  tensor.set_encoding(proto::Tensor::BYTE_PLANES);
  tensor.set_elements_checksum(Checksum(*encoded));
  return tensor.SerializeAsString();
}

void TensorDecoder::Take(std::span<const std::byte> encoded) {
  checksum_.Add(encoded);
  const TensorSpec& part = meta_.spec;
  // Elements stored whole are one plane of bytes.
  const int64_t width = meta_.encoding == proto::Tensor::BYTE_PLANES ? ElementBytes(part.dtype) : 1;
  const int64_t plane_bytes = part.bytes() / width;
  const int64_t run_bytes = plane_bytes / part.heads;
  while (!encoded.empty()) {
    const int64_t in_plane = taken_ % plane_bytes;
    const int64_t in_run = in_plane % run_bytes;
    const int64_t count = std::min(std::ssize(encoded), run_bytes - in_run);
    const int64_t place =
        RunOffset(whole_, part, static_cast<int>(in_plane / run_bytes)) + in_run * width;
    PutPlane(encoded.first(static_cast<size_t>(count)), static_cast<int>(width),
             static_cast<int>(taken_ / plane_bytes),
             elements_.subspan(static_cast<size_t>(place)).data());
    encoded = encoded.subspan(static_cast<size_t>(count));
    taken_ += count;
  }
}

}  // namespace stallcast::traces::format
