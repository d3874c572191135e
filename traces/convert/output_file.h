// A file being written.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace stallcast::traces {

class OutputFile {
 public:
  /// Throws Error when the file cannot be opened.
  explicit OutputFile(const std::filesystem::path& path);

  std::ostream& stream() { return stream_; }
  /// Throws Error when anything could not be written.
  void Close();

 private:
  std::string name_;
  std::ofstream stream_;
};

}  // namespace stallcast::traces
