// A file of timelines, in the format that its name says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "traces/format/schema.pb.h"
#include "traces/timeline.h"

namespace stallcast::traces {

enum class TimelineFormat { kPerfetto, kChromeJson, kCsv, kTrace };

/// By name ("pftrace", "json", "csv", "kvt"), or where that is empty by the path's extension.
/// Neither known: usage Error.
TimelineFormat TimelineFormatOf(const std::filesystem::path& path, const std::string& name = {});

/// Writes timelines whole or not at all (WriteWhole); `info` goes into a .kvt.
void WriteTimelines(const std::vector<Timeline>& timelines, TimelineFormat format,
                    const proto::TraceInfo& info, const std::filesystem::path& path);

}  // namespace stallcast::traces
