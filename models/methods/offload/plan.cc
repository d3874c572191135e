#include "models/methods/offload/plan.h"

#include "models/methods/transformers_decoder.h"

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

// transformers' cache with offloading: a layer asks for the next one's keys and values on a stream
// of their own, concatenates its own, and sends both back on the compute stream before it attends.
class TransformersOffloadPlan : public PlanWriter {
 public:
  TransformersOffloadPlan(DecoderPlan& plan, const OffloadParams& params)
      : plan_(plan),
        builder_(plan.builder),
        model_(plan.input.model),
        all_(params.write_back == OffloadParams::WriteBack::kAll),
        prefetch_(builder_.AddStream("prefetch", plan.host)) {
    if (plan.input.host != plan::Host::kGraph) return;
    throw UsageError("a cache that grows by concatenation has another address each step", "--host",
                     "no CUDA graph can hold it: use --host cpp or pytorch");
  }
  Decoder decoder() const override { return Decoder::kTransformers; }

  void Attention(int step, int layer) override {
    // What the step before has asked for last is the first layer's.
    if (step == 0 && layer == 0) Fetch(step, 0);
    const OpId fetched = builder_.Last(prefetch_);
    const int next = (layer + 1) % model_.layers;
    const int step_of_next = next == 0 ? step + 1 : step;
    if (step_of_next < plan_.input.steps) Fetch(step_of_next, next);
    builder_.At(layer, Role::kLayout);
    ConcatenateCache(plan_, Tokens(step), fetched);
    builder_.SetRole(Role::kOffload);
    const Bytes half =
        (all_ ? Tokens(step) : int64_t{plan_.input.batch}) * model_.KvBytesPerTokenLayer() / 2;
    const Copy back{Direction::kDeviceToHost, CopyPath::kBulk, 1, half};
    for (int of = 0; of < 2; ++of) {
      builder_.For(Purpose::kOffloadFilled).Run(plan_.compute, back);
    }
    AttendBySdpa(plan_, step, layer);
  }

  void BeforePrefillAttention(int layer) override {
    builder_.At(layer, Role::kOffload);
    const Bytes half =
        int64_t{plan_.input.batch} * plan_.input.prompt_tokens * model_.KvBytesPerTokenLayer() / 2;
    for (int of = 0; of < 2; ++of) {
      builder_.For(Purpose::kOffloadFilled)
          .Run(plan_.compute, Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1, half});
    }
  }

 private:
  int64_t Tokens(int step) const { return int64_t{plan_.input.batch} * plan_.Context(step); }

  void Fetch(int step, int layer) {
    builder_.At(layer, Role::kRecall);
    const Bytes half = (Tokens(step) - plan_.input.batch) * model_.KvBytesPerTokenLayer() / 2;
    for (int of = 0; of < 2; ++of) {
      builder_.For(Purpose::kBringRecalled)
          .Run(prefetch_, Copy{Direction::kHostToDevice, CopyPath::kBulk, 1, half});
    }
  }

  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  const llm::Model& model_;
  bool all_;
  LaneId prefetch_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewOffloadPlan(DecoderPlan& plan, const OffloadParams& params) {
  if (plan.input.as_run) return std::make_unique<TransformersOffloadPlan>(plan, params);
  return std::make_unique<OffloadPlan>(plan, params);
}

}  // namespace stallcast::methods
