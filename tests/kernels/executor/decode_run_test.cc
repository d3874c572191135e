// Decode steps of models with experts and windows: layers attend their window, rows get what their
// experts make, and methods select as in a model without either.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/executor/decoder_binder.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/prefill_binder.h"
#include "kernels/executor/window_layers.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/projection.h"
#include "tests/kernels/executor/rounded_trace.h"
#include "tests/kernels/on_device.h"
#include "tests/models/methods/random_trace.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

constexpr int kTraced = 2, kKvHeads = 2, kGroup = 2, kDim = 64, kSteps = 24;
constexpr int64_t kPrompt = 203, kWindow = 40;

double Value(__nv_bfloat16 value) { return __bfloat162float(value); }

// Every other layer has a window, all but the first experts.
llm::Model MixedModel(int64_t shared) {
  llm::Model model;
  model.name = model.title = "mixed";
  model.layers = 6;
  model.query_heads = kKvHeads * kGroup;
  model.kv_heads = kKvHeads;
  model.head_dim = kDim;
  model.hidden = 256;
  model.intermediate = 512;
  model.vocabulary = 1000;
  llm::Experts& experts = model.experts.emplace();
  experts.count = 16;
  experts.active = 3;
  experts.intermediate = 192;
  experts.shared_intermediate = shared;
  for (int layer = 0; layer < model.layers; ++layer) {
    const bool window = layer % 2 == 0;
    model.kinds.push_back(
        {.attention = window ? llm::Layer::Attention::kWindow : llm::Layer::Attention::kFull,
         .window = window ? kWindow : 0,
         .experts = layer > 0});
  }
  return model;
}

class DecodeRuns : public OnDevice {
 public:
  struct Ready {
    Ready(const llm::Model& model, const std::string& name, const methods::ParamValues& params,
          int32_t batch, int32_t steps)
        : method(methods::MakeMethod(name, params)),
          trace(methods::RandomTrace({.layers = kTraced,
                                      .kv_heads = kKvHeads,
                                      .group = kGroup,
                                      .dim = kDim,
                                      .prompt = kPrompt,
                                      .steps = kSteps,
                                      .prompt_queries = 5,
                                      .value_dim = kDim})) {
      trace.info.mutable_model()->set_layers(kTraced);
      RoundToBf16(trace);
      input = {.model = model, .batch = batch, .prompt_tokens = kPrompt, .steps = steps};
      run.recorded_layers = {0, 1};
      if (method.method->NewPolicy()) {
        log = methods::Replay(trace, "", name, *method.method);
        input.log = &log;
        std::erase_if(run.recorded_layers,
                      [&](int layer) { return log.layers[static_cast<size_t>(layer)].dense; });
      }
      run.input = input;
      SetModel(model, run);
      projected.emplace(input.log, run.input.model, batch);
      tensors.emplace(trace, run.recorded_layers);
      run.trace = &*tensors;
      run.source_of = methods::LayersByDepth(run.input.model.layers, run.recorded_layers, kTraced);
      run.recording = &trace;
      run.log = input.log == nullptr ? nullptr : &*projected;
      run.stagger = batch > 1 ? kSteps / batch : 0;
      run.pool = &pool;
      weights.emplace(model);
    }

    methods::NamedMethod method;
    traces::Trace trace;
    traces::AccessLog log;
    methods::PlanInput input;
    HostPool pool;
    std::optional<methods::ProjectedLog> projected;
    std::optional<TraceTensors> tensors;
    std::optional<DecoderWeights> weights;
    DecodeRun run;
  };
};

// Attention of a query over the trace's tokens [first, end) in double precision.
std::vector<double> Attended(const TraceTensors& trace, int layer, int head, int64_t token,
                             int64_t first, int64_t end) {
  const __nv_bfloat16* query = trace.Query(layer, head, token);
  std::vector<double> scores, output(kDim);
  for (int64_t t = first; t < end; ++t) {
    const __nv_bfloat16* key = trace.Key(layer, head / kGroup, t);
    double score = 0;
    for (int i = 0; i < kDim; ++i) score += Value(query[i]) * Value(key[i]);
    scores.push_back(score * trace.softmax_scale());
  }
  const double most = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (int64_t t = first; t < end; ++t) {
    const __nv_bfloat16* value = trace.Value(layer, head / kGroup, t);
    for (int i = 0; i < kDim; ++i) {
      output[i] += scores[static_cast<size_t>(t - first)] / sum * Value(value[i]);
    }
  }
  return output;
}

