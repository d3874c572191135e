#include "kernels/executor/methods/recall_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/executor/bind_by_kind.h"
#include "kernels/movement/keep_tokens.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

Bytes BytesOf(int64_t elements) { return elements * static_cast<Bytes>(sizeof(__nv_bfloat16)); }

}  // namespace

Pooling PoolingOf(methods::Pooling pooling) {
  switch (pooling) {
    case methods::Pooling::kSoftmaxMean:
      return Pooling::kSoftmaxMean;
    case methods::Pooling::kSoftmaxMeanUnscaled:
      return Pooling::kSoftmaxMeanUnscaled;
    case methods::Pooling::kMean:
      return Pooling::kRawMean;
    case methods::Pooling::kMax:
      return Pooling::kMax;
    case methods::Pooling::kSoftmaxMax:
      return Pooling::kSoftmaxMax;
  }
  return Pooling::kRawMean;
}

RecallCache::RecallCache(const DecodeRun& run, const RecallShape& shape, const char* method)
    : run_(run), shape_(shape) {
  const methods::PageRegions& regions = shape_.regions;
  if (regions.window_pages < 1) {
    throw UsageError("a window without a page", method, "give a window of one page or more");
  }
  const bool none = shape_.slots < 1 && regions.sink_pages < 1;
  if (none || regions.Selectable(run.Context(-1, 0)) <= shape_.slots) {
    throw UsageError(fmt::format("a context of {} tokens fits the budget, so nothing is recalled",
                                 run.Context(-1, 0)),
                     method, "give a longer context or a smaller budget");
  }
  pages_ = static_cast<int32_t>(run.LongestContext() / regions.page_tokens + 1);
  const int layers = EndLayer() - shape_.first_layer;
  const int64_t page = int64_t{2} * regions.page_tokens * run.kv_heads() * run.head_dim();
  const int32_t most = MostSelectable(run.input.steps - 1);
  const int32_t missed_size = sets() * (2 * shape_.slots + 1);
  for (int i = 0; i < layers; ++i) {
    Layer& layer = layers_.emplace_back();
    layer.data = Buffer<__nv_bfloat16>(int64_t{run.batch()} * SlotsASequence() * page);
    layer.summaries = Buffer<__nv_bfloat16>(int64_t{run.rows()} * pages_ * 2 * run.head_dim());
    layer.ids = Buffer<int32_t>(int64_t{sets()} * shape_.slots);
    layer.slot_unit = Buffer<int32_t>(int64_t{sets()} * shape_.slots);
    layer.missed = Buffer<int32_t>(missed_size);
    layer.scores = Buffer<float>(int64_t{run.rows()} * most);
    layer.score_workspace = Buffer<float>(ScoreWorkspace(run.rows(), run.group(), most));
    if (shape_.sets == 1) layer.pooled = Buffer<float>(int64_t{sets()} * most);
    layer.top_k_workspace =
        Buffer<char>(std::max<int64_t>(1, TopKWorkspace(sets(), most, shape_.slots)));
  }
  host_missed_ = Buffer<int32_t>(int64_t{missed_size} * layers, Memory::kPinned);
  transposed_ = Buffer<__nv_bfloat16>(run.batch() * page);
  pool_ = shape_.pool != nullptr ? shape_.pool : run.pool->Get(PoolBytes(run, regions, layers));

  std::vector<int32_t> ring, row_ring;
  for (int sequence = 0; sequence < run.batch(); ++sequence) {
    for (int64_t i = 0; i < pages_; ++i) ring.push_back(sequence * SlotsASequence() + RingSlot(i));
  }
  for (int row = 0; row < run.rows(); ++row) {
    const auto first = ring.begin() + int64_t{row / run.kv_heads()} * pages_;
    row_ring.insert(row_ring.end(), first, first + pages_);
  }
  ring_slots_ = Uploaded(ring);
  row_ring_slots_ = Uploaded(row_ring);

  const int steps = run.input.steps;
  const auto sequence_of = [&run](int64_t row) { return static_cast<int>(row) / run.kv_heads(); };
  const int64_t selected_end = regions.sink_pages + shape_.slots;
  table_ = StepTable(
      steps, run.rows(), SlotsASequence(), [&](int step, int64_t row, int64_t column) -> int64_t {
        if (column < selected_end) return column;
        const int64_t first = regions.SelectableEnd(run.Context(step, sequence_of(row)));
        return RingSlot(first + column - selected_end);
      });
  tokens_ = StepTable(steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
    const int64_t context = run.Context(step, sequence_of(row));
    return selected_end * regions.page_tokens + context -
           regions.SelectableEnd(context) * regions.page_tokens;
  });
  slot_ = StepTable(steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    const int64_t token = run.Context(step, static_cast<int>(sequence)) - 1;
    return sequence * SlotsASequence() + RingSlot(token / regions.page_tokens);
  });
  place_ = StepTable(steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return (run.Context(step, static_cast<int>(sequence)) - 1) % regions.page_tokens;
  });
  selectable_ = StepTable(steps + 1, run.rows(), 1, [&](int step, int64_t row, int64_t) {
    return regions.Selectable(run.Context(step - 1, sequence_of(row)));
  });
  filled_page_ = StepTable(steps, run.rows(), 1, [&](int step, int64_t row, int64_t) {
    return FilledPage(step, sequence_of(row));
  });
  filled_slot_ = StepTable(steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
    return sequence * SlotsASequence() + RingSlot(FilledPage(step, static_cast<int>(sequence)));
  });
  FillPoolAndSummaries();
}

