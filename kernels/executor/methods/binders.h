// One binder a method, each at the end of its method's file; binders.cc lists them.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/executor/cache_binder.h"
#include "models/methods/common/configured_method.h"

namespace stallcast::kernels {

struct MethodBinder {
  std::string_view method;  ///< MethodInfo::name
  /// `of` is that method.
  std::unique_ptr<CacheBinder> (*make)(const DecodeRun& run, const methods::Method& of);
};

extern const MethodBinder kFull, kStreaming, kCpuAttention, kHiSparse, kSnapKv, kOffload, kQuest,
    kArkVale, kFreeKv, kLouisKv, kPrkv, kShadowKv, kParisKv, kWgKv;

/// All of the first `layers`, on the GPU.
std::unique_ptr<CacheBinder> BindFull(const DecodeRun& run, int layers);
/// The first `layers` by BindFull(), all others by `others`.
std::unique_ptr<CacheBinder> BindDenseFirst(const DecodeRun& run, int64_t layers,
                                            std::unique_ptr<CacheBinder> others);

/// MethodBinder::make of a binder that is made from a run and the method's parameters.
template <class Binder, class Params>
std::unique_ptr<CacheBinder> Make(const DecodeRun& run, const methods::Method& of) {
  const auto& configured = dynamic_cast<const methods::ConfiguredMethod<Params>&>(of);
  return std::make_unique<Binder>(run, configured.params());
}

/// The same of one that serves the layers behind the dense ones.
template <class Binder, class Params>
std::unique_ptr<CacheBinder> MakeBehindDense(const DecodeRun& run, const methods::Method& of) {
  return BindDenseFirst(run, of.DenseLayers(), Make<Binder, Params>(run, of));
}

}  // namespace stallcast::kernels
