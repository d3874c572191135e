// Quest: all KV on the GPU, page bounds kept by the append kernel, scores and top-k a layer.
#include <algorithm>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/contiguous_cache.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/page_bounds.h"
#include "kernels/selection/selection.h"
#include "models/methods/quest/params.h"

namespace stallcast::kernels {
namespace {

class QuestBinder : public CacheBinder {
 public:
  QuestBinder(const DecodeRun& run, const methods::QuestParams& params)
      : run_(run),
        params_(params),
        alone_(params.group == methods::QuestParams::Group::kQueryHead),
        kept_(static_cast<int32_t>(params.budget_pages() - 1)),
        cache_(run, 0, run.input.model.layers, static_cast<int32_t>(params.page)),
        attention_(run, alone_ ? run.group() : 1) {
    if (run.Context(0, 0) <= params.budget) {
      throw UsageError("the context fits the budget, so nothing is selected", "quest",
                       "give a longer context or a smaller budget");
    }
    const int64_t summary = int64_t{run.rows()} * cache_.pages() * 2 * run.head_dim();
    const int64_t choices = int64_t{choosers()} * (kept_ + 1);
    for (int layer = FirstSparse(); layer < run.input.model.layers; ++layer) {
      layers_.push_back({Buffer<__nv_bfloat16>(summary), Buffer<int32_t>(choices)});
    }
    const int32_t most = Selectable(run.input.steps - 1, run.batch() - 1);
    scores_ = Buffer<float>(int64_t{run.rows()} * run.group() * most);
    workspace_ =
        Buffer<char>(std::max<int64_t>(1, TopKWorkspace(choosers(), most, std::min(kept_, most))));
    score_workspace_ = Buffer<float>(ScoreWorkspace(run.rows(), run.group(), most));
    const int32_t choosers_a_sequence = choosers() / run.batch();
    const auto newest_page = [&](int step, int64_t sequence) {
      return (run.Context(step, static_cast<int>(sequence)) - 1) / params.page;
    };
    last_ = StepTable(run.input.steps, choosers(), 1, [&](int step, int64_t row, int64_t) {
      return newest_page(step, row / choosers_a_sequence);
    });
    selectable_ = StepTable(run.input.steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
      return Selectable(step, static_cast<int>(row) / run.kv_heads());
    });
    tokens_ = StepTable(run.input.steps, choosers(), 1, [&](int step, int64_t row, int64_t) {
      const int64_t context = run.Context(step, static_cast<int>(row) / choosers_a_sequence);
      return kept_ * params.page + (context - 1) % params.page + 1;
    });
    page_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return newest_page(step, sequence);
    });
  }

  Append AppendAt(int step, int layer) override {
    Append append = cache_.AppendAt(step, layer);
    if (layer >= FirstSparse()) {
      append.bounds = {Sparse(layer).summaries.get(), page_.At(step), cache_.pages()};
    }
    return append;
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    const int32_t pages = Selectable(op.step, run_.batch() - 1);
    return BindByKind(
        "quest", op, [&](const plan::DecodeAttention&) { return Attend(op, io); },
        [&](const plan::Score&) -> OpWork {
          const Pooling pooling = alone_ ? Pooling::kNone
                                  : params_.group == methods::QuestParams::Group::kMax
                                      ? Pooling::kMax
                                      : Pooling::kRawMean;
          return [this, io, pages, pooling, summaries = Sparse(op.layer).summaries.get(),
                  pages_of = run_.batch() > 1 ? selectable_.At(op.step) : nullptr](cudaStream_t s) {
            Score(io.query, summaries, run_.rows(), run_.group(), run_.head_dim(), 2, 0, pages,
                  cache_.pages(), pooling, 1, scores_.get(), score_workspace_.get(), s, pages_of);
          };
        },
        [&](const plan::TopK&) -> OpWork {
          return [this, pages, ids = Sparse(op.layer).ids.get(),
                  last = last_.At(op.step)](cudaStream_t stream) {
            TopK(scores_.get(), choosers(), pages, kept_, ids, workspace_.get(), stream, last);
          };
        });
  }

  void Reset(std::span<const LayerIo> /*last*/) override {
    cache_.Reset();
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      // Bounds of the prompt's full pages; those of the last one grow from its first token, which
      // is appended again here.
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const auto full = static_cast<int32_t>(run_.Context(-1, sequence) / params_.page);
        const int64_t row = int64_t{sequence} * run_.kv_heads();
        Summarize(SummaryKind::kMinMax, cache_.Layer(layer), cache_.table() + row * cache_.pages(),
                  cache_.pages(), 0, full, run_.kv_heads(),
                  Sparse(layer).summaries.get() + row * cache_.pages() * 2 * run_.head_dim(),
                  cache_.pages(), nullptr);
      }
      ResetPartialBounds(run_, layer, params_.page, cache_.pages(), Sparse(layer).summaries.get());
    }
  }

  PromptKv PromptAt(int layer) override { return cache_.Prompt(layer); }
  void Clear() override {
    cache_.Clear();
    for (const Layer& layer : layers_) Zero(layer.summaries);
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    if (!std::holds_alternative<plan::Summarize>(op.work)) CannotBind("quest", op);
    const int64_t tokens = run_.input.prompt_tokens;
    const auto full = static_cast<int32_t>(tokens / params_.page);
    return [this, full, rest = static_cast<int32_t>(tokens % params_.page),
            cache = cache_.Layer(op.layer),
            summaries = Sparse(op.layer).summaries.get()](cudaStream_t stream) {
      Summarize(SummaryKind::kMinMax, cache, cache_.table(), cache_.pages(), 0, full, run_.rows(),
                summaries, cache_.pages(), stream);
      if (rest == 0) return;
      // The tokens of the last page, as a page of that length.
      PagedKv partial = cache;
      partial.page_tokens = rest;
      Summarize(SummaryKind::kMinMax, partial, cache_.table(), cache_.pages(), full, 1, run_.rows(),
                summaries, cache_.pages(), stream);
    };
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    std::vector<int32_t> ids(static_cast<size_t>(choosers()) * (kept_ + 1));
    const int heads = choosers() / run_.batch();
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      Check(cudaMemcpy(ids.data(), Sparse(layer).ids.get(), ids.size() * sizeof(int32_t),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
      for (int row = 0; row < choosers(); ++row) {
        check.Compare({ids.data() + int64_t{row} * (kept_ + 1), static_cast<size_t>(kept_)},
                      run_.log->Selected(step, layer, row / heads, row % heads));
      }
    }
  }

 private:
  OpWork Attend(const plan::Op& op, const LayerIo& io) {
    if (op.layer < FirstSparse()) {
      return attention_.Over(cache_.Layer(op.layer), cache_.Pages(op.step), io);
    }
    const PageTable chosen{Sparse(op.layer).ids.get(), tokens_.At(op.step), kept_ + 1,
                           static_cast<int32_t>(params_.budget), cache_.pages()};
    return attention_.Over(cache_.Layer(op.layer), chosen, io, alone_ ? run_.group() : 1);
  }

  struct Layer {
    Buffer<__nv_bfloat16> summaries;  // [row][page][2][head_dim]
    Buffer<int32_t> ids;              // [chooser][kept + 1]
  };

  int FirstSparse() const { return static_cast<int>(params_.dense_layers); }
  Layer& Sparse(int layer) { return layers_[static_cast<size_t>(layer - FirstSparse())]; }
  // Rows that choose pages: KV heads, or query heads.
  int32_t choosers() const { return run_.rows() * (alone_ ? run_.group() : 1); }
  // Pages but for the newest.
  int32_t Selectable(int step, int sequence) const {
    return static_cast<int32_t>((run_.Context(step, sequence) - 1) / params_.page);
  }

  const DecodeRun& run_;
  methods::QuestParams params_;
  bool alone_;
  int32_t kept_;  // pages chosen beside the newest
  ContiguousCache cache_;
  AttentionLauncher attention_;
  std::vector<Layer> layers_;  // the sparse ones
  Buffer<float> scores_, score_workspace_;
  Buffer<char> workspace_;
  StepTable last_, selectable_, tokens_, page_;
};

}  // namespace

const MethodBinder kQuest{"quest", Make<QuestBinder, methods::QuestParams>};

}  // namespace stallcast::kernels
