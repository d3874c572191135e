#include "kernels/executor/decoder_layers.h"

#include <fmt/format.h>

#include <algorithm>
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

Buffer<__nv_bfloat16> Random(const llm::Matrix& matrix, uint64_t seed) {
  Buffer<__nv_bfloat16> weights(matrix.count * matrix.n * matrix.k);
  // Outputs as large as inputs, so that activations stay finite over any number of layers.
  const float range = std::sqrt(3.0F / static_cast<float>(std::max<int64_t>(matrix.k, 1)));
  FillRandom(weights.get(), weights.size(), range, seed, nullptr);
  return weights;
}

}  // namespace

DecoderWeights::DecoderWeights(const llm::Model& model) : model_(model) {
  if (const std::string why = llm::WhyNotExecutable(model); !why.empty()) {
    throw UsageError("cannot run on a GPU: " + why, model.title, "predict it with stallcast");
  }
  uint64_t seed = 0;
  for (int layer = 0; layer < model.layers; ++layer) {
    const llm::LayerWeights w = llm::WeightsOf(model, model.KindOf(layer));
    Layer& of = layers_.emplace_back();
    of.qkv = Random(w.input, ++seed);
    of.out = Random(w.output, ++seed);
    of.gate_up = Random(w.gate_up, ++seed);
    of.down = Random(w.down, ++seed);
    of.router = Random(w.router, ++seed);
    of.expert_gate_up = Random(w.expert_gate_up, ++seed);
    of.expert_down = Random(w.expert_down, ++seed);
  }
  head_ = Random({model.vocabulary, model.hidden}, ++seed);
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
  int64_t dense = 0;  // the widest MLP that all rows take
  for (int layer = 0; layer < m.layers; ++layer) {
    dense = std::max(dense, llm::WeightsOf(m, m.KindOf(layer)).down.k);
  }
  gate_up_ = Buffer<__nv_bfloat16>(rows * 2 * dense);
  activated_ = Buffer<__nv_bfloat16>(rows * dense);
  last_normed_ = Buffer<__nv_bfloat16>(sequences * m.hidden);
  logits_ = Buffer<__nv_bfloat16>(sequences * m.vocabulary);
  // GEMMs choose their algorithms on these before there are activations: what they toggle, and
  // so the power they take, should be alike.
  for (auto* buffer : {&residual_, &normed_, &attention_, &activated_, &last_normed_}) {
    FillRandom(buffer->get(), buffer->size(), 1, 1, nullptr);
  }
  Zero(projected_);
  if (m.experts) {
    const llm::Experts& e = *m.experts;
    const auto rows_of_step = static_cast<int32_t>(rows);
    router_logits_ = Buffer<__nv_bfloat16>(rows * e.count);
    expert_gate_up_ = Buffer<__nv_bfloat16>(rows * e.active * 2 * e.intermediate);
    expert_activated_ = Buffer<__nv_bfloat16>(rows * e.active * e.intermediate);
    routing_ = RoutingMemory(rows_of_step, e.count, e.active);
    choices_ = ExpertChoices(rows_of_step, e.active, e.count, m.DistinctExperts(rows));
  }
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
  const bool first = op.layer == 0 && in_layer_.norms == 0;
  ++in_layer_.norms;
  const __nv_bfloat16* input = first ? nullptr : projected_.get();
  return [this, input, rows = norm.rows, width](cudaStream_t stream) {
    AddRmsNorm(input, residual_.get(), weights_.norm().get(), kEpsilon, rows, width, normed_.get(),
               stream);
  };
}

std::vector<DecoderLayers::Operands> DecoderLayers::GemmsOf(int layer) const {
  if (layer < 0) return {{last_normed_.get(), weights_.head().get(), logits_.get()}};
  const DecoderWeights::Layer& of = weights_.layer(layer);
  std::vector<Operands> gemms = {{normed_.get(), of.qkv.get(), qkv_.get()},
                                 {attention_.get(), of.out.get(), projected_.get()}};
  if (HasExperts(layer)) {
    gemms.push_back({normed_.get(), of.router.get(), router_logits_.get()});
  }
  if (of.gate_up.size() > 0) {
    gemms.push_back({normed_.get(), of.gate_up.get(), gate_up_.get()});
    gemms.push_back({activated_.get(), of.down.get(), projected_.get()});
  }
  return gemms;
}

