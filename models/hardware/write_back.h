// What products lose to bytes that others have written.
#pragma once

#include <vector>

#include "models/hardware/profile.h"

namespace stallcast::hardware {

/// What a kernel writes to ever new places stays in the cache, and is written back amid what the
/// products of the next layers read: they take longer by how many bytes wait for that, whoever has
/// written them, in one piece or in many. The profile knows it by the bytes of one gather
/// (zero_copy.drag; without it nothing is lost); between its samples it is linear, from nothing at
/// 0 bytes on.
class WriteBack {
 public:
  WriteBack() = default;
  explicit WriteBack(const Profile& profile);
  /// That products take longer, all together, at most memory.drag_most.
  double Seconds(double bytes) const;
  /// Those that cost so much, whatever memory.drag_most; of more than any do, the fewest that cost
  /// the most.
  double Bytes(double seconds) const;

 private:
  std::vector<double> bytes_{0}, seconds_{0};  // both rising
  double most_ = 0;
};

}  // namespace stallcast::hardware
