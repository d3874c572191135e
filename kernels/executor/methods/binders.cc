#include "kernels/executor/methods/binders.h"

#include <fmt/format.h>

#include "models/methods/common/configured_method.h"
#include "models/methods/full/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

template <class P>
const P* ParamsOf(const methods::Method& method) {
  const auto* configured = dynamic_cast<const methods::ConfiguredMethod<P>*>(&method);
  return configured == nullptr ? nullptr : &configured->params();
}

}  // namespace

std::unique_ptr<CacheBinder> MakeCacheBinder(const DecodeRun& run, const std::string& name,
                                             const methods::Method& method) {
  if (ParamsOf<methods::FullParams>(method)) {
    return BindFull(run, run.input.model.layers);
  }
  if (const auto* p = ParamsOf<methods::StreamingParams>(method)) return BindStreaming(run, *p);
  if (const auto* p = ParamsOf<methods::OffloadParams>(method)) return BindOffload(run, *p);
  if (const auto* p = ParamsOf<methods::QuestParams>(method)) return BindQuest(run, *p);
  if (const auto* p = ParamsOf<methods::ArkValeParams>(method)) {
    return BindDenseFirst(run, p->dense_layers, BindArkVale(run, *p));
  }
  if (const auto* p = ParamsOf<methods::FreeKvParams>(method)) {
    return BindDenseFirst(run, p->dense_layers, BindFreeKv(run, *p));
  }
  if (const auto* p = ParamsOf<methods::ParisKvParams>(method)) return BindParisKv(run, *p);
  if (const auto* p = ParamsOf<methods::WgKvParams>(method)) return BindWgKv(run, *p);
  if (const auto* p = ParamsOf<methods::LouisKvParams>(method)) {
    return BindDenseFirst(run, p->dense_layers, BindLouisKv(run, *p));
  }
  if (const auto* p = ParamsOf<methods::PrkvParams>(method)) {
    return BindDenseFirst(run, p->dense_layers, BindPrkv(run, *p));
  }
  if (const auto* p = ParamsOf<methods::ShadowKvParams>(method)) {
    return BindDenseFirst(run, p->dense_layers, BindShadowKv(run, *p));
  }
  throw UsageError("this method is predicted only: no kernels run it yet", name,
                   "choose another method");
}

PromptKv CacheBinder::PromptAt(int /*layer*/) {
  throw UsageError("prefill of this method is predicted only: no kernels run it yet", "--prefill",
                   "run its decode steps");
}

OpWork CacheBinder::BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) {
  CannotBind("prefill", op);
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
