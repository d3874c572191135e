// Elements stored plane by plane: all first bytes, then all second bytes, and so on. Exponent bytes
// of real tensors compress well, mantissa bytes do not; apart, each costs what it is worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stallcast::traces::format {

/// Writes the elements of `in` to positions [first, first + count) of every plane in `planes`,
/// which holds element_bytes planes of `plane_size` bytes each; count = in.size() / element_bytes.
void SplitPlanes(std::span<const std::byte> in, int element_bytes, int64_t plane_size,
                 int64_t first, std::byte* planes);

/// The inverse, a stretch of one plane at a time, planes in order: gives the elements from `out` on
/// their bytes of plane `plane`.
void PutPlane(std::span<const std::byte> bytes, int element_bytes, int plane, std::byte* out);

}  // namespace stallcast::traces::format
