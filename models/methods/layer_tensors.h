// One layer of a trace as a policy sees it.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "models/methods/projection.h"
#include "traces/format/trace_file.h"

namespace stallcast::methods {

/// Steps that a trace decodes. None: Error.
int DecodeSteps(const traces::Trace& trace);

/// Whether the layer's values were captured for every token that a replay attends.
bool HasValues(const traces::Trace& trace, int layer);

/// Keys, queries and, where captured, values of one layer as floats. Tokens count from the
/// sequence's start; step s decodes token prompt_tokens + s, whose own key is part of the cache
/// when its query is scored. Keys and values stay as the trace holds them and are widened panel by
/// panel where they are used, so a replay needs little memory beside its trace. The trace must
/// outlive this.
class LayerTensors {
 public:
  /// Throws Error naming the layer when its queries or keys are missing, do not cover every decode
  /// step, are not finite, or when query heads are not a multiple of KV heads; likewise for values
  /// that are there but not finite or of another number of heads.
  /// Of the prompt's queries, the last `prompt_queries` are kept, or as many as the trace has.
  /// `group` query heads share a KV head, taken from the trace's by TracedQueryHead(); 0: as many
  /// as the trace has. Where `kv_heads` is more than the layer has, the others are TracedKvHeads()
  /// of those of the trace's layers that are whole and of the same shape.
  LayerTensors(const traces::Trace& trace, int layer, int64_t prompt_queries = 1, int group = 0,
               int kv_heads = 0);

  int layer() const { return layer_; }
  int kv_heads() const { return kv_heads_; }
  int query_heads() const { return query_heads_; }
  int group() const { return query_heads_ / kv_heads_; }
  int head_dim() const { return head_dim_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int steps() const { return steps_; }
  float softmax_scale() const { return scale_; }

  /// Widens the keys of a KV head for `count` tokens from `token` on: `out` is [token][dim].
  void ReadKeys(int kv_head, int64_t token, int64_t count, float* out) const {
    source(kv_head).keys->ToFloat(source(kv_head).head, token, count, out);
  }
  /// Whether the values of any KV head, or of this one, are there.
  bool has_values() const { return value_dim_ > 0; }
  bool has_values(int kv_head) const { return source(kv_head).values != nullptr; }
  int value_dim() const { return value_dim_; }
  /// Widens values as ReadKeys() does keys: `out` is [token][value_dim].
  void ReadValues(int kv_head, int64_t token, int64_t count, float* out) const {
    source(kv_head).values->ToFloat(source(kv_head).head, token, count, out);
  }
  /// Query of a query head at a token, head_dim long.
  std::span<const float> Query(int query_head, int64_t token) const;
  /// How the trace says that positions were encoded.
  const traces::proto::Rope& rope() const { return rope_; }
  /// First token whose query is in the trace (prompt queries are kept for a window only).
  int64_t first_query_token() const { return first_query_; }

  /// Where a KV head's rows lie in the trace: `head` of keys and values, and the group's of
  /// queries.
  struct Source {
    const traces::Tensor* keys = nullptr;
    const traces::Tensor* queries = nullptr;
    const traces::Tensor* values = nullptr;  ///< of the layer's own heads, where captured
    int head = 0;
  };
  const Source& source(int kv_head) const { return sources_[static_cast<size_t>(kv_head)]; }

 private:
  void AddHead(const traces::Trace& trace, const TracedKvHead& head, const traces::Tensor* values);

  int layer_, kv_heads_ = 0, query_heads_ = 0, head_dim_ = 0, steps_;
  int64_t prompt_tokens_, tokens_, first_query_ = 0, query_tokens_ = 0;
  float scale_ = 0;
  traces::proto::Rope rope_;
  int value_dim_ = 0;
  std::vector<Source> sources_;  // by KV head
  std::vector<float> queries_;
};

/// Tokens attended, a list of disjoint ascending ranges [begin, end) a cell (step * heads + head).
/// Each cell is held as its ranges or as a bit a token, whichever is smaller.
class AttendedRanges {
 public:
  struct Range {
    int32_t begin, end;
  };
  explicit AttendedRanges(int heads = 0) : heads_(heads) {}
  /// Appends a range to the cell being filled, merging with the previous one where they touch.
  void Add(int64_t begin, int64_t end);
  void EndCell();
  int heads() const { return heads_; }
  /// The ranges that have tokens in [begin, end), perhaps others beside; valid until `scratch` is
  /// changed.
  std::span<const Range> Within(int step, int head, int64_t begin, int64_t end,
                                std::vector<Range>& scratch) const;
  /// All ranges of a cell.
  std::vector<Range> Cell(int step, int head) const;
  int64_t TokensInLastCell() const { return tokens_in_last_; }

 private:
  using Bits = std::vector<uint64_t>;

  int heads_;
  std::vector<Range> open_;  // the cell being filled
  int64_t tokens_in_last_ = 0;
  std::vector<std::variant<std::vector<Range>, Bits>> cells_;
};

/// How much of full attention is left, one value a step, mean over query heads.
struct AttentionFidelity {
  /// Share of the true attention weight (softmax over the whole cache, in float with a double sum)
  /// that the attended tokens cover.
  std::vector<float> mass;
  /// Relative error of the attention output, ||sparse - full|| / ||full||, where sparse is the
  /// output with the softmax taken over the attended tokens alone (none: zero). Empty without
  /// values. Heads without values or whose full output is zero are left out; NaN where all are.
  std::vector<float> output_error;
};
/// A selection head of `attended` serves query_heads / attended.heads() query heads. Attending
/// everything gives exactly a mass of 1 and an error of 0.
AttentionFidelity MeasureAttention(const LayerTensors& tensors, const AttendedRanges& attended);

}  // namespace stallcast::methods
