// A trace's keys, values and queries where a run on the GPU needs them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/fill.h"
#include "traces/format/trace_file.h"

namespace stallcast::kernels {

class TraceTensors {
 public:
  /// Loads these layers with `kv_heads` KV heads each, as methods::LayerTensors has them. Values
  /// that were not captured are random. Other types than bf16 are rounded to it. Errors: those of
  /// methods::LayerTensors.
  TraceTensors(const traces::Trace& trace, const std::vector<int>& layers, int kv_heads = 0);

  int64_t prompt_tokens() const { return prompt_tokens_; }
  int32_t steps() const { return steps_; }
  int32_t kv_heads() const { return kv_heads_; }
  int32_t group() const { return group_; }
  int32_t head_dim() const { return head_dim_; }
  float softmax_scale() const { return scale_; }
  bool has_values() const { return has_values_; }
  int layers() const { return static_cast<int>(device_.size()); }

  /// On the device.
  SequenceKv Kv(int layer) const;
  /// On the host, head_dim long: of a query head at a token; of a KV head at a token.
  const __nv_bfloat16* Query(int layer, int query_head, int64_t token) const;
  const __nv_bfloat16* Key(int layer, int kv_head, int64_t token) const;
  const __nv_bfloat16* Value(int layer, int kv_head, int64_t token) const;
  int64_t first_query_token() const { return first_query_; }
  /// The query head that stands for `head` of a model with groups of `group`: that of
  /// methods::TracedQueryHead(), the first KV heads again where the model has more.
  int QueryHeadFor(int head, int group) const;

 private:
  struct Layer {
    std::vector<__nv_bfloat16> keys, values, queries;  // [head][token][dim]
    Buffer<__nv_bfloat16> device_keys, device_values;
  };
  std::vector<Layer> device_;
  int64_t prompt_tokens_ = 0, tokens_ = 0, first_query_ = 0;
  int32_t steps_ = 0, kv_heads_ = 0, group_ = 0, head_dim_ = 0;
  float scale_ = 0;
  bool has_values_ = true;
};

}  // namespace stallcast::kernels
