// What a recording says of the run that it was made of.
#pragma once

#include <string>

#include "traces/format/schema.pb.h"

namespace stallcast::capture {

/// The command line of this process in about 100 characters, of paths the last part only.
std::string CommandLine();

/// Date, command, driver, processor.
traces::proto::TraceInfo RunInfo();

}  // namespace stallcast::capture
