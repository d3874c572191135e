// A layer's pages on the GPU (sink, selected, window) above a pool in pinned memory: what ArkVale,
// FreeKV and PRKV keep, and the ops that they have in common.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/contiguous_cache.h"
#include "kernels/executor/device_table.h"
#include "kernels/movement/movement.h"
#include "kernels/selection/selection.h"
#include "models/methods/common/page_cache.h"
#include "models/methods/common/ranking.h"

namespace stallcast::kernels {

/// The kernel that pools as a policy does.
Pooling PoolingOf(methods::Pooling pooling);

struct RecallShape {
  methods::PageRegions regions;
  int32_t slots = 0;   ///< selectable pages on the GPU, a set
  int32_t ranked = 0;  ///< pages selected in a step, at most `slots`
  int32_t sets = 1;    ///< page sets a sequence: 1 or the KV heads
  SummaryKind summary = SummaryKind::kMinMax;
  Pooling pooling = Pooling::kRawMean;
  bool hnd_pool = false;   ///< pool pages [kv_head][2][token][d], else NHD
  bool hnd_cache = false;  ///< the GPU's pages likewise
  int first_layer = 0;     ///< layers below are not kept here
  int end_layer = 0;       ///< nor those from here on; 0: the model's last is
  /// Where the pool begins: PoolBytes() of pinned memory. Null: the run's.
  std::byte* pool = nullptr;
  /// A layer's keys and values of a sequence, in the order of its pages. Empty: the trace's.
  std::function<SequenceKv(int layer, int sequence)> source = {};
};

/// Of a sequence the GPU has `sink` slots, then those for selected pages, then a ring for the
/// window. Page i of the ring is the window's page whose number is i modulo its length. Selected
/// pages count from the first after the sink.
class RecallCache {
 public:
  RecallCache(const DecodeRun& run, const RecallShape& shape, const char* method);

  CacheBinder::Append AppendAt(int step, int layer) const;
  PagedKv Cache(int layer) const;
  PageTable Pages(int step) const;

  // Ops. Score, TopK and AssignSlots of a layer follow one another on one stream.
  OpWork Score(int step, int layer, const LayerIo& io) const;
  OpWork TopK(int step, int layer) const;
  /// Only rows whose entry of `enabled` is set (null: all) miss anything and change their slots.
  OpWork AssignSlots(int step, int layer, const int32_t* enabled = nullptr) const;
  /// Summaries of the page that each sequence has filled last before `step`.
  OpWork SummarizeFilled(int step, int layer) const;
  /// That page, head by head, to the staging buffer of the offload stream.
  OpWork TransposeFilled(int step, int layer) const;
  /// From there, or as it lies, to the pool.
  OpWork OffloadFilled(int step, int layer) const;

  /// Units, slots and counts of what was missed, on the device: [sets][ranked], [sets][ranked],
  /// [sets], and all of it on the host once FetchMissed() is done.
  struct Missed {
    int32_t *unit = nullptr, *slot = nullptr, *count = nullptr;
  };
  Missed OnDevice(int layer) const;
  Missed OnHost(int layer) const;
  OpWork FetchMissed(int layer) const;

  /// Pieces that `rows` miss by the host's list, and visit(row, unit, slot) for each in its order.
  int64_t CountMissed(int layer, std::span<const int> rows) const;
  template <class Visit>
  void ForEachMissed(int layer, std::span<const int> rows, const Visit& visit) const {
    const Missed missed = OnHost(layer);
    for (const int row : rows) {
      const int64_t first = int64_t{row} * shape_.ranked;
      for (int64_t i = first; i < first + missed.count[row]; ++i) {
        visit(row, missed.unit[i], missed.slot[i]);
      }
    }
  }
  /// Host threads gather these from the pool to `to`, head by head.
  void Gather(int layer, std::span<const int> rows, void* to, int threads) const;

