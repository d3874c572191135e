// Tensors to chunks and back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "traces/format/chunk.h"
#include "traces/format/schema.pb.h"
#include "traces/tensor.h"

namespace stallcast::traces::format {

/// What a tensor chunk's meta message says.
struct TensorMeta {
  TensorSpec spec;
  proto::Tensor::Encoding encoding = proto::Tensor::BYTE_PLANES;
  uint64_t elements_checksum = 0;  ///< of the encoded elements
};

/// Parses a meta message for a payload of `raw_size` bytes. Returns why it is wrong, or empty.
std::string ParseTensorMeta(const std::string& message, uint64_t raw_size, TensorMeta* meta);

/// What is wrong with a spec (unknown type, negative or overflowing extent), or empty.
std::string FirstFault(const TensorSpec& spec);

/// Encodes the tokens of `part`, a token range of `whole`, whose elements are `elements`. Sets
/// `*encoded` and returns the meta message.
std::string EncodeTensor(const TensorSpec& whole, std::span<const std::byte> elements,
                         const TensorSpec& part, std::vector<std::byte>* encoded);

/// Decodes the elements of `meta.spec` into their places among the elements of `whole`, which
/// covers them, as they come.
class TensorDecoder {
 public:
  /// `meta` and `elements` must outlive this.
  TensorDecoder(const TensorMeta& meta, const TensorSpec& whole, std::span<std::byte> elements)
      : meta_(meta), whole_(whole), elements_(elements) {}
  /// Takes the next of the encoded bytes, of which there are meta.spec.bytes().
  void Take(std::span<const std::byte> encoded);
  /// Whether all that it took is what was encoded.
  bool Intact() const { return checksum_.value() == meta_.elements_checksum; }

 private:
  const TensorMeta& meta_;
  TensorSpec whole_;
  std::span<std::byte> elements_;
  int64_t taken_ = 0;
  RunningChecksum checksum_;
};

}  // namespace stallcast::traces::format
