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

// Rows of `count` tokens of all heads as bf16, [head][token][dim].
std::vector<__nv_bfloat16> Rows(const traces::Tensor& tensor, int64_t token, int64_t count) {
  const traces::TensorSpec& spec = tensor.spec;
  const auto row = static_cast<size_t>(count * spec.head_dim);
  std::vector<__nv_bfloat16> rows(static_cast<size_t>(spec.heads) * row);
  std::vector<float> wide(spec.dtype == traces::DType::kBf16 ? 0 : row);
  for (int head = 0; head < spec.heads; ++head) {
    __nv_bfloat16* to = rows.data() + static_cast<size_t>(head) * row;
    if (spec.dtype == traces::DType::kBf16) {
      const auto from = tensor.Rows(head, token, count);
      std::memcpy(static_cast<void*>(to), from.data(), from.size());
    } else {
      tensor.ToFloat(head, token, count, wide.data());
      std::transform(wide.begin(), wide.end(), to, [](float x) { return __float2bfloat16(x); });
    }
  }
  return rows;
}

}  // namespace

TraceTensors::TraceTensors(const traces::Trace& trace, const std::vector<int>& layers) {
  for (const int layer : layers) {
    const methods::LayerTensors checked(trace, layer, std::numeric_limits<int64_t>::max());
    prompt_tokens_ = checked.prompt_tokens();
    steps_ = checked.steps();
    tokens_ = prompt_tokens_ + steps_;
    kv_heads_ = checked.kv_heads();
    group_ = checked.group();
    head_dim_ = checked.head_dim();
    scale_ = checked.softmax_scale();
    first_query_ = checked.first_query_token();

    Layer& of = device_.emplace_back();
    of.keys = Rows(*trace.Find(traces::TensorKind::kKey, layer), 0, tokens_);
    of.queries =
        Rows(*trace.Find(traces::TensorKind::kQuery, layer), first_query_, tokens_ - first_query_);
    of.device_keys = Uploaded(of.keys);
    const traces::Tensor* values = trace.Find(traces::TensorKind::kValue, layer);
    if (values != nullptr && values->spec.heads == kv_heads_ &&
        values->spec.head_dim == head_dim_ && values->spec.first_token == 0 &&
        values->spec.end_token() >= tokens_) {
      of.values = Rows(*values, 0, tokens_);
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
