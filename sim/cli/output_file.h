// Files that commands write: whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "traces/format/schema.pb.h"
#include "traces/timeline.h"

namespace stallcast::cli {

/// Calls `write` with a path beside `path` and renames the result to `path`; where anything fails,
/// nothing is left and what was at `path` stays. A device or pipe is written directly. Errors name
/// `path`.
void WriteWhole(const std::filesystem::path& path,
                const std::function<void(const std::filesystem::path&)>& write);

/// Throws a usage Error where `output` is, by whatever name or link, a file that the command reads.
/// `inputs` may hold names that are no files: they match nothing.
void RefuseToReplace(const std::filesystem::path& output, const std::vector<std::string>& inputs);

enum class TimelineFormat { kPerfetto, kChromeJson, kCsv, kTrace };

/// By name ("pftrace", "json", "csv", "kvt"), or where that is empty by the path's extension.
/// Neither known: usage Error.
TimelineFormat TimelineFormatOf(const std::filesystem::path& path, const std::string& name);

/// Writes timelines whole; `info` goes into a .kvt.
void WriteTimelines(const std::vector<traces::Timeline>& timelines, TimelineFormat format,
                    const traces::proto::TraceInfo& info, const std::filesystem::path& path);

}  // namespace stallcast::cli
