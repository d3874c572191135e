#include "models/methods/common/head_kinds.h"

#include <tbb/parallel_for.h>

#include <numeric>

#include "models/methods/common/head_keeper.h"
#include "models/methods/common/log_cells.h"
#include "models/methods/common/observation.h"
#include "models/methods/common/ranking.h"

namespace stallcast::methods {

std::vector<bool> WholeHeads(const LayerTensors& tensors, const HeadKinds& kinds) {
  const int heads = tensors.kv_heads(), group = tensors.group();
  const int64_t prompt = tensors.prompt_tokens();
  const ObservationWindow observe(tensors, kinds.observe);
  std::vector<float> missed(static_cast<size_t>(heads));
  tbb::parallel_for(0, heads, [&](int head) {
    const std::vector<float> weights =
        ObservationScores(tensors, head * group, (head + 1) * group, prompt, observe.first,
                          observe.end, Observed::kAllBefore);
    const int64_t end = prompt - std::min(kinds.Window(prompt), prompt);
    double sum = 0;
    for (int64_t t = std::min(kinds.sink, prompt); t < end; ++t) {
      sum += static_cast<double>(weights[t]);
    }
    missed[head] = static_cast<float>(sum);
  });
  std::vector<bool> whole(static_cast<size_t>(heads));
  for (const uint32_t head : Best(missed, 0, kinds.Whole(heads))) whole[head] = true;
  return whole;
}

void HeadKindsPolicy::Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                             AttendedRanges& attended) const {
  const int64_t prompt = tensors.prompt_tokens();
  const std::vector<bool> whole = WholeHeads(tensors, kinds_);
  LogCells cells(access, attended, tensors.kv_heads());
  for (int step = 0; step < tensors.steps(); ++step) {
    const int64_t context = prompt + step + 1;
    const int64_t kept = kinds_.Kept(prompt, context);
    for (int head = 0; head < tensors.kv_heads(); ++head) {
      if (whole[static_cast<size_t>(head)]) {
        attended.Add(0, context);
        cells.End({.cached_tokens = context});
        continue;
      }
      const int64_t sink = std::min(kinds_.sink, context);
      attended.Add(0, sink);
      attended.Add(std::max(sink, context - kinds_.Window(prompt)), context);
      cells.End({.evicted = context > kinds_.sink + kinds_.Window(prompt) ? 1 : 0,
                 .cached_tokens = kept});
    }
  }
}

namespace {

using plan::Role;

class HeadKindsPlan : public PlanWriter {
 public:
  HeadKindsPlan(DecoderPlan& plan, const HeadKinds& kinds)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        kinds_(kinds),
        whole_(kinds.Whole(model_.kv_heads)),
        others_(model_.kv_heads - whole_) {
    plan.notes.emplace_back(
        "heads that keep everything are those of each layer that need it most in the trace's last "
        "prompt queries; the papers' patterns belong to a model");
    if (kinds.compensation) {
      plan.notes.emplace_back("what compensation tokens give is in no mass and no error");
    }
  }

  void Attention(int step, int layer) override {
    const int64_t context = plan_.Context(step);
    const int64_t kept = Kept(context);
    builder_.At(layer, Role::kAttention);
    const int64_t batch = plan_.input.batch;
    if (kinds_.two_calls && whole_ > 0 && others_ > 0) {
      Attend(whole_, batch * whole_ * context, context);
      Attend(others_, batch * others_ * kept, kept);
      builder_.SetRole(Role::kLayout);
      builder_.Run(plan_.compute, plan::Layout{batch * model_.queries, int64_t{model_.query_heads} *
                                                                           model_.head_dim *
                                                                           llm::kActivationBytes});
      return;
    }
    Attend(model_.kv_heads, batch * (whole_ * context + others_ * kept),
           whole_ > 0 ? context : kept);
  }

  void AfterPrefillAttention(int layer) override {
    const int64_t prompt = plan_.input.prompt_tokens, kept = Kept(prompt);
    if (kept >= prompt || others_ == 0) return;
    builder_.At(layer, Role::kLayout);
    // The mean key and value of what is dropped.
    const int64_t rows = int64_t{plan_.input.batch} * others_;
    if (kinds_.compensation) {
      builder_.Run(plan_.compute, plan::Summarize{2 * rows, static_cast<int32_t>(prompt - kept), 1,
                                                  model_.head_dim});
    }
    builder_.Run(plan_.compute, plan::Layout{2 * rows, kept * model_.KvRowBytes()});
  }

 private:
  int64_t Kept(int64_t context) const {
    const int64_t kept = kinds_.Kept(plan_.input.prompt_tokens, context);
    return kept + (kinds_.compensation && kept < context ? 1 : 0);
  }
  void Attend(int32_t heads, int64_t tokens, int64_t most) {
    plan_.Attend(plan::DecodeAttention{tokens, most, plan_.input.batch, heads, model_.group(),
                                       model_.head_dim});
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  HeadKinds kinds_;
  int32_t whole_, others_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewHeadKindsPlan(DecoderPlan& plan, const HeadKinds& kinds) {
  return std::make_unique<HeadKindsPlan>(plan, kinds);
}

Footprint HeadKindsFootprint(const HeadKinds& kinds, const llm::Model& model, int64_t context,
                             int32_t batch) {
  const int64_t whole = kinds.Whole(model.kv_heads), others = model.kv_heads - whole;
  const int64_t kept = kinds.Kept(context, context) + (kinds.compensation ? 1 : 0);
  const Bytes token = 2 * model.KvRowBytes();
  return {.gpu_kv = int64_t{batch} * model.layers * (whole * context + others * kept) * token};
}

}  // namespace stallcast::methods
