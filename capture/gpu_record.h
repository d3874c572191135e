// What a source of GPU activity tells, free of CUPTI: one type a subject. Times are nanoseconds on
// the source's one clock; texts need to live during the call that takes the record only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

namespace stallcast::capture {

/// A step and an op packed as the id that is pushed around CUDA calls; -1 is allowed for either.
struct ExternalId {
  int32_t step = -1;
  int32_t op = -1;

  uint64_t Pack() const {
    return uint64_t{static_cast<uint32_t>(step)} << 32 | static_cast<uint32_t>(op);
  }
  static ExternalId Unpack(uint64_t id) {
    return {static_cast<int32_t>(id >> 32), static_cast<int32_t>(id)};
  }
  bool operator==(const ExternalId&) const = default;
};

/// Identifies a stream in the process.
struct StreamKey {
  uint32_t context = 0;
  uint32_t stream = 0;
  bool operator<(const StreamKey& other) const {
    return std::tie(context, stream) < std::tie(other.context, other.stream);
  }
};

/// A kernel, copy or memset on the device.
struct DeviceRecord {
  enum class Kind : uint8_t { kKernel, kCopy, kMemset };
  Kind kind = Kind::kKernel;
  std::string_view name;  ///< a kernel's may be mangled
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t correlation = 0;  ///< of the CUDA call that launched it, or its graph
  uint32_t device = 0;
  StreamKey stream;
  int32_t copy_channel = -1;  ///< hardware channel of the copy engine that ran it; -1: none
  uint64_t graph_node = 0;    ///< 0: not launched by a graph
  int64_t bytes = 0;
};

/// A CUDA call of a host thread.
struct CallRecord {
  std::string_view name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t correlation = 0;
  uint32_t thread = 0;
};

/// A wait that a CUDA call caused: for an event, a stream or the device.
struct WaitRecord {
  std::string_view name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t correlation = 0;
};

/// The CUDA call `correlation` was made under a pushed id. Comes before the call's own record, or
/// at least before the flush that follows it.
struct ExternalRecord {
  uint32_t correlation = 0;
  uint64_t id = 0;
};

/// The begin or end of an NVTX range.
struct RangeRecord {
  bool begin = true;
  uint64_t range = 0;     ///< pairs begin and end
  std::string_view name;  ///< of a begin
  int64_t at_ns = 0;
  uint32_t thread = 0;
};

/// A graph node was made while `id` was pushed, or copied from `original` (when a graph is
/// instantiated).
struct GraphNodeRecord {
  uint64_t node = 0;
  uint64_t original = 0;  ///< 0: not a copy
  uint64_t id = 0;        ///< of a copy: unused
};

/// Work of a host thread that CUDA does not see.
struct SpanRecord {
  std::string name;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  uint32_t thread = 0;
  ExternalId id;
  int64_t bytes = 0;
};

}  // namespace stallcast::capture
