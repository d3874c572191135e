// How RetroInfer orders a decode step: rank clusters, look them up on the host beside the estimate,
// bring what misses, attend, merge.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/retroinfer/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewRetroInferPlan(DecoderPlan& plan, const RetroInferParams& params);

}  // namespace stallcast::methods
