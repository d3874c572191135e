// How a step runs with R-KV: a bounded attention, and a compression every `buffer` steps.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/rkv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewRkvPlan(DecoderPlan& plan, const RkvParams& params);

}  // namespace stallcast::methods
