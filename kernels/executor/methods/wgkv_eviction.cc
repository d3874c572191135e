#include "kernels/executor/methods/wgkv_eviction.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/runtime/upload.h"
#include "kernels/selection/selection.h"
#include "models/methods/wgkv/layer_cache.h"
#include "traces/common/error.h"

namespace stallcast::kernels {

WgKvEviction::WgKvEviction(const DecodeRun& run, const methods::WgKvParams& params, int32_t slack)
    : run_(run),
      params_(params),
      slack_(slack),
      tokens_(run.trace->prompt_tokens() + run.trace->steps()) {
  if (run.head_dim() != 128) {
    throw UsageError(fmt::format("evict=snapkv with heads of {} channels", run.head_dim()), "wgkv",
                     "use a model whose heads have 128");
  }
  for (int i = 0; i < run.trace->layers(); ++i) sources_.push_back(MakeSource(i));
  for (int i = 0; i < run.trace->layers(); ++i) FillMasks(i);
  MakeBuffers();
}

WgKvEviction::Source WgKvEviction::MakeSource(int source) const {
  const methods::LayerTensors tensors = run_.Recorded(source, params_.observe);
  methods::LayerCache cache(tensors, params_);
  Source made;
  made.first_query = tensors.first_query_token();
  made.admitted = cache.admitted();
  for (const auto& flags : made.admitted) {
    std::vector<int32_t>& before = made.before.emplace_back(1, 0);
    for (const uint8_t flag : flags) before.push_back(before.back() + flag);
  }
  std::vector<int32_t> dropped_all;
  const auto last = run_.TraceStep(run_.input.steps - 1, run_.batch() - 1);
  for (int step = 0; step <= last; ++step) {
    const int64_t context = tensors.prompt_tokens() + step + 1;
    cache.Promote(context);
    const auto dropped = cache.Evict(context);
    if (std::ranges::all_of(dropped, [](int32_t tokens) { return tokens == 0; })) continue;
    Evicted& evicted = made.evictions.emplace_back(
        Evicted{step, {}, std::vector<int32_t>(dropped.begin(), dropped.end())});
    for (int head = 0; head < tensors.kv_heads(); ++head) {
      const auto kept = cache.head(head).tokens();
      evicted.kept.emplace_back(kept.begin(), kept.end());
    }
    for (int head = 0; head < run_.kv_heads(); ++head) {
      dropped_all.push_back(dropped[static_cast<size_t>(Traced(head))]);
    }
  }
  if (made.evictions.empty()) return made;
  made.dropped = Uploaded(dropped_all);
  std::vector<__nv_bfloat16> queries;
  for (int head = 0; head < run_.kv_heads(); ++head) {
    queries.resize(queries.size() +
                   static_cast<size_t>(params_.observe * run_.group() * run_.head_dim()));
    for (int64_t token = made.first_query; token < tokens_; ++token) {
      for (int g = 0; g < run_.group(); ++g) {
        for (const float x : tensors.Query(Traced(head) * run_.group() + g, token)) {
          queries.push_back(__float2bfloat16(x));
        }
      }
    }
  }
  made.queries = Uploaded(queries);
  return made;
}

void WgKvEviction::FillMasks(int source) {
  const auto layer = std::ranges::find(run_.source_of, source);
  if (layer == run_.source_of.end()) return;  // stands for no layer
  std::vector<float> masks;
  for (int sequence = 0; sequence < run_.batch(); ++sequence) {
    for (int head = 0; head < run_.trace->kv_heads(); ++head) {
      std::vector<float> mask(static_cast<size_t>(tokens_));
      for (const uint32_t token :
           Expected(-1, static_cast<int>(layer - run_.source_of.begin()), sequence, head)) {
        mask[token] = 1;
      }
      masks.insert(masks.end(), mask.begin(), mask.end());
    }
  }
  sources_[static_cast<size_t>(source)].masks = Uploaded(masks);
}

void WgKvEviction::MakeBuffers() {
  int32_t candidates = 0, most = 0;
  for (int layer = 0; layer < run_.input.model.layers; ++layer) {
    for (int step = 0; step < run_.input.steps; ++step) {
      for (const int sequence : Sequences(step, layer)) {
        candidates = std::max(candidates, Candidates(step, layer, sequence));
        most = std::max(most, MostDropped(step, layer, sequence));
      }
    }
  }
  if (most == 0) return;
  stride_ = candidates + static_cast<int32_t>(params_.window);
  const int32_t rows = run_.kv_heads();
  const int64_t keys = int64_t{rows} * stride_;
  places_ = Buffer<int32_t>(keys);
  positions_ = Buffer<int32_t>(keys);
  counts_ = Buffer<int32_t>(rows);
  scored_ = Buffer<int32_t>(rows);
  ids_ = Buffer<int32_t>(int64_t{rows} * most);
  scores_ = Buffer<float>(int64_t{rows} * candidates);
  WindowScoreArgs args;
  args.rows = rows;
  args.queries = static_cast<int32_t>(params_.observe);
  args.group = run_.group();
  args.stride = stride_;
  score_workspace_ = Buffer<float>(WindowScoreWorkspace(args));
  choice_workspace_ = Buffer<char>(std::max<int64_t>(1, TopKWorkspace(rows, candidates, most)));
}

int64_t WgKvEviction::Left(int step, int sequence) const {
  return run_.Context(step, sequence) - params_.window;
}

int WgKvEviction::LastEviction(int step, int layer, int sequence) const {
  const auto& evictions = Of(layer).evictions;
  const int64_t trace_step = run_.TraceStep(step, sequence);
  const auto after = std::ranges::upper_bound(evictions, trace_step, {}, &Evicted::trace_step);
  return static_cast<int>(after - evictions.begin()) - 1;
}

int WgKvEviction::EvictionAt(int step, int layer, int sequence) const {
  const int last = LastEviction(step, layer, sequence);
  if (last < 0 ||
      Of(layer).evictions[static_cast<size_t>(last)].trace_step != run_.TraceStep(step, sequence)) {
    throw Error(
        fmt::format("the plan evicts in step {}, layer {}, where the policy does not", step, layer),
        "wgkv", "report this: plan and policy have come apart");
  }
  return last;
}

std::vector<int> WgKvEviction::Sequences(int step, int layer) const {
  std::vector<int> evicting;
  for (int sequence = 0; sequence < run_.batch(); ++sequence) {
    const int last = LastEviction(step, layer, sequence);
    if (last >= 0 && Of(layer).evictions[static_cast<size_t>(last)].trace_step ==
                         run_.TraceStep(step, sequence)) {
      evicting.push_back(sequence);
    }
  }
  return evicting;
}

int32_t WgKvEviction::Kept(int step, int layer, int sequence, int head) const {
  const auto traced = static_cast<size_t>(Traced(head));
  const std::vector<int32_t>& before = Of(layer).before[traced];
  const int32_t admitted = before[static_cast<size_t>(Left(step, sequence))];
  const int last = LastEviction(step, layer, sequence);
  if (last < 0) return admitted;
  const Evicted& evicted = Of(layer).evictions[static_cast<size_t>(last)];
  const int64_t left = run_.trace->prompt_tokens() + evicted.trace_step + 1 - params_.window;
  return static_cast<int32_t>(evicted.kept[traced].size()) + admitted -
         before[static_cast<size_t>(left)];
}

std::vector<uint32_t> WgKvEviction::Expected(int step, int layer, int sequence, int head) const {
  const auto traced = static_cast<size_t>(Traced(head));
  const int last = LastEviction(step, layer, sequence);
  std::vector<uint32_t> kept;
  int64_t token = 0;
  if (last >= 0) {
    const Evicted& evicted = Of(layer).evictions[static_cast<size_t>(last)];
    kept = evicted.kept[traced];
    token = run_.trace->prompt_tokens() + evicted.trace_step + 1 - params_.window;
  }
  for (; token < Left(step, sequence); ++token) {
    if (Of(layer).admitted[traced][static_cast<size_t>(token)] != 0) {
      kept.push_back(static_cast<uint32_t>(token));
    }
  }
  return kept;
}

int32_t WgKvEviction::Most(int layer, int sequence, int head) const {
  const auto traced = static_cast<size_t>(Traced(head));
  // Prefill starts all sequences alike.
  int32_t most =
      Of(layer).before[traced][static_cast<size_t>(run_.input.prompt_tokens - params_.window)];
  for (int step = -1; step < run_.input.steps; ++step) {
    most = std::max(most, Kept(step, layer, sequence, head));
  }
  for (int step = 0; step < run_.input.steps; ++step) {
    const int last = LastEviction(step, layer, sequence);
    if (last < 0) continue;
    const Evicted& evicted = Of(layer).evictions[static_cast<size_t>(last)];
    if (evicted.trace_step != run_.TraceStep(step, sequence)) continue;
    most =
        std::max(most, static_cast<int32_t>(evicted.kept[traced].size()) + evicted.dropped[traced]);
  }
  return most;
}

const float* WgKvEviction::Mask(int layer, int sequence, int head) const {
  return Of(layer).masks.get() +
         (int64_t{sequence} * run_.trace->kv_heads() + Traced(head)) * tokens_;
}

int32_t WgKvEviction::Candidates(int step, int layer, int sequence) const {
  const Evicted& evicted =
      Of(layer).evictions[static_cast<size_t>(EvictionAt(step, layer, sequence))];
  int32_t most = 0;
  for (size_t head = 0; head < evicted.kept.size(); ++head) {
    most = std::max(most, static_cast<int32_t>(evicted.kept[head].size()) + evicted.dropped[head]);
  }
  return most + slack_;
}

int32_t WgKvEviction::MostDropped(int step, int layer, int sequence) const {
  return std::ranges::max(
      Of(layer).evictions[static_cast<size_t>(EvictionAt(step, layer, sequence))].dropped);
}

OpWork WgKvEviction::Score(int step, int layer, int sequence, const GrowingRows& rows,
                           int32_t oldest) const {
  const Source& source = Of(layer);
  const int64_t last = run_.Context(step, sequence) - 1;  // the step's own query comes later
  const int64_t vectors = int64_t{run_.group()} * run_.head_dim();
  const auto unseen =
      static_cast<int32_t>(std::max<int64_t>(0, source.first_query + params_.observe - last));
  const ObservedKeys keys{places_.get(), positions_.get(), counts_.get(), scored_.get(), stride_};
  WindowScoreArgs args;
  args.query = source.queries.get() + (last - source.first_query) * vectors;
  args.query_stride = (params_.observe + tokens_ - source.first_query) * vectors;
  args.cache = rows.cache;
  args.places = places_.get();
  args.positions = positions_.get();
  args.counts = counts_.get();
  args.scores = scores_.get();
  args.scored = scored_.get();
  args.scored_stride = Candidates(step, layer, sequence);
  args.workspace = score_workspace_.get();
  args.rows = rows.rows;
  args.stride = stride_;
  args.queries = static_cast<int32_t>(params_.observe);
  args.group = run_.group();
  args.smooth = static_cast<int32_t>(params_.smooth);
  args.scale = run_.trace->softmax_scale();
  return [rows, oldest, unseen, keys, args](cudaStream_t stream) {
    ListObservedKeys(rows, oldest, args.queries, unseen, keys, stream);
    WindowScore(args, stream);
  };
}

OpWork WgKvEviction::Choose(int step, int layer, int sequence) const {
  const int32_t* dropped =
      Of(layer).dropped.get() + int64_t{EvictionAt(step, layer, sequence)} * run_.kv_heads();
  return [this, dropped, candidates = Candidates(step, layer, sequence),
          most = MostDropped(step, layer, sequence)](cudaStream_t stream) {
    LowestK(scores_.get(), run_.kv_heads(), candidates, most, dropped, ids_.get(),
            choice_workspace_.get(), stream);
  };
}

OpWork WgKvEviction::Drop(int step, int layer, int sequence, const GrowingRows& rows,
                          const PageMarks& marks) const {
  const int32_t* dropped =
      Of(layer).dropped.get() + int64_t{EvictionAt(step, layer, sequence)} * run_.kv_heads();
  return [this, rows, marks, dropped, most = MostDropped(step, layer, sequence)](
             cudaStream_t stream) { DropTokens(rows, ids_.get(), most, dropped, marks, stream); };
}

}  // namespace stallcast::kernels