int32_t RecallCache::SlotsASequence() const {
  return static_cast<int32_t>(shape_.regions.sink_pages + shape_.slots +
                              shape_.regions.window_pages);
}

int32_t RecallCache::RingSlot(int64_t page) const {
  const methods::PageRegions& regions = shape_.regions;
  if (page < regions.sink_pages) return static_cast<int32_t>(page);
  return static_cast<int32_t>(regions.sink_pages + shape_.slots + page % regions.window_pages);
}

int64_t RecallCache::FilledPage(int step, int sequence) const {
  return std::max<int64_t>(0, run_.Context(step - 1, sequence) / shape_.regions.page_tokens - 1);
}

int32_t RecallCache::MostSelectable(int step) const {
  return static_cast<int32_t>(shape_.regions.Selectable(run_.Context(step, run_.batch() - 1)));
}

Bytes RecallCache::PageBytes() const {
  return BytesOf(int64_t{2} * shape_.regions.page_tokens * run_.kv_heads() * run_.head_dim());
}

Bytes RecallCache::PoolBytes(const DecodeRun& run, const methods::PageRegions& regions,
                             int layers) {
  const int64_t pages = run.LongestContext() / regions.page_tokens + 1;
  return BytesOf(int64_t{2} * layers * run.batch() * pages * regions.page_tokens * run.kv_heads() *
                 run.head_dim());
}

PagedKv RecallCache::PagesLike(__nv_bfloat16* data, bool hnd) const {
  const auto page_tokens = static_cast<int32_t>(shape_.regions.page_tokens);
  return hnd ? HndPages(data, page_tokens, run_.kv_heads(), run_.head_dim())
             : NhdPages(data, page_tokens, run_.kv_heads(), run_.head_dim());
}

PagedKv RecallCache::Cache(int layer) const {
  return PagesLike(Of(layer).data.get(), shape_.hnd_cache);
}

CacheBinder::Append RecallCache::AppendAt(int step, int layer) const {
  return {Cache(layer), slot_.At(step), place_.At(step), {}};
}

PageTable RecallCache::Pages(int step) const {
  return {table_.At(step), tokens_.At(step), SlotsASequence(),
          static_cast<int32_t>(SlotsASequence() * shape_.regions.page_tokens), SlotsASequence()};
}

OpWork RecallCache::Score(int step, int layer, const LayerIo& io) const {
  return ScorePages(Of(layer), io.query, MostSelectable(step),
                    run_.stagger > 0 ? selectable_.At(step + 1) : nullptr);
}

