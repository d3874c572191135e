// How a step runs with a prompt that was cut down: nothing but a shorter attention.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/snapkv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewSnapKvPlan(DecoderPlan& plan, const SnapKvParams& params);

}  // namespace stallcast::methods
