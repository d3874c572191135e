#include "models/methods/decoder_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>

namespace stallcast::methods {

using plan::OpId;
using plan::Role;

DecoderPlan::DecoderPlan(const PlanInput& run) : input(run), log(run.log, run.model, run.batch) {
  host = builder.AddHost("host");
  compute = builder.AddStream("compute", host, /*compute=*/true);
}

void DecoderPlan::RefuseGraph(std::string_view method, std::string_view remedy) const {
  if (!input.graph) return;
  throw UsageError("a step in which the host decides cannot be one CUDA graph", std::string(method),
                   std::string(remedy));
}

OpId DecoderPlan::Attend(int layer, int64_t kv_tokens, int64_t kv_tokens_max,
                         std::initializer_list<OpId> waits) {
  const llm::Model& m = input.model;
  builder.At(layer, Role::kAttention);
  return builder.Run(compute,
                     plan::DecodeAttention{kv_tokens, kv_tokens_max, input.batch, m.kv_heads,
                                           m.group(), m.head_dim},
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

// The ops of a layer around its attention, for `rows` tokens.
void BeforeAttention(DecoderPlan& d, int layer, int64_t rows, bool bounds = false) {
  const llm::Model& m = d.input.model;
  d.builder.At(layer, Role::kProjection);
  d.builder.Run(d.compute, plan::Norm{rows, m.hidden});
  const int64_t qkv = int64_t{m.query_heads + 2 * m.kv_heads} * m.head_dim;
  d.builder.Run(d.compute, plan::Gemm{rows, qkv, m.hidden});
  d.builder.Run(d.compute, plan::RopeAppend{rows, m.query_heads, m.kv_heads, m.head_dim, bounds});
}

void OutputProjection(DecoderPlan& d, int layer, int64_t rows) {
  const llm::Model& m = d.input.model;
  d.builder.At(layer, Role::kProjection);
  d.builder.Run(d.compute, plan::Gemm{rows, m.hidden, int64_t{m.query_heads} * m.head_dim});
}

void Mlp(DecoderPlan& d, int layer, int64_t rows) {
  const llm::Model& m = d.input.model;
  d.builder.At(layer, Role::kMlp);
  d.builder.Run(d.compute, plan::Norm{rows, m.hidden});
  d.builder.Run(d.compute, plan::Gemm{rows, 2 * m.intermediate, m.hidden});
  d.builder.Run(d.compute, plan::SwiGlu{rows, m.intermediate});
  d.builder.Run(d.compute, plan::Gemm{rows, m.hidden, m.intermediate});
}

// Logits, the next token, and its way to the host.
void NextToken(DecoderPlan& d) {
  const llm::Model& m = d.input.model;
  const int64_t rows = d.input.batch;
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

}  // namespace

plan::Plan WriteDecode(const Method& method, const PlanInput& input) {
  CheckRun(input);
  DecoderPlan d(input);
  const std::unique_ptr<PlanWriter> writer = method.NewPlanWriter(d);
  for (int step = 0; step < input.steps; ++step) {
    d.builder.BeginStep(step);
    d.builder.At(-1, Role::kHost);
    if (input.graph) d.builder.BeginGraph(d.host);
    writer->BeginStep(step);
    for (int layer = 0; layer < input.model.layers; ++layer) {
      BeforeAttention(d, layer, input.batch, writer->KeepsBounds(layer));
      writer->Attention(step, layer);
      OutputProjection(d, layer, input.batch);
      Mlp(d, layer, input.batch);
    }
    NextToken(d);
    if (input.graph) d.builder.EndGraph();
    // The host needs the token to decide whether to go on: a step ends when it has it.
    d.builder.EndStep(d.builder.SyncStream(d.host, d.compute));
    if (step == 0) d.builder.ReserveSteps(input.steps);
  }
  plan::Plan plan = d.builder.Finish();
  plan.notes = d.log.notes();
  return plan;
}

plan::Plan WritePrefill(const Method& method, const PlanInput& input) {
  CheckRun(input);
  DecoderPlan d(input);
  const std::unique_ptr<PlanWriter> writer = method.NewPlanWriter(d);
  const llm::Model& m = input.model;
  const int64_t rows = int64_t{input.batch} * input.prompt_tokens;
  for (int layer = 0; layer < m.layers; ++layer) {
    BeforeAttention(d, layer, rows);
    writer->BeforePrefillAttention(layer);
    d.builder.At(layer, Role::kAttention);
    d.builder.Run(d.compute,
                  writer->PrefillAttention(layer, {input.batch, input.prompt_tokens, 0,
                                                   m.query_heads, m.kv_heads, m.head_dim}));
    writer->AfterPrefillAttention(layer);
    OutputProjection(d, layer, rows);
    Mlp(d, layer, rows);
  }
  writer->EndPrefill();
  NextToken(d);
  d.builder.SyncStream(d.host, d.compute);
  return d.builder.Finish();
}

}  // namespace stallcast::methods