OpWork RecallCache::ScorePages(const Layer& of, const __nv_bfloat16* query, int32_t pages,
                               const int32_t* pages_of) const {
  const float scale = IsSoftmax(shape_.pooling) ? run_.trace->softmax_scale() : 1;
  return [this, &of, query, pages, scale, pages_of](cudaStream_t stream) {
    kernels::Score(query, of.summaries.get(), run_.rows(), run_.group(), run_.head_dim(), 2,
                   static_cast<int32_t>(shape_.regions.sink_pages), pages, pages_, shape_.pooling,
                   scale, of.scores.get(), of.score_workspace.get(), stream, pages_of);
    if (shape_.sets == 1) {
      MeanOverRows(of.scores.get(), run_.batch(), run_.kv_heads(), pages, of.pooled.get(), stream);
    }
  };
}

OpWork RecallCache::TopK(int step, int layer) const {
  return [this, &of = Of(layer), pages = MostSelectable(step)](cudaStream_t stream) {
    const float* scores = shape_.sets == 1 ? of.pooled.get() : of.scores.get();
    kernels::TopK(scores, sets(), pages, shape_.ranked, of.ids.get(), of.top_k_workspace.get(),
                  stream);
  };
}

OpWork RecallCache::AssignSlots(int step, int layer, const int32_t* enabled) const {
  return [this, &of = Of(layer), pages = MostSelectable(step), enabled](cudaStream_t stream) {
    // Where all slots are chosen anew, who gives way is no question.
    SlotVictims victims;
    if (shape_.ranked < shape_.slots) {
      victims = {shape_.sets == 1 ? of.pooled.get() : of.scores.get(), pages};
    }
    const Missed missed = Split(of.missed.get());
    kernels::AssignSlots(of.ids.get(), sets(), shape_.ranked, shape_.slots, of.slot_unit.get(),
                         missed.unit, missed.slot, missed.count, enabled, victims, stream);
  };
}

OpWork RecallCache::SummarizeFilled(int step, int layer) const {
  return [this, &of = Of(layer), cache = Cache(layer),
          page = filled_page_.At(step)](cudaStream_t stream) {
    Summarize(shape_.summary, cache, row_ring_slots_.get(), pages_, 0, 1, run_.rows(),
              of.summaries.get(), pages_, stream, page);
  };
}

OpWork RecallCache::TransposeFilled(int step, int layer) const {
  return [this, cache = Cache(layer), slots = filled_slot_.At(step)](cudaStream_t stream) {
    TransposePages(cache, slots, run_.batch(), transposed_.get(), stream);
  };
}

