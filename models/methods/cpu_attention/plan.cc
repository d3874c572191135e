#include "models/methods/cpu_attention/plan.h"

#include <algorithm>

#include "models/methods/common/host_attention.h"

namespace stallcast::methods {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;
using plan::LaneId;
using plan::OpId;
using plan::Role;

// Queries and the new token's keys and values go down, outputs come up. The GPU attends its own
// tokens meanwhile.
class CpuAttentionPlan : public PlanWriter {
 public:
  CpuAttentionPlan(DecoderPlan& plan, const CpuAttentionParams& params)
      : plan_(plan),
        builder_(plan.builder),
        params_(params),
        offload_(builder_.AddStream("offload", plan.host)) {}

  void Attention(int step, int layer) override {
    const int64_t on_gpu = std::min(params_.gpu_tokens, plan_.Context(step));
    const int64_t on_host = plan_.Context(step) - on_gpu;
    if (on_host == 0) {
      plan_.AttendAll(step, layer);
      return;
    }
    AttendOnHost(plan_, layer,
                 {.kv_tokens = plan_.kv_rows() * on_host,
                  .group = plan_.input.model.group(),
                  .threads = static_cast<int32_t>(params_.threads),
                  .sends_new_token = true,
                  .merged = on_gpu > 0},
                 [&] {
                   if (on_gpu > 0) plan_.Attend(layer, plan_.kv_rows() * on_gpu, on_gpu);
                 });
    if (on_gpu > 0) MergeWithHost(plan_, layer);
  }

  void BeforePrefillAttention(int layer) override {
    const OpId appended = builder_.Last(plan_.compute);
    builder_.At(layer, Role::kOffload);
    builder_.Run(offload_,
                 Copy{Direction::kDeviceToHost, CopyPath::kBulk, 1,
                      int64_t{plan_.input.batch} * plan_.input.prompt_tokens *
                          plan_.input.model.KvBytesPerTokenLayer()},
                 {appended});
  }

  void AfterPrefillAttention(int layer) override {
    const int64_t kept = std::min(params_.gpu_tokens, plan_.input.prompt_tokens);
    if (kept == 0) return;
    builder_.At(layer, Role::kLayout);
    builder_.Run(plan_.compute,
                 plan::Layout{plan_.kv_rows(), kept * 2 * plan_.input.model.KvRowBytes()});
  }

  void EndPrefill() override { builder_.SyncStream(plan_.host, offload_); }

 private:
  DecoderPlan& plan_;
  plan::PlanBuilder& builder_;
  CpuAttentionParams params_;
  LaneId offload_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewCpuAttentionPlan(DecoderPlan& plan,
                                                const CpuAttentionParams& params) {
  return std::make_unique<CpuAttentionPlan>(plan, params);
}

}  // namespace stallcast::methods
