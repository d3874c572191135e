// How a decode step runs with the whole cache on the host, copied layer by layer.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/offload/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewOffloadPlan(DecoderPlan& plan, const OffloadParams& params);

}  // namespace stallcast::methods
