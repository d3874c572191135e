#include "kernels/executor/methods/binders.h"

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
  if (ParamsOf<methods::FullParams>(method)) return BindFull(run);
  if (const auto* p = ParamsOf<methods::StreamingParams>(method)) return BindStreaming(run, *p);
  if (const auto* p = ParamsOf<methods::OffloadParams>(method)) return BindOffload(run, *p);
  if (const auto* p = ParamsOf<methods::QuestParams>(method)) return BindQuest(run, *p);
  if (const auto* p = ParamsOf<methods::ArkValeParams>(method)) return BindArkVale(run, *p);
  if (const auto* p = ParamsOf<methods::FreeKvParams>(method)) return BindFreeKv(run, *p);
  if (const auto* p = ParamsOf<methods::ParisKvParams>(method)) return BindParisKv(run, *p);
  throw UsageError("this method is predicted only: no kernels run it yet", name,
                   "choose another method");
}

void CannotBind(std::string_view method, const plan::Op& op) {
  throw Error("the plan has an op that cannot be run: " + std::string(plan::KindName(op.work)),
              std::string(method), "report this: plan and executor have come apart");
}

}  // namespace stallcast::kernels
