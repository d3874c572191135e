// LouisKV: queries compared, units chosen by their centroids, tokens read row by row, segments that
// leave the local buffer offloaded.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/methods/binders.h"
#include "kernels/executor/methods/louiskv_units.h"
#include "kernels/movement/movement.h"
#include "kernels/runtime/upload.h"
#include "kernels/selection/clusters.h"
#include "kernels/selection/selection.h"
#include "kernels/selection/selection_passes.h"
#include "models/methods/louiskv/params.h"

namespace stallcast::kernels {
namespace {

using Params = methods::LouisKvParams;
using Bf16 = __nv_bfloat16;

// Cache and pool have pages of one token. Of a sequence the cache has room for the tokens that each
// of the rows that share a KV head has chosen, then the sink, then the local buffer: one place for
// each token that is in it at any time of the run, so that a segment is one stretch. Keys and
// values are apart in the cache and in a split pool, [k, v][sequence][token][kv_head][head_dim]; a
// paired pool is [sequence][token][kv_head][k, v][head_dim].
class LouisKvBinder : public CacheBinder {
 public:
  LouisKvBinder(const DecodeRun& run, const Params& params)
      : run_(run),
        params_(params),
        members_(params.group == Params::Group::kQueryHead ? run.group() : 1),
        capacity_(static_cast<int32_t>(params.capacity())),
        first_local_(members_ * capacity_ + static_cast<int32_t>(params.sink)),
        slots_(first_local_ + static_cast<int32_t>(params.window) + run.input.steps),
        host_tokens_(run.LongestContext()),
        units_(run, params),
        attention_(run, members_) {
    const int layers = run.input.model.layers;
    for (int layer = FirstSparse(); layer < layers; ++layer) {
      Layer& of = layers_.emplace_back();
      of.data = Buffer<Bf16>(int64_t{2} * run.batch() * slots_ * TokenElements());
      of.ids = Buffer<int32_t>(int64_t{rows()} * capacity_);
      of.counts = Buffer<int32_t>(int64_t{2} * rows());
      Zero(of.counts);
      of.source = Buffer<int64_t>(int64_t{rows()} * capacity_);
      of.flags = Buffer<int32_t>(run.batch());
    }
    const int64_t scores = int64_t{run.rows()} * run.group() * units_.most();
    scores_ = Buffer<float>(scores);
    similarity_ = Buffer<float>(run.batch());
    any_ = Buffer<int32_t>(1);
    host_flags_ = Buffer<int32_t>(run.batch(), Memory::kPinned);
    workspace_ = Buffer<char>(SelectUnitsWorkspace(Selection(FirstSparse(), 0, units_.most())));
    if (params.kernel == Params::Kernel::kPasses) {
      passes_.emplace(rows(), members(), units_.most());
      host_count_ = Buffer<int64_t>(1, Memory::kPinned);
    }
    if (params.recall == Params::Recall::kStaged) {
      const int64_t pieces = int64_t{rows()} * capacity_;
      host_source_ = Buffer<int64_t>(pieces, Memory::kPinned);
      gathered_ = Buffer<Bf16>(pieces * 2 * run.head_dim(), Memory::kPinned);
      staging_ = Buffer<Bf16>(pieces * 2 * run.head_dim());
    }
    if (Paired()) {
      // The prompt's last tokens are segments as long as a cluster.
      const int64_t longest = std::max(params.longest_segment(), params.cluster);
      segment_ = Buffer<Bf16>(2 * longest * TokenElements());
      std::vector<int32_t> numbers(static_cast<size_t>(longest));
      std::iota(numbers.begin(), numbers.end(), 0);
      numbers_ = Uploaded(numbers);
    }
    pool_ = reinterpret_cast<Bf16*>(
        run.pool->Get(int64_t{layers - FirstSparse()} * PoolElements() * int64_t{sizeof(Bf16)}));
    MakeTables();
    FillPool();
  }

