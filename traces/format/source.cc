#include "traces/format/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "traces/common/error.h"

namespace stallcast::traces::format {
namespace {

// How many of `count` bytes at `offset` a source of `size` bytes has.
int64_t Available(int64_t size, int64_t offset, int64_t count) {
  return std::clamp<int64_t>(size - offset, 0, count);
}

class File : public Source {
 public:
  explicit File(const std::filesystem::path& path) : name_(path.string()) {
    file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) {
      throw Error(std::strerror(errno), name_, "check the path and its permissions");
    }
    struct stat status {};
    if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
      const bool directory = S_ISDIR(status.st_mode);
      close(file_);
      throw Error(directory ? "is a directory" : "is not a regular file", name_,
                  "give the path of a .kvt file");
    }
    size_ = status.st_size;
  }
  ~File() override { close(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int64_t size() const override { return size_; }

  std::span<const std::byte> Read(int64_t offset, int64_t count,
                                  std::vector<std::byte>* scratch) const override {
    const auto wanted = static_cast<size_t>(Available(size_, offset, count));
    if (scratch->size() < wanted) scratch->resize(wanted);
    size_t done = 0;
    while (done < wanted) {
      const ssize_t got =
          pread(file_, scratch->data() + done, wanted - done, offset + static_cast<int64_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw Error(std::strerror(errno), name_, "check the disk");
      if (got == 0) break;
      done += static_cast<size_t>(got);
    }
    return std::span(*scratch).first(done);
  }

 private:
  std::string name_;
  int file_ = -1;
  int64_t size_ = 0;
};

class Memory : public Source {
 public:
  explicit Memory(std::span<const std::byte> bytes) : bytes_(bytes) {}

  int64_t size() const override { return std::ssize(bytes_); }

  std::span<const std::byte> Read(int64_t offset, int64_t count,
                                  std::vector<std::byte>* /*scratch*/) const override {
    const int64_t available = Available(size(), offset, count);
    if (available == 0) return {};
    return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(available));
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Source> OpenFile(const std::filesystem::path& path) {
  return std::make_unique<File>(path);
}

std::unique_ptr<Source> InMemory(std::span<const std::byte> bytes) {
  return std::make_unique<Memory>(bytes);
}

}  // namespace stallcast::traces::format
