#include "kernels/executor/decoder_binder.h"

#include <cstring>
#include <variant>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

DecoderBinder::DecoderBinder(const DecodeRun& run, const DecoderWeights& weights,
                             CacheBinder& cache)
    : run_(run), cache_(cache), layers_(weights, run.batch(), /*tokens=*/1) {
  const llm::Model& m = run.whole;
  if (run.input.model.layers < m.layers) windows_.emplace(run);
  int full = 0, window = 0;
  for (int layer = 0; layer < m.layers; ++layer) {
    if (m.KindOf(layer).attention == llm::Layer::Attention::kFull) {
      servers_.push_back({&cache, full, run.source_of[static_cast<size_t>(full)]});
      ++full;
    } else {
      servers_.push_back({&*windows_, window, windows_->Source(window)});
      ++window;
    }
  }
  const int64_t rows = run.batch();
  queries_ = Buffer<__nv_bfloat16>(int64_t{m.layers} * 2 * rows * m.query_heads * m.head_dim);
  position_ = Buffer<int32_t>(rows);
  Zero(position_);
  frequencies_ = Buffer<float>(m.head_dim / 2);
  Zero(frequencies_);
  LoadInjected();
}

void DecoderBinder::LoadInjected() {
  const llm::Model& m = run_.input.model;
  const TraceTensors& trace = *run_.trace;
  CheckHeads(run_);
  const int64_t width = (m.query_heads + int64_t{2} * m.kv_heads) * m.head_dim;
  const int64_t step_size = int64_t{trace.layers()} * run_.batch() * width;
  std::vector<__nv_bfloat16> all(static_cast<size_t>((int64_t{run_.input.steps} + 1) * step_size));
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
          const int traced = trace.QueryHeadFor(head, m.group());
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
  Begin();
  std::vector<LayerIo> last;
  for (int layer = 0; layer < run_.whole.layers; ++layer) {
    if (ServerOf(layer).cache == &cache_) last.push_back({Queries(-1, layer), nullptr, nullptr});
  }
  cache_.Reset(last);
  if (windows_) windows_->Reset({});
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void DecoderBinder::Begin() {
  // The queries before step 0, for methods that compare with them.
  const llm::Model& m = run_.whole;
  const int64_t heads = int64_t{m.query_heads} * m.head_dim;
  const int64_t width = heads + int64_t{2} * m.kv_heads * m.head_dim;
  for (int layer = 0; layer < m.layers; ++layer) {
    Check(cudaMemcpy2D(Queries(-1, layer), static_cast<size_t>(heads) * 2, Injected(-1, layer),
                       static_cast<size_t>(width) * 2, static_cast<size_t>(heads) * 2,
                       static_cast<size_t>(run_.batch()), cudaMemcpyDeviceToDevice),
          "cudaMemcpy2D");
  }
}

__nv_bfloat16* DecoderBinder::Injected(int step, int layer) const {
  const llm::Model& m = run_.input.model;
  const int64_t width = (m.query_heads + int64_t{2} * m.kv_heads) * m.head_dim;
  return injected_.get() +
         (int64_t{step + 1} * run_.trace->layers() + ServerOf(layer).source) * run_.batch() * width;
}

__nv_bfloat16* DecoderBinder::Queries(int step, int layer) const {
  const llm::Model& m = run_.input.model;
  const int64_t size = int64_t{run_.batch()} * m.query_heads * m.head_dim;
  return queries_.get() + (int64_t{layer} * 2 + (step + 2) % 2) * size;
}

LayerIo DecoderBinder::Io(const plan::Op& op) const {
  if (op.layer < 0 || op.step < 0) return {};
  return {Queries(op.step, op.layer), Queries(op.step - 1, op.layer), layers_.attention()};
}

OpWork DecoderBinder::BindRopeAppend(const plan::Op& op) {
  const Server& server = ServerOf(op.layer);
  const CacheBinder::Append append = server.cache->AppendAt(op.step, server.layer);
  const __nv_bfloat16* qkv = Injected(op.step, op.layer);
  __nv_bfloat16* query = Queries(op.step, op.layer);
  return [this, append, qkv, query](cudaStream_t stream) {
    RopeAppend(qkv, run_.batch(), run_.input.model.query_heads, append.cache, append.slot,
               append.place, position_.get(), frequencies_.get(), 1, query, append.bounds, stream);
  };
}

OpWork DecoderBinder::Bind(const plan::Op& op) {
  if (std::optional<OpWork> work = layers_.Bind(op)) return *work;
  if (std::holds_alternative<plan::RopeAppend>(op.work)) return BindRopeAppend(op);
  if (op.layer < 0) return cache_.Bind(op, Io(op));
  const Server& server = ServerOf(op.layer);
  plan::Op called = op;
  called.layer = static_cast<int16_t>(server.layer);
  return server.cache->Bind(called, Io(op));
}

}  // namespace stallcast::kernels
