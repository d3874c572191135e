// The bytes that a reader reads: a file or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace stallcast::traces::format {

/// Reading is const and safe from several threads at once.
class Source {
 public:
  virtual ~Source() = default;

  virtual int64_t size() const = 0;
  /// The bytes [offset, offset + count), fewer where the source ends; they lie in `*scratch` or in
  /// the source itself.
  virtual std::span<const std::byte> Read(int64_t offset, int64_t count,
                                          std::vector<std::byte>* scratch) const = 0;
};

/// Throws Error when `path` is no regular file that can be read. The file is read piece by piece
/// and not mapped: a mapping would turn a file that shrinks meanwhile into a crash.
std::unique_ptr<Source> OpenFile(const std::filesystem::path& path);
/// `bytes` must outlive the source.
std::unique_ptr<Source> InMemory(std::span<const std::byte> bytes);

}  // namespace stallcast::traces::format
