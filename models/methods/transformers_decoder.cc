#include "models/methods/transformers_decoder.h"

#include <fmt/format.h>

#include "traces/common/error.h"

namespace stallcast::methods {

using plan::Eager;
using plan::Operator;
using plan::OpId;
using plan::Role;

namespace {

constexpr Bytes kHalf = llm::kActivationBytes;  // bf16
constexpr Bytes kSingle = 4;                    // fp32, in which norms are computed

OpId RunEager(DecoderPlan& plan, const Eager& eager) {
  return plan.builder.Run(plan.compute, eager);
}

}  // namespace

TransformersDecoder::TransformersDecoder(DecoderPlan& plan, PlanWriter::Decoder kernels)
    : plan_(plan),
      model_(plan.whole),
      fused_(kernels != PlanWriter::Decoder::kTransformers),
      streams_(kernels == PlanWriter::Decoder::kTransformersStreams) {
  bool other = model_.latent.has_value() || model_.tensor_parallel > 1 || model_.output_gate;
  for (int layer = 0; layer < model_.layers; ++layer) {
    const llm::Layer kind = model_.KindOf(layer);
    other |= kind.experts || (kind.attention != llm::Layer::Attention::kFull &&
                              kind.attention != llm::Layer::Attention::kWindow);
  }
  if (!other) return;
  throw UsageError(
      fmt::format("transformers' decoder as run is written down for one GPU and dense layers that "
                  "attend; {} has others",
                  model_.title),
      "--as-run", "leave it out, or name a model such as llama-3.1-8b");
}

void TransformersDecoder::Run(Operator op, Bytes read, Bytes written, Calls calls) {
  RunEager(plan_, {.op = op,
                   .read = read,
                   .written = written,
                   .views = calls.views,
                   .slices = calls.slices,
                   .modules = calls.modules});
}

// x.to(float), pow(2), mean, + eps, rsqrt, x * that, .to(dtype), weight * x. pow() calls two small
// operators more.
void TransformersDecoder::Norm(int64_t rows, int16_t modules) {
  if (fused_) {
    plan_.Call(Operator::kModule, modules - 1);
    if (streams_) plan_.Call(Operator::kStreamContext);
    plan_.builder.Run(plan_.compute, plan::Norm{rows, model_.hidden});
    return;
  }
  const Bytes all = rows * model_.hidden, row = rows * kSingle;
  Run(Operator::kCast, all * kHalf, all * kSingle, {.modules = modules});
  Run(Operator::kLaunchAllocating, all * kSingle, all * kSingle, {.views = 2});
  Run(Operator::kReduce, all * kSingle, row);
  Run(Operator::kLaunchAllocating, row, row);
  Run(Operator::kLaunchAllocating, row, row);
  Run(Operator::kLaunchAllocating, all * kSingle, all * kSingle);
  Run(Operator::kCast, all * kSingle, all * kHalf);
  Run(Operator::kLaunchAllocating, all * kHalf, all * kHalf);
}

void TransformersDecoder::Linear(int64_t rows, int64_t n, int64_t k, plan::Width width) {
  plan_.builder.Run(plan_.compute, plan::Gemm{rows, n, k, width});
}

void TransformersDecoder::Residual(int64_t rows) {
  const Bytes all = rows * model_.hidden * kHalf;
  Run(Operator::kLaunchAllocating, 2 * all, all);
}

void TransformersDecoder::BeginPass(int64_t rows) {
  plan_.builder.At(-1, Role::kProjection);
  if (fused_) {
    if (streams_) plan_.Call(Operator::kStreamContext);
    Run(Operator::kIndexSelect, rows * model_.hidden * kHalf, rows * model_.hidden * kHalf,
        {.views = 2, .modules = 3});
    return;
  }
  const Bytes hidden = rows * model_.hidden * kHalf;
  const Bytes angles = rows * model_.head_dim * kSingle;
  Run(Operator::kIndexSelect, hidden, hidden, {.views = 2, .modules = 3});
  // Frequencies times positions, twice side by side; then their cosines and sines, scaled and cast.
  Run(Operator::kCast, angles / 2, angles / 2, {.slices = 4});
  Run(Operator::kLinear, angles / 2, angles / 2);
  Run(Operator::kCat, angles / 2, angles, {.slices = 1});
  for (int of = 0; of < 2; ++of) {
    Run(Operator::kLaunchAllocating, angles, angles);
    Run(Operator::kLaunchAllocating, angles, angles);
    Run(Operator::kCast, angles, angles / 2);
  }
}

void TransformersDecoder::BeforeAttention(int layer, const llm::LayerWeights& weights,
                                          int64_t rows) {
  const int64_t dim = model_.head_dim;
  plan_.builder.At(layer, Role::kProjection);
  Norm(rows, /*modules=*/3);  // the layer, its norm, its attention
  if (streams_) plan_.Call(Operator::kStreamContext);
  Linear(rows, model_.query_heads * dim, model_.hidden, weights.input.width);
  Linear(rows, model_.kv_heads * dim, model_.hidden, weights.input.width);
  Linear(rows, model_.kv_heads * dim, model_.hidden, weights.input.width);
  if (fused_) {
    // Each is viewed, and two again for RoPE; keys and values are appended by another kernel.
    plan_.Call(Operator::kView, 5);
    plan_.builder.Run(plan_.compute, plan::RopeAppend{rows, model_.query_heads, model_.kv_heads,
                                                      model_.head_dim, false});
    const Bytes token = rows * model_.kv_heads * dim * 2 * kHalf;
    Run(Operator::kLaunch, token, token);
    return;
  }
  // Each is viewed and transposed; cosines and sines get a dimension more.
  Calls calls{.views = 3, .slices = 5};
  for (const int32_t heads : {model_.query_heads, model_.kv_heads}) {
    const Bytes all = rows * heads * dim * kHalf, angles = rows * dim * kHalf;
    Run(Operator::kLaunchAllocating, all + angles, all, calls);
    Run(Operator::kLaunchAllocating, all / 2, all / 2, {.slices = 2});  // the negated half
    Run(Operator::kCat, all, all);
    Run(Operator::kLaunchAllocating, all + angles, all);
    Run(Operator::kLaunchAllocating, 2 * all, all);
    calls = {};
  }
}

void TransformersDecoder::AfterAttention(int layer, const llm::LayerWeights& weights,
                                         int64_t rows) {
  plan_.builder.At(layer, Role::kProjection);
  Linear(rows, weights.output.n, weights.output.k, weights.output.width);
  // What was attended had been transposed and viewed before the projection.
  const Bytes all = rows * model_.hidden * kHalf;
  Run(Operator::kLaunchAllocating, 2 * all, all, {.views = 2, .slices = 1});
}

void TransformersDecoder::Mlp(int layer, const llm::LayerWeights& weights, int64_t rows) {
  const int64_t width = weights.down.k;
  const Bytes all = rows * width * kHalf;
  plan_.builder.At(layer, Role::kMlp);
  Norm(rows, /*modules=*/1);
  if (streams_) plan_.Call(Operator::kStreamContext);
  Linear(rows, width, model_.hidden, weights.gate_up.width);
  Run(Operator::kLaunchAllocating, all, all, {.modules = 2});  // the MLP and its activation
  Linear(rows, width, model_.hidden, weights.gate_up.width);
  Run(Operator::kLaunchAllocating, 2 * all, all);
  Linear(rows, weights.down.n, weights.down.k, weights.down.width);
  Residual(rows);
}

void TransformersDecoder::NextToken(int64_t rows) {
  plan_.builder.At(-1, Role::kProjection);
  Norm(rows, /*modules=*/1);
  Linear(rows, model_.vocabulary, model_.hidden, {});
  plan_.builder.Run(plan_.compute, plan::Sample{rows, model_.vocabulary});
  Run(Operator::kLaunch, rows * 8, rows * 8, {.slices = 2});  // the token goes to the input
  Run(Operator::kLaunch, rows * 8, rows * 8);                 // and the position to the next
  plan_.builder.SetRole(Role::kSync);
  plan_.builder.Run(plan_.compute, plan::Copy{plan::Direction::kDeviceToHost, plan::CopyPath::kBulk,
                                              1, rows * Bytes{4}});
}

void PrepareEngineStep(DecoderPlan& plan) {
  plan.builder.At(-1, Role::kHost);
  const Eager small{.op = Operator::kLaunchAllocating, .read = 4, .written = 4};
  for (int of = 0; of < 3; ++of) RunEager(plan, small);
  for (int handler = 0; handler < 2; ++handler) {
    plan.ReadScalar(plan.compute);
    RunEager(plan, small);
  }
}

void ConcatenateCache(DecoderPlan& plan, int64_t tokens, OpId fetched) {
  const Bytes half = tokens * plan.input.model.KvBytesPerTokenLayer() / 2;
  plan.builder.SetRole(Role::kLayout);
  for (int of = 0; of < 2; ++of) {
    plan.builder.Run(plan.compute, Eager{.op = Operator::kCat, .read = half, .written = half},
                     {fetched});
  }
}

OpId AttendBySdpa(DecoderPlan& plan, int step, int layer) {
  plan.builder.At(layer, Role::kHost);
  if (layer == 0) plan.Call(Operator::kSdpaNewLength);
  return plan.AttendAll(step, layer);
}

OpId AttendExpanded(DecoderPlan& plan, int layer, int64_t tokens) {
  const llm::Model& m = plan.input.model;
  const int32_t batch = plan.input.batch;
  const Bytes half = int64_t{batch} * tokens * m.KvBytesPerTokenLayer() / 2;
  const Bytes expanded = half * m.group();
  plan.builder.At(layer, Role::kLayout);
  if (m.group() > 1) {
    for (int of = 0; of < 2; ++of) {
      RunEager(plan, {.op = Operator::kLaunchAllocating,
                      .read = half,
                      .written = expanded,
                      .views = 2,
                      .slices = 2});
    }
  }
  plan.builder.SetRole(Role::kAttention);
  return RunEager(plan, {.op = Operator::kSdpa,
                         .read = 2 * expanded,
                         .written = int64_t{batch} * m.query_heads * m.head_dim * kHalf,
                         .blocks = batch * m.query_heads,
                         .slices = 1});
}

}  // namespace stallcast::methods
