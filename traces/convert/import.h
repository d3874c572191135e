// One door for trace files: our own and those of other programs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "traces/format/trace_file.h"

namespace stallcast::traces {

enum class FileFormat : uint8_t { kTrace, kChromeJson, kPerfetto, kNsightSqlite };
std::string_view Name(FileFormat format);

struct ImportOptions : ReadOptions {
  /// Ranges (NVTX, annotations) whose names begin so are the steps, whatever else the file holds;
  /// numbered as the digits behind the name say where these rise, else by time. A name that no range
  /// has is an Error with those there are. Empty: ranges that are named like steps
  /// (`ProfilerStep#3`, `step 3`, `iter_3`, those of vLLM and SGLang).
  std::string step_range;
  /// Called now and then with the share of the file that is read. What it throws ends the import.
  std::function<void(double share)> progress;
};

struct ImportedTrace {
  FileFormat format = FileFormat::kTrace;
  /// Of another program's file: timelines, and of `info` what the file says (machine, software).
  Trace trace;
  /// `problems`: whatever is damaged or missing, a line each. What a timeline cannot hold
  /// (counters, instants) is said in its notes.
  ReadReport report;
};

/// Reads a file whose format is recognised by its content:
///
/// - .kvt: as ReadTrace does.
/// - Chrome's trace events in JSON, as an object or an array, plain or gzip; Kineto's among them.
///   X, B/E and b/e events become rows. A file that is cut gives every complete event.
/// - Perfetto's protobuf, plain or gzip: track events and GPU render stages, with interned data,
///   incremental clocks and compressed packets.
/// - Nsight Systems' SQLite export: kernels, copies, memory sets, API calls, synchronisations,
///   graph launches and NVTX ranges; tables and columns may be missing.
///
/// What Export* wrote comes back as it was, as far as the format holds it: times are counted from
/// the first slice, and in Perfetto are whole nanoseconds.
///
/// In the timelines of other programs (origin: imported) time 0 is the earliest start. Streams and
/// threads are lanes; GPU annotations and stream synchronisations have lanes of their own beside
/// their stream's, so that a lane of kind stream is busy only where its stream is. Of each GPU the
/// stream with the most kernel time, collectives left out, is a compute lane. An API call and what
/// it started share an op id; where one call started several (a graph), each has its own, with a
/// flow from the call's. Steps and layers come from ranges named like them: a host row is in those
/// that it starts in, on its own thread before others of its process; work on the GPU belongs to
/// those of its call. Numbers behind a step's name count where they rise, else its ranges are
/// counted. Roles of work on a GPU come from its name (KindOfKernel), copies by their direction.
///
/// Throws Error when the file cannot be read or is of no known format; in strict mode also for any
/// problem. Memory grows with the slices that the file holds, not with what it claims.
ImportedTrace Import(const std::filesystem::path& path, const ImportOptions& options = {});
/// The same from memory; `name` is used in messages.
ImportedTrace Import(std::span<const std::byte> file, const std::string& name,
                     const ImportOptions& options = {});

}  // namespace stallcast::traces
