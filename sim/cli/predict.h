// stallcast predict: the trace that it takes, and the file with a predicted timeline.
#pragma once

#include <filesystem>
#include <string>

#include "sim/predict.h"
#include "traces/format/schema.pb.h"

namespace stallcast::cli {

/// The file that `trace` names, see traces::TracePath(). A recording has no tensors: usage Error.
std::filesystem::path TraceToReplay(const std::string& trace);

/// Of a file with the timeline of a prediction on `machine`, from `trace` with the facts `traced`.
traces::proto::TraceInfo InfoOf(const sim::Prediction& prediction, const std::string& machine,
                                const traces::proto::TraceInfo& traced, const std::string& trace);

}  // namespace stallcast::cli
