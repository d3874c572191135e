// What a KV-cache method did on a trace: which units each step attended, recalled, corrected.
// A log holds no time and names no machine; every prediction for any machine starts from it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace stallcast::traces {

/// Lists of unit ids, one list a cell, stored flat.
class IdLists {
 public:
  /// Appends the next cell's list.
  void Append(std::span<const uint32_t> ids);
  /// Number of cells.
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::span<const uint32_t> operator[](int64_t cell) const;
  int64_t total() const { return static_cast<int64_t>(ids_.size()); }
  bool operator==(const IdLists&) const = default;

 private:
  std::vector<uint64_t> ends_;
  std::vector<uint32_t> ids_;
};

/// Bits of LayerAccess::flags.
enum AccessFlag : uint8_t {
  kSelectedNow = 1,    ///< selection ran before this step's attention (on the critical path)
  kSelectedAhead = 2,  ///< selection ran for the next step, off the critical path
  kEvicted = 8,        ///< tokens were dropped for good before this step's attention
  kTriggered = 4,  ///< this head itself asked for correction or retrieval (similarity under tau)
};

/// One layer over all steps. A cell is (step, head), index step * heads + head. `heads` is the
/// number of independent selections: 1 (one set a layer), the KV heads, or the query heads.
struct LayerAccess {
  int32_t layer = 0;   ///< in the trace
  bool dense = false;  ///< attends everything; then heads is 0 and only the columns of one
                       ///< value a step are filled
  int32_t heads = 0;
  std::vector<uint8_t> flags;
  std::vector<float>
      similarity;          ///< cosine with the previous step's query that was compared; NaN: none
  IdLists selected;        ///< units attended besides sink and window, ascending
  IdLists recalled_now;    ///< units moved host to GPU before this step's attention
  IdLists recalled_ahead;  ///< units moved host to GPU for the next step
  std::vector<int32_t> attended_tokens;  ///< all tokens attended: sink, selected, window
  /// Units of this head that left the GPU in this step: for recalled ones, on leaving the window
  /// with no slot free, or dropped for good (tokens, whatever the unit). The end of prefill is no
  /// step.
  std::vector<int32_t> evicted;
  /// Tokens kept anywhere, where a method drops some for good (admission, eviction); else empty.
  std::vector<int32_t> cached_tokens;
  /// Share of the true attention weight that the attended tokens cover, mean over the layer's query
  /// heads, one value a step; empty where the trace lacks the tensors.
  std::vector<float> attention_mass;
  /// Relative error of the attention output, ||sparse - full|| / ||full||, mean over the layer's
  /// query heads, one value a step; empty where the values were not captured.
  std::vector<float> output_error;

  bool operator==(const LayerAccess&) const = default;
};

/// Whose own each selection is.
enum class SetsOf : uint8_t { kLayer, kKvHead, kQueryHead };

struct AccessLog {
  std::string method;                         ///< e.g. "freekv"
  std::map<std::string, std::string> params;  ///< the parameters that shape the log
  std::string trace_hash;                     ///< content hash of the tensors replayed
  std::string unit;                           ///< "page", "token", ...
  int32_t unit_tokens = 1;                    ///< tokens of a unit where all are alike; else 0
  SetsOf sets_of = SetsOf::kKvHead;           ///< layers that select have as many heads
  int64_t prompt_tokens = 0;                  ///< context before step 0
  int32_t steps = 0;
  int32_t kv_heads = 0;
  int32_t query_heads = 0;
  int32_t model_layers = 0;         ///< of the model traced; `layers` may hold a few of them
  std::vector<LayerAccess> layers;  ///< ascending by layer

  bool operator==(const AccessLog&) const = default;
};

/// What is wrong with the log's sizes, or empty: a column holds one entry a cell (attention_mass
/// and output_error: one a step) or is empty. Files hold only logs without a fault.
std::string FirstFault(const AccessLog& log);

}  // namespace stallcast::traces
