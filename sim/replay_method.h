// What a method would need for a role that a recording has: `replace kind=recall freekv ...`.
#pragma once

#include <stop_token>
#include <string>

#include "sim/replay.h"

namespace stallcast::sim {

/// Fills in a `replace`: predicts the method and takes the time a step that its ops of the role
/// named by the filter's kind= are busy, on a machine; says so in its note. Other changes stay as
/// they are. Words behind the method: trace=, model=, context=, batch= of the prediction, and its
/// parameters. Usage Errors, and those of a prediction.
void PredictReplacement(ReplayChange* change, const std::string& machine,
                        const std::stop_token& stop = {});

}  // namespace stallcast::sim
