// How a decode step runs with a sink and a window, both on the GPU.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/streaming/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewStreamingPlan(DecoderPlan& plan, const StreamingParams& params);

}  // namespace stallcast::methods
