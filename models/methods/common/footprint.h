// Bytes of methods that keep pages on the host and a budget of them on the GPU.
#pragma once

#include <cstdint>

#include "models/methods/method.h"

namespace stallcast::methods {

/// Pages that `tokens` tokens take.
constexpr int64_t Pages(int64_t tokens, int64_t page) { return (tokens + page - 1) / page; }

/// GPU: dense layers whole, of the others `budget` tokens, two summary vectors a page and KV head
/// (512 B at 128 dimensions and 2 bytes), and two page maps of 4-byte entries a selection head.
/// Host: every page of the layers that are not dense.
Footprint PagedFootprint(const llm::Model& model, int64_t context, int32_t batch,
                         int64_t dense_layers, int64_t page, int64_t budget, int selection_heads);

/// A buffer for the pages of one sequence and KV head.
inline Bytes HeadBufferBytes(const llm::Model& model, int64_t tokens) {
  return tokens * 2 * model.KvRowBytes();
}

}  // namespace stallcast::methods
