// LouisKV's units in a run: which there are when, as the access log has it, and their index on the
// device.
#pragma once

#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/device_table.h"
#include "kernels/selection/clusters.h"
#include "models/methods/louiskv/local_buffer.h"

namespace stallcast::kernels {

/// Units of a (sequence, KV head) row are numbered as in the policy: clusters or pages of the
/// prompt, then segments in the order of leaving. Where segments begin is the log's, which the host
/// follows as it follows the flags that the device computes.
class LouisKvUnits {
 public:
  /// A prompt whose tokens beside sink and local buffer fit the budget retrieves nothing: Error.
  LouisKvUnits(const DecodeRun& run, const methods::LouisKvParams& params);

  const methods::PromptParts& parts() const { return parts_; }

  struct Segment {
    int64_t begin = 0, tokens = 0;
    int32_t unit = 0;
  };
  /// What leaves a sequence's local buffer in a step; no tokens: nothing does.
  Segment Leaving(int step, int layer, int sequence) const;
  /// The end of all that a sequence has on the host before a step.
  int64_t HostEnd(int step, int layer, int sequence) const;
  /// Tokens in the local buffer at a step's attention.
  int64_t LocalTokens(int step, int layer, int sequence) const;
  bool Retrieves(int step, int layer, int sequence) const;
  /// Units that there are before a step.
  int32_t Before(int step, int layer, int sequence) const;
  /// The step, at most `step`, in which a sequence last retrieved, -1 - sequence * stagger if none.
  int LastRetrieval(int step, int layer, int sequence) const;

  // The index. Rows that do not retrieve in a step have no unit to choose from.
  const int32_t* Choosable(int step, int layer) const;  ///< by row
  int32_t MostChoosable(int step, int layer) const;
  int32_t most() const { return most_; }  ///< units of a row, by which the index is strided
  __nv_bfloat16* Centroids(int layer) const { return Of(layer).centroids.get(); }
  UnitLists Lists(int layer) const;

  /// k-means of the prompts' keys, or the mean key of each page.
  OpWork Cluster(int layer, const PageRuns& keys);
  OpWork SummarizePages(int layer, const PageRuns& keys);
  /// The mean key of a segment, whose first token is at `first` of `keys`, a token a slot.
  OpWork SummarizeSegment(int layer, int sequence, const Segment& segment, PagedKv keys,
                          int64_t first) const;

 private:
  struct Layer {
    std::vector<methods::LocalStep> local;  // by step of the log
    std::vector<Segment> segments;          // in the order of leaving
    std::vector<int32_t> left;              // by step of the log: segments that left before
    Buffer<__nv_bfloat16> centroids;        // [row][unit][head_dim]
    Buffer<int32_t> offsets, members;       // [row][unit + 1], [row][tokens]
  };
  const Layer& Of(int layer) const { return layers_[static_cast<size_t>(layer - first_layer_)]; }
  int64_t LogStep(int step, int sequence) const { return run_.TraceStep(step, sequence); }
  void MakeSchedule(int layer, Layer& of) const;
  void FillIndex(int layer, Layer& of);
  KMeansArgs KMeansOf(int layer, const PageRuns& keys) const;

  const DecodeRun& run_;
  methods::LouisKvParams params_;
  int first_layer_;
  methods::PromptParts parts_;
  int32_t most_ = 0;
  int64_t members_ = 0;  // tokens of a row's lists
  std::vector<Layer> layers_;
  Buffer<char> workspace_;
  Buffer<int32_t> zeros_;          // a KV head each
  Buffer<int32_t> page_slots_[2];  // of prompts one after another, of one for all
  StepTable choosable_;            // by step and layer
};

}  // namespace stallcast::kernels