  Append AppendAt(int step, int layer) override {
    return {Cache(layer), slot_.At(step), place_.get(), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    using plan::Purpose;
    const int step = op.step, layer = op.layer;
    if (step != step_ || layer != layer_) Enter(step, layer);
    switch (op.purpose) {
      case Purpose::kReadFlags:
        return FetchFlags(layer);
      case Purpose::kReadCount:
        return FetchCount();
      case Purpose::kReadMissed:
        return FetchSource(op);
      case Purpose::kBringRecalled:
        return CopyGathered();
      case Purpose::kPlaceRecalled:
        return [staging = staging_.get(), chosen = Chosen(layer), cache = Cache(layer)](
                   cudaStream_t stream) { ScatterTokens(staging, chosen, cache, stream); };
      case Purpose::kPackFilled:
        return PairLeaving(op);
      case Purpose::kOffloadFilled:
        return OffloadLeaving(op);
      default:
        if (const std::optional<Pass> pass = PassOf(op.purpose)) return Run(*pass, op);
    }
    return BindByKind(
        "louiskv", op, [&](const plan::DecodeAttention&) { return Attend(op, io); },
        [&](const plan::QuerySimilarity&) { return Compare(layer, io); },
        [&](const plan::Score&) {
          return Score(layer, io.query, units_.Choosable(step, layer),
                       units_.MostChoosable(step, layer));
        },
        [&](const plan::SelectUnits&) {
          return Select(layer, units_.Choosable(step, layer), units_.MostChoosable(step, layer));
        },
        [&](const plan::ZeroCopyGather& gather) -> OpWork {
          return [pool = Pool(layer), chosen = Chosen(layer), cache = Cache(layer),
                  blocks = gather.blocks](cudaStream_t stream) {
            ZeroCopyTokens(pool, chosen, cache, blocks, stream);
          };
        },
        [&](const plan::HostGather& gather) { return Gather(op, gather.threads); },
        [&](const plan::Summarize&) { return SummarizeLeaving(op); });
  }

  void Reset(std::span<const LayerIo> /*last*/) override {
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t context = run_.Context(-1, sequence);
        const int32_t* slots = slot_of_.get() + sequence * host_tokens_;
        const int64_t local = std::max(params_.sink, context - params_.window);
        FillTokens(run_.Source(layer), 0, params_.sink, Cache(layer), slots, nullptr);
        FillTokens(run_.Source(layer), local, context - local, Cache(layer), slots, nullptr);
      }
      RetrieveAgain(layer);
    }
  }

  PromptKv PromptAt(int layer) override {
    if (prompt_.empty()) {
      for (size_t i = 0; i < layers_.size(); ++i) {
        prompt_.emplace_back(int64_t{2} * run_.batch() * run_.input.prompt_tokens *
                             TokenElements());
      }
      if (Paired()) {
        prompt_pairs_ =
            Buffer<Bf16>(int64_t{2} * run_.batch() * units_.parts().clustered * TokenElements());
      }
      MakePromptTables();
    }
    return {Prompt(layer), nullptr, 1};
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    const PageRuns prompt{Prompt(op.layer), 1};
    switch (op.purpose) {
      case plan::Purpose::kPackFilled:
        return PairPrompt(op.layer);
      case plan::Purpose::kOffloadFilled:
        return OffloadPrompt(op.layer);
      case plan::Purpose::kKeepPrompt:
        return KeepPrompt(op.layer);
      default:
        break;
    }
    return BindByKind(
        "louiskv", op, [&](const plan::KMeans&) { return units_.Cluster(op.layer, prompt); },
        [&](const plan::Summarize&) { return units_.SummarizePages(op.layer, prompt); });
  }

