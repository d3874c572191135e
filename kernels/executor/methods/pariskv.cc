// ParisKV: sink, window and update buffer on the GPU above a pool in pinned memory; single tokens
// chosen by their codes and read from it.
#include "kernels/methods/pariskv.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/selection/selection.h"
#include "models/methods/pariskv/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::ParisKvParams;

constexpr int32_t kMoveBlocks = 1056;  // eight on each of an H200's multiprocessors

int64_t Rounded(int64_t tokens, int64_t page) { return (tokens + page - 1) / page * page; }

// A layer has `capacity_` tokens a row in one buffer: what is retrieved, then sink, window and
// update buffer. What query heads retrieve apart stands in rows of their own behind all others.
// Keys and values lie as in the pool, apart or side by side.
class ParisKvBinder : public CacheBinder {
 public:
  ParisKvBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        alone_(params.query == Params::Query::kQueryHead),
        joined_(params.pool == Params::Pool::kJoined),
        book_(run.head_dim(), static_cast<int>(params.subspaces), params.rotation,
              static_cast<uint64_t>(params.seed)),
        tables_(book_),
        first_(static_cast<int32_t>(params.sink)),
        chosen_(static_cast<int32_t>(params.topk)),
        lead_(alone_ ? 0 : chosen_),
        attention_(run, alone_ ? run.group() : 1) {
    CheckRun();
    // What precedes other pages fills whole ones.
    while (alone_ && chosen_ % page_ != 0) page_ /= 2;
    capacity_ =
        static_cast<int32_t>(Rounded(lead_ + params.sink + params.local + params.update, page_));
    near_tokens_ = int64_t{run.rows()} * capacity_;
    const int64_t tokens = near_tokens_ + (alone_ ? int64_t{choosers()} * chosen_ : 0);
    token_stride_ = int64_t{joined_ ? 2 : 1} * run.head_dim();
    kv_stride_ = joined_ ? run.head_dim() : tokens * run.head_dim();
    pool_tokens_ = Region(run.input.steps - 1);
    const int64_t indexed = int64_t{run.rows()} * pool_tokens_;
    const int32_t candidates = Candidates(run.input.steps - 1);
    for (int layer = 0; layer < run.input.model.layers; ++layer) {
      Layer& of = layers_.emplace_back();
      of.data = Buffer<__nv_bfloat16>(2 * tokens * run.head_dim());
      of.ids = Buffer<uint8_t>(indexed * book_.subspaces);
      of.codes = Buffer<uint8_t>(indexed * run.head_dim() / 2);
      of.weights = Buffer<__nv_bfloat16>(indexed * book_.subspaces);
      of.counts = Buffer<int32_t>(int64_t{run.rows()} * book_.subspaces * book_.clusters);
      of.candidates = Buffer<int32_t>(int64_t{choosers()} * candidates);
      of.places = Buffer<int32_t>(int64_t{choosers()} * chosen_);
    }
    rotated_ = Buffer<float>(int64_t{choosers()} * run.head_dim());
    bonuses_ = Buffer<uint8_t>(int64_t{choosers()} * book_.subspaces * book_.clusters);
    scores_ = Buffer<uint8_t>(int64_t{choosers()} * ScoreStride(pool_tokens_));
    histograms_ = Buffer<int32_t>(HistogramSize(choosers(), pool_tokens_));
    estimates_ = Buffer<float>(int64_t{choosers()} * candidates);
    top_k_workspace_ =
        Buffer<char>(std::max<int64_t>(1, TopKWorkspace(choosers(), candidates, chosen_)));
    MakeTables();
    FillPool();
  }

