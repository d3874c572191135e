// One binder a method; binders.cc chooses. Those of ArkVale, FreeKV, LouisKV, PRKV and ShadowKV
// serve the layers behind the dense ones.
#pragma once

#include <memory>

#include "kernels/executor/cache_binder.h"
#include "models/methods/arkvale/params.h"
#include "models/methods/freekv/params.h"
#include "models/methods/louiskv/params.h"
#include "models/methods/offload/params.h"
#include "models/methods/pariskv/params.h"
#include "models/methods/prkv/params.h"
#include "models/methods/quest/params.h"
#include "models/methods/shadowkv/params.h"
#include "models/methods/streaming/params.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::kernels {

/// Of the first `layers`.
std::unique_ptr<CacheBinder> BindFull(const DecodeRun& run, int layers);
/// The first `layers` by BindFull(), all others by `others`.
std::unique_ptr<CacheBinder> BindDenseFirst(const DecodeRun& run, int64_t layers,
                                            std::unique_ptr<CacheBinder> others);
std::unique_ptr<CacheBinder> BindStreaming(const DecodeRun& run,
                                           const methods::StreamingParams& params);
std::unique_ptr<CacheBinder> BindOffload(const DecodeRun& run,
                                         const methods::OffloadParams& params);
std::unique_ptr<CacheBinder> BindQuest(const DecodeRun& run, const methods::QuestParams& params);
std::unique_ptr<CacheBinder> BindArkVale(const DecodeRun& run,
                                         const methods::ArkValeParams& params);
std::unique_ptr<CacheBinder> BindLouisKv(const DecodeRun& run,
                                         const methods::LouisKvParams& params);
std::unique_ptr<CacheBinder> BindPrkv(const DecodeRun& run, const methods::PrkvParams& params);
std::unique_ptr<CacheBinder> BindFreeKv(const DecodeRun& run, const methods::FreeKvParams& params);
std::unique_ptr<CacheBinder> BindParisKv(const DecodeRun& run,
                                         const methods::ParisKvParams& params);
std::unique_ptr<CacheBinder> BindShadowKv(const DecodeRun& run,
                                          const methods::ShadowKvParams& params);
std::unique_ptr<CacheBinder> BindWgKv(const DecodeRun& run, const methods::WgKvParams& params);

}  // namespace stallcast::kernels
