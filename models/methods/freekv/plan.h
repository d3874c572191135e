// How FreeKV orders a decode step: check, correct, attend, select and recall ahead.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/freekv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewFreeKvPlan(DecoderPlan& plan, const FreeKvParams& params);

}  // namespace stallcast::methods
