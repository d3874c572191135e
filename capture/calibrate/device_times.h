// What a recording says of when ops ran on the device.
#pragma once

#include <cstdint>
#include <map>

#include "traces/format/trace_file.h"

namespace stallcast::capture {

/// Seconds, by the recording's clock.
struct DeviceSpan {
  double start = 0, end = 0;
};
/// When every op ran on the device, from the start of its first row to the end of its last, by step
/// and op. Rows without either are left out.
std::map<int32_t, std::map<int64_t, DeviceSpan>> DeviceSpans(const traces::Trace& trace);

}  // namespace stallcast::capture