OpWork DecoderLayers::BindGemm(const plan::Op& op, const plan::Gemm& gemm) {
  const std::vector<Operands> gemms = GemmsOf(op.layer);
  const auto at = static_cast<size_t>(op.layer < 0 ? 0 : in_layer_.gemms++);
  if (at >= gemms.size()) CannotBind("decoder", op);
  const auto [a, b, c] = gemms[at];
  // The first run of a shape chooses its algorithm, which must be done before it is captured.
  if (seen_.insert({gemm.m, gemm.n, gemm.k}).second) {
    weights_.gemms().Run(a, b, c, gemm.m, gemm.n, gemm.k, nullptr);
  }
  return [this, of = gemms[at], gemm](cudaStream_t stream) {
    weights_.gemms().Run(of.a, of.b, of.c, gemm.m, gemm.n, gemm.k, stream);
  };
}

OpWork DecoderLayers::BindExperts(const plan::Op& op, const plan::GroupedGemm& gemm) {
  if (!HasExperts(op.layer)) CannotBind("decoder", op);
  const DecoderWeights::Layer& layer = weights_.layer(op.layer);
  const Routing& routing = routing_.routing();
  const bool sums = in_layer_.expert_gemms++ > 0;
  if (!HasGroupedGemm(routing, gemm.n, gemm.k, sums)) {
    throw UsageError(
        fmt::format("no kernel has experts of {} x {} for {} rows", gemm.n, gemm.k, gemm.rows),
        weights_.model().title, "use a smaller batch, or predict it with stallcast");
  }
  if (!sums) {
    return [this, routing, gemm, b = layer.expert_gate_up.get()](cudaStream_t stream) {
      GroupedGemm(normed_.get(), b, expert_gate_up_.get(), routing, gemm.n, gemm.k, stream);
    };
  }
  // Where all rows take an MLP too, that one's output is what the next norm adds.
  const bool adds = layer.down.size() > 0;
  return [this, routing, gemm, adds, b = layer.expert_down.get(),
          to = adds ? residual_.get() : projected_.get()](cudaStream_t stream) {
    GroupedGemmSum(expert_activated_.get(), b, to, routing, gemm.n, gemm.k, adds, stream);
  };
}

OpWork DecoderLayers::BindSwiGlu(const plan::Op& op, const plan::SwiGlu& swiglu) {
  const bool experts = HasExperts(op.layer) && in_layer_.swiglus++ == 0;
  return [swiglu, from = experts ? expert_gate_up_.get() : gate_up_.get(),
          to = experts ? expert_activated_.get() : activated_.get()](cudaStream_t stream) {
    SwiGlu(from, swiglu.rows, static_cast<int32_t>(swiglu.width), to, stream);
  };
}

std::optional<OpWork> DecoderLayers::Bind(const plan::Op& op) {
  const bool own = op.role == plan::Role::kProjection || op.role == plan::Role::kMlp;
  if (own && op.layer != in_layer_.layer) in_layer_ = {.layer = op.layer};
  using Bound = std::optional<OpWork>;
  return std::visit<Bound>(
      Overloaded{
          [&](const plan::Norm& norm) -> Bound { return BindNorm(op, norm); },
          [&](const plan::Gemm& gemm) -> Bound { return BindGemm(op, gemm); },
          [&](const plan::GroupedGemm& gemm) -> Bound { return BindExperts(op, gemm); },
          [&](const plan::Route&) -> Bound {
            return [this, chosen = choices_.At(op.step, op.layer)](cudaStream_t stream) {
              Route(router_logits_.get(), chosen, routing_.routing(), stream);
            };
          },
          [&](const plan::SwiGlu& swiglu) -> Bound { return BindSwiGlu(op, swiglu); },
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
