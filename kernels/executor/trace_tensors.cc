#include "kernels/executor/trace_tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/upload.h"
#include "models/methods/layer_tensors.h"
#include "models/methods/projection.h"

namespace stallcast::kernels {
namespace {

// Appends `count` tokens of a head as bf16, [token][dim].
void AddRows(const traces::Tensor& tensor, int head, int64_t token, int64_t count,
             std::vector<__nv_bfloat16>& rows) {
  const auto row = static_cast<size_t>(count * tensor.spec.head_dim);
  rows.resize(rows.size() + row);
  __nv_bfloat16* to = rows.data() + rows.size() - row;
  if (tensor.spec.dtype == traces::DType::kBf16) {
    const auto from = tensor.Rows(head, token, count);
    std::memcpy(static_cast<void*>(to), from.data(), from.size());
    return;
  }
  std::vector<float> wide(row);
  tensor.ToFloat(head, token, count, wide.data());
  std::transform(wide.begin(), wide.end(), to, [](float x) { return __float2bfloat16(x); });
}

}  // namespace

TraceTensors::TraceTensors(const traces::Trace& trace, const std::vector<int>& layers,
                           int kv_heads) {
  for (const int layer : layers) {
    const methods::LayerTensors checked(trace, layer, std::numeric_limits<int64_t>::max(),
                                        /*group=*/0, kv_heads);
    prompt_tokens_ = checked.prompt_tokens();
    steps_ = checked.steps();
    tokens_ = prompt_tokens_ + steps_;
    kv_heads_ = checked.kv_heads();
    group_ = checked.group();
    head_dim_ = checked.head_dim();
    scale_ = checked.softmax_scale();
    first_query_ = checked.first_query_token();

    Layer& of = device_.emplace_back();
    bool has_values = checked.value_dim() == head_dim_;
    for (int head = 0; head < kv_heads_; ++head) {
      const methods::LayerTensors::Source& from = checked.source(head);
      AddRows(*from.keys, from.head, 0, tokens_, of.keys);
      for (int g = 0; g < group_; ++g) {
        AddRows(*from.queries, from.head * group_ + g, first_query_, tokens_ - first_query_,
                of.queries);
      }
      has_values = has_values && from.values != nullptr;
    }
    of.device_keys = Uploaded(of.keys);
    if (has_values) {
      for (int head = 0; head < kv_heads_; ++head) {
        AddRows(*checked.source(head).values, checked.source(head).head, 0, tokens_, of.values);
      }
      of.device_values = Uploaded(of.values);
    } else {
      has_values_ = false;
      of.device_values = Buffer<__nv_bfloat16>(of.device_keys.size());
      FillRandom(of.device_values.get(), of.device_values.size(), 1, static_cast<uint64_t>(layer),
                 nullptr);
      of.values.resize(of.keys.size());
      Check(cudaMemcpy(of.values.data(), of.device_values.get(),
                       static_cast<size_t>(of.device_values.bytes()), cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    }
  }
}

SequenceKv TraceTensors::Kv(int layer) const {
  const Layer& of = device_[static_cast<size_t>(layer)];
  return {of.device_keys.get(), of.device_values.get(), kv_heads_, tokens_};
}

const __nv_bfloat16* TraceTensors::Query(int layer, int query_head, int64_t token) const {
  const Layer& of = device_[static_cast<size_t>(layer)];
  return of.queries.data() +
         (query_head * (tokens_ - first_query_) + token - first_query_) * head_dim_;
}

int TraceTensors::QueryHeadFor(int head, int group) const {
  return methods::TracedQueryHead(head, group, group_) % (kv_heads_ * group_);
}

const __nv_bfloat16* TraceTensors::Key(int layer, int kv_head, int64_t token) const {
  return device_[static_cast<size_t>(layer)].keys.data() + (kv_head * tokens_ + token) * head_dim_;
}

const __nv_bfloat16* TraceTensors::Value(int layer, int kv_head, int64_t token) const {
  return device_[static_cast<size_t>(layer)].values.data() +
         (kv_head * tokens_ + token) * head_dim_;
}

}  // namespace stallcast::kernels
