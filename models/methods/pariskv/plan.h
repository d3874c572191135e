// How ParisKV orders a decode step: everything in turn on one stream, no host wait; and the update
// that slides the window.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/pariskv/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewParisKvPlan(DecoderPlan& plan, const ParisKvParams& params);

}  // namespace stallcast::methods