TEST_F(DecodeRuns, WindowLayersAttendTheNewestTokensOfTheirRing) {
  for (const int32_t batch : {1, 3}) {
    const int32_t steps = kSteps / batch;
    Ready ready(MixedModel(0), "full", {}, batch, steps);
    WindowLayers windows(ready.run);
    windows.Reset({});
    constexpr int kHeads = kKvHeads * kGroup, kWidth = (kHeads + 2 * kKvHeads) * kDim;
    const Buffer<__nv_bfloat16> query(int64_t{batch} * kHeads * kDim);
    const Buffer<int32_t> position(batch);
    const Buffer<float> frequencies(kDim / 2);
    Zero(position), Zero(frequencies);
    const plan::Work attend = plan::DecodeAttention{};
    for (int step = 0; step < steps; ++step) {
      for (int layer = 0; layer < 3; ++layer) {
        const int source = windows.Source(layer);
        std::vector<__nv_bfloat16> qkv;
        const auto put = [&](const __nv_bfloat16* from) {
          qkv.insert(qkv.end(), from, from + kDim);
        };
        for (int sequence = 0; sequence < batch; ++sequence) {
          const int64_t token = ready.run.Context(step, sequence) - 1;
          for (int h = 0; h < kHeads; ++h) put(ready.tensors->Query(source, h, token));
          for (int h = 0; h < kKvHeads; ++h) put(ready.tensors->Key(source, h, token));
          for (int h = 0; h < kKvHeads; ++h) put(ready.tensors->Value(source, h, token));
        }
        ASSERT_EQ(std::ssize(qkv), batch * kWidth);
        const auto d_qkv = Uploaded(qkv);
        const CacheBinder::Append to = windows.AppendAt(step, layer);
        RopeAppend(d_qkv.get(), batch, kHeads, to.cache, to.slot, to.place, position.get(),
                   frequencies.get(), 1, query.get(), to.bounds, nullptr);
        const auto output = Poisoned<__nv_bfloat16>(query.size());
        plan::Op op{.work = attend};
        op.step = step;
        op.layer = static_cast<int16_t>(layer);
        windows.Bind(op, {query.get(), nullptr, output.get()})(nullptr);
        const auto actual = ToHost(output);
        for (int sequence = 0; sequence < batch; ++sequence) {
          const int64_t end = ready.run.Context(step, sequence);
          for (int head = 0; head < kHeads; ++head) {
            const std::vector<double> expected =
                Attended(*ready.tensors, source, head, end - 1, end - kWindow, end);
            for (int i = 0; i < kDim; ++i) {
              const int64_t at = (int64_t{sequence} * kHeads + head) * kDim + i;
              ASSERT_NEAR(Value(actual[at]), expected[i], 0.03)
                  << "step " << step << ", layer " << layer << ", sequence " << sequence;
            }
          }
        }
      }
    }
  }
}

// x b^T of one row, rounded as the device rounds it.
std::vector<double> Times(const std::vector<double>& x, const std::vector<__nv_bfloat16>& b,
                          int64_t first, int64_t n) {
  const auto k = static_cast<int64_t>(x.size());
  std::vector<double> y(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) y[i] += x[j] * Value(b[(first + i) * k + j]);
    y[i] = Value(__double2bfloat16(y[i]));
  }
  return y;
}

std::vector<double> Activated(const std::vector<double>& gate_up) {
  const size_t width = gate_up.size() / 2;
  std::vector<double> y(width);
  for (size_t i = 0; i < width; ++i) {
    const double gate = gate_up[i];
    y[i] = Value(__double2bfloat16(gate / (1 + std::exp(-gate)) * gate_up[width + i]));
  }
  return y;
}

