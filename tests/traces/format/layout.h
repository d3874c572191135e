// The documented byte layout, read and changed by hand, so that tests do not lean on the code that
// they test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "traces/format/chunk.h"

namespace stallcast::traces {

template <typename Integer>
Integer Get(const std::vector<std::byte>& file, int64_t at) {
  Integer value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

template <typename Integer>
void Put(std::vector<std::byte>* file, int64_t at, Integer value) {
  std::memcpy(file->data() + at, &value, sizeof value);
}

inline int64_t PayloadOf(const std::vector<std::byte>& file, int64_t head) {
  return head + 56 + Get<uint32_t>(file, head + 44);
}

/// Where each chunk begins, and the end of the last.
inline std::vector<int64_t> ChunkOffsets(const std::vector<std::byte>& file) {
  std::vector<int64_t> offsets = {16};
  while (offsets.back() < std::ssize(file)) {
    const int64_t head = offsets.back();
    offsets.push_back(PayloadOf(file, head) + static_cast<int64_t>(Get<uint64_t>(file, head + 16)));
  }
  return offsets;
}

/// Makes a changed head's checksums right again.
inline void Reseal(std::vector<std::byte>* file, int64_t head) {
  const int64_t payload = PayloadOf(*file, head);
  const uint64_t stored = Get<uint64_t>(*file, head + 16);
  if (stored <= static_cast<uint64_t>(std::ssize(*file) - payload)) {
    Put(file, head + 32, format::Checksum(std::span(*file).subspan(payload, stored)));
  }
  Put(file, payload - 8, format::Checksum(std::span(*file).subspan(head, payload - 8 - head)));
}

}  // namespace stallcast::traces
