// How ArkVale orders a decode step: estimate, select, recall, attend.
#pragma once

#include <memory>

#include "models/methods/arkvale/params.h"
#include "models/methods/decoder_plan.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewArkValePlan(DecoderPlan& plan, const ArkValeParams& params);

}  // namespace stallcast::methods
