#include "models/methods/layer_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "traces/common/error.h"

namespace stallcast::methods {

using traces::Tensor;
using traces::TensorKind;
using traces::Trace;

namespace {

void RequireUsable(const Tensor& tensor, const std::string& where) {
  const std::string_view name = Name(tensor.spec.kind);
  if (tensor.spec.heads < 1 || tensor.spec.head_dim < 1) {
    throw Error(fmt::format("the {} tensor is empty", name), where, "capture it again");
  }
  if (const int64_t bad = CountNonFinite(tensor); bad > 0) {
    throw Error(fmt::format("{} of {} {} elements are infinite or not a number", bad,
                            tensor.spec.elements(), name),
                where, "capture in a wider type (bf16 or fp32) or leave the layer out");
  }
}

const Tensor& FindTensor(const Trace& trace, TensorKind kind, int layer) {
  const std::string where = fmt::format("layer {}", layer);
  const Tensor* tensor = trace.Find(kind, layer);
  if (tensor == nullptr) {
    throw Error(fmt::format("the trace has no {} tensor", Name(kind)), where,
                "choose a layer that was captured (`stallcast info` lists them)");
  }
  RequireUsable(*tensor, where);
  return *tensor;
}

// Whether the layer's queries and keys have the shape of these and cover what a replay reads.
bool MayLend(const Trace& trace, int layer, const Tensor& keys, const Tensor& queries,
             int64_t first_query, int64_t tokens) {
  const Tensor* k = trace.Find(TensorKind::kKey, layer);
  const Tensor* q = trace.Find(TensorKind::kQuery, layer);
  return k != nullptr && q != nullptr && k->spec.heads == keys.spec.heads &&
         k->spec.head_dim == keys.spec.head_dim && q->spec.heads == queries.spec.heads &&
         q->spec.head_dim == queries.spec.head_dim && k->spec.first_token <= 0 &&
         k->spec.end_token() >= tokens && q->spec.first_token <= first_query &&
         q->spec.end_token() >= tokens;
}

}  // namespace

int DecodeSteps(const Trace& trace) {
  int64_t steps = trace.info.decode_steps();
  if (steps == 0) {
    // As far as all layers that decode at all have come.
    for (const int layer : trace.Layers()) {
      const int64_t end = std::min(trace.Find(TensorKind::kQuery, layer)->spec.end_token(),
                                   trace.Find(TensorKind::kKey, layer)->spec.end_token()) -
                          trace.info.prompt_tokens();
      if (end > 0 && (steps == 0 || end < steps)) steps = end;
    }
  }
  if (steps < 1 || trace.info.prompt_tokens() < 1) {
    throw Error(fmt::format("the trace decodes {} tokens after a prompt of {}", steps,
                            trace.info.prompt_tokens()),
                "trace", "capture a run with a prompt and at least one decoded token");
  }
  if (steps > INT32_MAX || trace.info.prompt_tokens() > INT32_MAX - steps) {
    throw Error("more than 2^31 tokens", "trace", "split the trace");
  }
  return static_cast<int>(steps);
}

bool HasValues(const Trace& trace, int layer) {
  const Tensor* values = trace.Find(TensorKind::kValue, layer);
  return values != nullptr && values->spec.first_token <= 0 &&
         values->spec.end_token() >= trace.info.prompt_tokens() + DecodeSteps(trace);
}

LayerTensors::LayerTensors(const Trace& trace, int layer, int64_t prompt_queries, int group,
                           int kv_heads)
    : layer_(layer),
      steps_(DecodeSteps(trace)),
      prompt_tokens_(trace.info.prompt_tokens()),
      tokens_(prompt_tokens_ + steps_) {
  const Tensor& keys = FindTensor(trace, TensorKind::kKey, layer);
  const Tensor& queries = FindTensor(trace, TensorKind::kQuery, layer);
  const std::string where = fmt::format("layer {}", layer);
  kv_heads_ = keys.spec.heads;
  query_heads_ = queries.spec.heads;
  head_dim_ = keys.spec.head_dim;
  if (query_heads_ % kv_heads_ != 0) {
    throw Error(
        fmt::format("{} query heads are not a multiple of {} KV heads", query_heads_, kv_heads_),
        where, "capture all heads of the layer");
  }
  if (queries.spec.head_dim != head_dim_) {
    throw Error(
        fmt::format("queries have {} dimensions, keys {}", queries.spec.head_dim, head_dim_), where,
        "capture both from one model");
  }
  if (keys.spec.first_token > 0 || keys.spec.end_token() < tokens_) {
    throw Error(fmt::format("keys cover tokens {} to {}, the run needs 0 to {}",
                            keys.spec.first_token, keys.spec.end_token(), tokens_),
                where, "capture the keys of the whole prompt and of every step");
  }
  if (queries.spec.first_token > prompt_tokens_ || queries.spec.end_token() < tokens_) {
    throw Error(
        fmt::format("queries cover tokens {} to {}, the run needs {} to {}",
                    queries.spec.first_token, queries.spec.end_token(), prompt_tokens_, tokens_),
        where, "capture the query of every step");
  }
  const Tensor* values = nullptr;
  if (HasValues(trace, layer)) {
    values = trace.Find(TensorKind::kValue, layer);
    RequireUsable(*values, where);
    if (values->spec.heads != kv_heads_) {
      throw Error(fmt::format("values have {} heads, keys {}", values->spec.heads, kv_heads_),
                  where, "capture both from one model");
    }
    value_dim_ = values->spec.head_dim;
  }
  first_query_ = std::max(queries.spec.first_token, prompt_tokens_ - prompt_queries);
  query_tokens_ = tokens_ - first_query_;
  const traces::proto::Model& model = trace.info.model();
  scale_ = static_cast<float>(model.softmax_scale());
  if (layer < model.attention_size() && model.attention(layer).softmax_scale() > 0) {
    scale_ = static_cast<float>(model.attention(layer).softmax_scale());
  }
  if (!(scale_ > 0) || !std::isfinite(scale_)) {
    scale_ = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  }
  rope_ = model.rope();
  const int traced_group = query_heads_ / kv_heads_;
  if (group == 0) group = traced_group;
  std::vector<int> lenders;
  for (const int other : trace.Layers()) {
    if (other == layer || MayLend(trace, other, keys, queries, first_query_, tokens_)) {
      lenders.push_back(other);
    }
  }
  for (const TracedKvHead& head :
       TracedKvHeads(lenders, layer, kv_heads_, std::max(kv_heads, kv_heads_))) {
    AddHead(trace, head, values);
  }
  kv_heads_ = static_cast<int>(std::ssize(sources_));
  query_heads_ = kv_heads_ * group;
  queries_.resize(static_cast<size_t>(query_heads_ * query_tokens_ * head_dim_));
  for (int h = 0; h < query_heads_; ++h) {
    const Source& from = source(h / group);
    from.queries->ToFloat(TracedQueryHead(from.head * group + h % group, group, traced_group),
                          first_query_, query_tokens_,
                          queries_.data() + h * query_tokens_ * head_dim_);
  }
}

void LayerTensors::AddHead(const Trace& trace, const TracedKvHead& head, const Tensor* values) {
  Source from{trace.Find(TensorKind::kKey, head.layer), trace.Find(TensorKind::kQuery, head.layer),
              nullptr, head.head};
  if (head.layer == layer_) {
    from.values = values;
  } else if (head.head == 0) {
    const std::string where = fmt::format("layer {}", head.layer);
    RequireUsable(*from.keys, where);
    RequireUsable(*from.queries, where);
  }
  sources_.push_back(from);
}

std::span<const float> LayerTensors::Query(int query_head, int64_t token) const {
  const int64_t row = query_head * query_tokens_ + token - first_query_;
  return {queries_.data() + row * head_dim_, static_cast<size_t>(head_dim_)};
}

void AttendedRanges::Add(int64_t begin, int64_t end) {
  if (begin >= end) return;
  if (!open_.empty() && open_.back().end == begin) {
    open_.back().end = static_cast<int32_t>(end);
  } else {
    open_.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end)});
  }
}

