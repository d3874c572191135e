// What the categories of profilers say of a slice, and what the names of threads say of a lane.
#pragma once

#include <string_view>

#include "traces/convert/slice_set.h"

namespace stallcast::traces::convert {

struct Category {
  SliceKind kind = SliceKind::kPlain;
  Role role = Role::kOther;
  bool host = false;  ///< its thread is one
};

/// Of Kineto of any age and device, HIP, rocprof and rpd, in capitals or not; ours are the roles'
/// names. Null: none of these.
const Category* FindCategory(std::string_view name);

/// Whether a lane of a program that gives no such categories is a stream of a GPU (or an NPU, ...),
/// by the names of its process and thread: "Ascend Hardware" and "Stream 47".
bool NamesStream(std::string_view process, std::string_view thread);

}  // namespace stallcast::traces::convert
