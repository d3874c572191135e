// FreeKV: speculative selection, correction, and recall by each path.
#include <algorithm>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/recall_cache.h"
#include "kernels/movement/batched_copy.h"
#include "models/methods/freekv/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::FreeKvParams;

RecallShape ShapeOf(const DecodeRun& run, const Params& params) {
  return {.regions = params.regions(),
          .slots = static_cast<int32_t>(params.slots()),
          .ranked = static_cast<int32_t>(params.slots()),
          .sets = run.kv_heads(),
          .summary = params.summary == methods::PageSummary::kMinMax ? SummaryKind::kMinMax
                                                                     : SummaryKind::kCuboidMean,
          .pooling = PoolingOf(params.pooling),
          .hnd_pool = params.layout == Params::Layout::kHybrid,
          .first_layer = static_cast<int>(params.dense_layers)};
}

class FreeKvBinder : public CacheBinder {
 public:
  FreeKvBinder(const DecodeRun& run, const Params& params)
      : run_(run), params_(params), cache_(run, ShapeOf(run, params), "freekv"), attention_(run) {
    const int layers = run.input.model.layers;
    similarity_ = Buffer<float>(run.rows());
    flags_ = Buffer<int32_t>(int64_t{layers} * run.rows());
    any_ = Buffer<int32_t>(layers);
    host_any_ = Buffer<int32_t>(layers, Memory::kPinned);
    const int64_t pieces = int64_t{run.rows()} * params.slots();
    const bool whole =
        params.recall == Params::Recall::kBatched || params.recall == Params::Recall::kStaged;
    for (auto& staging : staging_) {
      staging = Buffer<std::byte>((whole ? pieces : params.slots()) * cache_.PieceBytes());
    }
    if (params.recall == Params::Recall::kStaged) {
      gathered_ = Buffer<std::byte>(pieces * cache_.PieceBytes() * layers, Memory::kPinned);
    }
  }

