// How a step runs with Twilight: Quest's pages, an estimate over them, top-p, attention.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/twilight/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewTwilightPlan(DecoderPlan& plan, const TwilightParams& params);

}  // namespace stallcast::methods
