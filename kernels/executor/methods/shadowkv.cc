// ShadowKV: outliers, what is chosen, and everything since the local chunks on the GPU; values of
// all else in pinned memory, its keys as factors.
#include "kernels/methods/shadowkv.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/selection/selection.h"
#include "models/methods/common/rope.h"
#include "models/methods/shadowkv/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Bf16 = __nv_bfloat16;
using Params = methods::ShadowKvParams;

constexpr int32_t kPage = 32;         // of the attention's table
constexpr int32_t kMoveBlocks = 132;  // of 1,024 threads, one on each of an H200's multiprocessors

size_t BytesOf(int64_t elements) { return static_cast<size_t>(elements) * sizeof(Bf16); }

// A row of a layer has `capacity_` tokens, all keys before all values: its outliers, its slots for
// chosen chunks, then all tokens from the region's end on.
class ShadowKvBinder : public CacheBinder {
 public:
  ShadowKvBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        prompt_(run.input.prompt_tokens),
        chunk_(static_cast<int32_t>(params.chunk)),
        chunks_(static_cast<int32_t>(params.RegionChunks(prompt_))),
        outliers_(static_cast<int32_t>(params.outliers)),
        candidates_(static_cast<int32_t>(params.Candidates(prompt_))),
        chosen_(static_cast<int32_t>(std::min<int64_t>(params.chosen(), candidates_))),
        rank_(static_cast<int32_t>(params.rank)),
        lead_((outliers_ + chosen_) * chunk_),
        attention_(run) {
    CheckRun();
    const int64_t most = lead_ + Tail(run.input.steps - 1, run.batch() - 1);
    capacity_ = static_cast<int32_t>((most + kPage - 1) / kPage * kPage);
    const int64_t rows = run.rows(), d = run.head_dim(), layers = Layers();
    for (int64_t i = 0; i < layers; ++i) {
      Layer& of = layers_.emplace_back();
      of.data = Buffer<Bf16>(2 * rows * capacity_ * d);
      of.landmarks = Buffer<Bf16>(rows * candidates_ * d);
      of.chunk_of = Buffer<int32_t>(rows * candidates_);
      of.slot_unit = Buffer<int32_t>(rows * chosen_);
      of.u = Buffer<Bf16>(run.batch() * prompt_ * rank_);
      of.basis = Buffer<Bf16>(rows * d * rank_);
    }
    all_landmarks_ = Buffer<Bf16>(rows * chunks_ * d);
    cohesion_ = Buffer<float>(rows * chunks_);
    outlier_ = Buffer<int32_t>(std::max<int64_t>(1, rows * outliers_));
    scores_ = Buffer<float>(rows * candidates_);
    score_workspace_ = Buffer<float>(ScoreWorkspace(run.rows(), run.group(), candidates_));
    top_k_workspace_ = Buffer<char>(
        std::max<int64_t>({1, TopKWorkspace(run.rows(), candidates_, chosen_),
                           TopKWorkspace(run.rows(), chunks_, std::max(1, outliers_))}));
    chosen_ids_ = Buffer<int32_t>(rows * chosen_);
    missed_ = Buffer<int32_t>(rows * (2 * int64_t{chosen_} + 1));
    pool_ = reinterpret_cast<Bf16*>(
        run.pool->Get(static_cast<int64_t>(BytesOf(layers * rows * Region() * d))));
    MakeTables();
    ReadKeys();
  }