// The ops of one layer's MLP, and the norm that adds what it has made.
TEST_F(DecodeRuns, ARowGetsWhatItsExpertsMakeAndWhatAllRowsTake) {
  constexpr int32_t kRows = 5, kLayer = 3;
  for (const int64_t shared : {0, 320}) {
    SCOPED_TRACE(testing::Message() << "shared " << shared);
    const llm::Model model = MixedModel(shared);
    const llm::Experts& e = *model.experts;
    const DecoderWeights weights(model);
    DecoderLayers layers(weights, kRows, 1);
    const plan::Plan plan =
        methods::WriteDecode(*methods::MakeMethod("full", {}).method,
                             {.model = model, .batch = kRows, .prompt_tokens = 100, .steps = 1});
    // The layer's projections too, so that ops are told apart as in a run; but they are not run.
    std::vector<OpWork> mlp;
    for (const plan::Op& op : plan.ops) {
      const bool own =
          op.layer == kLayer && (op.role == plan::Role::kProjection || op.role == plan::Role::kMlp);
      const bool last = op.layer < 0 && std::holds_alternative<plan::Norm>(op.work);
      if (!own && !last) continue;
      if (std::holds_alternative<plan::RopeAppend>(op.work)) continue;
      std::optional<OpWork> work = layers.Bind(op);
      ASSERT_TRUE(work);
      if (op.role == plan::Role::kMlp || last) mlp.push_back(*work);
    }
    mlp.front()(nullptr);  // adds what the projections' GEMMs left when they were bound
    const auto before = ToHost(layers.residual());
    for (size_t i = 1; i < mlp.size(); ++i) mlp[i](nullptr);
    const auto after = ToHost(layers.residual());

    const DecoderWeights::Layer& of = weights.layer(kLayer);
    const auto norm = ToHost(weights.norm()), router = ToHost(of.router);
    const auto gate_up = ToHost(of.expert_gate_up), down = ToHost(of.expert_down);
    const auto all_gate_up = ToHost(of.gate_up), all_down = ToHost(of.down);
    const ExpertChoices choices(kRows, e.active, e.count, model.DistinctExperts(kRows));
    const auto taken = Downloaded(choices.At(0, kLayer), kRows * e.active);
    for (int row = 0; row < kRows; ++row) {
      std::vector<double> x(static_cast<size_t>(model.hidden));
      double squares = 0;
      for (int64_t i = 0; i < model.hidden; ++i) {
        x[i] = Value(before[row * model.hidden + i]);
        squares += x[i] * x[i];
      }
      const double rms = std::sqrt(squares / static_cast<double>(model.hidden) + 1e-5);
      for (int64_t i = 0; i < model.hidden; ++i) {
        x[i] = Value(__double2bfloat16(x[i] / rms * Value(norm[i])));
      }
      std::vector<double> logits = Times(x, router, 0, e.count);
      std::ranges::sort(logits, std::greater<>());
      double sum = 0;
      for (int i = 0; i < e.active; ++i) sum += std::exp(logits[i] - logits[0]);
      std::vector<double> made(static_cast<size_t>(model.hidden));
      for (int i = 0; i < e.active; ++i) {
        const int64_t expert = taken[row * e.active + i];
        const auto inner =
            Activated(Times(x, gate_up, expert * 2 * e.intermediate, 2 * e.intermediate));
        const auto outer = Times(inner, down, expert * model.hidden, model.hidden);
        for (size_t j = 0; j < made.size(); ++j) {
          made[j] += std::exp(logits[i] - logits[0]) / sum * outer[j];
        }
      }
      if (shared > 0) {
        const auto outer =
            Times(Activated(Times(x, all_gate_up, 0, 2 * shared)), all_down, 0, model.hidden);
        for (size_t j = 0; j < made.size(); ++j) made[j] += outer[j];
      }
      for (int64_t i = 0; i < model.hidden; ++i) {
        const int64_t at = row * model.hidden + i;
        const double expected = Value(before[at]) + made[i];
        ASSERT_NEAR(Value(after[at]), expected, 0.02 + std::abs(expected) / 64)
            << "row " << row << ", channel " << i;
      }
    }
  }
}

TEST_F(DecodeRuns, MethodsSelectAsTheLogSaysInTheLayersThatAttendEverything) {
  const methods::ParamValues regions{
      {"budget", "64"}, {"page", "8"}, {"sink", "16"}, {"window", "16"}, {"dense_layers", "1"}};
  const methods::ParamValues quest{{"budget", "64"}, {"page", "8"}, {"dense_layers", "1"}};
  for (const int32_t batch : {1, 3}) {
    for (const auto& [name, params] :
         {std::pair{"full", methods::ParamValues{}}, {"quest", quest}, {"freekv", regions}}) {
      SCOPED_TRACE(std::string(name) + ", batch " + std::to_string(batch));
      Ready ready(MixedModel(128), name, params, batch, kSteps / batch);
      const plan::Plan plan = methods::WriteDecode(*ready.method.method, ready.input);
      const std::unique_ptr<CacheBinder> cache = MakeCacheBinder(ready.run, ready.method);
      DecoderBinder decoder(ready.run, *ready.weights, *cache);
      Executor executor(plan, decoder);
      decoder.Reset();
      SelectionCheck check;
      RunOptions options;
      options.after_step = [&](int step) { cache->CheckStep(step, check); };
      EXPECT_EQ(std::ssize(executor.Run(options)), kSteps / batch);
      if (ready.run.log == nullptr) continue;
      EXPECT_GT(check.selected, 0);
      EXPECT_GT(check.share_equal(), 0.99);
      // And with nothing looked at in between.
      decoder.Reset();
      executor.Run();
    }
  }
}

TEST_F(DecodeRuns, WhatCannotBeRunIsAnError) {
  llm::Model model = MixedModel(0);
  model.experts->width = {.bits = 4, .group = 32, .scale_bits = 8};
  EXPECT_THROW(DecoderWeights{model}, Error);
  Ready ready(MixedModel(0), "full", {}, 1, 1);
  const std::unique_ptr<CacheBinder> cache = MakeCacheBinder(ready.run, ready.method);
  EXPECT_THROW(PrefillBinder(ready.run, *ready.weights, *cache), Error);
}

}  // namespace
}  // namespace stallcast::kernels
