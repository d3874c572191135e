// PRKV: static pages at the front of each head's own order of tokens, dynamic ones recalled; the
// static set chosen anew by an observation window every so often.
#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/prkv_order.h"
#include "kernels/executor/methods/recall_cache.h"
#include "kernels/methods/restructure.h"
#include "kernels/movement/keep_tokens.h"
#include "models/methods/prkv/params.h"

namespace stallcast::kernels {
namespace {

using Params = methods::PrkvParams;
using Bf16 = __nv_bfloat16;

// Static pages are the sink of a recall cache whose pages have an order of their own. How many
// there are may differ from layer to layer: neighbours with as many share a cache.
class PrkvBinder : public CacheBinder {
 public:
  PrkvBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        hnd_(params.layout == Params::Layout::kHnd),
        order_(run, params),
        attention_(run) {
    MakeCaches();
    const RecallCache& any = *caches_.front();
    const int64_t pieces = int64_t{run.rows()} * params.budget_pages();
    const bool direct = hnd_ && params.transfer == Params::Transfer::kPerPage;
    if (!direct) {
      staging_ = Buffer<std::byte>(pieces * any.PieceBytes());
      gathered_ = Buffer<std::byte>(pieces * any.PieceBytes(), Memory::kPinned);
    }
    for (int row = 0; row < run.rows(); ++row) rows_.push_back(row);
  }

  Append AppendAt(int step, int layer) override { return Of(layer).AppendAt(step, layer); }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    using plan::Purpose;
    const int step = op.step, layer = op.layer;
    const RecallCache& cache = Of(layer);
    if (step != step_ || layer != layer_) Enter(op);
    switch (op.purpose) {
      case Purpose::kSummarizeFilled:
        return cache.SummarizeFilled(step, layer);
      case Purpose::kOffloadFilled:
        return cache.OffloadFilled(step, layer);
      case Purpose::kFetchSequence:
        return Fetch(op);
      case Purpose::kChooseStatic:
        return ChooseStatic(layer);
      case Purpose::kReorder:
        return Move(layer);
      case Purpose::kSummarizeReordered:
        return SummarizeRestructured(layer);
      case Purpose::kWriteReordered:
        return WriteBack(layer);
      case Purpose::kKeepReordered:
        return Refill(layer);
      case Purpose::kChooseUnits:
        return cache.TopK(step, layer);
      case Purpose::kReadMissed:
        return cache.FetchMissed(layer);
      case Purpose::kBringRecalled:
        return std::get<plan::Copy>(op.work).path == plan::CopyPath::kBulk ? CopyGathered(layer)
                                                                           : CopyPieces(layer);
      case Purpose::kPlaceRecalled:
        return Scatter(layer);
      default:
        break;
    }
    return BindByKind(
        "prkv", op,
        [&](const plan::DecodeAttention&) {
          return attention_.Over(cache.Cache(layer), cache.Pages(step), io);
        },
        [&](const plan::Score&) { return cache.Score(step, layer, io); },
        [&](const plan::ObservationScore&) { return Observe(op); },
        [&](const plan::AssignSlots&) { return cache.AssignSlots(step, layer, Recalling()); },
        [&](const plan::HostGather& gather) -> OpWork {
          return [this, &cache, layer, threads = gather.threads](cudaStream_t) {
            cache.Gather(layer, rows_, gathered_.get(), threads);
          };
        });
  }

  void Reset(std::span<const LayerIo> last) override {
    // A run that restructures leaves another order behind.
    const bool anew = std::exchange(reordered_, false);
    for (const auto& cache : caches_) {
      if (anew) cache->FillPoolAndSummaries();
      cache->Reset(last);
    }
  }

  PromptKv PromptAt(int layer) override { return Of(layer).PromptAt(layer); }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    using plan::Purpose;
    switch (op.purpose) {
      case Purpose::kChooseStatic:
        return ChooseStatic(op.layer);
      case Purpose::kReorder:
        return Move(op.layer);
      case Purpose::kSummarizeReordered:
        return SummarizeRestructured(op.layer);
      case Purpose::kWriteReordered:
        return WriteBack(op.layer);
      case Purpose::kKeepPrompt:
        if (params_.has_static_set()) return KeepPrompt(op.layer);
        break;
      default:
        break;
    }
    if (std::holds_alternative<plan::ObservationScore>(op.work)) return ObservePrompt(op.layer, io);
    return Of(op.layer).BindPrefill(op, io);
  }

