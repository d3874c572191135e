// How MagicPIG orders a decode step: hash queries, attend the near tokens on the GPU and the
// sampled ones on the host, merge.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/magicpig/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewMagicPigPlan(DecoderPlan& plan, const MagicPigParams& params);

}  // namespace stallcast::methods
