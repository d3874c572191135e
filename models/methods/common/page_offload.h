// Pages that fill up are summarised and written to the host pool: the same in every paged method.
#pragma once

#include <vector>

#include "models/methods/common/page_cache.h"
#include "models/methods/decoder_plan.h"

namespace stallcast::methods {

class PageOffload {
 public:
  enum class Pool : uint8_t {
    kNhd,  ///< pages as on the GPU
    kHnd,  ///< a page's heads apart: transposed on the GPU before the copy
  };
  /// `first_layer`: layers below are dense and stay on the GPU.
  PageOffload(DecoderPlan& plan, int64_t page_tokens, Pool pool, int first_layer);

  /// Once every page_tokens steps: offloads and summarises the page that the step before filled, in
  /// every layer at once.
  void BeginStep(int step);
  /// The op that put the layer's latest page into the pool, or kNone: a recall of it comes after.
  plan::OpId Written(int layer) const { return written_[static_cast<size_t>(layer)]; }
  /// All pages of a layer, one copy a page. With `sync_each_page` the host waits for the device
  /// before each (ArkVale's loop reads a device scalar a page).
  void Prefill(int layer, bool sync_each_page);
  /// After a prompt's selection: the pages that stay on the GPU (sink, at most `slots` selected
  /// ones, window) go to their places.
  void Keep(int layer, const PageRegions& regions, int64_t slots);
  /// The host waits until the prefill's pages are in the pool.
  void EndPrefill();

 private:
  /// As ArkVale's and FreeKV's code loops over pages: each one's number is read from the GPU, its
  /// heads are put in order by a kernel of its own, and it is copied.
  void PrefillAsRun(int64_t pages, const plan::Copy& one, plan::OpId appended);
  void Transpose(int64_t pages, plan::OpId ready);

  DecoderPlan& plan_;
  int64_t page_;
  Pool pool_;
  int first_layer_;
  plan::LaneId stream_;
  std::vector<plan::OpId> written_;  // by layer
};

}  // namespace stallcast::methods
