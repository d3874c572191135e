#include "models/methods/arkvale/plan.h"

#include <algorithm>

#include "models/methods/common/page_offload.h"
#include "models/methods/transformers_decoder.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::OpId;
using plan::Purpose;
using plan::Role;

// Selection and recall before every attention, all on the compute stream.
class ArkValePlan : public PlanWriter {
 public:
  ArkValePlan(DecoderPlan& plan, const ArkValeParams& params)
      : plan_(plan),
        builder_(plan.builder),
        params_(params),
        published_(params.variant == ArkValeParams::Variant::kPublished),
        offload_(plan, params.page, published_ ? PageOffload::Pool::kNhd : PageOffload::Pool::kHnd,
                 static_cast<int>(params.dense_layers)) {}

  Decoder decoder() const override {
    if (!plan_.input.as_run) return Decoder::kOwn;
    return published_ ? Decoder::kTransformersFused : Decoder::kTransformersStreams;
  }

  void BeginStep(int step) override {
    if (plan_.input.as_run) PrepareEngineStep(plan_);
    offload_.BeginStep(step);
  }

  void Attention(int step, int layer) override {
    if (layer < params_.dense_layers) {
      plan_.AttendAll(step, layer);
      return;
    }
    const auto access = plan_.Access(step, layer);
    if (access.flags & traces::kSelectedNow) {
      Select(step, layer);
      if (plan_.input.as_run) {
        RecallByLoop(step, layer);
      } else if (published_) {
        RecallPublished(step, layer);
      } else {
        RecallAsFreeKv(step, layer);
      }
    }
    // One page set serves every KV head of the layer: the log's single cell counts for each.
    const int64_t rows = plan_.kv_rows() / static_cast<int64_t>(access.cells.size());
    plan_.Attend(layer, access.attended_tokens * rows, access.attended_tokens_max);
  }

  void BeforePrefillAttention(int layer) override { offload_.Prefill(layer, published_); }

  void AfterPrefillAttention(int layer) override {
    // The cache is cut down to the budget by the last prompt token's scores.
    const int64_t pages = params_.regions().Selectable(plan_.input.prompt_tokens);
    if (layer < params_.dense_layers || pages == 0) return;
    Rank(layer, pages, params_.slots());
    offload_.Keep(layer, params_.regions(), params_.slots());
  }

  void EndPrefill() override { offload_.EndPrefill(); }

 private:
  int64_t Sets() const { return published_ ? plan_.input.batch : plan_.kv_rows(); }
  Bytes PageHeadBytes() const {
    const llm::Model& m = plan_.input.model;
    return params_.page * m.KvBytesPerTokenLayer() / m.kv_heads;
  }

  void Rank(int layer, int64_t pages, int64_t ranked) {
    if (pages == 0) return;
    const llm::Model& m = plan_.input.model;
    builder_.At(layer, Role::kSelection);
    builder_.Run(plan_.compute, plan::Score{pages, plan_.kv_rows(), m.group(), 2, m.head_dim,
                                            published_ ? plan::Score::Pool::kSequence
                                                       : plan::Score::Pool::kGroup});
    builder_.Run(plan_.compute, plan::TopK{Sets(), pages, std::min(pages, ranked)});
  }

  void Select(int step, int layer) {
    Rank(layer, params_.regions().Selectable(plan_.Context(step)), params_.ranked());
    builder_.Run(plan_.compute, plan::AssignSlots{Sets(), params_.ranked(), params_.slots()});
  }

  void ReadScalar() {
    builder_.SetRole(Role::kSync);
    plan_.ReadScalar(plan_.compute);
  }