  Append AppendAt(int step, int layer) override {
    return {Pages(layer), slot_.At(step), place_.At(step), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    const int layer = op.layer;
    if (op.purpose == plan::Purpose::kChooseUnits) {
      return [this](cudaStream_t stream) { Choose(stream); };
    }
    return BindByKind(
        "shadowkv", op,
        [&](const plan::Score&) -> OpWork {
          return [this, io, layer](cudaStream_t stream) { Rank(layer, io.query, stream); };
        },
        [&](const plan::AssignSlots&) -> OpWork {
          return [this, layer](cudaStream_t stream) { Assign(layer, stream); };
        },
        [&](const plan::ZeroCopyGather& gather) -> OpWork {
          return [this, layer, blocks = gather.blocks](cudaStream_t stream) {
            Fetch(layer, blocks, stream);
          };
        },
        [&](const plan::RebuildKeys&) -> OpWork {
          return [this, layer](cudaStream_t stream) { Rebuild(layer, stream); };
        },
        [&](const plan::DecodeAttention&) {
          const int64_t most = lead_ + Tail(op.step, run_.batch() - 1);
          const PageTable pages{table_.get(), tokens_.At(op.step), capacity_ / kPage,
                                static_cast<int32_t>(most)};
          return attention_.Over(Pages(layer), pages, io);
        });
  }

  void Reset(std::span<const LayerIo> last) override {
    if (traced_factors_.empty()) FactorizeTraced();
    Buffer<Bf16> staging(2 * int64_t{run_.rows()} * prompt_ * run_.head_dim());
    const std::vector<int32_t> sequences = Count(run_.batch());
    const Buffer<int32_t> slots = Uploaded(sequences);
    for (int layer = First(); layer < run_.input.model.layers; ++layer) {
      const SequenceKv source = run_.Source(layer);
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        FillTokens(source, 0, prompt_, PromptPages(staging.get()), slots.get() + sequence, nullptr);
      }
      const TokenView prompt = Prompt(staging.get());
      Summarize(prompt, nullptr);
      ChooseOutliers(nullptr);
      KeepLandmarks(layer, nullptr);
      Offload(layer, prompt, nullptr);
      KeepOutliers(layer, prompt, nullptr);
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        FillTokens(Renumbered(source, lead_ - Region(), run_.head_dim()), lead_, Tail(-1, sequence),
                   Pages(layer), near_slots_.get() + int64_t{sequence} * capacity_ / kPage,
                   nullptr);
      }
      CopyFactors(layer);
      StartFrom(layer, last[static_cast<size_t>(layer)].query);
    }
    Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  PromptKv PromptAt(int layer) override {
    prompts_.resize(static_cast<size_t>(run_.input.model.layers));
    Buffer<Bf16>& prompt = prompts_[static_cast<size_t>(layer)];
    if (prompt.size() == 0) {
      prompt = Buffer<Bf16>(2 * prompt_ * run_.rows() * run_.head_dim());
    }
    return {PromptPages(prompt.get()), nullptr, 1};
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    const int layer = op.layer;
    const TokenView prompt = Prompt(PromptAt(layer).cache.data);
    switch (op.purpose) {
      case plan::Purpose::kChooseOutliers:
        return [this](cudaStream_t stream) { ChooseOutliers(stream); };
      case plan::Purpose::kKeepLandmarks:
        return [this, layer](cudaStream_t stream) { KeepLandmarks(layer, stream); };
      case plan::Purpose::kKeepPrompt:
        return [this, layer, prompt](cudaStream_t stream) {
          KeepOutliers(layer, prompt, stream);
          KeepTail(layer, prompt, stream);
        };
      default:
        break;
    }
    return BindByKind(
        "shadowkv", op, [&](const plan::FactorizeKeys&) { return Factorize(layer); },
        [&](const plan::Summarize&) -> OpWork {
          return [this, prompt](cudaStream_t stream) { Summarize(prompt, stream); };
        },
        [&](const plan::Copy&) -> OpWork {
          return [this, layer, prompt](cudaStream_t stream) { Offload(layer, prompt, stream); };
        });
  }

  void Clear() override {
    for (Layer& of : layers_) {
      Zero(of.data), Zero(of.landmarks), Zero(of.u), Zero(of.basis);
      FreeSlots(of, run_.rows());
    }
    ZeroBytes(reinterpret_cast<std::byte*>(pool_),
              static_cast<int64_t>(
                  BytesOf(int64_t{Layers()} * run_.rows() * Region() * run_.head_dim())));
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    for (int layer = First(); layer < run_.input.model.layers; ++layer) {
      std::vector<int32_t> held = Downloaded(Of(layer).slot_unit);
      const std::vector<int32_t> chunk_of = Downloaded(Of(layer).chunk_of);
      for (int32_t i = 0; i < run_.rows() * chosen_; ++i) {
        held[i] = chunk_of[i / chosen_ * candidates_ + held[i]];
      }
      for (int row = 0; row < run_.rows(); ++row) {
        check.Compare(
            {held.data() + int64_t{row} * chosen_, static_cast<size_t>(chosen_)},
            run_.log->Selected(step, layer, row / run_.kv_heads(), row % run_.kv_heads()));
      }
      // A different layer in every step: looking at all of them would take long.
      if (layer == First() + step % Layers()) CheckValues(layer, held, check);
    }
  }

