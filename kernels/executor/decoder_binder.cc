#include "kernels/executor/decoder_binder.h"

#include <cmath>
#include <cstring>
#include <variant>

#include "kernels/cuda_error.h"
#include "kernels/fill.h"
#include "models/methods/projection.h"
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

template <class T>
void Zero(Buffer<T>& buffer) {
  Check(cudaMemset(buffer.get(), 0, static_cast<size_t>(buffer.bytes())), "cudaMemset");
}

}  // namespace

DecoderWeights::DecoderWeights(const llm::Model& model) : model_(model) {
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

DecoderBinder::DecoderBinder(const DecodeRun& run, const DecoderWeights& weights,
                             CacheBinder& cache)
    : run_(run), weights_(weights), cache_(cache) {
  const llm::Model& m = run.input.model;
  const int64_t rows = run.batch();
  const int64_t heads = int64_t{m.query_heads} * m.head_dim;
  const int64_t qkv = heads + int64_t{2} * m.kv_heads * m.head_dim;
  residual_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  FillRandom(residual_.get(), residual_.size(), 1, 1, nullptr);
  normed_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  qkv_ = Buffer<__nv_bfloat16>(rows * qkv);
  attention_ = Buffer<__nv_bfloat16>(rows * heads);
  projected_ = Buffer<__nv_bfloat16>(rows * m.hidden);
  gate_up_ = Buffer<__nv_bfloat16>(rows * 2 * m.intermediate);
  activated_ = Buffer<__nv_bfloat16>(rows * m.intermediate);
  logits_ = Buffer<__nv_bfloat16>(rows * m.vocabulary);
  queries_ = Buffer<__nv_bfloat16>(int64_t{m.layers} * 2 * rows * heads);
  for (auto* buffer : {&normed_, &attention_, &projected_}) Zero(*buffer);
  token_ = Buffer<int32_t>(rows);
  host_token_ = Buffer<int32_t>(rows, Memory::kPinned);
  position_ = Buffer<int32_t>(rows);
  Zero(position_);
  frequencies_ = Buffer<float>(m.head_dim / 2);
  Zero(frequencies_);
  LoadInjected();
}

void DecoderBinder::LoadInjected() {
  const llm::Model& m = run_.input.model;
  const TraceTensors& trace = *run_.trace;
  if (m.head_dim != trace.head_dim()) {
    throw UsageError("the model's heads have " + std::to_string(m.head_dim) +
                         " channels, the trace's " + std::to_string(trace.head_dim()),
                     "--model", "choose a model or a trace with the other's head dimension");
  }
  const int64_t width = (m.query_heads + int64_t{2} * m.kv_heads) * m.head_dim;
  const int64_t step_size = trace.layers() * run_.batch() * width;
  std::vector<__nv_bfloat16> all(static_cast<size_t>((run_.input.steps + 1) * step_size));
  const auto row_bytes = static_cast<size_t>(m.head_dim) * sizeof(__nv_bfloat16);
  __nv_bfloat16* to = all.data();
  for (int step = -1; step < run_.input.steps; ++step) {
    for (int layer = 0; layer < trace.layers(); ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t token = run_.Context(step, sequence) - 1;
        const auto put = [&](const __nv_bfloat16* from) {
          std::memcpy(static_cast<void*>(to), from, row_bytes);
          to += m.head_dim;
        };
        for (int head = 0; head < m.query_heads; ++head) {
          const int traced = methods::TracedQueryHead(head, m.group(), trace.group()) %
                             (trace.kv_heads() * trace.group());
          // A trace without the last prompt token's query has its first step's stand in.
          put(trace.Query(layer, traced, std::max(token, trace.first_query_token())));
        }
        for (int head = 0; head < m.kv_heads; ++head) {
          put(trace.Key(layer, head % trace.kv_heads(), token));
        }
        for (int head = 0; head < m.kv_heads; ++head) {
          put(trace.Value(layer, head % trace.kv_heads(), token));
        }
      }
    }
  }
  injected_ = Buffer<__nv_bfloat16>(static_cast<int64_t>(all.size()));
  Check(cudaMemcpy(injected_.get(), all.data(), static_cast<size_t>(injected_.bytes()),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
}

void DecoderBinder::Reset() {
  // The queries before step 0, for methods that compare with them.
  const llm::Model& m = run_.input.model;
  const int64_t heads = int64_t{m.query_heads} * m.head_dim;
  const int64_t width = heads + int64_t{2} * m.kv_heads * m.head_dim;
  for (int layer = 0; layer < m.layers; ++layer) {
    Check(cudaMemcpy2D(Queries(-1, layer), static_cast<size_t>(heads) * 2, Injected(-1, layer),
                       static_cast<size_t>(width) * 2, static_cast<size_t>(heads) * 2,
                       static_cast<size_t>(run_.batch()), cudaMemcpyDeviceToDevice),
          "cudaMemcpy2D");
  }
  std::vector<LayerIo> last;
  for (int layer = 0; layer < m.layers; ++layer)
    last.push_back({Queries(-1, layer), nullptr, nullptr});
  cache_.Reset(last);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

__nv_bfloat16* DecoderBinder::Injected(int step, int layer) const {
  const llm::Model& m = run_.input.model;
  const int64_t width = (m.query_heads + int64_t{2} * m.kv_heads) * m.head_dim;
  const int source = run_.source_of[static_cast<size_t>(layer)];
  return injected_.get() +
         (int64_t{step + 1} * run_.trace->layers() + source) * run_.batch() * width;
}

__nv_bfloat16* DecoderBinder::Queries(int step, int layer) const {
  const llm::Model& m = run_.input.model;
  const int64_t size = int64_t{run_.batch()} * m.query_heads * m.head_dim;
  return queries_.get() + (int64_t{layer} * 2 + (step + 2) % 2) * size;
}

LayerIo DecoderBinder::Io(const plan::Op& op) const {
  if (op.layer < 0 || op.step < 0) return {};
  return {Queries(op.step, op.layer), Queries(op.step - 1, op.layer), attention_.get()};
}

OpWork DecoderBinder::BindNorm(const plan::Op& op, const plan::Norm& norm) {
  // Of a layer the first adds what the layer before projected, the second the attention's.
  const bool first = op.layer == 0 && norms_in_layer_ == 0;
  ++norms_in_layer_;
  const __nv_bfloat16* input = first ? nullptr : projected_.get();
  return [this, input, norm](cudaStream_t stream) {
    AddRmsNorm(input, residual_.get(), weights_.norm().get(), kEpsilon, norm.rows,
               static_cast<int32_t>(norm.width), normed_.get(), stream);
  };
}

OpWork DecoderBinder::BindGemm(const plan::Op& op, const plan::Gemm& gemm) {
  const __nv_bfloat16 *a = nullptr, *b = nullptr;
  __nv_bfloat16* c = nullptr;
  if (op.layer < 0) {
    a = normed_.get(), b = weights_.head().get(), c = logits_.get();
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
  if (seen_.insert({gemm.n, gemm.k}).second) {
    gemm_.Run(a, b, c, gemm.m, gemm.n, gemm.k, nullptr);
  }
  return [this, a, b, c, gemm](cudaStream_t stream) {
    gemm_.Run(a, b, c, gemm.m, gemm.n, gemm.k, stream);
  };
}

OpWork DecoderBinder::BindRopeAppend(const plan::Op& op) {
  const CacheBinder::Append append = cache_.AppendAt(op.step, op.layer);
  const __nv_bfloat16* qkv = Injected(op.step, op.layer);
  __nv_bfloat16* query = Queries(op.step, op.layer);
  return [this, append, qkv, query](cudaStream_t stream) {
    RopeAppend(qkv, run_.batch(), run_.input.model.query_heads, append.cache, append.slot,
               append.place, position_.get(), frequencies_.get(), 1, query, append.bounds, stream);
  };
}

OpWork DecoderBinder::Bind(const plan::Op& op) {
  const bool own = op.role == plan::Role::kProjection || op.role == plan::Role::kMlp;
  if (own && op.layer != layer_) {
    gemms_in_layer_ = norms_in_layer_ = 0;
    layer_ = op.layer;
  }
  const llm::Model& m = run_.input.model;
  if (const auto* norm = std::get_if<plan::Norm>(&op.work)) return BindNorm(op, *norm);
  if (const auto* gemm = std::get_if<plan::Gemm>(&op.work)) return BindGemm(op, *gemm);
  if (std::holds_alternative<plan::RopeAppend>(op.work)) return BindRopeAppend(op);
  if (const auto* swiglu = std::get_if<plan::SwiGlu>(&op.work)) {
    return [this, rows = swiglu->rows, &m](cudaStream_t stream) {
      SwiGlu(gate_up_.get(), rows, static_cast<int32_t>(m.intermediate), activated_.get(), stream);
    };
  }
  if (const auto* sample = std::get_if<plan::Sample>(&op.work)) {
    return [this, sample = *sample](cudaStream_t stream) {
      ArgMax(logits_.get(), sample.rows, static_cast<int32_t>(sample.vocabulary), token_.get(),
             stream);
    };
  }
  if (std::holds_alternative<plan::HostSync>(op.work) ||
      std::holds_alternative<plan::HostHandoff>(op.work) ||
      std::holds_alternative<plan::GraphLaunch>(op.work)) {
    return {};
  }
  if (op.layer < 0 && std::holds_alternative<plan::Copy>(op.work)) {
    return [this](cudaStream_t stream) {
      Check(cudaMemcpyAsync(host_token_.get(), token_.get(), static_cast<size_t>(token_.bytes()),
                            cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    };
  }
  return cache_.Bind(op, Io(op));
}

}  // namespace stallcast::kernels