  Append AppendAt(int step, int layer) override {
    return {Pages(layer), slot_.At(step), place_.At(step), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    const int32_t tokens = Region(op.step), before = Region(op.step - 1);
    const int32_t candidates = Candidates(op.step);
    const int32_t rows = choosers(), share = alone_ ? run_.group() : 1;
    Layer& of = layers_[static_cast<size_t>(op.layer)];
    return BindByKind(
        "pariskv", op, [&](const plan::DecodeAttention&) { return Attention(op, io); },
        [&](const plan::CollisionTable&) -> OpWork {
          const auto limits =
              methods::TierLimits(methods::SharesOf(params_, tokens).rho, int64_t{tokens});
          return [this, io, rows, share, index = Index(op.layer), limits](cudaStream_t stream) {
            CollisionTable(tables_, io.query, rows, run_.group() / share, share, index, limits,
                           rotated_.get(), bonuses_.get(), stream);
          };
        },
        [&](const plan::CollisionScore&) -> OpWork {
          return [this, rows, share, tokens, index = Index(op.layer)](cudaStream_t stream) {
            CollisionScores(tables_, bonuses_.get(), index, rows, share, tokens, scores_.get(),
                            histograms_.get(), stream);
          };
        },
        [&](const plan::BucketTopK&) -> OpWork {
          return [this, rows, tokens, candidates, to = of.candidates.get()](cudaStream_t stream) {
            BucketTopK(scores_.get(), histograms_.get(), rows, tokens, candidates, to, stream);
          };
        },
        [&](const plan::Rerank&) -> OpWork {
          return [this, rows, share, candidates, index = Index(op.layer),
                  from = of.candidates.get()](cudaStream_t stream) {
            Rerank(tables_, rotated_.get(), index, from, rows, share, candidates, estimates_.get(),
                   stream);
          };
        },
        [&](const plan::TopK&) -> OpWork {
          return [this, rows, candidates, to = of.places.get()](cudaStream_t stream) {
            TopK(estimates_.get(), rows, candidates, chosen_, to, top_k_workspace_.get(), stream);
          };
        },
        [&](const plan::ZeroCopyGather&) { return Fetch(op); },
        [&](const plan::Copy&) {
          return Offload(op.layer, Oldest(op.layer), before, tokens - before);
        },
        [&](const plan::KeyEncode&) {
          moved_ = 0;
          return Encode(op.layer, Oldest(op.layer), before, tokens - before);
        },
        [&](const plan::Layout& layout) { return Slide(op, layout); });
  }

  void Reset(std::span<const LayerIo> /*last*/) override {
    const auto end = static_cast<int64_t>(first_) + Region(0);
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const SequenceKv source = run_.Source(layer);
      Layer& of = layers_[static_cast<size_t>(layer)];
      Check(cudaMemsetAsync(of.counts.get(), 0, static_cast<size_t>(of.counts.bytes()), nullptr),
            "cudaMemsetAsync");
      for (int row = 0; row < run_.rows(); ++row) {
        EncodeKeys(tables_, HeadOf(source, row % run_.kv_heads(), first_), 1, Region(0), 0,
                   IndexOfRow(layer, row), nullptr);
      }
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int32_t* slots = near_slots_.get() + int64_t{sequence} * capacity_ / page_;
        const int32_t sink_end = lead_ + first_;
        FillTokens(Renumbered(source, lead_, run_.head_dim()), lead_, first_, Pages(layer), slots,
                   nullptr);
        FillTokens(Renumbered(source, sink_end - end, run_.head_dim()), sink_end,
                   run_.Context(-1, sequence) - end, Pages(layer), slots, nullptr);
      }
    }
    Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  PromptKv PromptAt(int layer) override {
    const int64_t tokens = run_.input.prompt_tokens, d = run_.head_dim();
    prompts_.resize(layers_.size());
    Buffer<__nv_bfloat16>& prompt = prompts_[static_cast<size_t>(layer)];
    if (prompt.size() == 0) prompt = Buffer<__nv_bfloat16>(2 * tokens * run_.rows() * d);
    return {
        {prompt.get(), 2 * tokens * d * run_.kv_heads(), joined_ ? d : tokens * d, token_stride_,
         2 * tokens * d, static_cast<int32_t>(tokens), run_.kv_heads(), run_.head_dim()},
        nullptr,
        1};
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    const PagedKv pages = PromptAt(op.layer).cache;
    const TokenView prompt{pages.data, pages.head_stride, pages.token_stride, pages.kv_stride};
    TokenView region = prompt;
    region.data += first_ * prompt.token_stride;
    return BindByKind(
        "pariskv", op, [&](const plan::Copy&) { return Offload(op.layer, region, 0, Region(0)); },
        [&](const plan::KeyEncode&) {
          moved_ = 0;
          return Encode(op.layer, region, 0, Region(0));
        },
        [&](const plan::Layout& layout) {
          const auto some = static_cast<int32_t>(layout.pieces / 2 / run_.rows());
          const int32_t from = moved_ == 0 && first_ > 0 ? 0 : first_ + Region(0);
          return Move(op.layer, prompt, from, lead_ + std::exchange(moved_, moved_ + some), some);
        });
  }

