#include "traces/format/byte_planes.h"

#include <algorithm>
#include <bit>
#include <cstring>

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

static_assert(std::endian::native == std::endian::little, "plane 0 holds the lowest bytes");

// The first plane also sets the other bytes, to zero: whole elements are written, which the
// compiler can vectorise.
template <typename Element, bool kFirst>
void Put(const std::byte* __restrict bytes, int64_t count, int plane, std::byte* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    Element element = 0;
    if (!kFirst) std::memcpy(&element, out + i * sizeof element, sizeof element);
    element = static_cast<Element>(element | std::to_integer<Element>(bytes[i]) << (8 * plane));
    std::memcpy(out + i * sizeof element, &element, sizeof element);
  }
}

template <typename Element>
void Put(std::span<const std::byte> bytes, int plane, std::byte* out) {
  if (plane == 0) {
    Put<Element, true>(bytes.data(), std::ssize(bytes), plane, out);
  } else {
    Put<Element, false>(bytes.data(), std::ssize(bytes), plane, out);
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

void PutPlane(std::span<const std::byte> bytes, int element_bytes, int plane, std::byte* out) {
  if (element_bytes == 1) {
    std::ranges::copy(bytes, out);
  } else if (element_bytes == 2) {
    Put<uint16_t>(bytes, plane, out);
  } else {
    Put<uint32_t>(bytes, plane, out);
  }
}

}  // namespace stallcast::traces::format
