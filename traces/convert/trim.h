// A smaller trace made of a part of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "traces/format/trace_file.h"

namespace stallcast::traces {

/// What to keep; empty or 0: all.
struct TrimSpec {
  std::vector<int> layers = {};    ///< by their numbers in the model
  std::vector<int> kv_heads = {};  ///< by their indices in the trace, with the queries they serve
  int64_t prompt_tokens = 0;       ///< the last of the prompt
  int64_t steps = 0;               ///< the first decode steps
  bool values = true;              ///< false: without the value tensors
};

/// The TraceInfo of the trimmed trace; a note says what was left out. Throws a usage Error for a
/// layer, head or number that the trace does not have, an Error for a trace that does not say where
/// its prompt ends or holds no tensors. `where` names the trace in both.
proto::TraceInfo TrimmedInfo(const Trace& outline, const TrimSpec& spec, const std::string& where);

/// The part of a tensor that stays, its tokens counted from the trimmed prompt's start; without
/// tokens where none stays. `kv_heads` is the number of KV heads of the tensor's layer.
Tensor Trimmed(const Tensor& tensor, const TrimSpec& spec, const proto::TraceInfo& whole,
               int kv_heads);

/// Writes a part of the trace at `in` to `out`, a layer at a time; timelines and access logs, which
/// are of the whole, are left out. Returns what reading found wrong, a line each: what is intact is
/// written.
std::vector<std::string> Trim(const std::filesystem::path& in, const TrimSpec& spec,
                              const std::filesystem::path& out,
                              const std::function<void(double share)>& progress = {});

}  // namespace stallcast::traces
