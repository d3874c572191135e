// How a decode step runs with the whole cache on the GPU.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/full/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewFullPlan(DecoderPlan& plan, const FullParams& params);

}  // namespace stallcast::methods
