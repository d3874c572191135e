// A recorder opened through the C interface, and rows whose every element says where it belongs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "capture/recorder_c.h"
#include "tests/scratch_folder.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture::testing {

inline constexpr int kLayers = 4;
inline constexpr int kQueryHeads = 6;
inline constexpr int kKvHeads = 2;
inline constexpr int kHeadDim = 16;

/// A path in a folder of its own, removed at the end.
class ScratchFile {
 public:
  std::string path() const { return folder_ / "trace.kvt"; }

 private:
  ScratchFolder folder_;
};

inline stallcast_trace_info SmallModel() {
  stallcast_trace_info info = {};
  info.model_name = "small";
  info.layers = kLayers;
  info.query_heads = kQueryHeads;
  info.kv_heads = kKvHeads;
  info.head_dim = kHeadDim;
  return info;
}

inline int HeadsOf(int kind) { return kind == STALLCAST_QUERY ? kQueryHeads : kKvHeads; }
inline int ElementBytes(int dtype) { return dtype == STALLCAST_FP32 ? 4 : 2; }

/// The bits of an element: a mix of its coordinates, so that no two neighbours are alike.
inline uint32_t Bits(int kind, int layer, int64_t head, int64_t token, int64_t dim) {
  uint64_t x = static_cast<uint64_t>(kind) + 8 * static_cast<uint64_t>(layer);
  for (const int64_t part : {head, token, dim}) {
    x = (x ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
  }
  return static_cast<uint32_t>(x);
}

inline void Store(uint32_t bits, int dtype, std::byte* at) {
  const auto half = static_cast<uint16_t>(bits);
  if (dtype == STALLCAST_FP32) {
    std::memcpy(at, &bits, sizeof bits);
  } else {
    std::memcpy(at, &half, sizeof half);
  }
}

enum class Layout {
  kHeadsFirst,   ///< [head][token][dim]
  kTokensFirst,  ///< [token][head][dim]
  kSlice,        ///< the end of a cache [head][5 + tokens + 3][dim + 4]
};

/// Rows in some memory order, and the memory.
struct Block {
  stallcast_rows rows = {};
  std::vector<std::byte> memory;

  Block(int kind, int dtype, int layer, int64_t first_token, int64_t tokens,
        Layout layout = Layout::kHeadsFirst) {
    const int heads = HeadsOf(kind);
    rows.kind = kind;
    rows.dtype = dtype;
    rows.layer = layer;
    rows.heads = heads;
    rows.head_dim = kHeadDim;
    rows.first_token = first_token;
    rows.tokens = tokens;
    int64_t offset = 0;
    int64_t elements = heads * tokens * kHeadDim;
    switch (layout) {
      case Layout::kHeadsFirst:
        rows.head_stride = tokens * kHeadDim;
        rows.token_stride = kHeadDim;
        break;
      case Layout::kTokensFirst:
        rows.head_stride = kHeadDim;
        rows.token_stride = int64_t{heads} * kHeadDim;
        break;
      case Layout::kSlice:
        rows.token_stride = kHeadDim + 4;
        rows.head_stride = (tokens + 8) * rows.token_stride;
        offset = 5 * rows.token_stride;
        elements = heads * rows.head_stride;
        break;
    }
    const int64_t bytes = ElementBytes(dtype);
    memory.assign(static_cast<size_t>(elements * bytes), std::byte{0xEE});
    rows.data = memory.data() + offset * bytes;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t dim = 0; dim < kHeadDim; ++dim) {
          const int64_t at = offset + head * rows.head_stride + token * rows.token_stride + dim;
          Store(Bits(kind, layer, head, first_token + token, dim), dtype,
                memory.data() + at * bytes);
        }
      }
    }
  }
};

/// Opens, and frees at the end.
class Recording {
 public:
  explicit Recording(const std::string& path,
                     stallcast_recorder_options options = {64, 64, 1 << 20},
                     stallcast_trace_info info = SmallModel()) {
    status_ = stallcast_recorder_open(path.c_str(), &info, &options, &recorder_);
  }
  ~Recording() { stallcast_recorder_free(recorder_); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  int status() const { return status_; }
  stallcast_recorder* get() const { return recorder_; }

  int Write(int kind, int layer, int64_t first_token, int64_t tokens,
            Layout layout = Layout::kHeadsFirst, int dtype = STALLCAST_BF16) {
    const Block block(kind, dtype, layer, first_token, tokens, layout);
    return stallcast_recorder_write(recorder_, &block.rows);
  }
  /// Queries and keys.
  int WriteBoth(int layer, int64_t first_token, int64_t tokens) {
    const int status = Write(STALLCAST_QUERY, layer, first_token, tokens);
    return status != STALLCAST_OK ? status : Write(STALLCAST_KEY, layer, first_token, tokens);
  }
  int BeginDecode(int64_t tokens) { return stallcast_recorder_begin_decode(recorder_, tokens); }
  int Close() { return stallcast_recorder_close(recorder_); }

 private:
  stallcast_recorder* recorder_ = nullptr;
  int status_ = STALLCAST_OK;
};

/// Expects the tensor to hold exactly the tokens [first, end), every bit as Block made it.
inline void ExpectTensor(const traces::Trace& trace, int kind, int layer, int64_t first,
                         int64_t end, int dtype = STALLCAST_BF16) {
  const traces::Tensor* tensor = trace.Find(static_cast<traces::TensorKind>(kind), layer);
  ASSERT_NE(tensor, nullptr) << "kind " << kind << " layer " << layer;
  EXPECT_EQ(static_cast<int>(tensor->spec.dtype), dtype);
  EXPECT_EQ(tensor->spec.heads, HeadsOf(kind));
  EXPECT_EQ(tensor->spec.head_dim, kHeadDim);
  ASSERT_EQ(tensor->spec.first_token, first);
  ASSERT_EQ(tensor->spec.end_token(), end);
  const Block expected(kind, dtype, layer, first, end - first);
  EXPECT_TRUE(tensor->data == expected.memory) << "kind " << kind << " layer " << layer;
}

}  // namespace stallcast::capture::testing
