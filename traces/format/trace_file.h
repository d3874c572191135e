// The .kvt container: a header, then self-contained chunks, then an End chunk. chunk.h beside this
// gives the byte layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "traces/access_log.h"
#include "traces/format/schema.pb.h"
#include "traces/tensor.h"
#include "traces/timeline.h"

namespace stallcast::traces {

/// Everything in a file, tensors of one kind and layer merged over their token ranges. Where tokens
/// are missing in between (a damaged chunk), each stretch is a tensor of its own.
struct Trace {
  proto::TraceInfo info;
  std::vector<Tensor> tensors;
  std::vector<Timeline> timelines;
  std::vector<AccessLog> access_logs;

  /// The tensor of this kind and layer (of several stretches, the longest), or null.
  const Tensor* Find(TensorKind kind, int layer) const;
  /// Layers that have both queries and keys, ascending.
  std::vector<int> Layers() const;
};

/// What reading found out about the file itself.
struct ReadReport {
  int64_t chunks = 0;       ///< intact chunks
  int64_t records = 0;      ///< tensors' tokens, timeline rows, log cells in them
  int64_t damaged = 0;      ///< chunks skipped because their checksum or content is wrong
  int64_t dropped = 0;      ///< as the writer counted
  int64_t zero_stamps = 0;  ///< as the writer counted
  bool truncated = false;   ///< no End chunk
  /// 32 hex digits over the tensor chunks' shapes and checksums, without those found damaged: the
  /// same whatever ReadOptions leave out and whatever timelines and logs are in the file.
  std::string content_hash;
  /// The tensors in the file, whether their elements were read or not; where a chunk is damaged,
  /// as if it were not.
  std::vector<TensorSpec> tensors;
  /// One line a person can act on for each thing that is missing; empty for a whole file.
  std::vector<std::string> problems;
};

struct ReadOptions {
  bool strict = false;  ///< anything missing is an Error
  bool tensors = true;  ///< false: skip their elements (info, timelines and logs only)
  /// With `tensors` false: their stored bytes are checked all the same, and what is intact of them
  /// is listed in Trace::tensors without elements. Takes no memory of their size.
  bool check = false;
  std::vector<int> layers = {};  ///< keep tensors of these layers only; empty: all
};

/// Reads what is intact, on all cores. An access log is given with the layers that are whole, a
/// timeline with its rows in order.
/// Throws Error when the file cannot be opened, is no trace, or is of a newer version; in strict
/// mode also for anything missing.
Trace ReadTrace(const std::filesystem::path& path, const ReadOptions& options = {},
                ReadReport* report = nullptr);
/// The same from memory; `name` is used in messages.
Trace ReadTrace(std::span<const std::byte> file, const std::string& name,
                const ReadOptions& options = {}, ReadReport* report = nullptr);

/// Writes a trace chunk by chunk; each call hands one whole chunk to the operating system, so a
/// process killed at any moment loses at most the chunk in flight. Throws Error when the disk is
/// full or the file cannot be written, or when what is to be written has a FirstFault. Not thread
/// safe, but it uses all cores itself.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, const proto::TraceInfo& info);
  /// Appends to `*buffer`, which must outlive the writer.
  TraceWriter(std::vector<std::byte>* buffer, const proto::TraceInfo& info);
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;
  /// Without Finish() the file stays valid but reads as truncated.
  ~TraceWriter();

  /// `elements` holds spec.bytes() bytes.
  void Write(const TensorSpec& spec, std::span<const std::byte> elements);
  /// Returns the timeline's number in the file.
  uint32_t Write(const Timeline& timeline);
  /// Writes more rows of timeline `id`: `part` has its title, notes and tables, which may have
  /// grown, and the new rows and flows only. The last notes win. Rows may come in any order.
  void Append(uint32_t id, const Timeline& part);
  void Write(const AccessLog& log);
  /// Replaces the TraceInfo (a later one wins), e.g. once the number of steps is known.
  void Write(const proto::TraceInfo& info);
  /// Writes the End chunk and closes.
  void Finish(int64_t dropped = 0, int64_t zero_stamps = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::traces