  Append AppendAt(int step, int layer) override { return cache_.AppendAt(step, layer); }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    using plan::Purpose;
    const int step = op.step, layer = op.layer;
    if (step != step_ || layer != layer_) Enter(step, layer);
    switch (op.purpose) {
      case Purpose::kSummarizeFilled:
        return cache_.SummarizeFilled(step, layer);
      case Purpose::kPackFilled:
        return cache_.TransposeFilled(step, layer);
      case Purpose::kOffloadFilled:
        return cache_.OffloadFilled(step, layer);
      case Purpose::kReadFlags:
        return FetchFlags(layer);
      case Purpose::kReadMissed:
        return cache_.FetchMissed(layer);
      case Purpose::kBringRecalled:
        return BringRecalled(layer, std::get<plan::Copy>(op.work).path);
      case Purpose::kPlaceRecalled:
        return Scatter(layer);
      default:
        break;
    }
    return BindByKind(
        "freekv", op,
        [&](const plan::DecodeAttention&) {
          attended_ = true;
          rows_.clear();
          return attention_.Over(cache_.Cache(layer), cache_.Pages(step), io);
        },
        [&](const plan::QuerySimilarity&) { return Similarity(layer, io); },
        [&](const plan::Score&) {
          selected_ = !attended_;
          return cache_.Score(step, layer, io);
        },
        [&](const plan::TopK&) { return cache_.TopK(step, layer); },
        [&](const plan::AssignSlots&) { return cache_.AssignSlots(step, layer); },
        [&](const plan::HostGather&) { return Gather(layer); },
        [&](const plan::ZeroCopyGather& gather) -> OpWork {
          return [this, missed = Listed(layer), pool = cache_.Pool(layer),
                  cache = cache_.Cache(layer), blocks = gather.blocks](cudaStream_t stream) {
            ZeroCopyMissed(pool, missed, cache_.Places(), cache, !cache_.shape().hnd_pool, blocks,
                           stream);
          };
        });
  }

  void Reset(std::span<const LayerIo> last) override { cache_.Reset(last); }

  PromptKv PromptAt(int layer) override { return cache_.PromptAt(layer); }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    return cache_.BindPrefill(op, io);
  }
  void Clear() override { cache_.Clear(); }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    cache_.CheckStep(
        step,
        [this](uint8_t flags) { return !params_.speculation || (flags & traces::kTriggered) != 0; },
        check);
    if (!params_.checks()) return;
    std::vector<int32_t> flags(static_cast<size_t>(flags_.size()));
    Check(cudaMemcpy(flags.data(), flags_.get(), static_cast<size_t>(flags_.bytes()),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    for (int layer = cache_.shape().first_layer; layer < run_.input.model.layers; ++layer) {
      for (int row = 0; row < run_.rows(); ++row) {
        const auto cell = run_.log->At(step, layer, row / run_.kv_heads(), row % run_.kv_heads());
        ++check.decisions;
        check.decided_alike += (flags[static_cast<size_t>(int64_t{layer} * run_.rows() + row)] !=
                                0) == ((cell.flags & traces::kTriggered) != 0);
      }
    }
  }

 private:
  void Enter(int step, int layer) {
    step_ = step, layer_ = layer;
    attended_ = selected_ = false;
    rows_.clear();
  }

  int32_t* Flags(int layer) const { return flags_.get() + int64_t{layer} * run_.rows(); }

  OpWork Similarity(int layer, const LayerIo& io) {
    return [this, io, layer](cudaStream_t stream) {
      QuerySimilarity(io.query, io.previous, run_.rows(), run_.group(), run_.head_dim(),
                      static_cast<float>(params_.tau), similarity_.get(), Flags(layer),
                      any_.get() + layer, stream);
    };
  }

  // Which rows the recall at hand moves: before attention those that correction flagged, after it
  // the others. One selection serves both.
  MissedUnits Listed(int layer) const {
    const RecallCache::Missed on_device = cache_.OnDevice(layer);
    MissedUnits missed{on_device.unit, on_device.slot, on_device.count};
    if (params_.checks() && selected_) {
      missed.flag = Flags(layer);
      missed.flagged = !attended_;
    }
    missed.rows = run_.rows();
    missed.k = cache_.shape().ranked;
    return missed;
  }

  // The log's rows with something to move in this recall, ascending: the plan has a transfer each.
  // A row's flag is the log's, which the device's equals.
  void StartRows() {
    if (!rows_.empty()) return;
    next_row_ = 0;
    for (int row = 0; row < run_.rows(); ++row) {
      const auto cell = run_.log->At(step_, layer_, row / run_.kv_heads(), row % run_.kv_heads());
      if ((attended_ ? cell.recalled_ahead : cell.recalled_now) > 0) rows_.push_back(row);
    }
  }
  bool Whole() const { return params_.recall != Params::Recall::kPerPage; }
  std::vector<int> RowsOfTransfer() {
    StartRows();
    if (Whole()) return rows_;
    return {rows_.at(next_row_++)};
  }

  OpWork FetchFlags(int layer) {
    return [to = host_any_.get() + layer, from = any_.get() + layer](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, sizeof(int32_t), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    };
  }

  OpWork BringRecalled(int layer, plan::CopyPath path) {
    transfer_ = RowsOfTransfer();
    stream_ = params_.recall == Params::Recall::kPerPage && params_.double_buffer
                  ? static_cast<size_t>(transfer_.front() % 2)
                  : 0;
    std::byte* staging = staging_[stream_].get();
    if (path == plan::CopyPath::kBulk) {
      return [this, missing = transfer_, layer, staging](cudaStream_t stream) {
        const int64_t count = cache_.CountMissed(layer, missing);
        if (count == 0) return;
        Check(cudaMemcpyAsync(staging, Gathered(layer),
                              static_cast<size_t>(count * cache_.PieceBytes()),
                              cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
      };
    }
    const bool rows = !cache_.shape().hnd_pool;
    const bool batched = path == plan::CopyPath::kBatched;
    // A batch keeps its memory from run to run, since the host may be what the step waits for. Each
    // op has its own: several workers may recall at once.
    return [this, missing = transfer_, staging, rows, batched, layer,
            batch = BatchedCopy()](cudaStream_t stream) mutable {
      if (batched) {
        batch.Clear();
        ForEachCopy(layer, missing, staging, rows,
                    [&](std::byte* to, const std::byte* from, Bytes size) {
                      batch.Add(to, from, static_cast<size_t>(size));
                    });
        batch.Run(stream);
        return;
      }
      ForEachCopy(layer, missing, staging, rows,
                  [&](std::byte* to, const std::byte* from, Bytes size) {
                    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(size),
                                          cudaMemcpyHostToDevice, stream),
                          "cudaMemcpyAsync");
                  });
    };
  }

  // What those that are `missing` something get: pieces one behind the other to the staging buffer;
  // or, by `rows`, the key and value rows of a head from page to page of the same layout.
  template <class F>
  void ForEachCopy(int layer, std::span<const int> missing, std::byte* staging, bool rows,
                   const F& copy) const {
    int64_t at = 0;
    cache_.ForEachMissed(layer, missing, [&](int row, int32_t unit, int32_t slot) {
      const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
      const std::byte* page = cache_.PoolPage(layer, sequence, unit);
      if (!rows) {
        copy(staging + at++ * cache_.PieceBytes(), page + head * cache_.PieceBytes(),
             cache_.PieceBytes());
        return;
      }
      std::byte* to = cache_.CachePage(
          layer, sequence, static_cast<int32_t>(cache_.shape().regions.sink_pages) + slot);
      const Bytes row_bytes = int64_t{run_.head_dim()} * 2;
      for (int64_t i = 0; i < 2 * params_.page; ++i) {
        const Bytes offset = (i * run_.kv_heads() + head) * row_bytes;
        copy(to + offset, page + offset, row_bytes);
      }
    });
  }

  std::byte* Gathered(int layer) const {
    return gathered_.get() + layer * (int64_t{run_.rows()} * params_.slots()) * cache_.PieceBytes();
  }

  OpWork Gather(int layer) {
    StartRows();
    return [this, rows = rows_, layer](cudaStream_t) {
      cache_.Gather(layer, rows, Gathered(layer), 1);
    };
  }

  // From the staging buffer into the cache.
  OpWork Scatter(int layer) {
    MissedUnits missed = Listed(layer);
    if (!Whole()) {
      const int row = transfer_.front();
      missed.unit += int64_t{row} * missed.k;
      missed.slot += int64_t{row} * missed.k;
      missed.count += row;
      if (missed.flag != nullptr) missed.flag += row;
      missed.first_row = row;
      missed.rows = 1;
    }
    return [this, missed, cache = cache_.Cache(layer),
            staging = staging_[stream_].get()](cudaStream_t stream) {
      ScatterMissed(reinterpret_cast<const __nv_bfloat16*>(staging), missed, cache_.Places(), cache,
                    stream);
    };
  }

  const DecodeRun& run_;
  Params params_;
  RecallCache cache_;
  AttentionLauncher attention_;
  Buffer<float> similarity_;
  Buffer<int32_t> flags_, any_, host_any_;
  std::array<Buffer<std::byte>, 2> staging_;
  Buffer<std::byte> gathered_;

  // Where binding is.
  int step_ = -1, layer_ = -1;
  bool attended_ = false;  // this layer's attention is behind
  bool selected_ = false;  // selection ran before it
  std::vector<int> rows_, transfer_;
  size_t next_row_ = 0, stream_ = 0;
};

}  // namespace

const MethodBinder kFreeKv{"freekv", MakeBehindDense<FreeKvBinder, Params>};

}  // namespace stallcast::kernels
