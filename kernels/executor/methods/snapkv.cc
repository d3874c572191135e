// SnapKV: the tokens kept of a prompt and all that are decoded, one behind the other on the GPU.
#include <oneapi/tbb/parallel_for.h>

#include <cstring>
#include <vector>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/contiguous_cache.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "models/methods/snapkv/params.h"
#include "models/methods/snapkv/policy.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::SnapKvParams;

class SnapKvBinder : public CacheBinder {
 public:
  SnapKvBinder(const DecodeRun& run, const Params& params)
      : run_(run), params_(params), first_(static_cast<int>(params.dense_layers)), attention_(run) {
    if (params.group == Params::Group::kQueryHead) {
      throw UsageError("a cache of each query head is predicted only", "group",
                       "run it with -p group=mean");
    }
    pages_ =
        static_cast<int32_t>((Tokens(run.input.steps - 1, run.batch() - 1) + kPage - 1) / kPage);
    for (int layer = first_; layer < run.input.model.layers; ++layer) {
      data_.emplace_back(int64_t{run.batch()} * pages_ * kPage * 2 * run.kv_heads() *
                         run.head_dim());
    }
    table_ = PagesInOrder(run, pages_);
    tokens_ = StepTable(run.input.steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
      return Tokens(step, static_cast<int>(row) / run.kv_heads());
    });
    slot_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return sequence * pages_ + (Tokens(step, static_cast<int>(sequence)) - 1) / kPage;
    });
    place_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return (Tokens(step, static_cast<int>(sequence)) - 1) % kPage;
    });
    Fill();
  }

  Append AppendAt(int step, int layer) override {
    return {Cache(layer), slot_.At(step), place_.At(step), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    return BindByKind("snapkv", op, [&](const plan::DecodeAttention&) {
      const PageTable pages{table_.get(), tokens_.At(op.step), pages_,
                            static_cast<int32_t>(Tokens(op.step, run_.batch() - 1))};
      return attention_.Over(Cache(op.layer), pages, io);
    });
  }

  // What is kept stays, and decoded tokens are written again.
  void Reset(std::span<const LayerIo> /*last*/) override {}
  void Clear() override {
    for (const auto& layer : data_) Zero(layer);
  }

 private:
  static constexpr int32_t kPage = 32;

  /// Tokens that a sequence has when a step attends.
  int64_t Tokens(int step, int sequence) const {
    return params_.Kept(run_.input.prompt_tokens) + run_.TraceStep(step, sequence) + 1;
  }
  PagedKv Cache(int layer) const {
    return NhdPages(data_[static_cast<size_t>(layer - first_)].get(), kPage, run_.kv_heads(),
                    run_.head_dim());
  }

  // The policy's choice of the prompt, and what a sequence that begins later has decoded.
  void Fill() {
    const TraceTensors& trace = *run_.trace;
    std::vector<std::vector<std::vector<uint32_t>>> kept(static_cast<size_t>(trace.layers()));
    tbb::parallel_for(0, trace.layers(), [&](int source) {
      const methods::LayerTensors tensors = run_.Recorded(source, params_.window);
      for (int head = 0; head < trace.kv_heads(); ++head) {
        kept[static_cast<size_t>(source)].push_back(methods::KeptOfPrompt(
            tensors, params_, head * tensors.group(), (head + 1) * tensors.group()));
      }
    });
    const int64_t dim = run_.head_dim();
    const auto bytes = static_cast<size_t>(dim) * sizeof(__nv_bfloat16);
    tbb::parallel_for(first_, run_.input.model.layers, [&](int layer) {
      const PagedKv cache = Cache(layer);
      std::vector<__nv_bfloat16> host(
          static_cast<size_t>(data_[static_cast<size_t>(layer - first_)].size()));
      const int source = run_.source_of[static_cast<size_t>(layer)];
      for (int row = 0; row < run_.rows(); ++row) {
        const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
        const int traced = head % trace.kv_heads();
        std::vector<uint32_t> tokens =
            kept[static_cast<size_t>(source)][static_cast<size_t>(traced)];
        for (int64_t step = 0; step < run_.TraceStep(0, sequence); ++step) {
          tokens.push_back(static_cast<uint32_t>(run_.input.prompt_tokens + step));
        }
        for (size_t i = 0; i < tokens.size(); ++i) {
          const auto at = static_cast<int64_t>(i);
          __nv_bfloat16* to = host.data() +
                              (int64_t{sequence} * pages_ + at / kPage) * cache.slot_stride +
                              at % kPage * cache.token_stride + head * cache.head_stride;
          std::memcpy(static_cast<void*>(to), trace.Key(source, traced, tokens[i]), bytes);
          std::memcpy(static_cast<void*>(to + cache.kv_stride),
                      trace.Value(source, traced, tokens[i]), bytes);
        }
      }
      Check(cudaMemcpy(cache.data, host.data(), host.size() * sizeof(host[0]),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    });
  }

  const DecodeRun& run_;
  Params params_;
  int first_;  // layer: those below are dense
  AttentionLauncher attention_;
  int32_t pages_ = 0;  // of a sequence
  std::vector<Buffer<__nv_bfloat16>> data_;
  Buffer<int32_t> table_;  // [row][page]
  StepTable tokens_, slot_, place_;
};

}  // namespace

const MethodBinder kSnapKv{"snapkv", MakeBehindDense<SnapKvBinder, Params>};

}  // namespace stallcast::kernels
