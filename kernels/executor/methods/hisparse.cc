// HiSparse: a buffer of pages for each KV head on the GPU, above a pool in pinned memory. Kernels
// alone decide what is fetched.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/page_bounds.h"
#include "kernels/movement/movement.h"
#include "kernels/selection/hot_buffer.h"
#include "kernels/selection/selection.h"
#include "models/methods/common/unit_buffer.h"
#include "models/methods/hisparse/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::HiSparseParams;

// A sequence has the buffer's slots in each layer, and two pages behind them where new tokens go in
// turn: the one that is full moves from there to the buffer and to the host.
class HiSparseBinder : public CacheBinder {
 public:
  HiSparseBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        first_(static_cast<int>(params.dense_layers)),
        chosen_(static_cast<int32_t>(params.chosen())),
        slots_(static_cast<int32_t>(params.slots())),
        pages_(static_cast<int32_t>(run.LongestContext() / params.page + 1)),
        attention_(run) {
    CheckParams();
    page_bytes_ = params.page * run.input.model.KvBytesPerTokenLayer();
    const int64_t layers = run.input.model.layers - first_;
    const int64_t pages_a_layer = int64_t{run.batch()} * SlotsASequence();
    data_ = Buffer<__nv_bfloat16>(layers * pages_a_layer * page_bytes_ / kElement);
    packed_ = Buffer<__nv_bfloat16>(layers * run.batch() * page_bytes_ / kElement);
    pool_ = run.pool->Get(layers * run.batch() * pages_ * page_bytes_);
    for (int64_t i = 0; i < layers; ++i) {
      Layer& layer = layers_.emplace_back();
      layer.summaries = Buffer<__nv_bfloat16>(int64_t{run.rows()} * pages_ * 2 * run.head_dim());
      layer.ids = Buffer<int32_t>(int64_t{run.rows()} * chosen_);
      layer.table = Buffer<int32_t>(int64_t{run.rows()} * (chosen_ + 1));
      layer.unit = Buffer<int32_t>(int64_t{run.rows()} * slots_);
      layer.time = Buffer<int32_t>(int64_t{run.rows()} * slots_);
      layer.missed_unit = Buffer<int32_t>(int64_t{run.rows()} * chosen_);
      layer.missed_slot = Buffer<int32_t>(int64_t{run.rows()} * chosen_);
      layer.missed = Buffer<int32_t>(run.rows());
    }
    written_slot_ = Buffer<int32_t>(run.rows());
    const int32_t most = Units(run.input.steps - 1, run.batch() - 1);
    scores_ = Buffer<float>(int64_t{run.rows()} * most);
    score_workspace_ = Buffer<float>(ScoreWorkspace(run.rows(), run.group(), most));
    workspace_ = Buffer<char>(std::max<int64_t>(1, TopKWorkspace(run.rows(), most, chosen_)));
    MakeTables();
    FillPool();
  }

