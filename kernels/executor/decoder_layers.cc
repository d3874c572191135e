#include "kernels/executor/decoder_layers.h"

#include <cmath>
#include <string>
#include <variant>

#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/cache_binder.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr float kEpsilon = 1e-5F;

Buffer<__nv_bfloat16> RandomMatrix(int64_t n, int64_t k, uint64_t seed) {
  Buffer<__nv_bfloat16> matrix(n * k);
  // Outputs as large as inputs, so that activations stay finite over any number of layers.
  FillRandom(matrix.get(), matrix.size(), std::sqrt(3.0F / static_cast<float>(k)), seed, nullptr);
  return matrix;
}

}  // namespace

DecoderWeights::DecoderWeights(const llm::Model& model) : model_(model) {
  if (const std::string why = llm::WhyNotExecutable(model); !why.empty()) {
    throw UsageError("cannot run on a GPU: " + why, model.title, "predict it with stallcast");
  }
  const int64_t heads = int64_t{model.query_heads} * model.head_dim;
  const int64_t qkv = heads + int64_t{2} * model.kv_heads * model.head_dim;
  uint64_t seed = 0;
  for (int layer = 0; layer < model.layers; ++layer) {
    Layer& of = layers_.emplace_back();
    of.qkv = RandomMatrix(qkv, model.hidden, ++seed);
    of.out = RandomMatrix(model.hidden, heads, ++seed);
    of.gate_up = RandomMatrix(2 * model.intermediate, model.hidden, ++seed);
    of.down = RandomMatrix(model.hidden, model.intermediate, ++seed);
  }
  head_ = RandomMatrix(model.vocabulary, model.hidden, ++seed);
  norm_ = Buffer<__nv_bfloat16>(model.hidden);
  FillRandom(norm_.get(), norm_.size(), 1, ++seed, nullptr);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

DecoderLayers::DecoderLayers(const DecoderWeights& weights, int32_t sequences, int64_t tokens)
    : weights_(weights), sequences_(sequences), tokens_(tokens) {
  const llm::Model& m = weights.model();
  const int64_t rows = sequences * tokens;
  const int64_t heads = int64_t{m.query_heads} * m.head_dim;
  residual_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  normed_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  qkv_ = Buffer<__nv_bfloat16>(rows * (heads + int64_t{2} * m.kv_heads * m.head_dim));
  attention_ = Buffer<__nv_bfloat16>(rows * heads);
  projected_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  gate_up_ = Buffer<__nv_bfloat16>(rows * 2 * m.intermediate);
  activated_ = Buffer<__nv_bfloat16>(rows * m.intermediate);
  last_normed_ = Buffer<__nv_bfloat16>(sequences * m.hidden);
  logits_ = Buffer<__nv_bfloat16>(sequences * m.vocabulary);
  // GEMMs choose their algorithms on these before there are activations: what they toggle, and
  // so the power they take, should be alike.
  for (auto* buffer : {&residual_, &normed_, &attention_, &activated_, &last_normed_}) {
    FillRandom(buffer->get(), buffer->size(), 1, 1, nullptr);
  }
  Zero(projected_);
  token_ = Buffer<int32_t>(sequences);
  host_token_ = Buffer<int32_t>(sequences, Memory::kPinned);
}

OpWork DecoderLayers::BindNorm(const plan::Op& op, const plan::Norm& norm) {
  const auto width = static_cast<int32_t>(norm.width);
  if (op.layer < 0) {
    // Of each sequence the last token alone.
    return [this, width](cudaStream_t stream) {
      const int64_t rows = tokens_ == 1 ? sequences_ : 1;
      for (int64_t first = 0; first < sequences_; first += rows) {
        const int64_t last = (first * tokens_ + tokens_ - 1) * width;
        AddRmsNorm(projected_.get() + last, residual_.get() + last, weights_.norm().get(), kEpsilon,
                   rows, width, last_normed_.get() + first * width, stream);
      }
    };
  }
  // Of a layer the first adds what the layer before projected, the second the attention's.
  const bool first = op.layer == 0 && norms_in_layer_ == 0;
  ++norms_in_layer_;
  const __nv_bfloat16* input = first ? nullptr : projected_.get();
  return [this, input, rows = norm.rows, width](cudaStream_t stream) {
    AddRmsNorm(input, residual_.get(), weights_.norm().get(), kEpsilon, rows, width, normed_.get(),
               stream);
  };
}

OpWork DecoderLayers::BindGemm(const plan::Op& op, const plan::Gemm& gemm) {
  const __nv_bfloat16 *a = nullptr, *b = nullptr;
  __nv_bfloat16* c = nullptr;
  if (op.layer < 0) {
    a = last_normed_.get(), b = weights_.head().get(), c = logits_.get();
  } else {
    const DecoderWeights::Layer& layer = weights_.layer(op.layer);
    switch (gemms_in_layer_++) {
      case 0:
        a = normed_.get(), b = layer.qkv.get(), c = qkv_.get();
        break;
      case 1:
        a = attention_.get(), b = layer.out.get(), c = projected_.get();
        break;
      case 2:
        a = normed_.get(), b = layer.gate_up.get(), c = gate_up_.get();
        break;
      case 3:
        a = activated_.get(), b = layer.down.get(), c = projected_.get();
        break;
      default:
        CannotBind("decoder", op);
    }
  }
  // The first run of a shape chooses its algorithm, which must be done before it is captured.
  if (seen_.insert({gemm.m, gemm.n, gemm.k}).second) {
    weights_.gemms().Run(a, b, c, gemm.m, gemm.n, gemm.k, nullptr);
  }
  return [this, a, b, c, gemm](cudaStream_t stream) {
    weights_.gemms().Run(a, b, c, gemm.m, gemm.n, gemm.k, stream);
  };
}

std::optional<OpWork> DecoderLayers::Bind(const plan::Op& op) {
  const bool own = op.role == plan::Role::kProjection || op.role == plan::Role::kMlp;
  if (own && op.layer != layer_) {
    gemms_in_layer_ = norms_in_layer_ = 0;
    layer_ = op.layer;
  }
  using Bound = std::optional<OpWork>;
  return std::visit<Bound>(
      Overloaded{
          [&](const plan::Norm& norm) -> Bound { return BindNorm(op, norm); },
          [&](const plan::Gemm& gemm) -> Bound { return BindGemm(op, gemm); },
          [&](const plan::SwiGlu& swiglu) -> Bound {
            return [this, swiglu](cudaStream_t stream) {
              SwiGlu(gate_up_.get(), swiglu.rows, static_cast<int32_t>(swiglu.width),
                     activated_.get(), stream);
            };
          },
          [&](const plan::Sample& sample) -> Bound {
            return [this, sample](cudaStream_t stream) {
              ArgMax(logits_.get(), sample.rows, static_cast<int32_t>(sample.vocabulary),
                     token_.get(), stream);
            };
          },
          [&](const plan::HostSync&) -> Bound { return OpWork(); },
          [&](const plan::HostHandoff&) -> Bound { return OpWork(); },
          [&](const plan::GraphLaunch&) -> Bound { return OpWork(); },
          [&](const plan::Copy&) -> Bound {
            if (op.layer >= 0) return std::nullopt;
            return [this](cudaStream_t stream) {
              Check(cudaMemcpyAsync(host_token_.get(), token_.get(),
                                    static_cast<size_t>(token_.bytes()), cudaMemcpyDeviceToHost,
                                    stream),
                    "cudaMemcpyAsync");
            };
          },
          [](const auto&) -> Bound { return std::nullopt; },
      },
      op.work);
}

}  // namespace stallcast::kernels