 private:
  struct Layer {
    Buffer<Bf16> data, landmarks, u, basis;
    Buffer<int32_t> chunk_of;   // [row][candidate]
    Buffer<int32_t> slot_unit;  // [row][slot]: the candidate that it holds
  };
  struct Factors {
    Buffer<Bf16> u, basis;  // of one sequence
  };

  OpWork Factorize(int layer) {
    if (!factorizer_) {
      factorizer_ =
          std::make_unique<KeyFactorizer>(prompt_, run_.kv_heads(), run_.head_dim(), rank_);
    }
    return [this, layer](cudaStream_t stream) {
      Layer& of = Of(layer);
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        factorizer_->Run(KeysBeforeRope(SourceOf(layer)), of.u.get() + sequence * prompt_ * rank_,
                         of.basis.get() + sequence * BasisSize(), stream);
      }
    };
  }

  void CheckRun() const {
    if (params_.update > 0 && run_.input.steps > params_.update) {
      throw UsageError("factors made anew while decoding are predicted only", "shadowkv",
                       "give update=0, or no more steps than update");
    }
    if (!params_.Sparse(prompt_)) {
      throw UsageError("a prompt this short is attended whole, so nothing is retrieved", "shadowkv",
                       "give a longer prompt, or a smaller dense_until");
    }
  }

  int First() const { return static_cast<int>(params_.dense_layers); }
  int Layers() const { return run_.input.model.layers - First(); }
  Layer& Of(int layer) { return layers_[static_cast<size_t>(layer - First())]; }
  const Layer& Of(int layer) const { return layers_[static_cast<size_t>(layer - First())]; }
  int SourceOf(int layer) const { return run_.source_of[static_cast<size_t>(layer)]; }
  /// Tokens that may be retrieved, but for the outliers.
  int64_t Region() const { return int64_t{chunks_} * chunk_; }
  /// Tokens of a sequence behind them when a step attends.
  int64_t Tail(int step, int sequence) const { return run_.Context(step, sequence) - Region(); }
  int64_t BasisSize() const { return int64_t{run_.kv_heads()} * run_.head_dim() * rank_; }
  static std::vector<int32_t> Count(int64_t size) {
    std::vector<int32_t> numbers(static_cast<size_t>(size));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  TokenView Tokens(int layer) const {
    const int64_t d = run_.head_dim();
    return {const_cast<Bf16*>(Of(layer).data.get()), capacity_ * d, d,
            int64_t{run_.rows()} * capacity_ * d};
  }
  PagedKv Pages(int layer) const {
    const TokenView tokens = Tokens(layer);
    return {tokens.data,         kPage * tokens.token_stride,
            tokens.value_offset, tokens.token_stride,
            tokens.row_stride,   kPage,
            run_.kv_heads(),     run_.head_dim()};
  }
  // Prompts likewise, a sequence a page.
  TokenView Prompt(Bf16* data) const {
    const int64_t d = run_.head_dim();
    return {data, prompt_ * d, d, run_.rows() * prompt_ * d};
  }
  PagedKv PromptPages(Bf16* data) const {
    const TokenView tokens = Prompt(data);
    return {data,
            run_.kv_heads() * tokens.row_stride,
            tokens.value_offset,
            tokens.token_stride,
            tokens.row_stride,
            static_cast<int32_t>(prompt_),
            run_.kv_heads(),
            run_.head_dim()};
  }
  /// Values of a layer on the host, [row][token of the region][head_dim].
  Bf16* Pool(int layer) const {
    return pool_ + int64_t{layer - First()} * run_.rows() * Region() * run_.head_dim();
  }

  MissedChunks Missed(int layer) const {
    const int64_t units = int64_t{run_.rows()} * chosen_;
    return {missed_.get(),
            missed_.get() + units,
            missed_.get() + 2 * units,
            Of(layer).chunk_of.get(),
            run_.rows(),
            chosen_,
            candidates_,
            chunk_,
            outliers_ * chunk_};
  }

  void Rank(int layer, const Bf16* query, cudaStream_t stream) {
    Score(query, Of(layer).landmarks.get(), run_.rows(), run_.group(), run_.head_dim(), 1, 0,
          candidates_, candidates_, Pooling::kSoftmaxMax, run_.trace->softmax_scale(),
          scores_.get(), score_workspace_.get(), stream);
  }
  void Choose(cudaStream_t stream) {
    TopK(scores_.get(), run_.rows(), candidates_, chosen_, chosen_ids_.get(),
         top_k_workspace_.get(), stream);
  }
  void Assign(int layer, cudaStream_t stream) {
    const int64_t units = int64_t{run_.rows()} * chosen_;
    AssignSlots(chosen_ids_.get(), run_.rows(), chosen_, chosen_, Of(layer).slot_unit.get(),
                missed_.get(), missed_.get() + units, missed_.get() + 2 * units, nullptr, {},
                stream);
  }
  void Fetch(int layer, int32_t blocks, cudaStream_t stream) {
    FetchValues(Pool(layer), Region(), Missed(layer), Tokens(layer), run_.head_dim(), blocks,
                stream);
  }
  void Rebuild(int layer, cudaStream_t stream) {
    const Layer& of = Of(layer);
    RebuildKeys({of.u.get(), of.basis.get(), prompt_, rank_}, Missed(layer), run_.kv_heads(),
                frequencies_.get(), scaling_, Tokens(layer), run_.head_dim(), stream);
  }

  void Summarize(const TokenView& prompt, cudaStream_t stream) {
    SummarizeChunks(prompt, run_.rows(), chunks_, chunk_, run_.head_dim(), all_landmarks_.get(),
                    cohesion_.get(), stream);
  }
  void ChooseOutliers(cudaStream_t stream) {
    if (outliers_ == 0) return;
    LowestK(cohesion_.get(), run_.rows(), chunks_, outliers_, outliers_of_.get(), outlier_.get(),
            top_k_workspace_.get(), stream);
  }
  void KeepLandmarks(int layer, cudaStream_t stream) {
    KeepCandidates(all_landmarks_.get(), chunks_, outlier_.get(), outliers_, run_.rows(),
                   candidates_, run_.head_dim(), Of(layer).chunk_of.get(),
                   Of(layer).landmarks.get(), stream);
  }
  void Offload(int layer, const TokenView& prompt, cudaStream_t stream) {
    Check(cudaMemcpy2DAsync(Pool(layer), BytesOf(Region() * run_.head_dim()),
                            prompt.data + prompt.value_offset, BytesOf(prompt.row_stride),
                            BytesOf(Region() * run_.head_dim()), static_cast<size_t>(run_.rows()),
                            cudaMemcpyDeviceToHost, stream),
          "cudaMemcpy2DAsync");
  }
  // Outlier i of a row goes to its i-th place.
  void KeepOutliers(int layer, const TokenView& prompt, cudaStream_t stream) {
    if (outliers_ == 0) return;
    const MissedChunks outliers{outlier_places_.get(),
                                outlier_places_.get(),
                                outliers_of_.get(),
                                outlier_.get(),
                                run_.rows(),
                                outliers_,
                                outliers_,
                                chunk_,
                                0};
    TokenView values = Tokens(layer), keys = values;
    keys.value_offset = 0;
    FetchValues(prompt.data, prompt_, outliers, keys, run_.head_dim(), kMoveBlocks, stream);
    FetchValues(prompt.data + prompt.value_offset, prompt_, outliers, values, run_.head_dim(),
                kMoveBlocks, stream);
  }
  void KeepTail(int layer, const TokenView& prompt, cudaStream_t stream) {
    const TokenView to = Tokens(layer);
    for (const int part : {0, 1}) {
      Check(cudaMemcpy2DAsync(
                to.data + part * to.value_offset + lead_ * to.token_stride, BytesOf(to.row_stride),
                prompt.data + part * prompt.value_offset + Region() * prompt.token_stride,
                BytesOf(prompt.row_stride), BytesOf((prompt_ - Region()) * prompt.token_stride),
                static_cast<size_t>(run_.rows()), cudaMemcpyDeviceToDevice, stream),
            "cudaMemcpy2DAsync");
    }
  }

  // Nothing is chosen before a trace's first step; a sequence that begins later holds what the step
  // before has chosen.
  void StartFrom(int layer, const Bf16* query) {
    FreeSlots(Of(layer), run_.rows());
    if (run_.stagger == 0) return;
    Rank(layer, query, nullptr);
    Choose(nullptr);
    Assign(layer, nullptr);
    Fetch(layer, kMoveBlocks, nullptr);
    Rebuild(layer, nullptr);
    FreeSlots(Of(layer), run_.kv_heads());
  }
  // Of the first `rows`: none holds a candidate.
  void FreeSlots(Layer& of, int64_t rows) const {
    Check(cudaMemsetAsync(of.slot_unit.get(), 0xff,
                          static_cast<size_t>(rows * chosen_) * sizeof(int32_t), nullptr),
          "cudaMemsetAsync");
  }

  // Keys of every layer of the trace before RoPE, [KV head of the model][token of the prompt].
  void ReadKeys() {
    const int64_t d = run_.head_dim();
    std::vector<float> frequencies(static_cast<size_t>(d / 2));
    std::vector<float> keys(static_cast<size_t>(prompt_ * d));
    for (size_t source = 0; source < run_.recorded_layers.size(); ++source) {
      const methods::LayerTensors tensors = run_.Recorded(static_cast<int>(source));
      const methods::Rope rope(tensors);
      std::copy(rope.frequencies.begin(), rope.frequencies.end(), frequencies.begin());
      scaling_ = static_cast<float>(rope.scaling);
      std::vector<Bf16> all;
      for (int head = 0; head < run_.kv_heads(); ++head) {
        methods::ReadKeysBeforeRope(tensors, head % tensors.kv_heads(), 0, prompt_, keys.data());
        for (const float x : keys) all.push_back(__float2bfloat16(x));
      }
      keys_before_rope_.push_back(Uploaded(all));
    }
    frequencies_ = Uploaded(frequencies);
  }
  TokenView KeysBeforeRope(int source) const {
    const int64_t d = run_.head_dim();
    return {const_cast<Bf16*>(keys_before_rope_[static_cast<size_t>(source)].get()), prompt_ * d, d,
            0};
  }
  void FactorizeTraced() {
    KeyFactorizer factorizer(prompt_, run_.kv_heads(), run_.head_dim(), rank_);
    for (size_t source = 0; source < keys_before_rope_.size(); ++source) {
      Factors& factors = traced_factors_.emplace_back();
      factors.u = Buffer<Bf16>(prompt_ * rank_);
      factors.basis = Buffer<Bf16>(BasisSize());
      factorizer.Run(KeysBeforeRope(static_cast<int>(source)), factors.u.get(), factors.basis.get(),
                     nullptr);
    }
  }
  void CopyFactors(int layer) {
    const Factors& from = traced_factors_[static_cast<size_t>(SourceOf(layer))];
    Layer& of = Of(layer);
    for (int64_t sequence = 0; sequence < run_.batch(); ++sequence) {
      Check(cudaMemcpyAsync(of.u.get() + sequence * prompt_ * rank_, from.u.get(),
                            static_cast<size_t>(from.u.bytes()), cudaMemcpyDeviceToDevice, nullptr),
            "cudaMemcpyAsync");
      Check(cudaMemcpyAsync(of.basis.get() + sequence * BasisSize(), from.basis.get(),
                            static_cast<size_t>(from.basis.bytes()), cudaMemcpyDeviceToDevice,
                            nullptr),
            "cudaMemcpyAsync");
    }
  }

  void MakeTables() {
    const int64_t pages = capacity_ / kPage;
    std::vector<int32_t> table, places;
    // The kernel adds the head's own stride.
    for (int64_t row = 0; row < run_.rows(); ++row) {
      const int64_t first = row / run_.kv_heads() * run_.kv_heads() * pages;
      for (int64_t page = 0; page < pages; ++page) {
        table.push_back(static_cast<int32_t>(first + page));
      }
      for (int32_t i = 0; i < outliers_; ++i) places.push_back(i);
    }
    table_ = Uploaded(table);
    outlier_places_ = Uploaded(places.empty() ? std::vector<int32_t>(1) : places);
    outliers_of_ = Uploaded(std::vector<int32_t>(static_cast<size_t>(run_.rows()), outliers_));
    std::vector<int32_t> slots;
    for (int64_t sequence = 0; sequence < run_.batch(); ++sequence) {
      for (int64_t page = 0; page < pages; ++page) {
        slots.push_back(static_cast<int32_t>(sequence * run_.kv_heads() * pages + page));
      }
    }
    near_slots_ = Uploaded(slots);
    const int steps = run_.input.steps;
    const auto newest = [this](int step, int64_t sequence) {
      return lead_ + Tail(step, static_cast<int>(sequence)) - 1;
    };
    tokens_ = StepTable(steps, run_.rows(), 1, [&](int step, int64_t row, int64_t) {
      return newest(step, row / run_.kv_heads()) + 1;
    });
    slot_ = StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return sequence * run_.kv_heads() * pages + newest(step, sequence) / kPage;
    });
    place_ = StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return newest(step, sequence) % kPage;
    });
  }

  // `chunks`: [row][slot], as held. Keys are made of factors, and not the trace's.
  void CheckValues(int layer, std::span<const int32_t> chunks, SelectionCheck& check) const {
    const std::vector<Bf16> data = Downloaded(Of(layer).data);
    const TokenView tokens = Tokens(layer);
    const size_t bytes = BytesOf(run_.head_dim());
    for (int32_t i = 0; i < run_.rows() * chosen_; ++i) {
      const int row = i / chosen_;
      const int traced = row % run_.kv_heads() % run_.trace->kv_heads();
      bool alike = true;
      for (int32_t t = 0; t < chunk_ && alike; ++t) {
        const int64_t place = int64_t{outliers_ + i % chosen_} * chunk_ + t;
        const Bf16* value = data.data() + tokens.value_offset + row * tokens.row_stride +
                            place * tokens.token_stride;
        alike = std::memcmp(value,
                            run_.trace->Value(SourceOf(layer), traced,
                                              int64_t{chunks[static_cast<size_t>(i)]} * chunk_ + t),
                            bytes) == 0;
      }
      ++check.verified;
      if (!alike) ++check.missing;
    }
  }

  const DecodeRun& run_;
  Params params_;
  int64_t prompt_;
  int32_t chunk_, chunks_, outliers_, candidates_, chosen_, rank_;
  int32_t lead_;  // place of the first token behind the region
  int32_t capacity_ = 0;
  AttentionLauncher attention_;
  std::vector<Layer> layers_;
  Buffer<Bf16> all_landmarks_;
  Buffer<float> cohesion_, scores_, score_workspace_, frequencies_;
  Buffer<char> top_k_workspace_;
  Buffer<int32_t> outlier_, outliers_of_, outlier_places_;  // [row][outlier], [row], 0, 1, ...
  Buffer<int32_t> chosen_ids_, missed_;                     // missed: units, slots, counts
  Buffer<int32_t> table_, near_slots_;
  StepTable tokens_, slot_, place_;
  Bf16* pool_ = nullptr;
  float scaling_ = 1;
  std::vector<Buffer<Bf16>> keys_before_rope_;  // by layer of the trace
  std::vector<Factors> traced_factors_;         // likewise
  std::unique_ptr<KeyFactorizer> factorizer_;
  std::vector<Buffer<Bf16>> prompts_;  // by layer, in prefill
};

}  // namespace

const MethodBinder kShadowKv{"shadowkv", MakeBehindDense<ShadowKvBinder, Params>};

}  // namespace stallcast::kernels