  /// The pool's page of a unit of a sequence, and the slot of the cache that it goes to.
  std::byte* PoolPage(int layer, int sequence, int32_t unit) const;
  std::byte* CachePage(int layer, int sequence, int32_t slot) const;
  /// For the kernels that find both by themselves.
  CacheSlots Places() const;
  const __nv_bfloat16* Pool(int layer) const;
  Bytes PageBytes() const;  ///< all heads
  static Bytes PoolBytes(const DecodeRun& run, const methods::PageRegions& regions, int layers);
  int32_t pages() const { return pages_; }  ///< of a sequence in the pool
  __nv_bfloat16* Summaries(int layer) const { return Of(layer).summaries.get(); }  ///< [row][page]
  int32_t* Selected(int layer) const { return Of(layer).ids.get(); }         ///< [set][ranked]
  int32_t* SlotUnits(int layer) const { return Of(layer).slot_unit.get(); }  ///< [set][slots]
  PagedKv PagesLike(__nv_bfloat16* data, bool hnd) const;
  Bytes PieceBytes() const { return PageBytes() / run_.kv_heads(); }
  int32_t sets() const { return run_.batch() * shape_.sets; }
  const RecallShape& shape() const { return shape_; }

  /// Anew what the pool and the index had before the first step.
  void FillPoolAndSummaries();
  void Reset(std::span<const LayerIo> last);

  // Prefill: the prompt, and its ops: its full pages are summarized and go to the pool, transposed
  // before where that is HND; then the last token's scores choose the pages that stay.
  PromptKv PromptAt(int layer);
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io);
  void Clear();

  /// Compares the selection of a step, and looks at the keys of the pages on the GPU. `before`
  /// says of a cell's flags whether its recall came before the step's attention.
  void CheckStep(int step, const std::function<bool(uint8_t)>& before, SelectionCheck& check) const;

 private:
  struct Layer {
    Buffer<__nv_bfloat16> data, summaries;
    Buffer<int32_t> ids;        // [set][ranked]
    Buffer<int32_t> slot_unit;  // [set][slots]
    Buffer<int32_t> missed;     // Missed, one after the other
    Buffer<float> scores, score_workspace, pooled;
    Buffer<char> top_k_workspace;
  };
  const Layer& Of(int layer) const {
    return layers_[static_cast<size_t>(layer - shape_.first_layer)];
  }
  OpWork ScorePages(const Layer& of, const __nv_bfloat16* query, int32_t pages,
                    const int32_t* pages_of) const;
  int32_t SlotsASequence() const;
  int32_t RingSlot(int64_t page) const;
  int64_t FilledPage(int step, int sequence) const;
  int32_t MostSelectable(int step) const;
  Missed Split(int32_t* data) const;
  int32_t PromptPages() const;  ///< full ones, of a sequence
  OpWork SummarizePrompt(int layer);
  OpWork TransposePrompt(int layer);
  OpWork OffloadPrompt(int layer, int64_t first, int64_t count);
  OpWork KeepPrompt(int layer);
  bool Transposes() const { return shape_.hnd_pool && !shape_.hnd_cache; }
  int EndLayer() const { return shape_.end_layer > 0 ? shape_.end_layer : run_.input.model.layers; }
  SequenceKv Source(int layer, int sequence) const {
    return shape_.source ? shape_.source(layer, sequence) : run_.Source(layer);
  }
  void CheckKeys(int layer, std::span<const int32_t> slot_unit, SelectionCheck& check) const;

  const DecodeRun& run_;
  RecallShape shape_;
  int32_t pages_;  // of a sequence in the pool
  std::byte* pool_;
  std::vector<Layer> layers_;
  Buffer<int32_t> host_missed_;
  Buffer<__nv_bfloat16> transposed_;
  Buffer<int32_t> ring_slots_;      // [sequence][page]: where a page lies while in sink or window
  Buffer<int32_t> row_ring_slots_;  // [row][page]
  StepTable table_, tokens_, slot_, place_, filled_slot_, filled_page_;
  StepTable selectable_;  // one step further on: its first entry is of the last prompt token

  std::optional<ContiguousCache> prompt_;  // in prefill, before it is cut down
  Buffer<__nv_bfloat16> prompt_transposed_;
  Buffer<int32_t> prompt_slots_;  // of the full pages, sequence after sequence
  int64_t offloaded_ = 0;         // pages of the layer being bound
};

}  // namespace stallcast::kernels