  void CheckStep(int step, SelectionCheck& check) override {
    if (run_.log == nullptr) return;
    const int sparse = run_.input.model.layers - FirstSparse();
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      if (params_.compares()) CheckFlags(step, layer, check);
      const auto ids = Downloaded(Of(layer).ids), counts = Downloaded(Of(layer).counts);
      const int heads = rows() / run_.batch();
      for (int row = 0; row < rows(); ++row) {
        if (!units_.Retrieves(step, layer, row / heads)) continue;
        check.Compare({ids.data() + int64_t{row} * capacity_,
                       static_cast<size_t>(counts[static_cast<size_t>(row)])},
                      run_.log->RecalledNow(step, layer, row / heads, row % heads));
      }
      // A different layer in every step: looking at all of them would take long.
      if (layer == FirstSparse() + step % sparse) CheckKeys(step, layer, check);
    }
  }

 private:
  struct Layer {
    Buffer<Bf16> data;
    Buffer<int32_t> ids;     // [row][capacity]
    Buffer<int32_t> counts;  // of units by row, then of tokens
    Buffer<int64_t> source;  // [row][capacity]
    Buffer<int32_t> flags;   // by sequence
  };

  int FirstSparse() const { return static_cast<int>(params_.dense_layers); }
  bool Paired() const { return params_.pool == Params::Pool::kPaired; }
  const Layer& Of(int layer) const { return layers_[static_cast<size_t>(layer - FirstSparse())]; }
  // Rows that choose units: KV heads or query heads of all sequences, and the query heads of each.
  int32_t rows() const { return run_.rows() * members_; }
  int32_t members() const { return run_.group() / members_; }
  int64_t TokenElements() const { return int64_t{run_.kv_heads()} * run_.head_dim(); }
  int64_t PoolElements() const {
    return int64_t{2} * run_.batch() * host_tokens_ * TokenElements();
  }

  // Tokens [sequence][token][kv_head][head_dim], all keys before all values, a token a page.
  PagedKv Apart(Bf16* data, int64_t tokens) const {
    const int64_t token = TokenElements();
    return {data,
            token,
            run_.batch() * tokens * token,
            token,
            run_.head_dim(),
            1,
            run_.kv_heads(),
            run_.head_dim()};
  }
  PagedKv Cache(int layer) const { return Apart(Of(layer).data.get(), slots_); }
  PagedKv Pool(int layer) const {
    Bf16* data = pool_ + (layer - FirstSparse()) * PoolElements();
    return Paired() ? HndPages(data, 1, run_.kv_heads(), run_.head_dim())
                    : Apart(data, host_tokens_);
  }
  // A sequence's prompt is one page.
  PagedKv Prompt(int layer) const {
    const int64_t tokens = run_.input.prompt_tokens;
    PagedKv prompt = Apart(prompt_[static_cast<size_t>(layer - FirstSparse())].get(), tokens);
    prompt.page_tokens = static_cast<int32_t>(tokens);
    prompt.slot_stride = tokens * TokenElements();
    return prompt;
  }
  // The place of a token in the local buffer of a sequence.
  int64_t LocalPlace(int sequence, int64_t token) const {
    return first_local_ + token - (run_.Context(-1, sequence) - params_.window);
  }

