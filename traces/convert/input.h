// The bytes of a file in order, decompressed where it is gzip.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "traces/format/source.h"

namespace stallcast::traces::convert {

class Input {
 public:
  virtual ~Input() = default;

  /// Fills `buffer`; gives fewer bytes only at the end.
  virtual size_t Read(std::span<char> buffer) = 0;
  /// Share of the file that is read.
  virtual double share() const = 0;
  /// Why the bytes ended early, or empty. Known once Read() has given fewer bytes.
  virtual std::string fault() const = 0;
};

/// `source` must outlive the input. Reads and decompresses in a thread of its own.
std::unique_ptr<Input> OpenInput(const format::Source& source);

bool IsGzip(std::span<const std::byte> begin);

}  // namespace stallcast::traces::convert