  Append AppendAt(int step, int layer) override {
    return {Cache(layer),
            append_slot_.At(step),
            place_.At(step),
            {Of(layer).summaries.get(), newest_page_.At(step), pages_}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    const int step = op.step, layer = op.layer;
    return BindByKind(
        "hisparse", op,
        [&](const plan::DecodeAttention&) {
          const PageTable chosen{Of(layer).table.get(), tokens_.At(step), chosen_ + 1,
                                 static_cast<int32_t>(params_.budget), SlotsASequence()};
          return attention_.Over(Cache(layer), chosen, io);
        },
        [&](const plan::Score&) { return Score(step, layer, io); },
        [&](const plan::TopK&) -> OpWork {
          return [this, &of = Of(layer), units = Units(step, run_.batch() - 1)](cudaStream_t s) {
            kernels::TopK(scores_.get(), run_.rows(), units, chosen_, of.ids.get(),
                          workspace_.get(), s);
          };
        },
        [&](const plan::AssignSlots&) { return Assign(step, layer); },
        [&](const plan::ZeroCopyGather& gather) { return Fetch(layer, gather.blocks); },
        [&](const plan::Layout&) { return PackFilled(step); },
        [&](const plan::Copy&) { return OffloadFilled(step); });
  }

  void Reset(std::span<const LayerIo> /*last*/) override {
    for (int layer = first_; layer < run_.input.model.layers; ++layer) {
      FillBuffer(layer);
      ResetPartialBounds(run_, layer, params_.page, pages_, Of(layer).summaries.get());
      Zero(Of(layer).missed);
    }
  }

  void Clear() override {
    Zero(data_);
    ZeroBytes(pool_,
              int64_t{run_.input.model.layers - first_} * run_.batch() * pages_ * page_bytes_);
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    for (int layer = first_; layer < run_.input.model.layers; ++layer) {
      const Layer& of = Of(layer);
      const std::vector<int32_t> ids = Downloaded(of.ids);
      for (int row = 0; row < run_.rows(); ++row) {
        check.Compare(
            {ids.data() + int64_t{row} * chosen_, static_cast<size_t>(chosen_)},
            run_.log->Selected(step, layer, row / run_.kv_heads(), row % run_.kv_heads()));
      }
      // A different layer in every step: looking at all of them would take long.
      if (layer - first_ == step % std::ssize(layers_)) CheckKeys(layer, ids, check);
    }
  }

 private:
  static constexpr Bytes kElement = 2;

  struct Layer {
    Buffer<__nv_bfloat16> summaries;  // [row][page][2][head_dim]
    Buffer<int32_t> ids, table;       // [row][chosen], [row][chosen + 1]
    Buffer<int32_t> unit, time;       // [row][slot]
    Buffer<int32_t> missed_unit, missed_slot, missed;
  };
  Layer& Of(int layer) { return layers_[static_cast<size_t>(layer - first_)]; }

  void CheckParams() const {
    using methods::Replacement;
    if (params_.eviction != Replacement::kLru && params_.eviction != Replacement::kFifo) {
      throw UsageError("this rule of replacement is predicted only", "eviction",
                       "run it with -p eviction=lru or fifo");
    }
    if (params_.page == 1) {
      throw UsageError("tokens chosen by their own keys are predicted only", "page",
                       "run it with -p page=16");
    }
    if (slots_ > kMostHotSlots || slots_ <= chosen_) {
      throw UsageError(fmt::format("a buffer of {} pages is predicted only", slots_), "buffer",
                       fmt::format("run it with {} to {}", chosen_ + 1, kMostHotSlots));
    }
    if (Units(0, 0) <= chosen_) {
      throw UsageError("the context fits the budget, so nothing is selected", "hisparse",
                       "give a longer context or a smaller budget");
    }
  }

  /// Pages that a sequence has complete when a step attends.
  int32_t Units(int step, int sequence) const {
    return static_cast<int32_t>((run_.Context(step, sequence) - 1) / params_.page);
  }
  /// The page that it has completed last before the step.
  int32_t Filled(int step, int sequence) const { return Units(step, sequence) - 1; }
  /// Whether the step's token begins a page, behind one that was decoded.
  bool Completes(int step, int sequence) const {
    return run_.TraceStep(step, sequence) > 0 &&
           (run_.Context(step, sequence) - 1) % params_.page == 0;
  }
  int32_t SlotsASequence() const { return slots_ + 2; }
  int32_t RingSlot(int64_t page) const { return slots_ + static_cast<int32_t>(page % 2); }
  int64_t PagesALayer() const { return int64_t{run_.batch()} * SlotsASequence(); }
  PagedKv AllLayers() const {
    return NhdPages(data_.get(), static_cast<int32_t>(params_.page), run_.kv_heads(),
                    run_.head_dim());
  }
  PagedKv Cache(int layer) const {
    PagedKv cache = AllLayers();
    cache.data += (layer - first_) * PagesALayer() * cache.slot_stride;
    return cache;
  }
  /// A layer's pages in the pool, [sequence][page], each [kv_head][2][token][head_dim].
  std::byte* Pool(int layer, int sequence, int64_t page) const {
    return pool_ +
           ((int64_t{layer - first_} * run_.batch() + sequence) * pages_ + page) * page_bytes_;
  }

  void MakeTables() {
    const int steps = run_.input.steps;
    const auto of_row = [&](const auto& value) {
      return StepTable(steps, run_.rows(), 1, [&](int step, int64_t row, int64_t) -> int64_t {
        return value(step, static_cast<int>(row) / run_.kv_heads());
      });
    };
    units_ = of_row([&](int step, int sequence) { return Units(step, sequence); });
    newest_slot_ = of_row([&](int step, int s) { return RingSlot(Units(step, s)); });
    filled_slot_ = of_row([&](int step, int s) { return RingSlot(Filled(step, s)); });
    written_ = of_row([&](int step, int s) { return Completes(step, s) ? Filled(step, s) : -1; });
    tokens_ = of_row([&](int step, int sequence) {
      return chosen_ * params_.page + (run_.Context(step, sequence) - 1) % params_.page + 1;
    });
    const auto of_sequence = [&](const auto& value) {
      return StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) -> int64_t {
        return value(step, static_cast<int>(sequence));
      });
    };
    newest_page_ = of_sequence([&](int step, int sequence) { return Units(step, sequence); });
    append_slot_ = of_sequence([&](int step, int sequence) {
      return sequence * SlotsASequence() + RingSlot(Units(step, sequence));
    });
    place_ = of_sequence(
        [&](int step, int sequence) { return (run_.Context(step, sequence) - 1) % params_.page; });
    packed_slot_ =
        StepTable(steps, std::ssize(layers_) * run_.batch(), 1, [&](int step, int64_t at, int64_t) {
          const auto sequence = static_cast<int>(at % run_.batch());
          return at * SlotsASequence() + RingSlot(Filled(step, sequence));
        });
  }

  OpWork Score(int step, int layer, const LayerIo& io) {
    const Pooling pooling =
        params_.group == Params::Group::kMax ? Pooling::kMax : Pooling::kRawMean;
    return [this, io, pooling, &of = Of(layer), units = Units(step, run_.batch() - 1),
            units_of = run_.batch() > 1 ? units_.At(step) : nullptr](cudaStream_t stream) {
      kernels::Score(io.query, of.summaries.get(), run_.rows(), run_.group(), run_.head_dim(), 2, 0,
                     units, pages_, pooling, 1, scores_.get(), score_workspace_.get(), stream,
                     units_of);
    };
  }

  OpWork Assign(int step, int layer) {
    Layer& of = Of(layer);
    const HotBuffer buffer{slots_, of.unit.get(), of.time.get(),
                           params_.eviction == methods::Replacement::kLru};
    const HotBufferUse use{.ids = of.ids.get(),
                           .written = written_.At(step),
                           .newest = newest_slot_.At(step),
                           .k = chosen_,
                           .time = step,
                           .missed_unit = of.missed_unit.get(),
                           .missed_slot = of.missed_slot.get(),
                           .missed = of.missed.get(),
                           .written_slot = written_slot_.get(),
                           .table = of.table.get()};
    bool writes = false;
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      writes |= Completes(step, sequence);
    }
    return [this, buffer, use, writes, cache = Cache(layer),
            filled = filled_slot_.At(step)](cudaStream_t stream) {
      UseHotBuffer(buffer, use, run_.rows(), stream);
      if (writes) {
        MovePages(cache, filled, written_slot_.get(), SlotsASequence(), run_.rows(), stream);
      }
    };
  }

  OpWork Fetch(int layer, int32_t blocks) {
    const Layer& of = Of(layer);
    MissedUnits missed{of.missed_unit.get(), of.missed_slot.get(), of.missed.get()};
    missed.rows = run_.rows();
    missed.k = chosen_;
    const CacheSlots places{SlotsASequence(), 0, pages_, 0};
    return [missed, places, blocks, cache = Cache(layer),
            pool = reinterpret_cast<const __nv_bfloat16*>(Pool(layer, 0, 0))](cudaStream_t stream) {
      ZeroCopyMissed(pool, missed, places, cache, /*rows=*/false, blocks, stream);
    };
  }

  OpWork PackFilled(int step) {
    return [this, slots = packed_slot_.At(step)](cudaStream_t stream) {
      TransposePages(AllLayers(), slots, static_cast<int32_t>(std::ssize(layers_)) * run_.batch(),
                     packed_.get(), stream);
    };
  }

  // Of a sequence all layers at once, each to its own place of the pool.
  OpWork OffloadFilled(int step) {
    return [this, step](cudaStream_t stream) {
      const auto width = static_cast<size_t>(page_bytes_);
      const auto batch = static_cast<size_t>(run_.batch());
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        Check(cudaMemcpy2DAsync(
                  Pool(first_, sequence, Filled(step, sequence)),
                  width * batch * static_cast<size_t>(pages_),
                  reinterpret_cast<const std::byte*>(packed_.get()) + sequence * page_bytes_,
                  width * batch, width, layers_.size(), cudaMemcpyDeviceToHost, stream),
              "cudaMemcpy2DAsync");
      }
    };
  }

  // The prompt's full pages, and their bounds.
  void FillPool() {
    const auto page = static_cast<int32_t>(params_.page);
    Buffer<__nv_bfloat16> staging(int64_t{pages_} * page_bytes_ / kElement);
    const PagedKv pages = HndPages(staging.get(), page, run_.kv_heads(), run_.head_dim());
    std::vector<int32_t> in_order;
    for (int head = 0; head < run_.kv_heads(); ++head) {
      for (int32_t i = 0; i < pages_; ++i) in_order.push_back(i);
    }
    const Buffer<int32_t> slots = Uploaded(in_order);
    for (int layer = first_; layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const auto full = static_cast<int32_t>(run_.Context(-1, sequence) / page);
        FillTokens(run_.Source(layer), 0, int64_t{full} * page, pages, slots.get(), nullptr);
        Summarize(SummaryKind::kMinMax, pages, slots.get(), pages_, 0, full, run_.kv_heads(),
                  Of(layer).summaries.get() +
                      int64_t{sequence} * run_.kv_heads() * pages_ * 2 * run_.head_dim(),
                  pages_, nullptr);
        Check(cudaMemcpyAsync(Pool(layer, sequence, 0), staging.get(),
                              static_cast<size_t>(full * page_bytes_), cudaMemcpyDeviceToHost,
                              nullptr),
              "cudaMemcpyAsync");
      }
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  struct Held {
    int32_t time, unit;
  };
  // What a row's buffer holds before the first step: the prompt's pages have come one after the
  // other, and a sequence that begins later in the trace has made the steps before.
  std::vector<Held> HeldBefore(int layer, int sequence, int head) const {
    const auto before = static_cast<int32_t>(run_.TraceStep(0, sequence));
    methods::UnitBuffer buffer(slots_, params_.eviction, /*seed=*/0);
    buffer.Fill(static_cast<uint32_t>((run_.Context(0, sequence) - 1 - before) / params_.page));
    for (int step = -before; step < 0; ++step) {
      std::vector<uint32_t> written;
      if (Completes(step, sequence)) {
        written.push_back(static_cast<uint32_t>(Filled(step, sequence)));
      }
      buffer.Use(step + before, run_.log->Selected(step, layer, sequence, head), written);
    }
    std::vector<Held> held;
    for (const methods::UnitBuffer::Entry& entry : buffer.entries()) {
      const bool by_use = params_.eviction == methods::Replacement::kLru;
      held.push_back(
          {(by_use ? entry.used : entry.came) - before, static_cast<int32_t>(entry.unit)});
    }
    return held;
  }

  void FillBuffer(int layer) {
    Layer& of = Of(layer);
    std::vector<int32_t> units, times;
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      std::vector<int32_t> from, to;
      for (int head = 0; head < run_.kv_heads(); ++head) {
        std::vector<Held> held = HeldBefore(layer, sequence, head);
        held.resize(static_cast<size_t>(slots_), {0, -1});
        for (int32_t slot = 0; slot < slots_; ++slot) {
          const Held& in_slot = held[static_cast<size_t>(slot)];
          units.push_back(in_slot.unit);
          times.push_back(in_slot.time);
          from.push_back(in_slot.unit);
          to.push_back(sequence * SlotsASequence() + slot);
        }
      }
      const Buffer<int32_t> pages = Uploaded(from), slots = Uploaded(to);
      FillPages(run_.Source(layer), pages.get(), slots.get(), slots_, Cache(layer), nullptr);
      // The page that is not full, and the one before it.
      const int64_t context = run_.Context(-1, sequence);
      const int64_t first = std::max<int64_t>(0, context / params_.page - 1) * params_.page;
      std::vector<int32_t> slot_of(static_cast<size_t>(pages_));
      for (int32_t i = 0; i < pages_; ++i) {
        slot_of[static_cast<size_t>(i)] = sequence * SlotsASequence() + RingSlot(i);
      }
      const Buffer<int32_t> ring = Uploaded(slot_of);
      FillTokens(run_.Source(layer), first, context - first, Cache(layer), ring.get(), nullptr);
      Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    const auto upload = [](Buffer<int32_t>& device, const std::vector<int32_t>& values) {
      Check(cudaMemcpy(device.get(), values.data(), values.size() * sizeof(int32_t),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    };
    upload(of.unit, units);
    upload(of.time, times);
  }

  // Whether the slots that a layer's rows attend hold the pages that they chose.
  void CheckKeys(int layer, const std::vector<int32_t>& ids, SelectionCheck& check) {
    const std::vector<int32_t> table = Downloaded(Of(layer).table);
    const PagedKv cache = Cache(layer);
    const std::vector<__nv_bfloat16> data = Downloaded(
        static_cast<const __nv_bfloat16*>(cache.data), PagesALayer() * cache.slot_stride);
    const int source = run_.source_of[static_cast<size_t>(layer)];
    for (int row = 0; row < run_.rows(); ++row) {
      const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
      const int traced = head % run_.trace->kv_heads();
      for (int32_t i = 0; i < chosen_; ++i) {
        const int64_t slot =
            sequence * SlotsASequence() + table[static_cast<size_t>(row * (chosen_ + 1) + i)];
        const int64_t page = ids[static_cast<size_t>(row * chosen_ + i)];
        bool alike = true;
        for (int64_t token = 0; token < params_.page && alike; ++token) {
          const __nv_bfloat16* held = data.data() + slot * cache.slot_stride +
                                      token * cache.token_stride + head * cache.head_stride;
          const auto bytes = static_cast<size_t>(run_.head_dim() * kElement);
          const int64_t at = page * params_.page + token;
          alike = std::memcmp(held, run_.trace->Key(source, traced, at), bytes) == 0 &&
                  std::memcmp(held + cache.kv_stride, run_.trace->Value(source, traced, at),
                              bytes) == 0;
        }
        ++check.verified;
        if (!alike) ++check.missing;
      }
    }
  }

  const DecodeRun& run_;
  Params params_;
  int first_;  // layer: those below are dense
  int32_t chosen_, slots_, pages_;
  Bytes page_bytes_ = 0;  // of all heads
  AttentionLauncher attention_;
  Buffer<__nv_bfloat16> data_, packed_;  // [layer][sequence][slot]; [layer][sequence]
  std::byte* pool_ = nullptr;            // [layer][sequence][page]
  std::vector<Layer> layers_;
  Buffer<int32_t> written_slot_;
  Buffer<float> scores_, score_workspace_;
  Buffer<char> workspace_;
  StepTable units_, newest_slot_, filled_slot_, written_, tokens_;  // of a row
  StepTable newest_page_, append_slot_, place_;                     // of a sequence
  StepTable packed_slot_;                                           // [layer][sequence]
};

}  // namespace

const MethodBinder kHiSparse{"hisparse", MakeBehindDense<HiSparseBinder, Params>};

}  // namespace stallcast::kernels
