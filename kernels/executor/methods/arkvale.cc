// ArkVale, as published and as FreeKV ran it: selection and recall before every attention.
#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/recall_cache.h"
#include "models/methods/arkvale/params.h"

namespace stallcast::kernels {
namespace {

using Params = methods::ArkValeParams;

class ArkValeBinder : public CacheBinder {
 public:
  ArkValeBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        published_(params.variant == Params::Variant::kPublished),
        cache_(run,
               {.regions = params.regions(),
                .slots = static_cast<int32_t>(params.slots()),
                .ranked = static_cast<int32_t>(params.ranked()),
                .sets = published_ ? 1 : run.kv_heads(),
                .summary = SummaryKind::kCuboidMean,
                .pooling = Pooling::kRawMean,
                .hnd_pool = !published_,
                .first_layer = static_cast<int>(params.dense_layers)},
               "arkvale"),
        attention_(run) {
    if (!published_) {
      staging_ = Buffer<std::byte>(int64_t{run.rows()} * params.slots() * cache_.PieceBytes());
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
      case Purpose::kReadCount:
        return ReadScalar();
      case Purpose::kReadMissed:
        return cache_.FetchMissed(layer);
      case Purpose::kBringRecalled:
        return published_ ? RecallPage(layer) : RecallPieces(layer);
      case Purpose::kPlaceRecalled:
        return Scatter(layer);
      default:
        break;
    }
    return BindByKind(
        "arkvale", op,
        [&](const plan::DecodeAttention&) {
          return attention_.Over(cache_.Cache(layer), cache_.Pages(step), io);
        },
        [&](const plan::Score&) { return cache_.Score(step, layer, io); },
        [&](const plan::TopK&) { return cache_.TopK(step, layer); },
        [&](const plan::AssignSlots&) { return cache_.AssignSlots(step, layer); });
  }

  void Reset(std::span<const LayerIo> last) override { cache_.Reset(last); }

  PromptKv PromptAt(int layer) override { return cache_.PromptAt(layer); }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    return cache_.BindPrefill(op, io);
  }
  void Clear() override { cache_.Clear(); }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log != nullptr)
      cache_.CheckStep(
          step, [](uint8_t) { return true; }, check);
  }

 private:
  // The host reads, a sequence after the other, how many pages are missed (and where their list
  // begins and ends), then of each page its unit and its slot.
  void Enter(int step, int layer) {
    step_ = step, layer_ = layer;
    reads_.clear(), pages_.clear();
    next_read_ = next_page_ = 0;
    if (!published_) return;
    const RecallCache::Missed device = cache_.OnDevice(layer), host = cache_.OnHost(layer);
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const int32_t pages = run_.log->At(step, layer, sequence, 0).recalled_now;
      for (int i = 0; i < (pages > 0 ? 3 : 1); ++i) {
        reads_.push_back({host.count + sequence, device.count + sequence});
      }
      for (int32_t page = 0; page < pages; ++page) {
        const int32_t entry = sequence * cache_.shape().ranked + page;
        reads_.push_back({host.unit + entry, device.unit + entry});
        reads_.push_back({host.slot + entry, device.slot + entry});
        pages_.push_back({sequence, page});
      }
    }
  }

  OpWork ReadScalar() {
    return [read = reads_.at(next_read_++)](cudaStream_t stream) {
      Check(cudaMemcpyAsync(read.to, read.from, sizeof(int32_t), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    };
  }

  OpWork RecallPage(int layer) {
    return [this, layer, page = pages_.at(next_page_++)](cudaStream_t stream) {
      const RecallCache::Missed missed = cache_.OnHost(layer);
      // The device may miss a page less than the log where scores are equal.
      if (page.index >= missed.count[page.sequence]) return;
      const int32_t entry = page.sequence * cache_.shape().ranked + page.index;
      const auto slot = static_cast<int32_t>(params_.sink_pages()) + missed.slot[entry];
      Check(
          cudaMemcpyAsync(cache_.CachePage(layer, page.sequence, slot),
                          cache_.PoolPage(layer, page.sequence, missed.unit[entry]),
                          static_cast<size_t>(cache_.PageBytes()), cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync");
    };
  }

  OpWork RecallPieces(int layer) {
    return [this, layer](cudaStream_t stream) {
      const RecallCache::Missed missed = cache_.OnHost(layer);
      std::byte* to = staging_.get();
      for (int row = 0; row < run_.rows(); ++row) {
        const int head = row % run_.kv_heads();
        for (int32_t i = 0; i < missed.count[row]; ++i, to += cache_.PieceBytes()) {
          const int32_t unit = missed.unit[row * cache_.shape().ranked + i];
          Check(
              cudaMemcpyAsync(
                  to,
                  cache_.PoolPage(layer, row / run_.kv_heads(), unit) + head * cache_.PieceBytes(),
                  static_cast<size_t>(cache_.PieceBytes()), cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
        }
      }
    };
  }

  OpWork Scatter(int layer) {
    const RecallCache::Missed on_device = cache_.OnDevice(layer);
    MissedUnits missed{on_device.unit, on_device.slot, on_device.count};
    missed.rows = run_.rows();
    missed.k = cache_.shape().ranked;
    return [this, missed, cache = cache_.Cache(layer)](cudaStream_t stream) {
      ScatterMissed(reinterpret_cast<const __nv_bfloat16*>(staging_.get()), missed, cache_.Places(),
                    cache, stream);
    };
  }

  struct Read {
    int32_t* to;
    const int32_t* from;
  };
  struct Page {
    int sequence, index;
  };

  const DecodeRun& run_;
  Params params_;
  bool published_;
  RecallCache cache_;
  AttentionLauncher attention_;
  Buffer<std::byte> staging_;

  // Where binding is.
  int step_ = -1, layer_ = -1;
  std::vector<Read> reads_;
  std::vector<Page> pages_;
  size_t next_read_ = 0, next_page_ = 0;
};

}  // namespace

const MethodBinder kArkVale{"arkvale", MakeBehindDense<ArkValeBinder, Params>};

}  // namespace stallcast::kernels
