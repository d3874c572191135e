#include "sim/log_cache.h"

#include <fmt/core.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

// Raised when a change of the policies makes older logs wrong.
constexpr int kLogVersion = 2;

fs::path UserCache() {
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return fs::path(xdg) / "stallcast";
  if (const char* home = std::getenv("HOME"); home && *home) {
    return fs::path(home) / ".cache" / "stallcast";
  }
  return {};
}

bool WriteWhole(const fs::path& folder, const std::string& name, const traces::AccessLog& log) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  const fs::path part = folder / fmt::format("{}.{}.part", name, getpid());
  try {
    traces::TraceWriter writer(part, traces::proto::TraceInfo());
    writer.Write(log);
    writer.Finish();
    fs::rename(part, folder / name, failed);
  } catch (const Error&) {
    failed = std::make_error_code(std::errc::io_error);
  }
  if (!failed) return true;
  std::error_code ignored;
  fs::remove(part, ignored);
  return false;
}

}  // namespace

LogCache::LogCache(const fs::path& trace, std::string trace_hash)
    : trace_hash_(std::move(trace_hash)) {
  folders_.push_back(fs::absolute(trace).parent_path() / ".stallcast");
  if (fs::path user = UserCache(); !user.empty()) folders_.push_back(std::move(user));
}

std::string LogCache::FileName(const std::string& method, const Params& params) const {
  std::string key = fmt::format("{}\n{}\n{}\n", kLogVersion, trace_hash_, method);
  for (const auto& [name, value] : params) key += fmt::format("{}={}\n", name, value);
  const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
  return fmt::format("{}-{:016x}{:016x}.kvt", method, hash.high64, hash.low64);
}

std::shared_ptr<const traces::AccessLog> LogCache::Load(const std::string& method,
                                                        const Params& params) const {
  const std::string name = FileName(method, params);
  for (const fs::path& folder : folders_) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / name, ignored)) continue;
    try {
      traces::ReadOptions strict;
      strict.strict = true;
      traces::Trace file = traces::ReadTrace(folder / name, strict);
      if (file.access_logs.size() != 1) continue;
      traces::AccessLog& log = file.access_logs.front();
      if (log.method != method || log.params != params || log.trace_hash != trace_hash_) continue;
      return std::make_shared<const traces::AccessLog>(std::move(log));
    } catch (const Error&) {
      // Damaged: replay and overwrite it.
    }
  }
  return nullptr;
}

bool LogCache::Store(const traces::AccessLog& log) const {
  const std::string name = FileName(log.method, log.params);
  for (const fs::path& folder : folders_) {
    if (WriteWhole(folder, name, log)) return true;
  }
  return false;
}

}  // namespace stallcast::sim
