// Full cache on the GPU, and StreamingLLM's sink and window.
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/contiguous_cache.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/ring_cache.h"
#include "models/methods/streaming/params.h"

namespace stallcast::kernels {
namespace {

class FullBinder : public CacheBinder {
 public:
  FullBinder(const DecodeRun& run, int layers) : cache_(run, 0, layers), attention_(run) {}

  Append AppendAt(int step, int layer) override { return cache_.AppendAt(step, layer); }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    return BindByKind("full", op, [&](const plan::DecodeAttention&) {
      return attention_.Over(cache_.Layer(op.layer), cache_.Pages(op.step), io);
    });
  }
  void Reset(std::span<const LayerIo> /*last*/) override { cache_.Reset(); }
  PromptKv PromptAt(int layer) override { return cache_.Prompt(layer); }
  void Clear() override { cache_.Clear(); }

 private:
  ContiguousCache cache_;
  AttentionLauncher attention_;
};

std::vector<int> LayersOf(const DecodeRun& run) {
  std::vector<int> layers(static_cast<size_t>(run.input.model.layers));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

class StreamingBinder : public CacheBinder {
 public:
  StreamingBinder(const DecodeRun& run, const methods::StreamingParams& params)
      : run_(run), cache_(run, LayersOf(run), params.sink, params.window()), attention_(run) {}

  Append AppendAt(int step, int layer) override { return cache_.AppendAt(step, layer); }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    return BindByKind("streaming", op, [&](const plan::DecodeAttention&) {
      return attention_.Over(cache_.Layer(op.layer), cache_.Pages(op.step), io);
    });
  }
  void Reset(std::span<const LayerIo> /*last*/) override { cache_.Reset(); }
  PromptKv PromptAt(int layer) override {
    if (!prompt_) prompt_.emplace(run_, 0, run_.input.model.layers);
    return prompt_->Prompt(layer);
  }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    return BindByKind("streaming", op, [&](const plan::Layout&) -> OpWork {
      return [prompt = PromptAt(op.layer), cache = cache_.Layer(op.layer), run = &run_,
              pages = cache_.pages(), ring = cache_.kept()](cudaStream_t stream) {
        KeepRing(prompt.cache, prompt.max_pages, ring, cache, pages, run->batch(), stream);
      };
    });
  }
  void Clear() override { cache_.Clear(); }

 private:
  const DecodeRun& run_;
  RingCache cache_;
  AttentionLauncher attention_;
  std::optional<ContiguousCache> prompt_;  // in prefill, before it is cut down
};

}  // namespace

std::unique_ptr<CacheBinder> BindFull(const DecodeRun& run, int layers) {
  return std::make_unique<FullBinder>(run, layers);
}

const MethodBinder kFull{"full", [](const DecodeRun& run, const methods::Method&) {
                           return BindFull(run, run.input.model.layers);
                         }};
const MethodBinder kStreaming{"streaming", Make<StreamingBinder, methods::StreamingParams>};

}  // namespace stallcast::kernels
