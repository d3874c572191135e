#include "models/methods/decoder_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/methods/transformers_decoder.h"
#include "models/plan/operators.h"

namespace stallcast::methods {

using plan::OpId;
using plan::Role;

namespace {

PlanInput FullAttentionRun(PlanInput run) {
  run.model = llm::FullAttentionOnly(run.model);
  return run;
}

}  // namespace

DecoderPlan::DecoderPlan(const PlanInput& run)
    : whole(run.model), input(FullAttentionRun(run)), log(run.log, input.model, run.batch) {
  const bool pytorch = plan::CallsOperators(run.host, run.as_run);
  host = builder.AddHost("host", pytorch ? plan::Host::kPyTorch : plan::Host::kCpp);
  compute = builder.AddStream("compute", host, /*compute=*/true);
  std::vector<int> names(static_cast<size_t>(whole.layers));
  int full = 0, other = input.model.layers;
  for (int layer = 0; layer < whole.layers; ++layer) {
    const bool is_full = whole.KindOf(layer).attention == llm::Layer::Attention::kFull;
    const int id = is_full ? full++ : other++;
    ids_.push_back(id);
    names[static_cast<size_t>(id)] = layer;
  }
  if (input.model.layers < whole.layers) builder.NameLayers(std::move(names));
}

void DecoderPlan::Call(plan::Operator op, int64_t count) {
  if (input.host != plan::Host::kPyTorch || count <= 0) return;
  const Role role = builder.role();
  builder.SetRole(Role::kHost);
  builder.Run(host, plan::HostCalls{op, count});
  builder.SetRole(role);
}

void DecoderPlan::ReadScalar(plan::LaneId stream) {
  builder.For(plan::Purpose::kReadCount)
      .Run(stream, plan::Copy{plan::Direction::kDeviceToHost, plan::CopyPath::kBulk, 1, 4});
  builder.SyncStream(host, stream);
}

OpId DecoderPlan::Attend(plan::DecodeAttention attention, std::initializer_list<OpId> waits) {
  attention.sequences = input.batch;
  attention.queries = input.model.queries;
  if (input.model.kv != plan::Width{}) attention.kv_row_bytes = input.model.KvRowBytes();
  return builder.Run(compute, attention, waits);
}

OpId DecoderPlan::Attend(int layer, int64_t kv_tokens, int64_t kv_tokens_max,
                         std::initializer_list<OpId> waits) {
  const llm::Model& m = input.model;
  builder.At(layer, Role::kAttention);
  if (m.latent) return AttendLatents(kv_tokens, kv_tokens_max, waits);
  return Attend(plan::DecodeAttention{kv_tokens, kv_tokens_max, input.batch, m.kv_heads, m.group(),
                                      m.head_dim},
                waits);
}

// Queries are multiplied into latents before and out of them behind; an indexer chooses first.
OpId DecoderPlan::AttendLatents(int64_t kv_tokens, int64_t kv_tokens_max,
                                std::initializer_list<OpId> waits) {
  const llm::Model& m = input.model;
  const llm::Latent& l = *m.latent;
  if (l.top_k > 0 && kv_tokens_max > l.top_k) {
    builder.SetRole(Role::kSelection);
    builder.Run(compute,
                plan::LatentIndex{kv_tokens, kv_tokens * m.queries, kv_tokens_max, l.index_heads,
                                  l.index_dim, l.index_dim + Bytes{sizeof(float)}, l.top_k},
                waits);
    builder.SetRole(Role::kAttention);
    kv_tokens = int64_t{input.batch} * l.top_k;
    kv_tokens_max = l.top_k;
  }
  return builder.Run(compute,
                     plan::LatentAttention{kv_tokens, kv_tokens_max, input.batch, m.query_heads,
                                           l.width(), l.rank, m.queries, m.kv.Of(l.width())},
                     waits);
}

AccessCell DecoderPlan::Cell(int step, int layer, int sequence, int head) const {
  const auto context = static_cast<int32_t>(std::min<int64_t>(Context(step), INT32_MAX));
  const AccessCell cell = log.At(step, layer, sequence, head);
  // Everything fits the budget at this shorter context: nothing is selected or moved.
  if (cell.attended_tokens >= context) return {.attended_tokens = context};
  return cell;
}

DecoderPlan::LayerAccess DecoderPlan::Access(int step, int layer) const {
  LayerAccess sum;
  for (int sequence = 0; sequence < input.batch; ++sequence) {
    for (int head = 0; head < log.heads(); ++head) {
      const AccessCell cell = Cell(step, layer, sequence, head);
      sum.attended_tokens += cell.attended_tokens;
      sum.attended_tokens_max = std::max<int64_t>(sum.attended_tokens_max, cell.attended_tokens);
      sum.flags |= cell.flags;
      sum.cells.push_back(cell);
    }
  }
  return sum;
}

plan::ZeroCopyGather DecoderPlan::Scattered(plan::ZeroCopyGather gather, Bytes pool, int step,
                                            int layer, int64_t parts) {
  if (regions_step_ != step) {
    regions_step_ = step;
    regions_.clear();
    for (int each = 0; each < input.model.layers; ++each) {
      regions_.push_back(RegionsOf(step, each, gather.piece_bytes));
    }
  }
  const plan::RegionsRead& read = regions_[static_cast<size_t>(layer)];
  gather.scattered_over = pool;
  gather.regions = parts * read.regions;
  gather.regions_again = parts * read.again;
  gather.regions_a_step = 0;
  for (const plan::RegionsRead& of_layer : regions_) {
    gather.regions_a_step += parts * of_layer.regions;
  }
  return gather;
}

double DecoderPlan::UnitsApart() const {
  return static_cast<double>(input.prompt_tokens) /
         static_cast<double>(std::max<int64_t>(1, input.log->prompt_tokens));
}

plan::RegionsRead DecoderPlan::RegionsOf(int step, int layer, Bytes piece) const {
  const double apart = static_cast<double>(piece) * UnitsApart();
  const auto a_region =
      static_cast<uint32_t>(std::clamp(static_cast<double>(plan::kHostRegion) / apart, 1.0, 1e9));
  plan::RegionsRead sum;
  for (int sequence = 0; sequence < input.batch; ++sequence) {
    for (int head = 0; head < log.heads(); ++head) {
      std::span<const uint32_t> before;
      if (step > 0) before = log.RecalledNow(step - 1, layer, sequence, head);
      const plan::RegionsRead read =
          plan::Regions(log.RecalledNow(step, layer, sequence, head), before, a_region);
      sum.regions += read.regions;
      sum.again += read.again;
    }
  }
  return sum;
}

std::vector<plan::Copy> DecoderPlan::CopiesOfUnits(When when, int step, int layer,
                                                   Bytes piece) const {
  const int heads = log.heads();
  const double apart = UnitsApart();
  const auto pieces_a_region = static_cast<double>(plan::kCopyRegion) / static_cast<double>(piece);
  const Bytes pool = input.batch * input.prompt_tokens * input.model.KvBytesPerTokenLayer();
  std::vector<plan::Copy> copies;
  std::vector<uint32_t> regions, before, all;  // of a head's pieces, of the heads' before, of both
  for (int sequence = 0; sequence < input.batch; ++sequence) {
    before.clear();
    for (int head = 0; head < heads; ++head) {
      const AccessCell cell = Cell(step, layer, sequence, head);
      const bool now = when == When::kNow;
      plan::Copy& copy = copies.emplace_back(
          plan::Copy{plan::Direction::kHostToDevice, plan::CopyPath::kPerPiece,
                     now ? cell.recalled_now : cell.recalled_ahead, piece, pool});
      if (copy.pieces == 0) continue;
      regions.clear();
      for (const uint32_t unit : now ? log.RecalledNow(step, layer, sequence, head)
                                     : log.RecalledAhead(step, layer, sequence, head)) {
        const double at = std::floor(unit * apart) * heads + head;
        regions.push_back(static_cast<uint32_t>(std::min(at / pieces_a_region, 4e9)));
      }
      const plan::RegionsRead read = plan::Regions(regions, before, 1);
      copy.regions = read.regions - read.again;
      all.clear();
      std::ranges::set_union(regions, before, std::back_inserter(all));
      before.swap(all);
    }
  }
  return copies;
}

plan::Copy DecoderPlan::OneAfterTheOther(std::span<const plan::Copy> copies) {
  plan::Copy all = copies.front();
  for (const plan::Copy& copy : copies.subspan(1)) {
    all.pieces += copy.pieces;
    all.regions += copy.regions;
  }
  return all;
}

OpId DecoderPlan::AttendAll(int step, int layer, std::initializer_list<OpId> waits) {
  return Attend(layer, kv_rows() * Context(step), Context(step), waits);
}

namespace {

void RunGemm(DecoderPlan& d, int64_t rows, const llm::Matrix& matrix) {
  if (matrix.n == 0) return;
  d.builder.Run(d.compute, plan::Gemm{rows, matrix.n, matrix.k, matrix.width});
}

// A matrix a head.
void RunHeads(DecoderPlan& d, int64_t rows, const llm::Matrix& matrix) {
  d.builder.Run(d.compute, plan::GroupedGemm{rows * matrix.count, matrix.n, matrix.k,
                                             static_cast<double>(matrix.count), matrix.width});
}

// The sum over the GPUs that share a layer of what each has made of it.
void AllReduce(DecoderPlan& d, int64_t rows) {
  const llm::Model& m = d.whole;
  if (m.tensor_parallel <= 1) return;
  d.builder.Run(d.compute,
                plan::AllReduce{rows * m.hidden * llm::kActivationBytes, m.tensor_parallel});
}

// The ops of a layer around its attention, for `rows` tokens. `absorbed`: latents are attended as
// they are cached.
void BeforeAttention(DecoderPlan& d, int layer, const llm::Layer& kind,
                     const llm::LayerWeights& weights, int64_t rows, bool absorbed,
                     bool bounds = false) {
  using Kind = llm::Layer::Attention;
  const llm::Model& m = d.whole;
  if (kind.attention == Kind::kNone) return;
  d.builder.At(layer, Role::kProjection);
  d.builder.Run(d.compute, plan::Norm{rows, m.hidden});
  RunGemm(d, rows, weights.input);
  if (kind.attention == Kind::kLinear) return;
  if (!m.latent) {
    d.builder.Run(d.compute, plan::RopeAppend{rows, m.query_heads, m.kv_heads, m.head_dim, bounds});
    return;
  }
  const llm::Latent& l = *m.latent;
  d.builder.Run(d.compute, plan::Norm{rows, l.query_rank + l.rank});
  RunGemm(d, rows, weights.query_up);
  d.builder.Run(d.compute, plan::RopeAppend{rows, m.query_heads, 1, l.rope, false});
  if (absorbed) RunHeads(d, rows, weights.key_up);
  if (l.top_k == 0) return;
  d.builder.SetRole(Role::kIndex);
  RunGemm(d, rows, weights.index_query);
  RunGemm(d, rows, weights.index_key);
}

// A layer that attends otherwise than by everything; the method has no part in it.
void OtherAttention(DecoderPlan& d, int step, int layer, const llm::Layer& kind) {
  using Kind = llm::Layer::Attention;
  const llm::Model& m = d.whole;
  if (kind.attention == Kind::kWindow) {
    const int64_t tokens = std::min(kind.window, d.Context(step));
    d.Attend(layer, d.kv_rows() * tokens, tokens);
  } else if (kind.attention == Kind::kLinear) {
    d.builder.At(layer, Role::kAttention);
    d.builder.Run(d.compute,
                  plan::StateUpdate{d.input.batch, int64_t{d.input.batch} * m.queries,
                                    m.linear->value_heads, m.linear->key_dim, m.linear->value_dim});
  }
}

void AfterAttention(DecoderPlan& d, int layer, const llm::Layer& kind,
                    const llm::LayerWeights& weights, int64_t rows, bool absorbed) {
  const llm::Model& m = d.whole;
  if (kind.attention == llm::Layer::Attention::kNone) return;
  d.builder.At(layer, Role::kProjection);
  if (m.latent && absorbed) RunHeads(d, rows, weights.value_up);
  if (m.output_gate && kind.attention != llm::Layer::Attention::kLinear) {
    d.builder.Run(d.compute, plan::SwiGlu{rows, int64_t{m.query_heads} * m.head_dim});
  }
  RunGemm(d, rows, weights.output);
  AllReduce(d, rows);
}

// Of a mixture, each row's experts; then, or instead, the MLP that all rows take.
void Mlp(DecoderPlan& d, int layer, const llm::Layer& kind, const llm::LayerWeights& weights,
         int64_t rows) {
  const llm::Model& m = d.whole;
  d.builder.At(layer, Role::kMlp);
  d.builder.Run(d.compute, plan::Norm{rows, m.hidden});
  if (kind.experts) {
    const llm::Experts& e = *m.experts;
    const double taken = m.DistinctExperts(rows);
    const int64_t pairs = rows * e.active;
    const auto grouped = [&](const llm::Matrix& matrix, int64_t outputs) {
      d.builder.Run(d.compute,
                    plan::GroupedGemm{pairs, matrix.n, matrix.k, taken, matrix.width, outputs});
    };
    RunGemm(d, rows, weights.router);
    d.builder.Run(d.compute, plan::Route{rows, e.count, e.active});
    grouped(weights.expert_gate_up, pairs);
    d.builder.Run(d.compute, plan::SwiGlu{pairs, e.intermediate});
    grouped(weights.expert_down, rows);  // and the sum over a row's experts
  }
  if (weights.gate_up.n > 0) {
    RunGemm(d, rows, weights.gate_up);
    d.builder.Run(d.compute, plan::SwiGlu{rows, weights.down.k});
    RunGemm(d, rows, weights.down);
  }
  AllReduce(d, rows);
}

// Logits, the next token, and its way to the host.
void NextToken(DecoderPlan& d, int64_t queries) {
  const llm::Model& m = d.whole;
  const int64_t rows = d.input.batch * queries;
  d.builder.At(-1, Role::kProjection);
  d.builder.Run(d.compute, plan::Norm{rows, m.hidden});
  d.builder.Run(d.compute, plan::Gemm{rows, m.vocabulary, m.hidden});
  d.builder.Run(d.compute, plan::Sample{rows, m.vocabulary});
  d.builder.SetRole(Role::kSync);
  d.builder.Run(d.compute, plan::Copy{plan::Direction::kDeviceToHost, plan::CopyPath::kBulk, 1,
                                      rows * int64_t{sizeof(int32_t)}});
}

void CheckRun(const PlanInput& input) {
  if (input.batch < 1 || input.prompt_tokens < 1 || input.steps < 0) {
    throw UsageError("batch and context must be at least 1", "plan", "choose larger ones");
  }
}

// A layer of the whole model with what a plan asks of it.
struct PlannedLayer {
  int id = 0;
  llm::Layer kind;
  llm::LayerWeights weights;
  bool full() const { return kind.attention == llm::Layer::Attention::kFull; }
};

std::vector<PlannedLayer> LayersOf(const DecoderPlan& d) {
  std::vector<PlannedLayer> layers;
  for (int layer = 0; layer < d.whole.layers; ++layer) {
    const llm::Layer kind = d.whole.KindOf(layer);
    layers.push_back({d.LayerId(layer), kind, llm::WeightsOf(d.whole, kind)});
  }
  return layers;
}

plan::Plan Finish(DecoderPlan& d) {
  plan::Plan plan = d.builder.Finish();
  plan.notes = d.log.notes();
  plan.notes.insert(plan.notes.end(), d.notes.begin(), d.notes.end());
  std::set<std::string_view> predicted_only;
  for (const plan::Work& work : plan.ops.works()) {
    if (plan::PredictedOnly(work)) predicted_only.insert(plan::KindName(work));
  }
  if (!predicted_only.empty()) {
    plan.notes.push_back(
        fmt::format("predicted only, from public figures, and not run on a GPU: {}",
                    fmt::join(predicted_only, ", ")));
  }
  return plan;
}

}  // namespace

plan::Plan WriteDecode(const Method& method, const PlanInput& input) {
  CheckRun(input);
  DecoderPlan d(input);
  const std::unique_ptr<PlanWriter> writer = method.NewPlanWriter(d);
  const std::vector<PlannedLayer> layers = LayersOf(d);
  const int64_t rows = int64_t{input.batch} * input.model.queries;
  const bool graph = input.host == plan::Host::kGraph;
  std::optional<TransformersDecoder> transformers;
  if (writer->decoder() != PlanWriter::Decoder::kOwn) transformers.emplace(d, writer->decoder());
  for (int step = 0; step < input.steps; ++step) {
    d.builder.BeginStep(step);
    d.builder.At(-1, Role::kHost);
    if (graph) d.builder.BeginGraphs(d.host);
    if (transformers) transformers->BeginPass(rows);
    writer->BeginStep(step);
    for (const auto& [id, kind, weights] : layers) {
      const bool full = kind.attention == llm::Layer::Attention::kFull;
      if (transformers) {
        transformers->BeforeAttention(id, weights, rows);
      } else {
        BeforeAttention(d, id, kind, weights, rows, /*absorbed=*/true,
                        full && writer->KeepsBounds(id));
      }
      if (full) {
        writer->Attention(step, id);
      } else {
        OtherAttention(d, step, id, kind);
      }
      if (transformers) {
        transformers->AfterAttention(id, weights, rows);
        transformers->Mlp(id, weights, rows);
      } else {
        AfterAttention(d, id, kind, weights, rows, /*absorbed=*/true);
        Mlp(d, id, kind, weights, rows);
      }
    }
    if (transformers) {
      transformers->NextToken(rows);
    } else {
      NextToken(d, input.model.queries);
    }
    if (graph) d.builder.EndGraphs();
    // The host needs the token to decide whether to go on: a step ends when it has it.
    d.builder.EndStep(d.builder.SyncStream(d.host, d.compute));
    if (step == 0) d.builder.ReserveSteps(input.steps);
  }
  return Finish(d);
}

namespace {

// Of a prompt of `tokens` tokens; latents are expanded to keys and values for it.
void PrefillLayer(DecoderPlan& d, PlanWriter& writer, const PlannedLayer& layer) {
  using Kind = llm::Layer::Attention;
  const llm::Model& m = d.whole;
  const int64_t sequences = d.input.batch, tokens = d.input.prompt_tokens;
  plan::PrefillAttention dense{sequences, tokens, 0, m.query_heads, m.kv_heads, m.head_dim};
  if (m.latent) {
    const llm::Latent& l = *m.latent;
    const int64_t up = int64_t{m.query_heads} * (l.nope + l.value);
    d.builder.At(layer.id, Role::kProjection);
    RunGemm(d, sequences * tokens, {up, l.rank, m.weights});
    // Keys of nope + rope elements and values of fewer: the mean of the two is what is multiplied.
    dense.kv_heads = m.query_heads;
    dense.head_dim = (l.nope + l.rope + l.value) / 2;
  }
  if (layer.full()) writer.BeforePrefillAttention(layer.id);
  d.builder.At(layer.id, Role::kAttention);
  int64_t window = layer.kind.attention == Kind::kWindow ? layer.kind.window : 0;
  if (m.latent && m.latent->top_k > 0 && tokens > m.latent->top_k) {
    const int64_t pairs = sequences * (tokens * (tokens + 1) / 2);
    d.builder.Run(d.compute,
                  plan::LatentIndex{sequences * tokens, pairs, tokens, m.latent->index_heads,
                                    m.latent->index_dim, m.latent->index_dim + Bytes{sizeof(float)},
                                    m.latent->top_k});
    window = m.latent->top_k;
  }
  if (layer.kind.attention == Kind::kLinear) {
    d.builder.Run(d.compute, plan::StateUpdate{sequences, sequences * tokens, m.linear->value_heads,
                                               m.linear->key_dim, m.linear->value_dim});
  } else if (window > 0) {
    d.builder.Run(d.compute,
                  plan::VerticalSlashAttention{sequences, tokens, window, 0, dense.query_heads,
                                               dense.kv_heads, dense.head_dim});
  } else if (layer.full()) {
    d.builder.Run(d.compute, writer.PrefillAttention(layer.id, dense));
  }
  if (layer.full()) writer.AfterPrefillAttention(layer.id);
}

}  // namespace

plan::Plan WritePrefill(const Method& method, const PlanInput& input) {
  CheckRun(input);
  DecoderPlan d(input);
  const std::unique_ptr<PlanWriter> writer = method.NewPlanWriter(d);
  const int64_t rows = int64_t{input.batch} * input.prompt_tokens;
  std::optional<TransformersDecoder> transformers;
  if (writer->decoder() != PlanWriter::Decoder::kOwn) transformers.emplace(d, writer->decoder());
  if (transformers) transformers->BeginPass(rows);
  for (const PlannedLayer& layer : LayersOf(d)) {
    if (transformers) {
      transformers->BeforeAttention(layer.id, layer.weights, rows);
      PrefillLayer(d, *writer, layer);
      transformers->AfterAttention(layer.id, layer.weights, rows);
      transformers->Mlp(layer.id, layer.weights, rows);
      continue;
    }
    BeforeAttention(d, layer.id, layer.kind, layer.weights, rows, /*absorbed=*/false);
    PrefillLayer(d, *writer, layer);
    AfterAttention(d, layer.id, layer.kind, layer.weights, rows, /*absorbed=*/false);
    Mlp(d, layer.id, layer.kind, layer.weights, rows);
  }
  writer->EndPrefill();
  if (transformers) {
    transformers->NextToken(input.batch);
  } else {
    NextToken(d, 1);
  }
  d.builder.SyncStream(d.host, d.compute);
  return Finish(d);
}

}  // namespace stallcast::methods