  // Three scalars a sequence (is there a miss, the list's bounds), two a page, one copy a page.
  void RecallPublished(int step, int layer) {
    for (const Copy& pages : plan_.CopiesOfUnits(DecoderPlan::When::kNow, step, layer,
                                                 PageHeadBytes() * plan_.input.model.kv_heads)) {
      for (int i = 0; i < (pages.pieces > 0 ? 3 : 1); ++i) ReadScalar();
      for (int64_t i = 0; i < pages.pieces; ++i) {
        ReadScalar();
        ReadScalar();
        builder_.SetRole(Role::kRecall);
        Copy page = pages;
        page.pieces = 1;
        page.regions = i < pages.regions ? 1 : 0;
        builder_.For(Purpose::kBringRecalled).Run(plan_.compute, page, {offload_.Written(layer)});
      }
    }
  }

  // The miss list goes to the host; each page of each head is a copy and is scattered into the
  // paged cache; then the host waits for the device.
  void RecallAsFreeKv(int step, int layer) {
    const Copy missed = DecoderPlan::OneAfterTheOther(
        plan_.CopiesOfUnits(DecoderPlan::When::kNow, step, layer, PageHeadBytes()));
    builder_.SetRole(Role::kSync);
    builder_.For(Purpose::kReadMissed)
        .Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                                 Sets() * (2 * params_.slots() + 1) * int64_t{sizeof(int32_t)}});
    builder_.SyncStream(plan_.host, plan_.compute);
    if (missed.pieces > 0) {
      builder_.SetRole(Role::kRecall);
      builder_.For(Purpose::kBringRecalled).Run(plan_.compute, missed, {offload_.Written(layer)});
      builder_.SetRole(Role::kLayout);
      builder_.For(Purpose::kPlaceRecalled)
          .Run(plan_.compute, plan::Layout{missed.pieces, PageHeadBytes()});
    }
    builder_.SetRole(Role::kSync);
    builder_.SyncDevice(plan_.host);
  }

  // The loop over missed pages as both programs have it in Python, with all numbers on the GPU. A
  // sequence, or a KV head of one, takes four small kernels and reads three numbers: how many pages
  // it misses, and where its lists begin and end. A page reads two: which it is here and there.
  void RecallByLoop(int step, int layer) {
    using plan::Operator;
    const Bytes page = PageHeadBytes() * (published_ ? plan_.input.model.kv_heads : 1);
    const plan::Eager small{.op = Operator::kLaunchAllocating, .read = 4, .written = 4};
    for (const Copy& pages : plan_.CopiesOfUnits(DecoderPlan::When::kNow, step, layer, page)) {
      builder_.At(layer, Role::kSync);
      plan_.Call(Operator::kSlice, 3);
      builder_.Run(plan_.compute, small);
      ReadScalar();
      if (pages.pieces == 0) continue;
      for (int bound = 0; bound < 3; ++bound) builder_.Run(plan_.compute, small);
      ReadScalar();
      ReadScalar();
      plan_.Call(Operator::kSlice, 6 + 2 * pages.pieces);
      for (int64_t i = 0; i < pages.pieces; ++i) {
        ReadScalar();
        ReadScalar();
        plan_.Call(Operator::kCpu);
        builder_.SetRole(Role::kRecall);
        Copy one = pages;
        one.pieces = 1;
        one.regions = i < pages.regions ? 1 : 0;
        // A head's rows lie apart at both ends: they are gathered into memory that is not pinned,
        // and a kernel scatters them.
        if (!published_) {
          plan_.Call(Operator::kSlice, 2);
          plan_.Call(Operator::kCpu);
          one.host_memory = Copy::HostMemory::kPageable;
        }
        builder_.For(Purpose::kBringRecalled).Run(plan_.compute, one, {offload_.Written(layer)});
        if (published_) continue;
        builder_.SetRole(Role::kLayout);
        builder_.Run(plan_.compute,
                     plan::Eager{.op = Operator::kLaunch, .read = page, .written = page});
      }
    }
    if (published_) return;
    builder_.SetRole(Role::kSync);
    builder_.SyncDevice(plan_.host);
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  ArkValeParams params_;
  bool published_;
  PageOffload offload_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewArkValePlan(DecoderPlan& plan, const ArkValeParams& params) {
  return std::make_unique<ArkValePlan>(plan, params);
}

}  // namespace stallcast::methods
