// Timelines for other tools.
#pragma once

#include <filesystem>
#include <span>

#include "traces/timeline.h"

namespace stallcast::traces {

// All functions throw Error when a timeline has a FirstFault or the file cannot be written. Several
// timelines (predicted beside measured) go into one file as groups of tracks; the first slice of
// each is at time 0, so that they can be compared. Slices of one lane that overlap are spread over
// further tracks beside the lane's; nothing is left out.

/// Perfetto's protobuf format (open it in ui.perfetto.dev). A timeline is a parent track named
/// after its origin and title, a lane a track below it, a role a category; op, step, layer and
/// bytes are annotations; a wait is a flow between the slices of the two ops. Perfetto counts
/// nanoseconds: start and end are each rounded from picoseconds, which keeps their order, so a
/// slice of less than half a nanosecond may come out empty.
void ExportPerfetto(std::span<const Timeline> timelines, const std::filesystem::path& path);
void ExportPerfetto(const Timeline& timeline, const std::filesystem::path& path);

/// Chrome's JSON object format: complete events with times in microseconds, exact to the
/// picosecond; a timeline is a process, a lane a thread.
void ExportChromeJson(std::span<const Timeline> timelines, const std::filesystem::path& path);
void ExportChromeJson(const Timeline& timeline, const std::filesystem::path& path);

/// One line a row, times in picoseconds as they are in the timeline; an unknown op, step or layer
/// is an empty field.
void ExportCsv(std::span<const Timeline> timelines, const std::filesystem::path& path);
void ExportCsv(const Timeline& timeline, const std::filesystem::path& path);

}  // namespace stallcast::traces
