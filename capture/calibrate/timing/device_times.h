// What a recording says of when ops ran on the device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "traces/format/trace_file.h"

namespace stallcast::capture {

/// Seconds, by the recording's clock.
struct DeviceSpan {
  double start = 0, end = 0;
};
/// Of a step's ops, by op.
using OpSpans = std::map<int64_t, DeviceSpan>;
/// When every op ran on the device, from the start of its first row to the end of its last, by
/// step. Rows without step or op are left out.
std::map<int32_t, OpSpans> DeviceSpans(const traces::Trace& trace);
/// The mean of what they took, in seconds, without those beyond 1.3 times the median, which others
/// on the machine held up; none of no ops. A step is a sum: kernels that stream from memory take
/// 0.5 % more on average than at the median.
std::optional<double> MeanTime(const OpSpans& ops);

}  // namespace stallcast::capture
