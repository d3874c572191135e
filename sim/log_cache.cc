#include "sim/log_cache.h"

#include <fmt/core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <system_error>
#include <utility>
#include <vector>

#include "models/methods/method.h"
#include "sim/cache_folder.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

// Maps in a fixed order: the same message gives the same text.
std::string Serialized(const google::protobuf::MessageLite& message) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return text;
}

}  // namespace

std::string TraceKey(const traces::proto::TraceInfo& info, const std::string& trace_hash) {
  return HashOf(trace_hash + Serialized(info));
}

LogCache::LogCache(const fs::path& trace, const traces::proto::TraceInfo& info,
                   std::string trace_hash)
    : folders_(CacheFolders(fs::absolute(trace).parent_path())),
      trace_hash_(std::move(trace_hash)),
      key_(fmt::format("{}\n{}\n", TraceKey(info, trace_hash_), methods::PoliciesHash())) {
  const std::string secret = OwnSecret();
  if (secret.empty()) folders_.clear();  // nothing would tell own logs from others'
  key_ += secret;
}

std::string LogCache::FileName(const std::string& method, const Params& params) const {
  std::string key = fmt::format("{}\n{}\n", key_, method);
  for (const auto& [name, value] : params) key += fmt::format("{}={}\n", name, value);
  return fmt::format("{}-{}.kvt", method, HashOf(key));
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
    const bool written = WriteCached(folder, name, [&](const fs::path& part) {
      traces::TraceWriter writer(part, traces::proto::TraceInfo());
      writer.Write(log);
      writer.Finish();
    });
    if (written) return true;
  }
  return false;
}

}  // namespace stallcast::sim
