#include "traces/common/whole_file.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "traces/common/error.h"

namespace stallcast {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPartPrefix = ".stallcast.part-";

// Paths of parts that are being written, where a signal handler may read them.
struct Slot {
  std::atomic<bool> taken = false, ready = false;
  std::array<char, 4096> path{};
};
std::array<Slot, 64> parts;

// Keeps a part's path there while it lives. One that finds no room is not removed by a signal.
class Registered {
 public:
  explicit Registered(const fs::path& part) {
    const std::string text = part.string();
    if (text.size() >= Slot().path.size()) return;
    for (Slot& slot : parts) {
      if (slot.taken.exchange(true)) continue;
      std::copy(text.begin(), text.end(), slot.path.begin());
      slot.path[text.size()] = 0;
      slot.ready = true;
      slot_ = &slot;
      return;
    }
  }
  ~Registered() {
    if (slot_ == nullptr) return;
    slot_->ready = false;
    slot_->taken = false;
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  Slot* slot_ = nullptr;
};

extern "C" void RemoveParts(int number) {
  for (const Slot& slot : parts) {
    if (slot.ready) ::unlink(slot.path.data());
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

// What killed programs have left in a folder: parts whose program is gone, and that nobody, on
// another computer either, has written to for an hour.
void RemoveAbandonedParts(const fs::path& folder) {
  std::error_code ignored;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPartPrefix)) continue;
    const pid_t writer = std::atoi(name.c_str() + std::strlen(kPartPrefix));
    const auto written = entry.last_write_time(ignored);
    if (ignored || written > old || writer <= 0) continue;
    if (::kill(writer, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

void RemovePartsOnSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, RemoveParts);
  ::signal(SIGXFSZ, SIG_IGN);  // writing fails instead, and says so
}

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
  std::optional<Registered> registered;
  if (!direct) {
    // Of each writer its own, also within a process, and no longer than a name may be.
    static std::atomic<int> writers = 0;
    part.replace_filename(fmt::format("{}{}-{}", kPartPrefix, ::getpid(), writers++));
    RemoveAbandonedParts(part.has_parent_path() ? part.parent_path() : fs::path("."));
    registered.emplace(part);
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
