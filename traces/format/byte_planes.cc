#include "traces/format/byte_planes.h"

namespace stallcast::traces::format {
namespace {

// The element size is a constant in the loops so that the compiler can vectorise them.
template <int kBytes>
void Split(const std::byte* __restrict in, int64_t count, int64_t plane_size,
           std::byte* __restrict planes) {
  for (int64_t i = 0; i < count; ++i) {
    for (int plane = 0; plane < kBytes; ++plane)
      planes[plane * plane_size + i] = in[kBytes * i + plane];
  }
}

template <int kBytes>
void Merge(const std::byte* __restrict planes, int64_t count, int64_t plane_size,
           std::byte* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    for (int plane = 0; plane < kBytes; ++plane)
      out[kBytes * i + plane] = planes[plane * plane_size + i];
  }
}

}  // namespace

void SplitPlanes(std::span<const std::byte> in, int element_bytes, int64_t plane_size,
                 int64_t first, std::byte* planes) {
  const int64_t count = std::ssize(in) / element_bytes;
  if (element_bytes == 2) {
    Split<2>(in.data(), count, plane_size, planes + first);
  } else {
    Split<4>(in.data(), count, plane_size, planes + first);
  }
}

void MergePlanes(const std::byte* planes, int element_bytes, int64_t plane_size, int64_t first,
                 std::span<std::byte> out) {
  const int64_t count = std::ssize(out) / element_bytes;
  if (element_bytes == 2) {
    Merge<2>(planes + first, count, plane_size, out.data());
  } else {
    Merge<4>(planes + first, count, plane_size, out.data());
  }
}

}  // namespace stallcast::traces::format