  void Clear() override {
    for (const auto& cache : caches_) cache->Clear();
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    for (const auto& cache : caches_) {
      cache->CheckStep(
          step, [](uint8_t) { return true; }, check);
    }
  }

 private:
  int FirstSparse() const { return static_cast<int>(params_.dense_layers); }
  RecallCache& Of(int layer) {
    return *caches_[cache_of_[static_cast<size_t>(layer - FirstSparse())]];
  }
  const RecallCache& Of(int layer) const {
    return *caches_[cache_of_[static_cast<size_t>(layer - FirstSparse())]];
  }

  // What the overlap rule made static is what the log leaves of the budget.
  int64_t StaticPages(int layer) const {
    if (!params_.has_static_set()) return 0;
    if (params_.static_rule == Params::StaticRule::kFixed || run_.log == nullptr) {
      return params_.static_pages();
    }
    return std::max<int64_t>(0, params_.budget_pages() - run_.log->At(0, layer, 0, 0).selected);
  }

  void MakeCaches() {
    const int layers = run_.input.model.layers;
    std::byte* pool =
        run_.pool->Get(RecallCache::PoolBytes(run_, params_.regions(), layers - FirstSparse()));
    for (int begin = FirstSparse(), end = begin; begin < layers; begin = end) {
      const int64_t static_pages = StaticPages(begin);
      while (end < layers && StaticPages(end) == static_pages) {
        cache_of_.push_back(caches_.size());
        ++end;
      }
      const auto slots = static_cast<int32_t>(params_.budget_pages() - static_pages);
      methods::PageRegions regions = params_.regions();
      regions.sink_pages = static_pages;
      RecallShape shape{.regions = regions,
                        .slots = slots,
                        .ranked = slots,
                        .sets = run_.kv_heads(),
                        .summary = params_.summary == methods::PageSummary::kMinMax
                                       ? SummaryKind::kMinMax
                                       : SummaryKind::kCuboidMean,
                        .pooling = PoolingOf(params_.pooling),
                        .hnd_pool = hnd_,
                        .hnd_cache = hnd_,
                        .first_layer = begin,
                        .end_layer = end,
                        .pool = pool};
      if (params_.has_static_set()) {
        shape.source = [this, static_pages](int layer, int sequence) {
          return order_.Source(layer, sequence, static_pages);
        };
      }
      caches_.push_back(std::make_unique<RecallCache>(run_, shape, "prkv"));
      pool += RecallCache::PoolBytes(run_, params_.regions(), end - begin);
    }
  }

  // --- a step ---

  void Enter(const plan::Op& op) {
    step_ = op.step, layer_ = op.layer;
    whole_ = false;
    moved_.clear();
    for (int sequence = 0; sequence < run_.batch() && run_.log != nullptr; ++sequence) {
      if (run_.log->At(op.step, op.layer, sequence, 0).flags & traces::kTriggered) {
        moved_.push_back({sequence, run_.Context(op.step, sequence)});
      }
    }
  }

  // Rows that recall in a step: those that do not restructure; null: all.
  const int32_t* Recalling() {
    if (moved_.empty()) return nullptr;
    std::vector<int32_t> rows(static_cast<size_t>(run_.rows()), 1);
    for (const Moved& moved : moved_) {
      std::fill_n(rows.begin() + int64_t{moved.sequence} * run_.kv_heads(), run_.kv_heads(), 0);
    }
    tables_.push_back(Uploaded(rows));
    return tables_.back().get();
  }

  OpWork CopyGathered(int layer) {
    return [this, &cache = Of(layer), layer](cudaStream_t stream) {
      const int64_t count = cache.CountMissed(layer, rows_);
      if (count == 0) return;
      Check(cudaMemcpyAsync(staging_.get(), gathered_.get(),
                            static_cast<size_t>(count * cache.PieceBytes()), cudaMemcpyHostToDevice,
                            stream),
            "cudaMemcpyAsync");
    };
  }

  // A copy a page: from the pool to its slot, or from what was gathered to where it is scattered.
  OpWork CopyPieces(int layer) {
    return [this, &cache = Of(layer), layer](cudaStream_t stream) {
      const auto bytes = static_cast<size_t>(cache.PieceBytes());
      const auto static_pages = static_cast<int32_t>(cache.shape().regions.sink_pages);
      size_t at = 0;
      cache.ForEachMissed(layer, rows_, [&](int row, int32_t unit, int32_t slot) {
        const int sequence = row / run_.kv_heads();
        const size_t head = static_cast<size_t>(row % run_.kv_heads()) * bytes;
        std::byte* to = hnd_ ? cache.CachePage(layer, sequence, static_pages + slot) + head
                             : staging_.get() + at;
        const std::byte* from =
            hnd_ ? cache.PoolPage(layer, sequence, unit) + head : gathered_.get() + at;
        Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
        at += bytes;
      });
    };
  }

