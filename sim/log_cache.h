// Access logs kept on disk, so that changing the machine never repeats a replay.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "traces/access_log.h"
#include "traces/format/schema.pb.h"

namespace stallcast::sim {

/// What a replay of a trace depends on: the content hash of its tensors, and its TraceInfo (softmax
/// scale, RoPE, where the prompt ends).
std::string TraceKey(const traces::proto::TraceInfo& info, const std::string& trace_hash);

/// Logs of one trace, beside it in the folder `.stallcast`, or where that cannot be written in the
/// user's cache folder (XDG_CACHE_HOME, else ~/.cache). A file's name is a hash of TraceKey(), the
/// policies' sources, the method and its selection parameters, and of the user's secret: a log that
/// came with somebody's trace is never read. Files appear whole, by rename: runs that write the
/// same log at once do not disturb one another. A file that cannot be read counts as absent.
class LogCache {
 public:
  LogCache(const std::filesystem::path& trace, const traces::proto::TraceInfo& info,
           std::string trace_hash);

  using Params = std::map<std::string, std::string>;
  /// Null when it is not there.
  std::shared_ptr<const traces::AccessLog> Load(const std::string& method,
                                                const Params& params) const;
  /// False when no folder could be written: the log is then replayed again next time.
  bool Store(const traces::AccessLog& log) const;

 private:
  std::string FileName(const std::string& method, const Params& params) const;

  std::vector<std::filesystem::path> folders_;  // in order of preference
  std::string trace_hash_, key_;
};

}  // namespace stallcast::sim
