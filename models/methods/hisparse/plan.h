// How HiSparse orders a decode step: score, top-k, swap in, attend; no host wait.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/hisparse/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewHiSparsePlan(DecoderPlan& plan, const HiSparseParams& params);

}  // namespace stallcast::methods
