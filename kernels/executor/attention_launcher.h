// Decode attention of the compute stream with its workspace.
#pragma once

#include <algorithm>

#include "kernels/attention/decode_attention.h"
#include "kernels/executor/cache_binder.h"
#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

class AttentionLauncher {
 public:
  explicit AttentionLauncher(const DecodeRun& run, int32_t rows_a_head = 1) : run_(run) {
    DecodeAttentionArgs shape;
    shape.cache.head_dim = run.head_dim();
    shape.cache.page_tokens = 1;
    shape.cache.kv_heads = run.kv_heads();
    // Layers that share a launcher may choose a set a KV head or a query head: room for either.
    for (const int32_t rows : {1, rows_a_head}) {
      shape.rows_a_head = rows;
      shape.group = run.group() / rows;
      floats_ = std::max(floats_, DecodeAttentionWorkspace(shape));
    }
    workspace_ = Buffer<float>(floats_);
    Zero(workspace_);
  }

  /// Over `pages` of `cache`; `rows_a_head` 1, or that of the constructor.
  OpWork Over(const PagedKv& cache, const PageTable& pages, const LayerIo& io,
              int32_t rows_a_head = 1) const {
    DecodeAttentionArgs args;
    args.query = io.query;
    args.cache = cache;
    args.pages = pages;
    args.output = io.output;
    args.workspace = workspace_.get();
    args.sequences = run_.batch();
    args.rows_a_head = rows_a_head;
    args.group = run_.group() / rows_a_head;
    args.scale = run_.trace->softmax_scale();
    return [args](cudaStream_t stream) { DecodeAttention(args, stream); };
  }

 private:
  const DecodeRun& run_;
  int64_t floats_ = 0;
  Buffer<float> workspace_;
};

}  // namespace stallcast::kernels
