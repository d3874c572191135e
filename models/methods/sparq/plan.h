// How a step runs with SparQ: scores over a few channels, top-k, attention.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/sparq/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewSparQPlan(DecoderPlan& plan, const SparQParams& params);

}  // namespace stallcast::methods