namespace {

constexpr int64_t kWordBits = 64;

void SetBits(std::vector<uint64_t>& bits, AttendedRanges::Range range) {
  for (int64_t token = range.begin; token < range.end;) {
    const int64_t in_word = token % kWordBits;
    const int64_t count = std::min<int64_t>(kWordBits - in_word, range.end - token);
    bits[static_cast<size_t>(token / kWordBits)] |= ~uint64_t{0} >> (kWordBits - count) << in_word;
    token += count;
  }
}

// The first token of [token, end) whose bit is `value`, or `end`.
int64_t FirstBit(const std::vector<uint64_t>& bits, int64_t token, int64_t end, bool value) {
  while (token < end) {
    const uint64_t word = bits[static_cast<size_t>(token / kWordBits)];
    const uint64_t left = (value ? word : ~word) >> (token % kWordBits);
    if (left != 0) return std::min(token + std::countr_zero(left), end);
    token += kWordBits - token % kWordBits;
  }
  return end;
}

}  // namespace

void AttendedRanges::EndCell() {
  tokens_in_last_ = 0;
  for (const Range range : open_) tokens_in_last_ += range.end - range.begin;
  const int64_t end = open_.empty() ? 0 : open_.back().end;
  const int64_t words = (end + kWordBits - 1) / kWordBits;
  static_assert(sizeof(Range) == sizeof(uint64_t));
  if (std::ssize(open_) <= words) {
    cells_.emplace_back(std::vector(open_.begin(), open_.end()));
  } else {
    Bits bits(static_cast<size_t>(words));
    for (const Range range : open_) SetBits(bits, range);
    cells_.emplace_back(std::move(bits));
  }
  open_.clear();
}

std::span<const AttendedRanges::Range> AttendedRanges::Within(int step, int head, int64_t begin,
                                                              int64_t end,
                                                              std::vector<Range>& scratch) const {
  const auto& cell = cells_[static_cast<size_t>(step) * heads_ + head];
  if (const auto* ranges = std::get_if<std::vector<Range>>(&cell)) {
    const auto first = std::partition_point(ranges->begin(), ranges->end(),
                                            [&](Range range) { return range.end <= begin; });
    const auto last =
        std::partition_point(first, ranges->end(), [&](Range range) { return range.begin < end; });
    return {first, last};
  }
  const Bits& bits = std::get<Bits>(cell);
  scratch.clear();
  end = std::min(end, std::ssize(bits) * kWordBits);
  for (int64_t at = FirstBit(bits, begin, end, true); at < end;) {
    const int64_t until = FirstBit(bits, at, end, false);
    scratch.push_back({static_cast<int32_t>(at), static_cast<int32_t>(until)});
    at = FirstBit(bits, until, end, true);
  }
  return scratch;
}

std::vector<AttendedRanges::Range> AttendedRanges::Cell(int step, int head) const {
  std::vector<Range> scratch;
  const auto all = Within(step, head, 0, INT32_MAX, scratch);
  return {all.begin(), all.end()};
}

}  // namespace stallcast::methods