OpWork RecallCache::OffloadFilled(int step, int layer) const {
  struct Move {
    std::byte* to;
    const std::byte* from;
  };
  std::vector<Move> moves;
  for (int sequence = 0; sequence < run_.batch(); ++sequence) {
    const int64_t page = FilledPage(step, sequence);
    const auto* from = Transposes() ? reinterpret_cast<const std::byte*>(transposed_.get()) +
                                          sequence * PageBytes()
                                    : CachePage(layer, sequence, RingSlot(page));
    moves.push_back({PoolPage(layer, sequence, static_cast<int32_t>(page)) -
                         shape_.regions.sink_pages * PageBytes(),
                     from});
  }
  return [this, moves](cudaStream_t stream) {
    for (const Move& move : moves) {
      Check(cudaMemcpyAsync(move.to, move.from, static_cast<size_t>(PageBytes()),
                            cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }
  };
}

RecallCache::Missed RecallCache::Split(int32_t* data) const {
  const int64_t units = int64_t{sets()} * shape_.ranked;
  return {data, data + units, data + 2 * units};
}

RecallCache::Missed RecallCache::OnDevice(int layer) const { return Split(Of(layer).missed.get()); }

RecallCache::Missed RecallCache::OnHost(int layer) const {
  return Split(host_missed_.get() + (layer - shape_.first_layer) * Of(layer).missed.size());
}

OpWork RecallCache::FetchMissed(int layer) const {
  const auto bytes = static_cast<size_t>(sets() * (2 * shape_.ranked + 1)) * sizeof(int32_t);
  return [to = OnHost(layer).unit, from = OnDevice(layer).unit, bytes](cudaStream_t stream) {
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
  };
}

std::byte* RecallCache::PoolPage(int layer, int sequence, int32_t unit) const {
  const int64_t first = (int64_t{layer - shape_.first_layer} * run_.batch() + sequence) * pages_;
  return pool_ + (first + shape_.regions.sink_pages + unit) * PageBytes();
}

std::byte* RecallCache::CachePage(int layer, int sequence, int32_t slot) const {
  return reinterpret_cast<std::byte*>(Of(layer).data.get()) +
         (int64_t{sequence} * SlotsASequence() + slot) * PageBytes();
}

int64_t RecallCache::CountMissed(int layer, std::span<const int> rows) const {
  const Missed missed = OnHost(layer);
  int64_t count = 0;
  for (const int row : rows) count += missed.count[row];
  return count;
}

void RecallCache::Gather(int layer, std::span<const int> rows, void* to, int threads) const {
  const int heads = run_.kv_heads();
  const Bytes row_bytes = BytesOf(run_.head_dim());
  const int64_t page_rows = 2 * shape_.regions.page_tokens;
  // Of a page, a head has one stretch; or its keys' and values' rows, other heads' between them.
  const PlaceShape piece = shape_.hnd_pool ? PlaceShape{.row_bytes = PieceBytes()}
                                           : PlaceShape{row_bytes, page_rows, heads * row_bytes};
  const int64_t rows_a_page = PageBytes() / piece.row_bytes;
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(CountMissed(layer, rows)));
  ForEachMissed(layer, rows, [&](int row, int32_t unit, int32_t /*slot*/) {
    const int64_t page = int64_t{row / heads} * pages_ + shape_.regions.sink_pages + unit;
    places.push_back(page * rows_a_page + row % heads);
  });
  HostGather(Pool(layer), places.data(), std::ssize(places), piece, to, threads);
}

CacheSlots RecallCache::Places() const {
  return {SlotsASequence(), static_cast<int32_t>(shape_.regions.sink_pages), pages_,
          static_cast<int32_t>(shape_.regions.sink_pages)};
}

const __nv_bfloat16* RecallCache::Pool(int layer) const {
  return reinterpret_cast<const __nv_bfloat16*>(pool_ + int64_t{layer - shape_.first_layer} *
                                                            run_.batch() * pages_ * PageBytes());
}

void RecallCache::FillPoolAndSummaries() {
  const auto page_tokens = static_cast<int32_t>(shape_.regions.page_tokens);
  Buffer<__nv_bfloat16> staging(int64_t{pages_} * PageBytes() /
                                static_cast<Bytes>(sizeof(__nv_bfloat16)));
  const PagedKv pages = PagesLike(staging.get(), shape_.hnd_pool);
  std::vector<int32_t> identity;
  for (int row = 0; row < run_.kv_heads(); ++row) {
    for (int32_t page = 0; page < pages_; ++page) identity.push_back(page);
  }
  const Buffer<int32_t> slots = Uploaded(identity);
  for (int layer = shape_.first_layer; layer < EndLayer(); ++layer) {
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const auto full = static_cast<int32_t>(run_.Context(-1, sequence) / page_tokens);
      FillTokens(Source(layer, sequence), 0, int64_t{full} * page_tokens, pages, slots.get(),
                 nullptr);
      Summarize(shape_.summary, pages, slots.get(), pages_, 0, full, run_.kv_heads(),
                Of(layer).summaries.get() +
                    int64_t{sequence} * run_.kv_heads() * pages_ * 2 * run_.head_dim(),
                pages_, nullptr);
      Check(cudaMemcpyAsync(
                PoolPage(layer, sequence, -static_cast<int32_t>(shape_.regions.sink_pages)),
                staging.get(), static_cast<size_t>(full * PageBytes()), cudaMemcpyDeviceToHost,
                nullptr),
            "cudaMemcpyAsync");
    }
  }
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void RecallCache::Reset(std::span<const LayerIo> last) {
  const methods::PageRegions& regions = shape_.regions;
  const int32_t pages = MostSelectable(-1);
  for (int layer = shape_.first_layer; layer < EndLayer(); ++layer) {
    // What the last prompt token selects fills the slots.
    const Layer& of = Of(layer);
    Score(-1, layer, last[static_cast<size_t>(layer)])(nullptr);
    if (shape_.slots > 0) {
      kernels::TopK(shape_.sets == 1 ? of.pooled.get() : of.scores.get(), sets(), pages,
                    shape_.slots, of.slot_unit.get(), of.top_k_workspace.get(), nullptr);
    }
    Check(cudaMemsetAsync(of.missed.get(), 0, static_cast<size_t>(of.missed.bytes()), nullptr),
          "cudaMemsetAsync");
    std::vector<int32_t> units = Downloaded(of.slot_unit.get(), of.slot_unit.size());
    if (shape_.ranked < shape_.slots && run_.log != nullptr) {
      // A sequence that begins later in the trace has what the steps before have left.
      for (int set = shape_.sets; set < sets(); ++set) {
        const auto held = run_.log->Selected(-1, layer, set / shape_.sets, set % shape_.sets);
        for (size_t i = 0; i < held.size() && i < static_cast<size_t>(shape_.slots); ++i) {
          units[static_cast<size_t>(set) * static_cast<size_t>(shape_.slots) + i] =
              static_cast<int32_t>(held[i] - regions.sink_pages);
        }
      }
      Check(cudaMemcpy(of.slot_unit.get(), units.data(), units.size() * sizeof(int32_t),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const SequenceKv source = Source(layer, sequence);
      const int64_t context = run_.Context(-1, sequence);
      const int32_t* ring = ring_slots_.get() + int64_t{sequence} * pages_;
      FillTokens(source, 0, regions.sink_pages * regions.page_tokens, Cache(layer), ring, nullptr);
      const int64_t window = regions.SelectableEnd(context) * regions.page_tokens;
      FillTokens(source, window, context - window, Cache(layer), ring, nullptr);

      std::vector<int32_t> from, to;
      for (int head = 0; head < run_.kv_heads(); ++head) {
        const int set = sequence * shape_.sets + (shape_.sets == 1 ? 0 : head);
        for (int32_t slot = 0; slot < shape_.slots; ++slot) {
          from.push_back(units[static_cast<size_t>(int64_t{set} * shape_.slots + slot)] +
                         static_cast<int32_t>(regions.sink_pages));
          to.push_back(sequence * SlotsASequence() + static_cast<int32_t>(regions.sink_pages) +
                       slot);
        }
      }
      const Buffer<int32_t> device_from = Uploaded(from), device_to = Uploaded(to);
      FillPages(source, device_from.get(), device_to.get(), shape_.slots, Cache(layer), nullptr);
      Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
  }
}

int32_t RecallCache::PromptPages() const {
  return static_cast<int32_t>(run_.input.prompt_tokens / shape_.regions.page_tokens);
}

PromptKv RecallCache::PromptAt(int layer) {
  if (!prompt_) {
    prompt_.emplace(run_, shape_.first_layer, EndLayer(),
                    static_cast<int32_t>(shape_.regions.page_tokens), shape_.hnd_cache);
    std::vector<int32_t> slots;
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      for (int32_t page = 0; page < PromptPages(); ++page) {
        slots.push_back(sequence * prompt_->pages() + page);
      }
    }
    prompt_slots_ = Uploaded(slots);
    if (Transposes()) {
      prompt_transposed_ = Buffer<__nv_bfloat16>(prompt_slots_.size() * PageBytes() /
                                                 static_cast<Bytes>(sizeof(__nv_bfloat16)));
    }
  }
  return prompt_->Prompt(layer);
}

OpWork RecallCache::SummarizePrompt(int layer) {
  return [this, &of = Of(layer), prompt = PromptAt(layer).cache](cudaStream_t stream) {
    Summarize(shape_.summary, prompt, prompt_->table(), prompt_->pages(), 0, PromptPages(),
              run_.rows(), of.summaries.get(), pages_, stream);
  };
}

OpWork RecallCache::TransposePrompt(int layer) {
  return [this, prompt = PromptAt(layer).cache](cudaStream_t stream) {
    TransposePages(prompt, prompt_slots_.get(), static_cast<int32_t>(prompt_slots_.size()),
                   prompt_transposed_.get(), stream);
  };
}

OpWork RecallCache::OffloadPrompt(int layer, int64_t first, int64_t count) {
  const auto* prompt = reinterpret_cast<const std::byte*>(PromptAt(layer).cache.data);
  return [this, layer, first, count, prompt](cudaStream_t stream) {
    for (int64_t i = first; i < first + count; ++i) {
      const auto sequence = static_cast<int>(i / PromptPages());
      const auto page = static_cast<int32_t>(i % PromptPages());
      const std::byte* from =
          Transposes()
              ? reinterpret_cast<const std::byte*>(prompt_transposed_.get()) + i * PageBytes()
              : prompt + (int64_t{sequence} * prompt_->pages() + page) * PageBytes();
      Check(cudaMemcpyAsync(
                PoolPage(layer, sequence, page - static_cast<int32_t>(shape_.regions.sink_pages)),
                from, static_cast<size_t>(PageBytes()), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }
  };
}

OpWork RecallCache::KeepPrompt(int layer) {
  const methods::PageRegions& regions = shape_.regions;
  const int64_t tokens = run_.input.prompt_tokens;
  KeptPages kept;
  kept.units = Of(layer).slot_unit.get();
  kept.sets = shape_.sets;
  kept.sink = static_cast<int32_t>(regions.sink_pages);
  kept.chosen = shape_.slots;
  kept.window = static_cast<int32_t>(regions.window_pages);
  kept.first_window = static_cast<int32_t>(regions.SelectableEnd(tokens));
  kept.pages = static_cast<int32_t>((tokens + regions.page_tokens - 1) / regions.page_tokens);
  return [this, kept, prompt = PromptAt(layer), cache = Cache(layer)](cudaStream_t stream) {
    KeepPages(prompt.cache, prompt.max_pages, kept, cache, run_.batch(), stream);
  };
}

OpWork RecallCache::BindPrefill(const plan::Op& op, const PrefillIo& io) {
  const Layer& of = Of(op.layer);
  const auto pages = static_cast<int32_t>(shape_.regions.Selectable(run_.input.prompt_tokens));
  switch (op.purpose) {
    case plan::Purpose::kPackFilled:
      return TransposePrompt(op.layer);
    case plan::Purpose::kKeepPrompt:
      return KeepPrompt(op.layer);
    default:
      break;
  }
  return BindByKind(
      "prefill", op,
      [&](const plan::Summarize&) {
        offloaded_ = 0;
        return SummarizePrompt(op.layer);
      },
      [&](const plan::Score&) { return ScorePages(of, io.last_query, pages, nullptr); },
      [&](const plan::TopK&) -> OpWork {
        // What the last prompt token selects fills the slots.
        return [this, &of, pages](cudaStream_t stream) {
          kernels::TopK(shape_.sets == 1 ? of.pooled.get() : of.scores.get(), sets(), pages,
                        shape_.slots, of.slot_unit.get(), of.top_k_workspace.get(), stream);
        };
      },
      [&](const plan::Copy& copy) {
        return OffloadPrompt(op.layer, std::exchange(offloaded_, offloaded_ + copy.pieces),
                             copy.pieces);
      });
}

void RecallCache::Clear() {
  for (const Layer& of : layers_) {
    Zero(of.data), Zero(of.summaries), Zero(of.slot_unit), Zero(of.missed);
  }
  const auto layers = static_cast<int64_t>(layers_.size());
  ZeroBytes(pool_, layers * run_.batch() * pages_ * PageBytes());
}

void RecallCache::CheckStep(int step, const std::function<bool(uint8_t)>& before,
                            SelectionCheck& check) const {
  const auto sink = static_cast<int32_t>(shape_.regions.sink_pages);
  for (int layer = shape_.first_layer; layer < EndLayer(); ++layer) {
    const Layer& of = Of(layer);
    std::vector<int32_t> held = Downloaded(of.slot_unit.get(), of.slot_unit.size());
    std::vector<int32_t> lists = Downloaded(of.missed.get(), of.missed.size());
    const Missed missed = Split(lists.data());
    // A different layer in every step: looking at all of them would take long.
    if (layer == step % run_.input.model.layers) CheckKeys(layer, held, check);
    for (int32_t& unit : held) unit += sink;
    for (int i = 0; i < sets() * shape_.ranked; ++i) missed.unit[i] += sink;
    for (int set = 0; set < sets(); ++set) {
      const int sequence = set / shape_.sets, head = set % shape_.sets;
      const methods::AccessCell cell = run_.log->At(step, layer, sequence, head);
      if (before(cell.flags)) {
        check.Compare(
            {held.data() + int64_t{set} * shape_.slots, static_cast<size_t>(shape_.slots)},
            run_.log->Selected(step, layer, sequence, head));
      } else {
        check.Compare(
            {missed.unit + int64_t{set} * shape_.ranked, static_cast<size_t>(missed.count[set])},
            run_.log->RecalledAhead(step, layer, sequence, head));
      }
    }
  }
}

void RecallCache::CheckKeys(int layer, std::span<const int32_t> slot_unit,
                            SelectionCheck& check) const {
  std::vector<__nv_bfloat16> cache(static_cast<size_t>(Of(layer).data.size()));
  Check(cudaMemcpy(cache.data(), Of(layer).data.get(), cache.size() * sizeof(cache[0]),
                   cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  const PagedKv pages = Cache(layer);
  const auto row_bytes = static_cast<size_t>(run_.head_dim()) * sizeof(__nv_bfloat16);
  const int source = run_.source_of[static_cast<size_t>(layer)];
  const auto sink = static_cast<int32_t>(shape_.regions.sink_pages);
  const auto first = [&](int sequence) {
    return reinterpret_cast<__nv_bfloat16*>(PoolPage(layer, sequence, -sink));
  };
  for (int row = 0; row < run_.rows(); ++row) {
    const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
    const int set = shape_.sets == 1 ? sequence : row;
    for (int32_t slot = 0; slot < sink + shape_.slots; ++slot) {
      const int64_t page =
          slot < sink ? slot
                      : slot_unit[static_cast<size_t>(set * shape_.slots + slot - sink)] + sink;
      bool alike = true;
      for (int64_t token = 0; token < shape_.regions.page_tokens && alike; ++token) {
        const __nv_bfloat16* held =
            cache.data() + (int64_t{sequence} * SlotsASequence() + slot) * pages.slot_stride +
            token * pages.token_stride + head * pages.head_stride;
        if (shape_.source) {
          // In an order of its own: at least the pool's.
          const PagedKv pool = PagesLike(first(sequence), shape_.hnd_pool);
          const __nv_bfloat16* key = pool.data + page * pool.slot_stride +
                                     token * pool.token_stride + head * pool.head_stride;
          alike = std::memcmp(held, key, row_bytes) == 0 &&
                  std::memcmp(held + pages.kv_stride, key + pool.kv_stride, row_bytes) == 0;
          continue;
        }
        const int64_t at = page * shape_.regions.page_tokens + token;
        const int traced = head % run_.trace->kv_heads();
        alike = std::memcmp(held, run_.trace->Key(source, traced, at), row_bytes) == 0 &&
                std::memcmp(held + pages.kv_stride, run_.trace->Value(source, traced, at),
                            row_bytes) == 0;
      }
      ++check.verified;
      if (!alike) ++check.missing;
    }
  }
}

}  // namespace stallcast::kernels