  void MakeTables() {
    const int steps = run_.input.steps, layers = run_.input.model.layers;
    slot_ = StepTable(steps, run_.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      const auto s = static_cast<int>(sequence);
      return sequence * slots_ + LocalPlace(s, run_.Context(step, s) - 1);
    });
    place_ = Uploaded(std::vector<int32_t>(static_cast<size_t>(run_.batch())));
    // The chosen tokens, the sink, then the local buffer from its newest token on: how long it is
    // depends on the layer, where it ends does not.
    const auto sink_end = static_cast<int64_t>(capacity_) + params_.sink;
    table_ = StepTable(steps, rows(), sink_end + params_.window,
                       [&](int step, int64_t row, int64_t column) -> int64_t {
                         if (column < capacity_) return row % members_ * capacity_ + column;
                         if (column < sink_end)
                           return int64_t{members_} * capacity_ + column - capacity_;
                         const auto sequence = static_cast<int>(row / members_ / run_.kv_heads());
                         const int64_t newest = run_.Context(step, sequence) - 1;
                         return LocalPlace(sequence, newest) - (column - sink_end);
                       });
    tokens_ = StepTable(steps * layers, rows(), 1, [&](int index, int64_t row, int64_t) -> int64_t {
      const int step = index / layers, layer = index % layers;
      if (layer < FirstSparse()) return 0;
      const auto sequence = static_cast<int>(row / members_ / run_.kv_heads());
      return sink_end + (run_.log == nullptr ? 0 : units_.LocalTokens(step, layer, sequence));
    });
    std::vector<int32_t> slot_of(static_cast<size_t>(run_.batch() * host_tokens_), 0);
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const int64_t context = run_.Context(-1, sequence);
      const auto slot = [&](int64_t token, int64_t place) {
        slot_of[static_cast<size_t>(sequence * host_tokens_ + token)] =
            static_cast<int32_t>(int64_t{sequence} * slots_ + place);
      };
      for (int64_t t = 0; t < params_.sink; ++t) slot(t, int64_t{members_} * capacity_ + t);
      for (int64_t t = std::max(params_.sink, context - params_.window); t < context; ++t) {
        slot(t, LocalPlace(sequence, t));
      }
    }
    slot_of_ = Uploaded(slot_of);
  }

  // What each sequence has offloaded before the first step.
  void FillPool() {
    std::vector<int32_t> in_order(static_cast<size_t>(host_tokens_));
    std::iota(in_order.begin(), in_order.end(), 0);
    const Buffer<int32_t> slots = Uploaded(in_order);
    Buffer<Bf16> staging(2 * host_tokens_ * TokenElements());
    PagedKv tokens = Paired() ? HndPages(staging.get(), 1, run_.kv_heads(), run_.head_dim())
                              : Apart(staging.get(), host_tokens_);
    tokens.kv_stride = Paired() ? tokens.kv_stride : host_tokens_ * TokenElements();
    for (int layer = FirstSparse(); layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t count =
            (run_.log == nullptr ? run_.input.prompt_tokens : units_.HostEnd(0, layer, sequence)) -
            params_.sink;
        FillTokens(run_.Source(layer), params_.sink, count, tokens, slots.get(), nullptr);
        const int64_t first = params_.sink * TokenElements();
        CopyToPool(layer, sequence, params_.sink, count,
                   Paired() ? staging.get() + 2 * first : staging.get() + first,
                   host_tokens_ * TokenElements(), nullptr);
      }
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  // `count` tokens of a sequence from `token` on, which lie one after another at `keys`, their
  // values `values` elements further unless they are paired.
  void CopyToPool(int layer, int sequence, int64_t token, int64_t count, const Bf16* keys,
                  int64_t values, cudaStream_t stream) const {
    const PagedKv pool = Pool(layer);
    Bf16* to = pool.data + (sequence * host_tokens_ + token) * pool.slot_stride;
    const auto bytes = static_cast<size_t>(count * pool.slot_stride) * sizeof(Bf16);
    for (const bool of_values : {false, true}) {
      if (of_values && Paired()) continue;
      Check(cudaMemcpyAsync(to + (of_values ? pool.kv_stride : 0), keys + (of_values ? values : 0),
                            bytes, cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }
  }

  // --- a step ---

  void Enter(int step, int layer) {
    step_ = step, layer_ = layer;
    leaving_ = -1;
  }

  OpWork Attend(const plan::Op& op, const LayerIo& io) {
    const auto most = static_cast<int32_t>(params_.budget);
    const PageTable pages{table_.At(op.step),
                          tokens_.At(op.step * run_.input.model.layers + op.layer), most, most,
                          slots_};
    return attention_.Over(Cache(op.layer), pages, io, members_);
  }

  OpWork Compare(int layer, const LayerIo& io) {
    return [this, io, flags = Of(layer).flags.get()](cudaStream_t stream) {
      QuerySimilarity(io.query, io.previous, run_.batch(), run_.input.model.query_heads,
                      run_.head_dim(), static_cast<float>(params_.tau), similarity_.get(), flags,
                      any_.get(), stream);
    };
  }

  OpWork FetchFlags(int layer) {
    return [to = host_flags_.get(), from = Of(layer).flags.get(),
            bytes = static_cast<size_t>(host_flags_.bytes())](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    };
  }

  OpWork Score(int layer, const Bf16* query, const int32_t* choosable, int32_t most) const {
    return [this, query, choosable, most,
            centroids = units_.Centroids(layer)](cudaStream_t stream) {
      kernels::Score(query, centroids, run_.rows(), run_.group(), run_.head_dim(), 1, 0, most,
                     units_.most(), Pooling::kNone, 1, scores_.get(), nullptr, stream, choosable);
    };
  }

  SelectUnitsArgs Selection(int layer, const int32_t* choosable, int32_t most) const {
    const Layer& of = Of(layer);
    return {.scores = scores_.get(),
            .rows = rows(),
            .group = members(),
            .units = most,
            .scale = run_.trace->softmax_scale(),
            .units_of = choosable,
            .lists = units_.Lists(layer),
            .budget = capacity_,
            .heads = run_.kv_heads() * members_,
            .kv_heads = run_.kv_heads(),
            .pool_tokens = host_tokens_,
            .unit_ids = of.ids.get(),
            .unit_count = of.counts.get(),
            .source = of.source.get(),
            .token_count = of.counts.get() + rows()};
  }

  OpWork Select(int layer, const int32_t* choosable, int32_t most) const {
    return [args = Selection(layer, choosable, most), workspace = workspace_.get()](
               cudaStream_t stream) { SelectUnits(args, workspace, stream); };
  }

  using Pass = void (SelectionPasses::*)(const SelectUnitsArgs&, cudaStream_t);
  static std::optional<Pass> PassOf(plan::Purpose purpose) {
    using plan::Purpose;
    switch (purpose) {
      case Purpose::kPassSoftmax:
        return &SelectionPasses::Softmax;
      case Purpose::kPassMean:
        return &SelectionPasses::Mean;
      case Purpose::kPassSort:
        return &SelectionPasses::Sort;
      case Purpose::kPassSizes:
        return &SelectionPasses::Sizes;
      case Purpose::kPassRunningSum:
        return &SelectionPasses::RunningSum;
      case Purpose::kPassFit:
        return &SelectionPasses::Fit;
      case Purpose::kPassList:
        return &SelectionPasses::List;
      default:
        return std::nullopt;
    }
  }
  OpWork Run(Pass pass, const plan::Op& op) {
    return [this, pass,
            args = Selection(op.layer, units_.Choosable(op.step, op.layer),
                             units_.MostChoosable(op.step, op.layer))](cudaStream_t stream) {
      (*passes_.*pass)(args, stream);
    };
  }
  OpWork FetchCount() {
    return [to = host_count_.get(), from = passes_->count()](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, sizeof(int64_t), cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    };
  }

  ChosenTokens Chosen(int layer) const {
    const Layer& of = Of(layer);
    return {of.source.get(), of.counts.get() + rows(),   rows(),
            capacity_,       run_.kv_heads() * members_, slots_};
  }

  // Calls visit(first row, rows) for the sequences that retrieve, neighbours together.
  template <class Visit>
  void ForRetrieving(const plan::Op& op, const Visit& visit) const {
    const int heads = run_.kv_heads() * members_;
    for (int begin = 0, end = 0; begin < run_.batch(); begin = end + 1) {
      for (end = begin; end < run_.batch() && units_.Retrieves(op.step, op.layer, end);) ++end;
      if (end > begin) visit(begin * heads, (end - begin) * heads);
    }
  }

  OpWork FetchSource(const plan::Op& op) {
    std::vector<std::pair<int, int>> runs;
    ForRetrieving(op, [&](int first, int count) { runs.emplace_back(first, count); });
    return [this, runs, from = Of(op.layer).source.get()](cudaStream_t stream) {
      for (const auto& [first, count] : runs) {
        const int64_t at = int64_t{first} * capacity_;
        Check(cudaMemcpyAsync(
                  host_source_.get() + at, from + at,
                  static_cast<size_t>(count) * static_cast<size_t>(capacity_) * sizeof(int64_t),
                  cudaMemcpyDeviceToHost, stream),
              "cudaMemcpyAsync");
      }
    };
  }

  // A retrieval always fills the room that there is.
  OpWork Gather(const plan::Op& op, int threads) {
    std::vector<std::pair<int, int>> runs;
    ForRetrieving(op, [&](int first, int count) { runs.emplace_back(first, count); });
    gathering_ = 0;
    for (const auto& [first, count] : runs) gathering_ += int64_t{count} * capacity_;
    // The device lists places of the pool in key rows, or in pairs.
    const PagedKv pool = Pool(op.layer);
    constexpr int64_t kElement = sizeof(Bf16);
    const int64_t row = run_.head_dim() * kElement;
    const PlaceShape token =
        Paired() ? PlaceShape{.row_bytes = 2 * row} : PlaceShape{row, 2, pool.kv_stride * kElement};
    return [this, runs, threads, token, pool = pool.data](cudaStream_t) {
      Bf16* to = gathered_.get();
      for (const auto& [first, count] : runs) {
        const int64_t tokens = int64_t{count} * capacity_;
        HostGather(pool, host_source_.get() + int64_t{first} * capacity_, tokens, token, to,
                   threads);
        to += tokens * 2 * run_.head_dim();
      }
    };
  }

  OpWork CopyGathered() {
    const auto bytes = static_cast<size_t>(gathering_ * 2 * run_.head_dim()) * sizeof(Bf16);
    return [to = staging_.get(), from = gathered_.get(), bytes](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
    };
  }

  // Sequences whose oldest segment leaves follow one another, each with its ops.
  OpWork SummarizeLeaving(const plan::Op& op) {
    do ++leaving_;
    while (units_.Leaving(op.step, op.layer, leaving_).tokens == 0);
    const LouisKvUnits::Segment segment = units_.Leaving(op.step, op.layer, leaving_);
    return units_.SummarizeSegment(op.layer, leaving_, segment, Cache(op.layer), Slot(segment));
  }
  int64_t Slot(const LouisKvUnits::Segment& segment) const {
    return int64_t{leaving_} * slots_ + LocalPlace(leaving_, segment.begin);
  }
  OpWork PairLeaving(const plan::Op& op) {
    const LouisKvUnits::Segment segment = units_.Leaving(op.step, op.layer, leaving_);
    PagedKv tokens = Cache(op.layer);
    tokens.data += Slot(segment) * tokens.slot_stride;
    return [this, tokens, count = static_cast<int32_t>(segment.tokens)](cudaStream_t stream) {
      TransposePages(tokens, numbers_.get(), count, segment_.get(), stream);
    };
  }
  OpWork OffloadLeaving(const plan::Op& op) {
    const LouisKvUnits::Segment segment = units_.Leaving(op.step, op.layer, leaving_);
    const PagedKv cache = Cache(op.layer);
    const Bf16* from = Paired() ? segment_.get() : cache.data + Slot(segment) * cache.slot_stride;
    return [this, layer = op.layer, sequence = leaving_, segment, from,
            values = cache.kv_stride](cudaStream_t stream) {
      CopyToPool(layer, sequence, segment.begin, segment.tokens, from, values, stream);
    };
  }

  // A sequence that begins later in the trace has what it last retrieved.
  void RetrieveAgain(int layer) {
    const TraceTensors& trace = *run_.trace;
    const llm::Model& m = run_.input.model;
    std::vector<Bf16> queries(static_cast<size_t>(run_.batch() * m.query_heads * m.head_dim));
    std::vector<int32_t> choosable(static_cast<size_t>(run_.rows()), 0);
    int32_t most = 0;
    for (int sequence = 0; sequence < run_.batch() && run_.log != nullptr; ++sequence) {
      const int step = units_.LastRetrieval(-1, layer, sequence);
      const int64_t token = run_.Context(step, sequence) - 1;
      if (token < run_.input.prompt_tokens) continue;
      for (int head = 0; head < m.query_heads; ++head) {
        const int traced = trace.QueryHeadFor(head, m.group());
        const Bf16* query = trace.Query(run_.source_of[static_cast<size_t>(layer)], traced, token);
        std::copy(query, query + m.head_dim,
                  queries.begin() + (int64_t{sequence} * m.query_heads + head) * m.head_dim);
      }
      const int32_t units = units_.Before(step, layer, sequence);
      most = std::max(most, units);
      std::fill_n(choosable.begin() + int64_t{sequence} * run_.kv_heads(), run_.kv_heads(), units);
    }
    if (most == 0) return;
    const auto device_queries = Uploaded(queries);
    const auto device_choosable = Uploaded(choosable);
    Score(layer, device_queries.get(), device_choosable.get(), most)(nullptr);
    Select(layer, device_choosable.get(), most)(nullptr);
    ZeroCopyTokens(Pool(layer), Chosen(layer), Cache(layer), 32, nullptr);
    Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  // --- prefill ---

  OpWork PairPrompt(int layer) {
    PagedKv tokens = Prompt(layer);
    tokens.slot_stride = tokens.token_stride;
    tokens.page_tokens = 1;
    return [this, tokens](cudaStream_t stream) {
      TransposePages(tokens, prompt_slots_.get(), static_cast<int32_t>(prompt_slots_.size()),
                     prompt_pairs_.get(), stream);
    };
  }

  OpWork OffloadPrompt(int layer) {
    return [this, layer, prompt = Prompt(layer)](cudaStream_t stream) {
      const methods::PromptParts& parts = units_.parts();
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const Bf16* from =
            Paired()
                ? prompt_pairs_.get() + int64_t{sequence} * 2 * parts.clustered * TokenElements()
                : prompt.data + sequence * prompt.slot_stride + parts.sink * TokenElements();
        CopyToPool(layer, sequence, parts.sink, parts.clustered, from, prompt.kv_stride, stream);
      }
    };
  }

  // Sink and local buffer, which follow one another in the cache.
  OpWork KeepPrompt(int layer) {
    PagedKv tokens = Prompt(layer), cache = Cache(layer);
    tokens.slot_stride = tokens.token_stride;
    tokens.page_tokens = 1;
    cache.data += int64_t{members_} * capacity_ * cache.slot_stride;
    const ChosenTokens kept{
        kept_source_.get(), kept_count_.get(),
        run_.rows(),        static_cast<int32_t>(kept_source_.size() / run_.rows()),
        run_.kv_heads(),    slots_};
    return [tokens, kept, cache](cudaStream_t stream) {
      ZeroCopyTokens(tokens, kept, cache, kDeviceBlocks, stream);
    };
  }

  void MakePromptTables() {
    const methods::PromptParts& parts = units_.parts();
    std::vector<int32_t> slots;
    std::vector<int64_t> source;
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      const int64_t first = sequence * run_.input.prompt_tokens;
      for (int64_t i = 0; i < parts.clustered; ++i) {
        slots.push_back(static_cast<int32_t>(first + parts.sink + i));
      }
      for (int head = 0; head < run_.kv_heads(); ++head) {
        for (int64_t i = 0; i < parts.sink + parts.local; ++i) {
          const int64_t token = i < parts.sink ? i : i + parts.clustered;
          source.push_back((first + token) * run_.kv_heads() + head);
        }
      }
    }
    prompt_slots_ = Uploaded(slots);
    kept_source_ = Uploaded(source);
    kept_count_ = Uploaded(std::vector<int32_t>(static_cast<size_t>(run_.rows()),
                                                static_cast<int32_t>(parts.sink + parts.local)));
  }

  // --- checks ---

  void CheckFlags(int step, int layer, SelectionCheck& check) const {
    const auto flags = Downloaded(Of(layer).flags);
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      // The first step of a trace begins a segment whatever its queries.
      if (run_.TraceStep(step, sequence) == 0) continue;
      const uint8_t logged = run_.log->At(step, layer, sequence, 0).flags;
      ++check.decisions;
      check.decided_alike +=
          (flags[static_cast<size_t>(sequence)] != 0) == ((logged & traces::kTriggered) != 0);
    }
  }

  void CheckKeys(int step, int layer, SelectionCheck& check) const {
    const auto data = Downloaded(Of(layer).data);
    const auto source = Downloaded(Of(layer).source);
    const PagedKv cache = Cache(layer);
    const int trace_layer = run_.source_of[static_cast<size_t>(layer)];
    const auto bytes = static_cast<size_t>(run_.head_dim()) * sizeof(Bf16);
    const auto alike = [&](int64_t slot, int head, int64_t token) {
      const Bf16* held = data.data() + slot * cache.slot_stride + head * cache.head_stride;
      const int traced = head % run_.trace->kv_heads();
      return std::memcmp(held, run_.trace->Key(trace_layer, traced, token), bytes) == 0 &&
             std::memcmp(held + cache.kv_stride, run_.trace->Value(trace_layer, traced, token),
                         bytes) == 0;
    };
    for (int row = 0; row < rows(); ++row) {
      const int head = row / members_ % run_.kv_heads(),
                sequence = row / members_ / run_.kv_heads();
      const int64_t first = int64_t{sequence} * slots_;
      for (int32_t i = 0; i < capacity_; ++i) {
        const int64_t token =
            source[static_cast<size_t>(int64_t{row} * capacity_ + i)] / run_.kv_heads() -
            sequence * host_tokens_;
        ++check.verified;
        check.missing += !alike(first + int64_t{row % members_} * capacity_ + i, head, token);
      }
      for (int64_t i = 0; i < units_.LocalTokens(step, layer, sequence); ++i) {
        const int64_t token = run_.Context(step, sequence) - 1 - i;
        ++check.verified;
        check.missing += !alike(first + LocalPlace(sequence, token), head, token);
      }
    }
  }

  static constexpr int32_t kDeviceBlocks = 1024;

  const DecodeRun& run_;
  Params params_;
  int32_t members_, capacity_, first_local_, slots_;
  int64_t host_tokens_;
  LouisKvUnits units_;
  AttentionLauncher attention_;
  std::vector<Layer> layers_;
  Bf16* pool_ = nullptr;
  Buffer<float> scores_, similarity_;
  Buffer<int32_t> any_, host_flags_, place_, slot_of_, numbers_;
  Buffer<char> workspace_;
  Buffer<Bf16> segment_;  // paired, on its way to the host
  std::optional<SelectionPasses> passes_;
  Buffer<int64_t> host_count_;
  StepTable slot_, table_, tokens_;

  // Staged recall.
  Buffer<int64_t> host_source_;
  Buffer<Bf16> gathered_, staging_;

  // Prefill.
  std::vector<Buffer<Bf16>> prompt_;  // by sparse layer
  Buffer<Bf16> prompt_pairs_;
  Buffer<int32_t> prompt_slots_, kept_count_;
  Buffer<int64_t> kept_source_;

  // Where binding is.
  int step_ = -1, layer_ = -1, leaving_ = -1;
  int64_t gathering_ = 0;  // tokens, of this layer's
};

}  // namespace

const MethodBinder kLouisKv{"louiskv", MakeBehindDense<LouisKvBinder, Params>};

}  // namespace stallcast::kernels
