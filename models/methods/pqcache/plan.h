// How PQCache orders a decode step: codes come a layer ahead, tokens through the host.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/pqcache/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewPqCachePlan(DecoderPlan& plan, const PqCacheParams& params);

}  // namespace stallcast::methods
