// The orders in which PRKV keeps a trace's tokens: what its restructurings before a run have made
// of them.
#pragma once

#include <map>
#include <utility>

#include "kernels/executor/cache_binder.h"
#include "models/methods/prkv/params.h"

namespace stallcast::kernels {

/// Queries of [first, end) that observe the tokens [0, tokens) before them.
struct Observation {
  /// Of a context with its last page partial, as far as the trace has queries.
  Observation(const methods::PrkvParams& params, const TraceTensors& trace, int64_t context);
  int64_t tokens, first, end;
  int32_t queries() const { return static_cast<int32_t>(end - first); }
};

class PrkvOrder {
 public:
  PrkvOrder(const DecodeRun& run, const methods::PrkvParams& params);

  /// Keys and values of a sequence as its pages hold them before the first step, with so many
  /// static pages. Tokens are chosen and moved on the device, for a layer of the trace once; heads
  /// are the trace's.
  SequenceKv Source(int layer, int sequence, int64_t static_pages);

 private:
  /// A trace layer's [k, v][head][token][head_dim] after so many restructurings beside the
  /// prompt's.
  const Buffer<__nv_bfloat16>& After(int trace_layer, int64_t restructured, int64_t static_pages);
  PageRuns Runs(const Buffer<__nv_bfloat16>& data) const;

  const DecodeRun& run_;
  methods::PrkvParams params_;
  int64_t tokens_;
  std::map<std::pair<int, int64_t>, Buffer<__nv_bfloat16>> ordered_;
};

}  // namespace stallcast::kernels
