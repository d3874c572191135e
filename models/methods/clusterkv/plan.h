// How ClusterKV orders a decode step: rank clusters, fetch the new tokens' rows, attend.
#pragma once

#include <memory>

#include "models/methods/clusterkv/params.h"
#include "models/methods/decoder_plan.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewClusterKvPlan(DecoderPlan& plan, const ClusterKvParams& params);

}  // namespace stallcast::methods
