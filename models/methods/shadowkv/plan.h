// How ShadowKV orders a decode step: select, fetch values beside rebuilding keys, attend; no host
// wait.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/shadowkv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewShadowKvPlan(DecoderPlan& plan, const ShadowKvParams& params);

}  // namespace stallcast::methods
