// How LouisKV orders a step: compare, retrieve at a boundary, attend, offload the oldest segment.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/louiskv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewLouisKvPlan(DecoderPlan& plan, const LouisKvParams& params);

}  // namespace stallcast::methods
