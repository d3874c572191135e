// How PRKV orders a step: restructure every so often, select, gather and recall, attend.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/prkv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewPrkvPlan(DecoderPlan& plan, const PrkvParams& params);

}  // namespace stallcast::methods
