#include "models/methods/offload/plan.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Purpose;
using plan::Role;

// Layer buffers on the GPU, filled in the order in which layers attend, across steps. Only the new
// token's keys and values go back to the host.
class OffloadPlan : public PlanWriter {
 public:
  OffloadPlan(DecoderPlan& plan, const OffloadParams& params)
      : plan_(plan),
        builder_(plan.builder),
        layers_(plan.input.model.layers),
        buffers_(static_cast<int>(params.buffers(layers_))),
        recall_(builder_.AddStream("prefetch", plan.host)),
        offload_(builder_.AddStream("offload", plan.host)) {}

  void BeginStep(int step) override {
    if (step == 0) {
      for (int visit = 0; visit < buffers_ - 1; ++visit) Fetch(visit);
    }
  }

  void Attention(int step, int layer) override {
    const OpId appended = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    written_.push_back(builder_.For(Purpose::kOffloadFilled).Run(offload_, NewToken(), {appended}));
    const int visit = step * layers_ + layer;
    Fetch(visit + buffers_ - 1);
    attended_.push_back(plan_.AttendAll(step, layer, {fetched_[static_cast<size_t>(visit)]}));
  }

  void BeforePrefillAttention(int layer) override {
    const OpId appended = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    builder_.For(Purpose::kOffloadFilled)
        .Run(offload_,
             Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                  int64_t{plan_.input.batch} * plan_.input.prompt_tokens * TokenBytes()},
             {appended});
  }

  void EndPrefill() override { builder_.SyncStream(plan_.host, offload_); }

 private:
  Bytes TokenBytes() const { return plan_.input.model.KvBytesPerTokenLayer(); }
  Copy NewToken() const {
    return {Direction::kDeviceToHost, CopyPath::kBulk, 1, plan_.input.batch * TokenBytes()};
  }

  // Copies the cache for the visit-th attention of the run into the buffer that an earlier visit
  // has left: its attention has read it, and its token, like those of all visits before it, is in
  // the pool.
  void Fetch(int visit) {
    const int step = visit / layers_;
    if (step >= plan_.input.steps) return;
    builder_.At(visit % layers_, Role::kRecall);
    const int previous = visit - buffers_;
    const auto of_previous = [&](const std::vector<OpId>& ops) {
      return previous < 0 ? OpId::kNone : ops[static_cast<size_t>(previous)];
    };
    const int64_t tokens = int64_t{plan_.input.batch} * (plan_.Context(step) - 1);
    fetched_.push_back(
        builder_.For(Purpose::kBringRecalled)
            .Run(recall_, Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, tokens * TokenBytes()},
                 {of_previous(attended_), of_previous(written_)}));
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  int layers_;
  int buffers_;
  LaneId recall_, offload_;
  std::vector<OpId> fetched_;   // by visit
  std::vector<OpId> attended_;  // by visit
  std::vector<OpId> written_;   // by visit: its token
};

}  // namespace

std::unique_ptr<PlanWriter> NewOffloadPlan(DecoderPlan& plan, const OffloadParams& params) {
  return std::make_unique<OffloadPlan>(plan, params);
}

}  // namespace stallcast::methods
