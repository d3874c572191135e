// What a recording says of the run that it is of, so that the same run can be predicted.
#pragma once

#include <string>

#include "sim/predict.h"

namespace stallcast::sim {

struct RecordedRun {
  PredictRequest request;
  std::string trace;  ///< path on the machine that ran it
};

/// Adds the run to the parameters of a recording.
void SetRun(const RecordedRun& run, traces::proto::TraceInfo* info);
/// Throws Error, with `file` as its place, when the recording does not say which run it is of.
RecordedRun RunOf(const traces::proto::TraceInfo& info, const std::string& file);

}  // namespace stallcast::sim
