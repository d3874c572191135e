// WG-KV's eviction in a run: what the policy's heads keep, step by step, and the ops that make the
// device drop the same.
#pragma once

#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/methods/wgkv.h"
#include "models/methods/wgkv/gate.h"
#include "models/methods/wgkv/params.h"

namespace stallcast::kernels {

/// Steps are the run's; -1 is the end of prefill, at which sequences that start later in the trace
/// have evicted what they had by then.
class WgKvEviction {
 public:
  /// Replays the policy on the run's layers. A row may hold `slack` tokens beside what the policy
  /// keeps. Heads of other than 128 channels: usage Error.
  WgKvEviction(const DecodeRun& run, const methods::WgKvParams& params, int32_t slack);

  /// Tokens that a row keeps beside its window when a step attends.
  int32_t Kept(int step, int layer, int sequence, int head) const;
  /// Those tokens.
  std::vector<uint32_t> Expected(int step, int layer, int sequence, int head) const;
  /// The most that a row ever keeps so, before an eviction included.
  int32_t Most(int layer, int sequence, int head) const;
  /// 1 for each token that a row keeps at the end of prefill and 0 for the others, on the device.
  const float* Mask(int layer, int sequence, int head) const;

  /// Ops of the eviction of a sequence in a layer and step. `rows` are the sequence's, the oldest
  /// token of whose windows is at place `oldest`.
  OpWork Score(int step, int layer, int sequence, const GrowingRows& rows, int32_t oldest) const;
  OpWork Choose(int step, int layer, int sequence) const;
  OpWork Drop(int step, int layer, int sequence, const GrowingRows& rows,
              const PageMarks& marks) const;
  /// The sequences that evict in a step, ascending.
  std::vector<int> Sequences(int step, int layer) const;

 private:
  struct Evicted {
    int trace_step;
    std::vector<std::vector<uint32_t>> kept;  // [head]: beside the window, right after
    std::vector<int32_t> dropped;             // [head]
  };
  // Of a layer of the trace; heads are the trace's where nothing else is said.
  struct Source {
    methods::Admission admitted;
    std::vector<std::vector<int32_t>> before;  // [head][token]: admitted before it
    std::vector<Evicted> evictions;
    int64_t first_query;            // first token whose query is there
    Buffer<__nv_bfloat16> queries;  // [KV head of the model][token from first_query - observe on]
                                    // [group][d], zero before first_query
    Buffer<float> masks;            // [sequence][head][token]
    Buffer<int32_t> dropped;        // [eviction][KV head of the model]
  };

  Source MakeSource(int source) const;
  const Source& Of(int layer) const {
    return sources_[static_cast<size_t>(run_.source_of[static_cast<size_t>(layer)])];
  }
  int Traced(int head) const { return head % run_.trace->kv_heads(); }
  /// Whose trace step is the last up to that of a step; -1: none.
  int LastEviction(int step, int layer, int sequence) const;
  /// That in the step itself; none: Error.
  int EvictionAt(int step, int layer, int sequence) const;
  /// Tokens that have left a sequence's window when a step attends.
  int64_t Left(int step, int sequence) const;
  /// The most that a row of the sequence holds when it is scored, and that it drops.
  int32_t Candidates(int step, int layer, int sequence) const;
  int32_t MostDropped(int step, int layer, int sequence) const;
  void MakeBuffers();
  void FillMasks(int source);

  const DecodeRun& run_;
  methods::WgKvParams params_;
  int32_t slack_, stride_ = 0;  // tokens; keys that a row has room for
  int64_t tokens_;              // of the trace
  std::vector<Source> sources_;
  Buffer<int32_t> places_, positions_, counts_, scored_, ids_;
  Buffer<float> scores_, score_workspace_;
  Buffer<char> choice_workspace_;
};

}  // namespace stallcast::kernels
