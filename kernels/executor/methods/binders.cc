#include "kernels/executor/methods/binders.h"

#include <fmt/format.h>

#include <utility>

#include "traces/common/error.h"

namespace stallcast::kernels {

std::unique_ptr<CacheBinder> MakeCacheBinder(const DecodeRun& run,
                                             const methods::NamedMethod& method) {
  for (const MethodBinder* binder :
       {&kFull, &kStreaming, &kCpuAttention, &kHiSparse, &kSnapKv, &kOffload, &kQuest, &kArkVale,
        &kFreeKv, &kLouisKv, &kPrkv, &kShadowKv, &kParisKv, &kWgKv}) {
    if (binder->method == method.info->name) return binder->make(run, *method.method);
  }
  throw UsageError("this method is predicted only: no kernels run it yet", method.name,
                   "choose another method");
}

PromptKv CacheBinder::PromptAt(int /*layer*/) {
  throw UsageError("prefill of this method is predicted only: no kernels run it yet", "--prefill",
                   "run its decode steps");
}

OpWork CacheBinder::BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) {
  CannotBind("prefill", op);
}

void SetModel(llm::Model whole, DecodeRun& run) {
  run.input.model = llm::FullAttentionOnly(whole);
  run.whole = std::move(whole);
}

void CheckHeads(const DecodeRun& run) {
  if (run.head_dim() == run.trace->head_dim()) return;
  throw UsageError(fmt::format("the model's heads have {} channels, the trace's {}", run.head_dim(),
                               run.trace->head_dim()),
                   "--model", "choose a model or a trace with the other's head dimension");
}

void CannotBind(std::string_view method, const plan::Op& op) {
  throw Error("the plan has an op that cannot be run: " + std::string(plan::KindName(op.work)),
              std::string(method), "report this: plan and executor have come apart");
}

}  // namespace stallcast::kernels