  OpWork Scatter(int layer) {
    const RecallCache& cache = Of(layer);
    const RecallCache::Missed on_device = cache.OnDevice(layer);
    MissedUnits missed{on_device.unit, on_device.slot, on_device.count};
    missed.rows = run_.rows();
    missed.k = cache.shape().ranked;
    return [this, missed, places = cache.Places(), to = cache.Cache(layer)](cudaStream_t stream) {
      ScatterMissed(reinterpret_cast<const Bf16*>(staging_.get()), missed, places, to, stream);
    };
  }

  // --- restructuring ---

  // A sequence that restructures, and the tokens it has.
  struct Moved {
    int sequence;
    int64_t context;
  };

  void MakeRestructured() {
    if (!restructured_.empty()) return;
    const RecallCache& any = *caches_.front();
    const int64_t size =
        int64_t{run_.batch()} * any.pages() * any.PageBytes() / static_cast<Bytes>(sizeof(Bf16));
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      restructured_.emplace_back(size);
    }
    std::vector<int32_t> slots;
    for (int row = 0; row < run_.rows(); ++row) {
      for (int32_t page = 0; page < any.pages(); ++page) {
        slots.push_back(row / run_.kv_heads() * any.pages() + page);
      }
    }
    page_slots_ = Uploaded(slots);
    const auto tokens = static_cast<int32_t>(any.pages() * params_.page);
    scores_ = Buffer<float>(int64_t{run_.rows()} * tokens);
    first_ = Buffer<int32_t>(int64_t{run_.rows()} * params_.budget_pages() * params_.page);
    ObservationScoreArgs args = Observing();
    args.rows = run_.rows();
    args.tokens = tokens;
    args.queries = static_cast<int32_t>(params_.window);
    observation_ = Buffer<char>(ObservationScoreWorkspace(args));
    const auto most = static_cast<int32_t>(params_.budget_pages() * params_.page);
    top_k_ = Buffer<char>(
        std::max<int64_t>(1, TopKWorkspace(run_.rows(), tokens, std::min(most, tokens))));
  }
  ObservationScoreArgs Observing() const {
    ObservationScoreArgs args;
    args.keys.cache = caches_.front()->PagesLike(nullptr, hnd_);
    args.group = run_.group();
    args.scale = run_.trace->softmax_scale();
    return args;
  }
  Bf16* Restructured(int layer) const {
    return restructured_[static_cast<size_t>(layer - FirstSparse())].get();
  }
  int32_t Count(int layer) const {
    return static_cast<int32_t>(Of(layer).shape().regions.sink_pages * params_.page);
  }
  // A sequence's pages of `data`, which holds those of all sequences.
  PageRuns SequenceOf(Bf16* data, int sequence) const {
    const RecallCache& any = *caches_.front();
    return {any.PagesLike(data + int64_t{sequence} * any.pages() * any.PageBytes() /
                                     static_cast<Bytes>(sizeof(Bf16)),
                          hnd_),
            any.pages()};
  }
  int64_t Pages(const Moved& moved) const { return params_.regions().SelectableEnd(moved.context); }

  OpWork Fetch(const plan::Op& op) {
    MakeRestructured();
    if (fetched_.size() == 0) fetched_ = Buffer<Bf16>(restructured_.front().size());
    return [this, &cache = Of(op.layer), layer = op.layer, all = moved_](cudaStream_t stream) {
      reordered_ = true;
      const auto static_pages = static_cast<int32_t>(cache.shape().regions.sink_pages);
      for (const Moved& moved : all) {
        Check(cudaMemcpyAsync(SequenceOf(fetched_.get(), moved.sequence).cache.data,
                              cache.PoolPage(layer, moved.sequence, -static_pages),
                              static_cast<size_t>(Pages(moved) * cache.PageBytes()),
                              cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
      }
    };
  }

  OpWork Observe(const plan::Op& op) {
    from_ = SequencesOf(fetched_.get());
    const TraceTensors& trace = *run_.trace;
    std::vector<ObservationScoreArgs> all;
    for (const Moved& moved : moved_) {
      const Observation observed(params_, trace, moved.context);
      std::vector<Bf16> queries;
      for (int64_t token = observed.first; token < observed.end; ++token) {
        for (int head = 0; head < run_.input.model.query_heads; ++head) {
          const int traced = trace.QueryHeadFor(head, run_.group());
          const Bf16* query =
              trace.Query(run_.source_of[static_cast<size_t>(op.layer)], traced, token);
          queries.insert(queries.end(), query, query + run_.head_dim());
        }
      }
      queries_.push_back(Uploaded(queries));
      ObservationScoreArgs args = Observing();
      args.keys = SequenceOf(fetched_.get(), moved.sequence);
      args.rows = run_.kv_heads();
      args.tokens = static_cast<int32_t>(observed.tokens);
      args.query = queries_.back().get();
      args.queries = observed.queries();
      args.scores = ScoresOf(moved.sequence);
      all.push_back(args);
    }
    return Run(all);
  }
  OpWork Run(const std::vector<ObservationScoreArgs>& all) const {
    return [this, all](cudaStream_t stream) {
      for (const ObservationScoreArgs& args : all) {
        ObservationScore(args, observation_.get(), stream);
      }
    };
  }
  float* ScoresOf(int sequence) const {
    return scores_.get() + sequence * (scores_.size() / run_.batch());
  }
  int32_t* FirstOf(int layer, int sequence) const {
    return first_.get() + int64_t{sequence} * run_.kv_heads() * Count(layer);
  }
  std::vector<PageRuns> SequencesOf(Bf16* data) const {
    std::vector<PageRuns> runs;
    for (const Moved& moved : moved_) runs.push_back(SequenceOf(data, moved.sequence));
    return runs;
  }

  OpWork ChooseStatic(int layer) {
    return [this, all = moved_, count = Count(layer), layer](cudaStream_t stream) {
      if (count == 0) return;
      for (const Moved& moved : all) {
        TopK(ScoresOf(moved.sequence), run_.kv_heads(),
             static_cast<int32_t>(Pages(moved) * params_.page), count,
             FirstOf(layer, moved.sequence), top_k_.get(), stream);
      }
    };
  }

  OpWork Move(int layer) {
    return [this, all = moved_, from = from_, to = SequencesOf(Restructured(layer)), layer,
            whole = whole_](cudaStream_t stream) {
      for (size_t i = 0; i < all.size(); ++i) {
        const int64_t tokens = whole ? all[i].context : Pages(all[i]) * params_.page;
        Restructure(from[i], to[i], FirstOf(layer, all[i].sequence), Count(layer), run_.kv_heads(),
                    static_cast<int32_t>(tokens), stream);
      }
    };
  }

  OpWork SummarizeRestructured(int layer) {
    const RecallCache& cache = Of(layer);
    const int64_t row = int64_t{cache.pages()} * 2 * run_.head_dim();
    return [this, &cache, all = moved_, layer, row, whole = whole_](cudaStream_t stream) {
      for (const Moved& moved : all) {
        const int64_t pages = whole ? moved.context / params_.page : Pages(moved);
        const int64_t first = int64_t{moved.sequence} * run_.kv_heads();
        Summarize(cache.shape().summary, cache.PagesLike(Restructured(layer), hnd_),
                  page_slots_.get() + first * cache.pages(), cache.pages(), 0,
                  static_cast<int32_t>(pages), run_.kv_heads(),
                  cache.Summaries(layer) + first * row, cache.pages(), stream);
      }
    };
  }

  OpWork WriteBack(int layer) {
    const RecallCache& cache = Of(layer);
    const auto static_pages = static_cast<int32_t>(cache.shape().regions.sink_pages);
    return [this, &cache, all = moved_, layer, static_pages, whole = whole_](cudaStream_t stream) {
      for (const Moved& moved : all) {
        const int64_t pages = whole ? moved.context / params_.page : Pages(moved);
        Check(cudaMemcpyAsync(cache.PoolPage(layer, moved.sequence, -static_pages),
                              SequenceOf(Restructured(layer), moved.sequence).cache.data,
                              static_cast<size_t>(pages * cache.PageBytes()),
                              cudaMemcpyDeviceToHost, stream),
              "cudaMemcpyAsync");
      }
    };
  }

  // The cache of sequences that have restructured: static pages, and those that the step selects.
  OpWork Refill(int layer) {
    return [this, &cache = Of(layer), all = moved_, layer](cudaStream_t stream) {
      const int32_t slots = cache.shape().slots;
      for (const Moved& moved : all) {
        const int64_t set = int64_t{moved.sequence} * run_.kv_heads() * slots;
        Check(cudaMemcpyAsync(cache.SlotUnits(layer) + set, cache.Selected(layer) + set,
                              static_cast<size_t>(run_.kv_heads() * slots) * sizeof(int32_t),
                              cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
        KeptPages kept = Kept(layer, moved.sequence);
        kept.first_window = kept.pages = static_cast<int32_t>(Pages(moved));
        Keep(layer, moved.sequence, kept, stream);
      }
    };
  }
  KeptPages Kept(int layer, int sequence) const {
    const RecallCache& cache = Of(layer);
    KeptPages kept;
    kept.units = cache.SlotUnits(layer) + int64_t{sequence} * run_.kv_heads() * cache.shape().slots;
    kept.sets = run_.kv_heads();
    kept.sink = static_cast<int32_t>(cache.shape().regions.sink_pages);
    kept.chosen = cache.shape().slots;
    kept.window = static_cast<int32_t>(params_.regions().window_pages);
    return kept;
  }
  void Keep(int layer, int sequence, const KeptPages& kept, cudaStream_t stream) const {
    const RecallCache& cache = Of(layer);
    PagedKv to = cache.Cache(layer);
    to.data = reinterpret_cast<Bf16*>(cache.CachePage(layer, sequence, 0));
    KeepPages(SequenceOf(Restructured(layer), sequence).cache, cache.pages(), kept, to, 1, stream);
  }

  // --- prefill ---

  OpWork ObservePrompt(int layer, const PrefillIo& io) {
    whole_ = true;
    MakeRestructured();
    moved_.clear();
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      moved_.push_back({sequence, run_.input.prompt_tokens});
    }
    const PromptKv prompt = PromptAt(layer);
    const int64_t token = int64_t{run_.input.model.query_heads} * run_.head_dim();
    Observation observed(params_, *run_.trace, run_.input.prompt_tokens);
    observed.end = run_.input.prompt_tokens;
    observed.first = std::min(observed.first, observed.end - 1);
    from_.clear();
    std::vector<ObservationScoreArgs> all;
    for (const Moved& moved : moved_) {
      PagedKv pages = prompt.cache;
      pages.data += int64_t{moved.sequence} * prompt.max_pages * pages.slot_stride;
      from_.push_back({pages, prompt.max_pages});
      ObservationScoreArgs args = Observing();
      args.keys = from_.back();
      args.rows = run_.kv_heads();
      args.tokens = static_cast<int32_t>(observed.tokens);
      args.query = io.query + (moved.sequence * run_.input.prompt_tokens + observed.first) * token;
      args.queries = observed.queries();
      args.scores = ScoresOf(moved.sequence);
      all.push_back(args);
    }
    return Run(all);
  }

  OpWork KeepPrompt(int layer) {
    return [this, all = moved_, layer](cudaStream_t stream) {
      for (const Moved& moved : all) {
        KeptPages kept = Kept(layer, moved.sequence);
        kept.first_window = static_cast<int32_t>(Pages(moved));
        kept.pages = static_cast<int32_t>((moved.context + params_.page - 1) / params_.page);
        Keep(layer, moved.sequence, kept, stream);
      }
    };
  }

  const DecodeRun& run_;
  Params params_;
  bool hnd_;
  PrkvOrder order_;
  std::vector<std::unique_ptr<RecallCache>> caches_;
  std::vector<size_t> cache_of_;  // by sparse layer
  AttentionLauncher attention_;
  Buffer<std::byte> staging_, gathered_;
  std::vector<int> rows_;

  // Restructuring: a layer's pages as they were, and each layer's as they become.
  Buffer<Bf16> fetched_;
  std::vector<Buffer<Bf16>> restructured_;
  Buffer<int32_t> page_slots_, first_;
  Buffer<float> scores_;
  Buffer<char> observation_, top_k_;
  std::vector<Buffer<Bf16>> queries_;    // of observation windows
  std::vector<Buffer<int32_t>> tables_;  // rows that recall while others restructure
  bool reordered_ = false;

  // Where binding is.
  int step_ = -1, layer_ = -1;
  std::vector<Moved> moved_;  // sequences that restructure
  std::vector<PageRuns> from_;
  bool whole_ = false;  // prefill: the window's full pages too
};

}  // namespace

const MethodBinder kPrkv{"prkv", MakeBehindDense<PrkvBinder, Params>};

}  // namespace stallcast::kernels
