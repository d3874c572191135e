// How a decode step runs with attention on the host.
#pragma once

#include <memory>

#include "models/methods/cpu_attention/params.h"
#include "models/methods/decoder_plan.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewCpuAttentionPlan(DecoderPlan& plan,
                                                const CpuAttentionParams& params);

}  // namespace stallcast::methods