  void Clear() override {
    for (const Layer& of : layers_) Zero(of.data), Zero(of.counts);
    ZeroBytes(pool_, 2 * PoolElements() * static_cast<Bytes>(sizeof(__nv_bfloat16)) *
                         run_.input.model.layers);
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    const int32_t candidates = Candidates(step), heads = choosers() / run_.batch();
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const Layer& of = layers_[static_cast<size_t>(layer)];
      const std::vector<int32_t> all =
          Downloaded(of.candidates.get(), int64_t{choosers()} * candidates);
      std::vector<int32_t> tokens = Downloaded(of.places.get(), of.places.size());
      for (int32_t i = 0; i < choosers() * chosen_; ++i) {
        tokens[i] = all[i / chosen_ * candidates + tokens[i]] + first_;
      }
      for (int row = 0; row < choosers(); ++row) {
        check.Compare({tokens.data() + int64_t{row} * chosen_, static_cast<size_t>(chosen_)},
                      run_.log->Selected(step, layer, row / heads, row % heads));
      }
      // A different layer in every step: looking at all of them would take long.
      if (layer == step % run_.input.model.layers) CheckKeys(layer, tokens, check);
    }
  }

 private:
  struct Layer {
    Buffer<__nv_bfloat16> data, weights;
    Buffer<uint8_t> ids, codes;
    Buffer<int32_t> counts, candidates, places;
  };

  void CheckRun() const {
    const int last = run_.batch() - 1;
    if (run_.Context(0, 0) < params_.first_sparse() || Region(0) < chosen_) {
      throw UsageError("a context this short is attended whole, so nothing is retrieved", "pariskv",
                       "give a longer context, or a smaller dense_until, local or topk");
    }
    for (int step = 0; step < run_.input.steps; ++step) {
      if (params_.RetrievalEnd(run_.input.prompt_tokens, run_.TraceStep(step, last)) ==
          params_.RetrievalEnd(run_.input.prompt_tokens, step)) {
        continue;
      }
      throw UsageError("the windows of the batch's sequences slide in different steps", "pariskv",
                       "give batch=1 or an update that no sequence reaches");
    }
  }

  // Selection heads of all sequences.
  int32_t choosers() const { return run_.rows() * (alone_ ? run_.group() : 1); }
  /// Tokens between sink and window.
  int32_t Region(int step) const {
    return static_cast<int32_t>(params_.RetrievalEnd(run_.input.prompt_tokens, step) -
                                params_.sink);
  }
  int32_t Candidates(int step) const {
    return static_cast<int32_t>(methods::Candidates(params_, Region(step)));
  }
  /// Tokens of a sequence in sink, window and update buffer when a step attends.
  int64_t Near(int step, int sequence) const { return run_.Context(step, sequence) - Region(step); }

  PagedKv Pages(int layer) const {
    return {layers_[static_cast<size_t>(layer)].data.get(),
            page_ * token_stride_,
            kv_stride_,
            token_stride_,
            capacity_ * token_stride_,
            page_,
            run_.kv_heads(),
            run_.head_dim()};
  }
  TokenView Tokens(int layer) const {
    return {layers_[static_cast<size_t>(layer)].data.get(), capacity_ * token_stride_,
            token_stride_, kv_stride_};
  }
  TokenView Pool(int layer) const {
    const int64_t keys = PoolElements();
    return {pool_ + int64_t{2} * layer * keys, pool_tokens_ * token_stride_, token_stride_,
            joined_ ? run_.head_dim() : keys};
  }
  /// Keys of a layer in the pool, or values.
  int64_t PoolElements() const { return int64_t{run_.rows()} * pool_tokens_ * run_.head_dim(); }
  TokenView HeadOf(const SequenceKv& source, int head, int64_t first) const {
    const int64_t at = (head % source.heads * source.tokens + first) * run_.head_dim();
    return {const_cast<__nv_bfloat16*>(source.keys) + at, 0, run_.head_dim(), 0};
  }
  KeyIndex Index(int layer) { return IndexOfRow(layer, 0); }
  KeyIndex IndexOfRow(int layer, int64_t row) {
    Layer& of = layers_[static_cast<size_t>(layer)];
    const int64_t token = row * pool_tokens_;
    return {of.ids.get() + token * book_.subspaces, of.codes.get() + token * run_.head_dim() / 2,
            of.weights.get() + token * book_.subspaces,
            of.counts.get() + row * book_.subspaces * book_.clusters, pool_tokens_};
  }

  void MakeTables() {
    const int32_t own = alone_ ? chosen_ / page_ : 0;  // pages of what a query head retrieves
    pages_ = capacity_ / page_ + own;
    const int32_t share = alone_ ? run_.group() : 1;
    std::vector<int32_t> table, slots;
    for (int64_t row = 0; row < choosers(); ++row) {
      const int64_t kv_row = row / share, head = kv_row % run_.kv_heads();
      const int64_t sequence_at = kv_row / run_.kv_heads() * run_.kv_heads() * capacity_;
      for (int64_t page = 0; page < pages_; ++page) {
        // The kernel adds the head's own stride.
        const int64_t at = page < own
                               ? near_tokens_ + row * chosen_ + page * page_ - head * capacity_
                               : sequence_at + (page - own) * page_;
        table.push_back(static_cast<int32_t>(at / page_));
      }
    }
    for (int64_t sequence = 0; sequence < run_.batch(); ++sequence) {
      for (int64_t page = 0; page < capacity_ / page_; ++page) {
        slots.push_back(
            static_cast<int32_t>(sequence * run_.kv_heads() * capacity_ / page_ + page));
      }
    }
    table_ = Uploaded(table);
    near_slots_ = Uploaded(slots);
    const int steps = run_.input.steps;
    const int64_t heads = choosers() / run_.batch();
    tokens_ = StepTable(steps, choosers(), 1, [&](int step, int64_t row, int64_t) {
      return Near(step, static_cast<int>(row / heads)) + chosen_;
    });
    slot_ = StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return sequence * run_.kv_heads() * capacity_ / page_ +
             (lead_ + Near(step, static_cast<int>(sequence)) - 1) / page_;
    });
    place_ = StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return (lead_ + Near(step, static_cast<int>(sequence)) - 1) % page_;
    });
  }

  void FillPool() {
    const int64_t d = run_.head_dim();
    const Bytes token_bytes = d * static_cast<Bytes>(sizeof(__nv_bfloat16));
    pool_ = reinterpret_cast<__nv_bfloat16*>(run_.pool->Get(
        2 * PoolElements() * static_cast<Bytes>(sizeof(__nv_bfloat16)) * run_.input.model.layers));
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const SequenceKv source = run_.Source(layer);
      const TokenView to = Pool(layer);
      for (int row = 0; row < run_.rows(); ++row) {
        const int64_t from = (row % run_.kv_heads() % source.heads * source.tokens + first_) * d;
        __nv_bfloat16* row_at = to.data + row * to.row_stride;
        CopyRows(row_at, source.keys + from, token_bytes);
        CopyRows(row_at + to.value_offset, source.values + from, token_bytes);
      }
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  void CopyRows(__nv_bfloat16* to, const __nv_bfloat16* from, Bytes token_bytes) const {
    const auto bytes = static_cast<size_t>(token_bytes);
    Check(cudaMemcpy2DAsync(to, bytes * (joined_ ? 2 : 1), from, bytes, bytes,
                            static_cast<size_t>(Region(0)), cudaMemcpyDeviceToHost, nullptr),
          "cudaMemcpy2DAsync");
  }

  OpWork Attention(const plan::Op& op, const LayerIo& io) const {
    const int64_t most = Near(op.step, run_.batch() - 1) + chosen_;
    const PageTable pages{table_.get(), tokens_.At(op.step), pages_, static_cast<int32_t>(most)};
    return attention_.Over(Pages(op.layer), pages, io, alone_ ? run_.group() : 1);
  }

  // Where a layer's retrieved tokens go: row by row.
  TokenView Retrieved(int layer) const {
    TokenView to = Tokens(layer);
    if (alone_) {
      to.data += near_tokens_ * token_stride_;
      to.row_stride = chosen_ * token_stride_;
    }
    return to;
  }

  OpWork Fetch(const plan::Op& op) {
    const Layer& of = layers_[static_cast<size_t>(op.layer)];
    return [this, candidates = Candidates(op.step), share = alone_ ? run_.group() : 1,
            to = Retrieved(op.layer), pool = Pool(op.layer), places = of.places.get(),
            from = of.candidates.get()](cudaStream_t stream) {
      FetchTokens(pool, places, from, choosers(), share, chosen_, candidates, 0, to, 0,
                  run_.head_dim(), static_cast<int32_t>(params_.fetch_blocks), stream);
    };
  }

  /// When the window slides: its oldest tokens become the youngest of the pool and of the index.
  TokenView Oldest(int layer) const {
    TokenView tokens = Tokens(layer);
    tokens.data += (lead_ + first_) * token_stride_;
    return tokens;
  }

  OpWork Encode(int layer, const TokenView& from, int32_t before, int32_t tokens) {
    return [this, from, before, tokens, index = Index(layer)](cudaStream_t stream) {
      EncodeKeys(tables_, from, run_.rows(), tokens, before, index, stream);
    };
  }

  OpWork Offload(int layer, const TokenView& from, int32_t before, int32_t tokens) const {
    const auto bytes = [](int64_t elements) {
      return static_cast<size_t>(elements) * sizeof(__nv_bfloat16);
    };
    return [=, this, to = Pool(layer)](cudaStream_t stream) {
      // Of each row a run of tokens; of keys and values apart two.
      for (int part = 0; part < (joined_ ? 1 : 2); ++part) {
        Check(cudaMemcpy2DAsync(to.data + part * to.value_offset + before * to.token_stride,
                                bytes(to.row_stride), from.data + part * from.value_offset,
                                bytes(from.row_stride), bytes(tokens * from.token_stride),
                                static_cast<size_t>(run_.rows()), cudaMemcpyDeviceToHost, stream),
              "cudaMemcpy2DAsync");
      }
    };
  }

  OpWork Slide(const plan::Op& op, const plan::Layout& layout) {
    const auto some = static_cast<int32_t>(layout.pieces / 2 / run_.rows());
    const int32_t to = lead_ + first_ + std::exchange(moved_, moved_ + some);
    return Move(op.layer, Tokens(op.layer), to + Region(op.step) - Region(op.step - 1), to, some);
  }

  // `some` tokens of each row to their places in the layer.
  OpWork Move(int layer, const TokenView& source, int32_t from, int32_t to, int32_t some) {
    Buffer<int32_t>& numbers = numbers_[some];
    if (numbers.size() == 0) {
      std::vector<int32_t> all;
      for (int32_t i = 0; i < run_.rows() * some; ++i) all.push_back(i % some);
      numbers = Uploaded(all);
    }
    return [this, source, some, from, to, places = numbers.get(),
            tokens = Tokens(layer)](cudaStream_t stream) {
      FetchTokens(source, places, nullptr, run_.rows(), 1, some, 0, from, tokens, to,
                  run_.head_dim(), kMoveBlocks, stream);
    };
  }

  // `tokens`: [chooser][chosen_], as fetched.
  void CheckKeys(int layer, std::span<const int32_t> tokens, SelectionCheck& check) const {
    const Buffer<__nv_bfloat16>& data = layers_[static_cast<size_t>(layer)].data;
    const std::vector<__nv_bfloat16> cache = Downloaded(data.get(), data.size());
    const TokenView held = Retrieved(layer);
    const auto bytes = static_cast<size_t>(run_.head_dim()) * sizeof(__nv_bfloat16);
    const int source = run_.source_of[static_cast<size_t>(layer)];
    for (int32_t i = 0; i < choosers() * chosen_; ++i) {
      const int row = i / chosen_;
      const int head = row / (alone_ ? run_.group() : 1) % run_.kv_heads();
      const int traced = head % run_.trace->kv_heads();
      const __nv_bfloat16* at = cache.data() + (held.data - data.get()) + row * held.row_stride +
                                i % chosen_ * held.token_stride;
      const bool alike = std::memcmp(at, run_.trace->Key(source, traced, tokens[i]), bytes) == 0 &&
                         std::memcmp(at + held.value_offset,
                                     run_.trace->Value(source, traced, tokens[i]), bytes) == 0;
      ++check.verified;
      if (!alike) ++check.missing;
    }
  }

  const DecodeRun& run_;
  Params params_;
  bool alone_, joined_;
  methods::CodeBook book_;
  CodeTables tables_;
  int32_t first_, chosen_;
  int32_t lead_;  // place of the sink's first token in a row
  int32_t page_ = 32, capacity_ = 0, pages_ = 0, pool_tokens_ = 0;
  int64_t near_tokens_ = 0, token_stride_ = 0, kv_stride_ = 0;
  AttentionLauncher attention_;
  std::vector<Layer> layers_;
  Buffer<float> rotated_, estimates_;
  Buffer<uint8_t> bonuses_, scores_;
  Buffer<int32_t> histograms_, table_, near_slots_;
  Buffer<char> top_k_workspace_;
  StepTable tokens_, slot_, place_;
  __nv_bfloat16* pool_ = nullptr;
  std::map<int32_t, Buffer<int32_t>> numbers_;  // 0, 1, ... for each row, by count
  int32_t moved_ = 0;  // tokens of the layer's window that have got their places, where binding is
  std::vector<Buffer<__nv_bfloat16>> prompts_;  // by layer, in prefill
};

}  // namespace

const MethodBinder kParisKv{"pariskv", Make<ParisKvBinder, Params>};

}  // namespace stallcast::kernels
