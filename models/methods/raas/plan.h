// How a step runs with RaaS: pages are scored, attended, and at times one is dropped.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/raas/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewRaasPlan(DecoderPlan& plan, const RaasParams& params);

}  // namespace stallcast::methods
