// Full cache on the GPU, and StreamingLLM's sink and window.
#include <optional>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/contiguous_cache.h"
#include "kernels/movement/keep_tokens.h"
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

// The sink's tokens stay; behind them the window is a ring. Attention does not ask for order.
class StreamingBinder : public CacheBinder {
 public:
  StreamingBinder(const DecodeRun& run, const methods::StreamingParams& params)
      : run_(run), params_(params), attention_(run) {
    pages_ = static_cast<int32_t>((params.budget + kPage - 1) / kPage);
    const int64_t token = int64_t{2} * run.kv_heads() * run.head_dim();
    for (int layer = 0; layer < run.input.model.layers; ++layer) {
      data_.emplace_back(int64_t{run.batch()} * pages_ * kPage * token);
    }
    table_ = PagesInOrder(run, pages_);
    tokens_ = StepTable(run.input.steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
      return std::min(run.Context(step, static_cast<int>(row) / run.kv_heads()), params.budget);
    });
    slot_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return sequence * pages_ +
             RingPlace(run.Context(step, static_cast<int>(sequence)) - 1) / kPage;
    });
    place_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return RingPlace(run.Context(step, static_cast<int>(sequence)) - 1) % kPage;
    });
  }

  Append AppendAt(int step, int layer) override {
    return {Layer(layer), slot_.At(step), place_.At(step), {}};
  }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    return BindByKind("streaming", op, [&](const plan::DecodeAttention&) {
      const int64_t longest = run_.Context(op.step, run_.batch() - 1);
      const PageTable pages{table_.get(), tokens_.At(op.step), pages_,
                            static_cast<int32_t>(std::min(longest, params_.budget))};
      return attention_.Over(Layer(op.layer), pages, io);
    });
  }
  void Reset(std::span<const LayerIo> /*last*/) override {
    // The prompt's tokens one stretch of the ring after the other.
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t end = run_.Context(-1, sequence);
        Fill(layer, sequence, 0, std::min(end, params_.sink));
        for (int64_t token = std::max(params_.sink, end - params_.window()); token < end;) {
          const int64_t to_wrap = params_.budget - RingPlace(token);
          const int64_t count = std::min(to_wrap, end - token);
          Fill(layer, sequence, token, count);
          token += count;
        }
      }
    }
  }
  PromptKv PromptAt(int layer) override {
    if (!prompt_) prompt_.emplace(run_, 0, run_.input.model.layers);
    return prompt_->Prompt(layer);
  }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    return BindByKind("streaming", op, [&](const plan::Layout&) -> OpWork {
      return [prompt = PromptAt(op.layer), cache = Layer(op.layer), run = &run_, pages = pages_,
              ring = KeptRing{params_.sink, params_.window(), run_.input.prompt_tokens}](
                 cudaStream_t stream) {
        KeepRing(prompt.cache, prompt.max_pages, ring, cache, pages, run->batch(), stream);
      };
    });
  }
  void Clear() override {
    for (const auto& layer : data_) Zero(layer);
  }

 private:
  static constexpr int32_t kPage = 32;

  int64_t RingPlace(int64_t token) const {
    return token < params_.sink ? token : params_.sink + (token - params_.sink) % params_.window();
  }
  PagedKv Layer(int layer) const {
    return NhdPages(data_[static_cast<size_t>(layer)].get(), kPage, run_.kv_heads(),
                    run_.head_dim());
  }
  // `count` tokens from `first` on, which follow one another in the ring.
  void Fill(int layer, int sequence, int64_t first, int64_t count) {
    const int64_t shift = RingPlace(first) - first;
    FillTokens(Renumbered(run_.Source(layer), shift, run_.head_dim()), first + shift, count,
               Layer(layer), table_.get() + int64_t{sequence} * run_.kv_heads() * pages_, nullptr);
  }

  const DecodeRun& run_;
  methods::StreamingParams params_;
  AttentionLauncher attention_;
  int32_t pages_ = 0;
  std::vector<Buffer<__nv_bfloat16>> data_;
  Buffer<int32_t> table_;
  StepTable tokens_, slot_, place_;
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
