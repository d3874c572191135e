// How Quest orders a decode step: estimate, top-k, paged attention.
#pragma once

#include <memory>

#include "models/methods/decoder_plan.h"
#include "models/methods/quest/params.h"

namespace stallcast::methods {

std::unique_ptr<PlanWriter> NewQuestPlan(DecoderPlan& plan, const QuestParams& params);

}  // namespace stallcast::methods
