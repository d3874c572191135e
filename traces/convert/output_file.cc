#include "traces/convert/output_file.h"

#include <cerrno>
#include <cstring>

#include "traces/common/error.h"

namespace stallcast::traces {

OutputFile::OutputFile(const std::filesystem::path& path)
    : name_(path.string()), stream_(path, std::ios::binary) {
  if (!stream_) {
    throw Error(std::strerror(errno), name_, "choose another path or fix its permissions");
  }
}

void OutputFile::Close() {
  errno = 0;
  stream_.close();
  if (!stream_) {
    throw Error(errno != 0 ? std::strerror(errno) : "could not be written", name_,
                "free some space or choose another disk");
  }
}

}  // namespace stallcast::traces
