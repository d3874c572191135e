// How a step runs with H2O: attention, and the same products again for what each token is worth.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/h2o/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewH2oPlan(DecoderPlan& plan, const H2oParams& params);

}  // namespace stallcast::methods
