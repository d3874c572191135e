#include "kernels/executor/prefill_binder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>

#include "kernels/attention/prefill_attention.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/upload.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr size_t kElement = sizeof(__nv_bfloat16);

// `rows` rows of `width` elements from one row length to another.
void CopyRows(__nv_bfloat16* to, int64_t to_row, const __nv_bfloat16* from, int64_t from_row,
              int64_t width, int64_t rows) {
  Check(
      cudaMemcpy2D(to, static_cast<size_t>(to_row) * kElement, from,
                   static_cast<size_t>(from_row) * kElement, static_cast<size_t>(width) * kElement,
                   static_cast<size_t>(rows), cudaMemcpyDefault),
      "cudaMemcpy2D");
}

double MeanNorm(const TraceTensors& trace, int layer, int64_t first, int64_t end) {
  double sum = 0;
  const int heads = trace.kv_heads() * trace.group();
  for (int head = 0; head < heads; ++head) {
    for (int64_t token = first; token < end; ++token) {
      const __nv_bfloat16* query = trace.Query(layer, head, token);
      double squares = 0;
      for (int i = 0; i < trace.head_dim(); ++i) {
        const double value = __bfloat162float(query[i]);
        squares += value * value;
      }
      sum += std::sqrt(squares);
    }
  }
  return sum / static_cast<double>(heads * (end - first));
}

}  // namespace

void CheckPrefill(const llm::Model& model) {
  const std::string why = llm::WhyNoPrefill(model);
  if (why.empty()) return;
  throw UsageError(fmt::format("the prefill of {} is predicted only: {}", model.title, why),
                   "--prefill", "leave it out: the steps can be run");
}

PrefillBinder::PrefillBinder(const DecodeRun& run, const DecoderWeights& weights,
                             CacheBinder& cache)
    : run_(run), cache_(cache), layers_(weights, run.batch(), run.input.prompt_tokens) {
  const llm::Model& m = run.input.model;
  CheckPrefill(run.whole);
  CheckHeads(run);
  const int64_t rows = run.batch() * run.input.prompt_tokens;
  for (int layer = 0; layer < run.trace->layers(); ++layer) injected_.push_back(Inject(layer));
  query_ = Buffer<__nv_bfloat16>(rows * m.query_heads * m.head_dim);
  position_ = Buffer<int32_t>(rows);
  frequencies_ = Buffer<float>(m.head_dim / 2);
  Zero(position_), Zero(frequencies_);
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

PrefillBinder::Injected PrefillBinder::Inject(int trace_layer) const {
  const llm::Model& m = run_.input.model;
  const TraceTensors& trace = *run_.trace;
  const SequenceKv kv = trace.Kv(trace_layer);
  const int64_t d = m.head_dim, tokens = run_.input.prompt_tokens;
  const int64_t heads = int64_t{m.query_heads} * d;
  const int64_t width = heads + int64_t{2} * m.kv_heads * d;
  Injected injected{Buffer<__nv_bfloat16>(run_.batch() * tokens * width),
                    Buffer<__nv_bfloat16>(run_.batch() * heads)};
  // A trace without queries of the prompt has those of its first step stand in.
  const int64_t of_norm = trace.first_query_token();
  const int64_t first = std::min(of_norm, tokens);
  const double norm = MeanNorm(trace, trace_layer, of_norm, std::max(tokens, of_norm + 1));
  FillRandom(injected.qkv.get(), injected.qkv.size(),
             static_cast<float>(norm * std::sqrt(3.0 / static_cast<double>(d))),
             static_cast<uint64_t>(trace_layer) + 1, nullptr);
  for (int sequence = 0; sequence < run_.batch(); ++sequence) {
    __nv_bfloat16* to = injected.qkv.get() + sequence * tokens * width;
    for (int head = 0; head < m.query_heads; ++head) {
      const int traced = trace.QueryHeadFor(head, m.group());
      CopyRows(to + first * width + head * d, width,
               trace.Query(trace_layer, traced, trace.first_query_token()), d, d, tokens - first);
      CopyRows(injected.last_query.get() + sequence * heads + head * d, heads,
               trace.Query(trace_layer, traced, std::max(tokens - 1, trace.first_query_token())), d,
               d, 1);
    }
    for (int head = 0; head < m.kv_heads; ++head) {
      const int64_t from = head % kv.heads * kv.tokens * d;
      CopyRows(to + heads + head * d, width, kv.keys + from, d, d, tokens);
      CopyRows(to + heads + (m.kv_heads + head) * d, width, kv.values + from, d, d, tokens);
    }
  }
  return injected;
}

const PrefillBinder::Places& PrefillBinder::PlacesIn(const PromptKv& prompt) {
  const auto [known, fresh] =
      places_.try_emplace({prompt.slots, prompt.max_pages, prompt.cache.page_tokens}, Places());
  if (!fresh) return known->second;
  std::vector<int32_t> slots(static_cast<size_t>(run_.batch() * prompt.max_pages));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
  if (prompt.slots != nullptr) {
    Check(cudaMemcpy(slots.data(), prompt.slots, slots.size() * sizeof(int32_t),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
  }
  const int64_t page = prompt.cache.page_tokens;
  std::vector<int32_t> slot, place;
  for (int64_t sequence = 0; sequence < run_.batch(); ++sequence) {
    for (int64_t token = 0; token < run_.input.prompt_tokens; ++token) {
      slot.push_back(slots[static_cast<size_t>(sequence * prompt.max_pages + token / page)]);
      place.push_back(static_cast<int32_t>(token % page));
    }
  }
  return known->second = {Uploaded(slot), Uploaded(place)};
}

OpWork PrefillBinder::BindRopeAppend(const plan::Op& op) {
  const PromptKv prompt = cache_.PromptAt(op.layer);
  const Places& places = PlacesIn(prompt);
  return [this, cache = prompt.cache, slot = places.slot.get(), place = places.place.get(),
          qkv = InjectedOf(op.layer).qkv.get()](cudaStream_t stream) {
    RopeAppend(qkv, run_.batch() * run_.input.prompt_tokens, run_.input.model.query_heads, cache,
               slot, place, position_.get(), frequencies_.get(), 1, query_.get(), {}, stream);
  };
}

OpWork PrefillBinder::BindAttention(const plan::Op& op, const plan::PrefillAttention& work) {
  const PromptKv prompt = cache_.PromptAt(op.layer);
  PrefillAttentionArgs args;
  args.query = query_.get();
  args.cache = prompt.cache;
  args.slots = prompt.slots;
  args.max_pages = prompt.max_pages;
  args.output = layers_.attention();
  args.sequences = static_cast<int32_t>(work.sequences);
  args.tokens = static_cast<int32_t>(work.tokens);
  args.past = static_cast<int32_t>(work.past);
  args.group = run_.group();
  args.scale = run_.trace->softmax_scale();
  return [args](cudaStream_t stream) { PrefillAttention(args, stream); };
}

OpWork PrefillBinder::Bind(const plan::Op& op) {
  if (std::optional<OpWork> work = layers_.Bind(op)) return *work;
  if (std::holds_alternative<plan::RopeAppend>(op.work)) return BindRopeAppend(op);
  if (const auto* dense = std::get_if<plan::PrefillAttention>(&op.work)) {
    return BindAttention(op, *dense);
  }
  if (op.layer < 0) CannotBind("prefill", op);
  return cache_.BindPrefill(
      op, {query_.get(), InjectedOf(op.layer).last_query.get(), layers_.attention()});
}

}  // namespace stallcast::kernels
