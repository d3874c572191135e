// WG-KV: a ring for the local window and pages of a head's own for what its gate admitted, all on
// the GPU; with Quest's selection of those pages, and eviction from them.
#include "kernels/methods/wgkv.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/wgkv_eviction.h"
#include "kernels/executor/methods/wgkv_gate.h"
#include "kernels/movement/keep_tokens.h"
#include "kernels/selection/selection.h"
#include "models/methods/wgkv/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using Params = methods::WgKvParams;

// Below and above what any query makes of a whole page: one that is still filling is attended.
constexpr float kUnbounded = 1e30F;

int64_t Elements(const PagedKv& pages, int64_t count) { return count * pages.slot_stride; }

// All layers lie in one buffer, so that one kernel promotes for all of them. A row is a (layer,
// sequence, KV head). Of a row's pages the first `lead_` are the ring of its window, the others
// follow one another; so its n-th token from the window's length on is the n-th that it admitted.
class WgKvBinder : public CacheBinder {
 public:
  WgKvBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        page_(static_cast<int32_t>(std::gcd(params.window, params.page))),
        window_(static_cast<int32_t>(params.window)),
        lead_(window_ / page_),
        rows_(run.rows()),
        all_(rows_ * run.input.model.layers),
        gate_(run, params),
        attention_(run) {
    CheckRun();
    if (params.evict == Params::Evict::kSnapKv) eviction_.emplace(run, params, gate_.slack());
    MakePages();
    const int steps = run.input.steps;
    lengths_ = Buffer<int32_t>(all_);
    admit_workspace_ =
        Buffer<int32_t>(AdmitWorkspace(rows_, static_cast<int32_t>(run.LongestContext())) + all_);
    slot_ = StepTable(steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return sequence * run.kv_heads() * lead_ + RingPlace(step) / page_;
    });
    place_ = StepTable(steps, run.batch(), 1,
                       [&](int step, int64_t, int64_t) { return RingPlace(step) % page_; });
    std::vector<int32_t> ring;
    for (int32_t i = 0; i < run.batch() * run.kv_heads() * lead_; ++i) ring.push_back(i);
    ring_slots_ = Uploaded(ring);
    read_ = Buffer<int32_t>(1, Memory::kPinned);
    if (Selects()) MakeSelection();
  }

  Append AppendAt(int step, int layer) override {
    return {Rings(layer), slot_.At(step), place_.At(step), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    using plan::Purpose;
    const int step = op.step, layer = op.layer;
    switch (op.purpose) {
      case Purpose::kSummarizeFilled:
        return [this](cudaStream_t stream) {
          kernels::Summarize(SummaryKind::kMinMax, Pages(), table_.get() + lead_, max_pages_, 0, 1,
                             all_, summaries_.get(), max_pages_ - lead_, stream, last_whole_.get(),
                             last_whole_.get());
        };
      case Purpose::kChooseUnits:
        return [this, pages = MostBegun(step, layer), k = Chosen(step, layer),
                ids = Ids(layer)](cudaStream_t stream) {
          TopK(scores_.get(), rows_, pages, k, ids, top_k_workspace_.get(), stream);
        };
      case Purpose::kListAttended:
        return [this, first = int64_t{layer} * rows_, k = Chosen(step, layer),
                ids = Ids(layer)](cudaStream_t stream) {
          AttendSelected(ids, rows_, k, table_.get() + first * max_pages_, max_pages_, lead_, page_,
                         lengths_.get() + first, begun_.get() + first, attended_.get(),
                         tokens_.get(), stream);
        };
      case Purpose::kChooseEvicted:
        return eviction_->Choose(step, layer, evicts_);
      case Purpose::kDropEvicted:
        return eviction_->Drop(step, layer, evicts_, RowsOf(layer, evicts_),
                               Marks(Row(layer, evicts_, 0)));
      case Purpose::kSummarizeKept:
        return [this, layer, sequence = evicts_](cudaStream_t stream) {
          SummarizeAnew(layer, sequence, stream);
        };
      default:
        break;
    }
    return BindByKind(
        "wgkv", op, [&](const plan::Admit&) { return Promote(step); },
        [&](const plan::WindowScore&) { return ScoreForEviction(op); },
        [&](const plan::Copy&) { return ReadSize(); },
        [&](const plan::GateMlp&) { return gate_.Decode(op, NewTokens(op)); },
        [&](const plan::Score&) { return Score(op, io); },
        [&](const plan::DecodeAttention&) { return Attention(op, io); });
  }

  void Reset(std::span<const LayerIo> /*last*/) override {
    Clear();
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const SequenceKv source = run_.Source(layer);
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t end = run_.Context(-1, sequence), first = end - window_;
        // Two stretches of the ring.
        const int32_t* slots = ring_slots_.get() + int64_t{sequence} * run_.kv_heads() * lead_;
        const int64_t at = (run_.input.prompt_tokens - window_) % window_;
        FillTokens(Renumbered(source, at - first, run_.head_dim()), at, window_ - at, Rings(layer),
                   slots, nullptr);
        FillTokens(Renumbered(source, at - first - window_, run_.head_dim()), 0, at, Rings(layer),
                   slots, nullptr);
        for (int head = 0; head < run_.kv_heads(); ++head) {
          const int64_t row = Row(layer, sequence, head);
          const int64_t from = int64_t{head % source.heads} * source.tokens * run_.head_dim();
          const TokenView tokens{const_cast<__nv_bfloat16*>(source.keys) + from, 0, run_.head_dim(),
                                 source.values - source.keys};
          // What a sequence that starts later in the trace has evicted by then is gone.
          const bool evicted = eviction_ && sequence > 0;
          const float* scores =
              evicted ? eviction_->Mask(layer, sequence, head) : gate_.Scores(layer, head);
          kernels::Admit(tokens, scores, 0, 1, static_cast<int32_t>(first),
                         evicted ? 0.5F : gate_.threshold(), Pages(),
                         table_.get() + row * max_pages_, max_pages_, lengths_.get() + row, {},
                         admit_workspace_.get(), nullptr, Marks(row));
        }
      }
      if (Selects()) SummarizeAll(layer, nullptr);
    }
    Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  PromptKv PromptAt(int /*layer*/) override {
    // The layers of a prompt take turns: one stream reads and writes them.
    const int64_t tokens = run_.input.prompt_tokens;
    if (prompt_.size() == 0) {
      prompt_ = Buffer<__nv_bfloat16>(2 * tokens * rows_ * run_.head_dim());
      columns_ = Buffer<int32_t>(tokens * rows_);
      admitted_ = Buffer<uint8_t>(tokens * rows_);
      column_counts_ = Buffer<int32_t>(rows_);
    }
    return {HndPages(prompt_.get(), static_cast<int32_t>(tokens), run_.kv_heads(), run_.head_dim()),
            nullptr, 1};
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    const PromptKv prompt = PromptAt(op.layer);
    return BindByKind(
        "wgkv", op, [&](const plan::GateMlp&) { return gate_.Prefill(op, PromptTokens(0)); },
        [&](const plan::Admit&) { return AdmitPrompt(op.layer); },
        [&](const plan::Summarize&) -> OpWork {
          return [this, layer = op.layer](cudaStream_t stream) { SummarizeAll(layer, stream); };
        },
        [&](const plan::VerticalSlashAttention&) { return Sparse(io); },
        [&](const plan::Layout&) -> OpWork {
          return [this, prompt, rings = Rings(op.layer)](cudaStream_t stream) {
            KeepRing(prompt.cache, 1, {0, window_, run_.input.prompt_tokens}, rings,
                     run_.kv_heads() * lead_, run_.batch(), stream);
          };
        },
        [&](const plan::Copy&) { return ReadSize(); });
  }

  void Clear() override {
    Zero(data_);
    const std::vector<int32_t> windows(static_cast<size_t>(all_), window_);
    Check(cudaMemcpy(lengths_.get(), windows.data(), windows.size() * sizeof(int32_t),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    if (!Selects()) return;
    Zero(begun_);
    Check(cudaMemcpy(summaries_.get(), unbounded_.get(), static_cast<size_t>(summaries_.bytes()),
                     cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
  }

  void CheckStep(int step, SelectionCheck& check) override {
    const std::vector<int32_t> lengths = Downloaded(lengths_.get(), all_);
    if (Selects()) CheckPages(step, lengths, check);
    // A different layer in every step: looking at all of them would take long.
    CheckTokens(step, step % run_.input.model.layers, lengths, check);
  }

 private:
  bool Selects() const { return params_.select == Params::Select::kQuest; }

  void CheckRun() const {
    if (run_.input.prompt_tokens < window_ + page_) {
      throw UsageError("a prompt that fits the window, so nothing is admitted", "wgkv",
                       "give a longer prompt or a smaller window");
    }
    if (Selects() && page_ != params_.page) {
      throw UsageError("a window that is not a whole number of pages", "wgkv",
                       "give select=quest a window of whole pages");
    }
  }

  int64_t Row(int layer, int sequence, int head) const {
    return int64_t{layer} * rows_ + int64_t{sequence} * run_.kv_heads() + head;
  }
  /// Where the newest token of a step stands in its ring, in every sequence alike.
  int32_t RingPlace(int step) const {
    return static_cast<int32_t>((run_.input.prompt_tokens + step) % window_);
  }
  /// Tokens that a row has beside its window when a step attends.
  int32_t Admitted(int step, int layer, int sequence, int head) const {
    if (eviction_) return eviction_->Kept(step, layer, sequence, head);
    return gate_.CountAdmitted(layer, head, run_.Context(step, sequence) - window_);
  }
  template <class F>
  int32_t MostOf(int step, int layer, const F& of) const {
    int32_t most = 0;
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      for (int head = 0; head < run_.kv_heads(); ++head) {
        most = std::max(most, of(Admitted(step, layer, sequence, head)));
      }
    }
    return most;
  }
  int32_t PagesOf(int32_t tokens) const { return (tokens + page_ - 1) / page_; }
  int32_t MostBegun(int step, int layer) const {
    return MostOf(step, layer, [&](int32_t tokens) { return PagesOf(tokens + gate_.slack()); });
  }
  /// Pages that a row selects.
  int32_t Chosen(int step, int layer) const {
    const auto most = static_cast<int32_t>((params_.budget - params_.window) / params_.page);
    return std::min(most, MostBegun(step, layer));
  }

  void MakePages() {
    const int last = run_.input.steps - 1;
    std::vector<int32_t> first, pages;
    int32_t slots = all_ * lead_, most = 0;
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        for (int head = 0; head < run_.kv_heads(); ++head) {
          first.push_back(slots);
          const int32_t tokens = eviction_ ? eviction_->Most(layer, sequence, head)
                                           : Admitted(last, layer, sequence, head);
          pages.push_back(PagesOf(tokens + gate_.slack()));
          slots += pages.back();
          most = std::max(most, pages.back());
        }
      }
    }
    max_pages_ = lead_ + most;
    std::vector<int32_t> table;
    table.reserve(static_cast<size_t>(all_) * static_cast<size_t>(max_pages_));
    for (int32_t row = 0; row < all_; ++row) {
      for (int32_t i = 0; i < lead_; ++i) table.push_back(row * lead_ + i);
      for (int32_t i = 0; i < most; ++i) {
        const auto at = static_cast<size_t>(row);
        table.push_back(i < pages[at] ? first[at] + i : row * lead_);
      }
    }
    table_ = Uploaded(table);
    data_ = Buffer<__nv_bfloat16>(Elements(Pages(), slots));
  }

  void MakeSelection() {
    const int32_t most = max_pages_ - lead_;
    const int32_t chosen =
        std::min(most, static_cast<int32_t>((params_.budget - params_.window) / params_.page));
    begun_ = Buffer<int32_t>(all_);
    last_whole_ = Buffer<int32_t>(all_);
    ids_ = Buffer<int32_t>(int64_t{all_} * chosen);
    attended_ = Buffer<int32_t>(int64_t{rows_} * (lead_ + chosen));
    tokens_ = Buffer<int32_t>(rows_);
    scores_ = Buffer<float>(int64_t{rows_} * run_.group() * most);
    score_workspace_ = Buffer<float>(ScoreWorkspace(rows_, run_.group(), most));
    top_k_workspace_ = Buffer<char>(std::max<int64_t>(1, TopKWorkspace(rows_, most, chosen)));
    const int64_t d = run_.head_dim();
    std::vector<__nv_bfloat16> bounds(static_cast<size_t>(int64_t{all_} * most * 2 * d));
    for (size_t i = 0; i < bounds.size(); ++i) {
      const bool low = static_cast<int64_t>(i) / d % 2 == 0;
      bounds[i] = __float2bfloat16(low ? -kUnbounded : kUnbounded);
    }
    unbounded_ = Uploaded(bounds);
    summaries_ = Buffer<__nv_bfloat16>(unbounded_.size());
  }

  /// Pages [K, V][token][d] of one head each; the head is in the slot.
  PagedKv Pages() const {
    const int64_t plane = int64_t{page_} * run_.head_dim();
    return {data_.get(), 2 * plane, plane,           run_.head_dim(),
            0,           page_,     run_.kv_heads(), run_.head_dim()};
  }
  /// A layer's rings: a sequence's heads one after another.
  PagedKv Rings(int layer) const {
    PagedKv rings = Pages();
    rings.data += Elements(rings, Row(layer, 0, 0) * lead_);
    rings.head_stride = Elements(rings, lead_);
    return rings;
  }
  /// The token that all rows from `row` on have at a place of their rings.
  TokenView InRings(int64_t row, int32_t place) const {
    const PagedKv pages = Pages();
    return {pages.data + Elements(pages, row * lead_ + place / page_) +
                place % page_ * pages.token_stride,
            Elements(pages, lead_), 0, pages.kv_stride};
  }
  PageMarks Marks(int64_t row) const {
    if (!Selects()) return {};
    return {begun_.get() + row, last_whole_.get() + row, window_};
  }
  int32_t* Ids(int layer) const {
    return Selects() ? ids_.get() + layer * (ids_.size() / run_.input.model.layers) : nullptr;
  }

  /// A step's new tokens of a layer as the gate reads them: a row is a head, a token a sequence.
  TokenView NewTokens(const plan::Op& op) const {
    TokenView tokens = InRings(Row(op.layer, 0, 0), RingPlace(op.step));
    tokens.token_stride = run_.kv_heads() * tokens.row_stride;
    return tokens;
  }

  // What leaves the rings in this step stands where its new tokens go.
  OpWork Promote(int step) const {
    return [this, step, tokens = InRings(0, RingPlace(step))](cudaStream_t stream) {
      kernels::Admit(tokens, gate_.Leaving(step), 1, all_, 1, gate_.threshold(), Pages(),
                     table_.get(), max_pages_, lengths_.get(), {}, admit_workspace_.get(), stream,
                     Marks(0));
    };
  }

  OpWork Score(const plan::Op& op, const LayerIo& io) const {
    const int64_t first = Row(op.layer, 0, 0), pages = max_pages_ - lead_;
    return [this, io, first, pages, most = MostBegun(op.step, op.layer)](cudaStream_t stream) {
      kernels::Score(io.query, summaries_.get() + first * pages * 2 * run_.head_dim(), rows_,
                     run_.group(), run_.head_dim(), 2, 0, most, static_cast<int32_t>(pages),
                     Pooling::kMax, 1, scores_.get(), score_workspace_.get(), stream,
                     begun_.get() + first);
    };
  }

  OpWork Attention(const plan::Op& op, const LayerIo& io) const {
    const int64_t first = Row(op.layer, 0, 0);
    const int32_t begun = MostBegun(op.step, op.layer);
    if (Selects() && begun > 0) {
      const int32_t k = Chosen(op.step, op.layer);
      return attention_.Over(Pages(),
                             {attended_.get(), tokens_.get(), lead_ + k, (lead_ + k) * page_}, io);
    }
    return attention_.Over(Pages(),
                           {table_.get() + first * max_pages_, lengths_.get() + first, max_pages_,
                            (lead_ + begun) * page_},
                           io);
  }

  void SummarizeAll(int layer, cudaStream_t stream) const {
    const int64_t first = Row(layer, 0, 0), pages = max_pages_ - lead_;
    kernels::Summarize(SummaryKind::kMinMax, Pages(), table_.get() + first * max_pages_ + lead_,
                       max_pages_, 0, MostBegun(-1, layer), rows_,
                       summaries_.get() + first * pages * 2 * run_.head_dim(),
                       static_cast<int32_t>(pages), stream, nullptr, last_whole_.get() + first);
  }

  // Begins the eviction of the next sequence that evicts in this step.
  OpWork ScoreForEviction(const plan::Op& op) {
    if (!eviction_) CannotBind("wgkv", op);
    if (evicting_.empty() || op.step != evicting_step_ || op.layer != evicting_layer_) {
      evicting_ = eviction_->Sequences(op.step, op.layer);
      std::ranges::reverse(evicting_);
      evicting_step_ = op.step, evicting_layer_ = op.layer;
    }
    if (evicting_.empty()) CannotBind("wgkv", op);
    evicts_ = evicting_.back();
    evicting_.pop_back();
    return eviction_->Score(op.step, op.layer, evicts_, RowsOf(op.layer, evicts_),
                            (RingPlace(op.step) + 1) % window_);
  }

  GrowingRows RowsOf(int layer, int sequence) const {
    const int64_t row = Row(layer, sequence, 0);
    return {
        Pages(), table_.get() + row * max_pages_, lengths_.get() + row, run_.kv_heads(), max_pages_,
        window_};
  }

  // The page that is filling now may have been a whole one.
  void SummarizeAnew(int layer, int sequence, cudaStream_t stream) const {
    const int64_t first = Row(layer, sequence, 0), pages = max_pages_ - lead_;
    const int64_t at = first * pages * 2 * run_.head_dim();
    Check(cudaMemcpyAsync(summaries_.get() + at, unbounded_.get() + at,
                          static_cast<size_t>(run_.kv_heads() * pages * 2 * run_.head_dim()) *
                              sizeof(__nv_bfloat16),
                          cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
    kernels::Summarize(SummaryKind::kMinMax, Pages(), table_.get() + first * max_pages_ + lead_,
                       max_pages_, 0, static_cast<int32_t>(pages), run_.kv_heads(),
                       summaries_.get() + at, static_cast<int32_t>(pages), stream, nullptr,
                       last_whole_.get() + first);
  }

  // The host reads a size.
  OpWork ReadSize() const {
    return [this](cudaStream_t stream) {
      Check(cudaMemcpyAsync(read_.get(), lengths_.get(), sizeof(int32_t), cudaMemcpyDeviceToHost,
                            stream),
            "cudaMemcpyAsync");
    };
  }

  /// A sequence's prompt, a row a head.
  TokenView PromptTokens(int sequence) const {
    const int64_t plane = run_.input.prompt_tokens * run_.head_dim();
    return {prompt_.get() + 2 * plane * run_.kv_heads() * sequence, 2 * plane, run_.head_dim(),
            plane};
  }

  OpWork AdmitPrompt(int layer) const {
    return [this, layer](cudaStream_t stream) {
      const int64_t prompt = run_.input.prompt_tokens;
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t row = Row(layer, sequence, 0), at = int64_t{sequence} * run_.kv_heads();
        kernels::Admit(PromptTokens(sequence), gate_.PromptScores(layer, sequence),
                       gate_.prompt_stride(), run_.kv_heads(),
                       static_cast<int32_t>(prompt - window_), gate_.threshold(), Pages(),
                       table_.get() + row * max_pages_, max_pages_, lengths_.get() + row,
                       {columns_.get() + at * prompt, admitted_.get() + at * prompt,
                        column_counts_.get() + at, prompt},
                       admit_workspace_.get(), stream, Marks(row));
      }
    };
  }

  OpWork Sparse(const PrefillIo& io) const {
    VerticalSlashArgs args;
    args.query = io.query;
    args.kv = PromptTokens(0);
    args.columns = columns_.get();
    args.column_counts = column_counts_.get();
    args.admitted = admitted_.get();
    args.output = io.output;
    args.sequences = run_.batch();
    args.tokens = static_cast<int32_t>(run_.input.prompt_tokens);
    args.window = window_;
    args.kv_heads = run_.kv_heads();
    args.group = run_.group();
    args.head_dim = run_.head_dim();
    args.scale = run_.trace->softmax_scale();
    return [args](cudaStream_t stream) { VerticalSlashAttention(args, stream); };
  }

  // Whole pages that were selected; the last, partial one always is.
  void CheckPages(int step, std::span<const int32_t> lengths, SelectionCheck& check) const {
    if (run_.log == nullptr) return;
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const int32_t k = Chosen(step, layer);
      const std::vector<int32_t> ids = Downloaded(Ids(layer), int64_t{rows_} * k);
      for (int row = 0; row < rows_; ++row) {
        const auto at = static_cast<size_t>(Row(layer, 0, row));
        const int32_t whole = (lengths[at] - window_) / page_;
        std::vector<int32_t> chosen(ids.begin() + int64_t{row} * k,
                                    ids.begin() + (int64_t{row} + 1) * k);
        std::erase_if(chosen, [&](int32_t id) { return id >= whole; });
        check.Compare(
            chosen, run_.log->Selected(step, layer, row / run_.kv_heads(), row % run_.kv_heads()));
      }
    }
  }

  // Finds the tokens whose keys a layer's rows hold, and compares them with those admitted.
  void CheckTokens(int step, int layer, std::span<const int32_t> lengths,
                   SelectionCheck& check) const {
    const PagedKv pages = Pages();
    const std::vector<int32_t> table =
        Downloaded(table_.get() + Row(layer, 0, 0) * max_pages_, int64_t{rows_} * max_pages_);
    const auto bytes = static_cast<size_t>(run_.head_dim()) * sizeof(__nv_bfloat16);
    const int source = run_.source_of[static_cast<size_t>(layer)];
    for (int row = 0; row < rows_; ++row) {
      const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
      const int traced = head % run_.trace->kv_heads();
      const int64_t left = run_.Context(step, sequence) - window_;
      const int32_t count = lengths[static_cast<size_t>(Row(layer, 0, row))] - window_;
      if (count == 0) continue;
      const int32_t* slots = table.data() + int64_t{row} * max_pages_ + lead_;
      // A row's pages follow one another.
      const std::vector<__nv_bfloat16> cache =
          Downloaded(pages.data + Elements(pages, slots[0]), Elements(pages, PagesOf(count)));
      std::vector<int32_t> held;
      int64_t token = 0;
      for (int32_t i = 0; i < count; ++i, ++token) {
        const __nv_bfloat16* key =
            cache.data() + Elements(pages, i / page_) + i % page_ * pages.token_stride;
        while (token < left &&
               std::memcmp(key, run_.trace->Key(source, traced, token), bytes) != 0) {
          ++token;
        }
        const bool found =
            token < left && std::memcmp(key + pages.kv_stride,
                                        run_.trace->Value(source, traced, token), bytes) == 0;
        ++check.verified;
        if (!found) {
          ++check.missing;
          break;
        }
        held.push_back(static_cast<int32_t>(token));
      }
      check.Compare(held, eviction_ ? eviction_->Expected(step, layer, sequence, head)
                                    : gate_.Expected(layer, head, left));
    }
  }

  const DecodeRun& run_;
  Params params_;
  int32_t page_, window_, lead_;  // tokens; the window's pages
  int32_t rows_, all_;            // of a layer, of all layers
  int32_t max_pages_ = 0;
  WgKvGate gate_;
  std::optional<WgKvEviction> eviction_;
  AttentionLauncher attention_;
  Buffer<__nv_bfloat16> data_;
  Buffer<int32_t> table_, lengths_, admit_workspace_, ring_slots_;
  StepTable slot_, place_;
  // Eviction, as its ops are bound: the sequences still to evict, last first, and the one that
  // does.
  std::vector<int> evicting_;
  int evicting_step_ = -1, evicting_layer_ = -1, evicts_ = 0;
  // Selection.
  Buffer<int32_t> begun_, last_whole_, ids_, attended_, tokens_;
  Buffer<__nv_bfloat16> summaries_, unbounded_;
  Buffer<float> scores_, score_workspace_;
  Buffer<char> top_k_workspace_;
  // Prefill.
  Buffer<__nv_bfloat16> prompt_;
  Buffer<int32_t> columns_, column_counts_, read_;
  Buffer<uint8_t> admitted_;
};

}  // namespace

const MethodBinder kWgKv{"wgkv", Make<WgKvBinder, Params>};

}  // namespace stallcast::kernels
