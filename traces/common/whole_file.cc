#include "traces/common/whole_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "traces/common/error.h"

namespace stallcast {

namespace fs = std::filesystem;

void WriteWhole(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  WriteWholeIf(path, [&](const fs::path& part) {
    write(part);
    return true;
  });
}

void WriteWholeIf(const fs::path& path, const std::function<bool(const fs::path&)>& write) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) {
    throw Error("is a folder", path.string(), "give a file name");
  }
  const bool direct = fs::exists(status) && !fs::is_regular_file(status);
  // Through a link, what it points to is replaced.
  const fs::path target = direct || !fs::exists(status) ? path : fs::canonical(path, ignored);
  fs::path part = target;
  if (!direct) {
    // Of each writer its own, also within a process.
    static std::atomic<int> writers = 0;
    part.replace_filename(
        fmt::format(".{}.part-{}-{}", target.filename().string(), ::getpid(), writers++));
  }
  try {
    const bool wanted = write(part);
    if (direct) return;
    if (wanted) {
      fs::rename(part, target);
    } else {
      fs::remove(part);
    }
  } catch (const Error& error) {
    if (!direct) fs::remove(part, ignored);
    throw Error(error.problem(), path.string(), error.remedy(),
                error.usage() ? Error::Kind::kUsage : Error::Kind::kFailure);
  } catch (const fs::filesystem_error& error) {
    if (!direct) fs::remove(part, ignored);
    throw Error(error.code().message(), path.string(), "choose another place");
  } catch (...) {
    if (!direct) fs::remove(part, ignored);
    throw;
  }
}

void RefuseToReplace(const fs::path& output, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (fs::is_regular_file(input, ignored) && fs::equivalent(output, input, ignored)) {
      throw UsageError("is read here and would be lost", output.string(),
                       "write to a file of another name");
    }
  }
}

}  // namespace stallcast
