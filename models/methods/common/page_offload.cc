#include "models/methods/common/page_offload.h"

#include <algorithm>

namespace stallcast::methods {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::OpId;
using plan::Purpose;
using plan::Role;

PageOffload::PageOffload(DecoderPlan& plan, int64_t page_tokens, Pool pool, int first_layer)
    : plan_(plan),
      page_(page_tokens),
      pool_(pool),
      first_layer_(first_layer),
      stream_(plan.builder.AddStream("offload", plan.host)),
      written_(static_cast<size_t>(plan.input.model.layers), OpId::kNone) {}

void PageOffload::Transpose(int64_t pages, OpId ready) {
  if (pool_ != Pool::kHnd) return;
  const llm::Model& m = plan_.input.model;
  plan_.builder.SetRole(Role::kLayout);
  plan_.builder.For(Purpose::kPackFilled)
      .Run(stream_, plan::Layout{pages * m.kv_heads, page_ * m.KvBytesPerTokenLayer() / m.kv_heads},
           {ready});
}

void PageOffload::BeginStep(int step) {
  const int64_t cached = plan_.Context(step) - 1;
  if (cached % page_ != 0 || step == 0) return;
  const llm::Model& m = plan_.input.model;
  // The step before has ended at the host, so its page is complete: no wait on the compute stream.
  for (int layer = first_layer_; layer < m.layers; ++layer) {
    plan_.builder.At(layer, Role::kIndex);
    plan_.builder.For(Purpose::kSummarizeFilled)
        .Run(plan_.compute,
             plan::Summarize{plan_.kv_rows(), static_cast<int32_t>(page_), 2, m.head_dim});
    Transpose(plan_.input.batch, OpId::kNone);
    plan_.builder.SetRole(Role::kOffload);
    written_[static_cast<size_t>(layer)] =
        plan_.builder.For(Purpose::kOffloadFilled)
            .Run(stream_, Copy{Direction::kDeviceToHost, CopyPath::kPerPiece, plan_.input.batch,
                               page_ * m.KvBytesPerTokenLayer()});
  }
}

void PageOffload::Prefill(int layer, bool sync_each_page) {
  if (layer < first_layer_) return;
  const llm::Model& m = plan_.input.model;
  const int64_t pages = plan_.input.prompt_tokens / page_ * plan_.input.batch;
  if (pages == 0) return;
  const OpId appended = plan_.builder.Last(plan_.compute);
  plan_.builder.At(layer, Role::kIndex);
  plan_.builder.For(Purpose::kSummarizeFilled)
      .Run(plan_.compute,
           plan::Summarize{pages * m.kv_heads, static_cast<int32_t>(page_), 2, m.head_dim});
  if (!plan_.input.as_run) Transpose(pages, plan_.builder.Last(plan_.compute));
  const Copy one{Direction::kDeviceToHost, CopyPath::kPerPiece, 1,
                 page_ * m.KvBytesPerTokenLayer()};
  plan_.builder.At(layer, Role::kOffload);
  if (plan_.input.as_run) {
    PrefillAsRun(pages, one, appended);
    return;
  }
  if (!sync_each_page) {
    Copy all = one;
    all.pieces = pages;
    plan_.builder.For(Purpose::kOffloadFilled).Run(stream_, all, {appended});
    return;
  }
  for (int64_t page = 0; page < pages; ++page) {
    plan_.builder.SetRole(Role::kSync);
    plan_.builder.SyncStream(plan_.host, plan_.compute);
    plan_.builder.SetRole(Role::kOffload);
    plan_.builder.For(Purpose::kOffloadFilled).Run(stream_, one, {appended});
  }
}

void PageOffload::PrefillAsRun(int64_t pages, const Copy& one, OpId appended) {
  for (int64_t page = 0; page < pages; ++page) {
    plan_.builder.SetRole(Role::kSync);
    plan_.ReadScalar(stream_);
    plan_.builder.SetRole(Role::kOffload);
    plan_.Call(plan::Operator::kCpu);  // the page's number on the host
    plan_.Call(plan::Operator::kSlice);
    Transpose(1, page == 0 ? appended : OpId::kNone);
    plan_.builder.SetRole(Role::kOffload);
    plan_.builder.For(Purpose::kOffloadFilled)
        .Run(stream_, one, {page == 0 ? appended : OpId::kNone});
  }
}

void PageOffload::Keep(int layer, const PageRegions& regions, int64_t slots) {
  const llm::Model& m = plan_.input.model;
  const int64_t tokens = plan_.input.prompt_tokens;
  const int64_t dropped = std::max<int64_t>(0, regions.Selectable(tokens) - slots);
  const int64_t kept = (tokens + page_ - 1) / page_ - dropped;
  plan_.builder.At(layer, Role::kSelection);
  plan_.builder.For(Purpose::kKeepPrompt)
      .Run(plan_.compute,
           plan::Layout{plan_.kv_rows() * kept, page_ * m.KvBytesPerTokenLayer() / m.kv_heads});
}

void PageOffload::EndPrefill() { plan_.builder.SyncStream(plan_.host, stream_); }

}  // namespace stallcast::methods
