// How WG-KV orders prefill and a decode step: the gate before attention, promotion once a step.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewWgKvPlan(DecoderPlan& plan, const WgKvParams& params);

}  // namespace stallcast::methods
