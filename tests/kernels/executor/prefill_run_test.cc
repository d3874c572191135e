// A prefill plan run on the GPU leaves what decode steps need, and attends what it should.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "kernels/executor/decoder_binder.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/prefill_binder.h"
#include "models/methods/decoder_plan.h"
#include "tests/kernels/executor/rounded_trace.h"
#include "tests/kernels/on_device.h"
#include "tests/models/methods/random_trace.h"

namespace stallcast::kernels {
namespace {

constexpr int kLayers = 3, kKvHeads = 2, kGroup = 2, kDim = 64;

llm::Model SmallModel(int dim) {
  llm::Model model;
  model.name = model.title = "small";
  model.layers = kLayers;
  model.query_heads = kKvHeads * kGroup;
  model.kv_heads = kKvHeads;
  model.head_dim = dim;
  model.hidden = 256;
  model.intermediate = 512;
  model.vocabulary = 1000;
  return model;
}

// Hands on what a method does, and keeps what its steps attended and its prefill is given.
class Recording : public CacheBinder {
 public:
  Recording(CacheBinder& method, const DecodeRun& run)
      : method_(method), size_(run.rows() * run.group() * run.head_dim()) {}

  Append AppendAt(int step, int layer) override { return method_.AppendAt(step, layer); }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    OpWork work = method_.Bind(op, io);
    if (!std::holds_alternative<plan::DecodeAttention>(op.work)) return work;
    return [this, work, output = io.output](cudaStream_t stream) {
      work(stream);
      outputs_.emplace_back(size_);
      Check(cudaMemcpyAsync(outputs_.back().get(), output,
                            static_cast<size_t>(outputs_.back().bytes()), cudaMemcpyDeviceToDevice,
                            stream),
            "cudaMemcpyAsync");
    };
  }
  void Reset(std::span<const LayerIo> last) override { method_.Reset(last); }
  PromptKv PromptAt(int layer) override { return method_.PromptAt(layer); }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    prefill_io = io;
    return method_.BindPrefill(op, io);
  }
  void Clear() override { method_.Clear(); }

  /// Bits of the attention outputs since the last call, by step and layer.
  std::vector<std::vector<uint16_t>> TakeOutputs() {
    std::vector<std::vector<uint16_t>> all;
    for (const auto& output : outputs_) {
      std::vector<uint16_t>& bits = all.emplace_back();
      for (const __nv_bfloat16 value : ToHost(output)) bits.push_back(Bits(value));
    }
    outputs_.clear();
    return all;
  }
  PrefillIo prefill_io;

 private:
  CacheBinder& method_;
  int64_t size_;
  std::vector<Buffer<__nv_bfloat16>> outputs_;
};

class PrefillRun : public OnDevice {
 public:
  // A method made ready for so many steps of a random trace, which may have more.
  struct Ready {
    Ready(const std::string& name, const methods::ParamValues& params, int32_t batch, int steps,
          int dim = kDim, int trace_steps = 0)
        : method(methods::MakeMethod(name, params)) {
      trace = methods::RandomTrace({.layers = kLayers,
                                    .kv_heads = kKvHeads,
                                    .group = kGroup,
                                    .dim = dim,
                                    .prompt = 203,
                                    .steps = std::max(steps, trace_steps),
                                    .prompt_queries = 5,
                                    .value_dim = dim});
      RoundToBf16(trace);
      input = {SmallModel(dim), batch, 203, steps, {}, nullptr};
      if (method.method->NewPolicy()) {
        log = methods::Replay(trace, "", name, *method.method);
        input.log = &log;
      }
      projected.emplace(input.log, input.model, batch);
      tensors.emplace(trace, std::vector{0, 1, 2});
      run.input = input;
      SetModel(input.model, run);
      run.trace = &*tensors;
      run.source_of = run.recorded_layers = {0, 1, 2};
      run.recording = &trace;
      run.log = input.log == nullptr ? nullptr : &*projected;
      run.stagger = projected->stagger();
      run.pool = &pool;
      weights.emplace(input.model);
      cache = MakeCacheBinder(run, method);
      recording.emplace(*cache, run);
    }
    /// `look` is called when it has run.
    void Prefill(const std::function<void()>& look = {}) {
      const plan::Plan plan = methods::WritePrefill(*method.method, input);
      PrefillBinder binder(run, *weights, *recording);
      Executor executor(plan, binder);
      recording->Clear();
      EXPECT_EQ(executor.Run().size(), 1u);
      if (look) look();
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
    std::unique_ptr<CacheBinder> cache;
    std::optional<Recording> recording;
  };

 protected:
  static void ExpectStepsGoOn(const std::string& name, const methods::ParamValues& params,
                              int32_t batch = 1, int dim = kDim) {
    SCOPED_TRACE(name + ", batch " + std::to_string(batch));
    // With one step all sequences of a batch begin behind the prompt.
    Ready ready(name, params, batch, batch == 1 ? 20 : 1, dim);
    const plan::Plan plan = methods::WriteDecode(*ready.method.method, ready.input);
    DecoderBinder decoder(ready.run, *ready.weights, *ready.recording);
    Executor steps(plan, decoder);
    decoder.Reset();
    steps.Run();
    const auto expected = ready.recording->TakeOutputs();
    ready.Prefill();
    decoder.Begin();
    steps.Run();
    const auto actual = ready.recording->TakeOutputs();
    ASSERT_EQ(actual.size(), static_cast<size_t>(kLayers * ready.input.steps));
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i]) << "step " << i / kLayers << ", layer " << i % kLayers;
    }
  }
};

TEST_F(PrefillRun, StepsGoOnFromItAsFromAResetCache) {
  const methods::ParamValues regions{
      {"budget", "64"}, {"page", "8"}, {"sink", "16"}, {"window", "16"}, {"dense_layers", "1"}};
  const auto with = [&](const char* name, const char* value) {
    methods::ParamValues values = regions;
    values[name] = value;
    return values;
  };
  for (const int32_t batch : {1, 2}) {
    ExpectStepsGoOn("full", {}, batch);
    ExpectStepsGoOn("streaming", {{"budget", "50"}, {"sink", "3"}}, batch);
    ExpectStepsGoOn("offload", {}, batch);
    ExpectStepsGoOn("quest", {{"budget", "64"}, {"page", "8"}, {"dense_layers", "1"}}, batch);
    ExpectStepsGoOn("arkvale", with("variant", "freekv"), batch);
    ExpectStepsGoOn("freekv", regions, batch);
    ExpectStepsGoOn("freekv", with("layout", "nhd"), batch);
    ExpectStepsGoOn("freekv", with("recall", "zero-copy"), batch);
  }
  ExpectStepsGoOn("arkvale", regions);
}

// Small clusters and pages: the prompt has 203 tokens.
const methods::ParamValues kLouisKv{{"budget", "64"},      {"sink", "8"},    {"window", "16"},
                                    {"dense_layers", "1"}, {"cluster", "4"}, {"tau", "0.3"}};
const methods::ParamValues kFreeKv{
    {"budget", "64"}, {"page", "8"}, {"sink", "16"}, {"window", "16"}, {"dense_layers", "1"}};
const methods::ParamValues kPrkv{
    {"budget", "64"}, {"page", "8"}, {"window", "16"}, {"update", "7"}, {"dense_layers", "1"}};

methods::ParamValues With(methods::ParamValues values, const methods::ParamValues& others) {
  for (const auto& [name, value] : others) values[name] = value;
  return values;
}

const std::vector<methods::ParamValues> kLouisKvSwitches{
    {},
    {{"trigger", "every-token"}},
    {{"trigger", "stride"}, {"stride", "3"}},
    {{"units", "pages"}},
    {{"group", "query-head"}},
    {{"kernel", "passes"}},
    {{"recall", "staged"}},
    {{"pool", "paired"}},
    {{"pool", "paired"}, {"recall", "staged"}, {"group", "query-head"}},
    {{"prompt_window", "off"}}};
const std::vector<methods::ParamValues> kPrkvSwitches{
    {},
    {{"static_rule", "overlap"}},
    {{"static_ratio", "0"}},
    {{"static_ratio", "1"}},
    {{"layout", "nhd"}},
    {{"transfer", "per-page"}},
    {{"layout", "nhd"}, {"transfer", "per-page"}},
    {{"summary", "min-max"}, {"async_write_back", "off"}}};

TEST_F(PrefillRun, LouisKvAndPrkvGoOnFromItToo) {
  for (const int32_t batch : {1, 2}) {
    for (const auto& switches : {kLouisKvSwitches[0], kLouisKvSwitches[3], kLouisKvSwitches[7]}) {
      ExpectStepsGoOn("louiskv", With(kLouisKv, switches), batch);
    }
    for (const size_t i : {0, 2, 4}) ExpectStepsGoOn("prkv", With(kPrkv, kPrkvSwitches[i]), batch);
  }
}

// Steps select what the log says, and hold its keys and values. `evicts`: and drop some for good.
void ExpectWhatTheLogSays(PrefillRun::Ready& ready, const std::string& name, bool evicts = false) {
  const plan::Plan plan = methods::WriteDecode(*ready.method.method, ready.input);
  DecoderBinder decoder(ready.run, *ready.weights, *ready.cache);
  Executor steps(plan, decoder);
  int evictions = 0;
  for (const plan::Op& op : plan.ops) {
    evictions += std::holds_alternative<plan::WindowScore>(op.work) ? 1 : 0;
  }
  if (evicts) {
    EXPECT_GT(evictions, kLayers * 3);
    EXPECT_LT(evictions, kLayers * 30);
  }
  // Twice: a run starts from where prefill leaves off, whatever ran before.
  for (int i = 0; i < 2; ++i) {
    SelectionCheck check;
    decoder.Reset();
    steps.Run({.observer = nullptr,
               .after_step = [&](int step) { ready.cache->CheckStep(step, check); }});
    // A token at the edge that goes instead of its equal is missed in all steps that follow.
    EXPECT_GE(check.share_equal(), evicts ? 0.99 : 0.999)
        << name << ": " << check.equal << " of " << check.selected;
    EXPECT_EQ(check.missing, 0) << " of " << check.verified;
    EXPECT_EQ(check.decided_alike, check.decisions);
    if (evicts) {
      EXPECT_GT(check.selected, 1'000);
    }
  }
}

TEST_F(PrefillRun, EverySwitchOfLouisKvAndPrkvSelectsWhatTheLogSays) {
  const auto expect = [](const std::string& name, const methods::ParamValues& params, int batch) {
    SCOPED_TRACE(testing::Message()
                 << name << ", batch " << batch << ", " << testing::PrintToString(params));
    Ready ready(name, params, batch, 40 / batch, kDim, 40);
    ExpectWhatTheLogSays(ready, name);
  };
  for (const int batch : {1, 2}) {
    for (const auto& switches : kLouisKvSwitches)
      expect("louiskv", With(kLouisKv, switches), batch);
    for (const auto& switches : kPrkvSwitches) expect("prkv", With(kPrkv, switches), batch);
  }
}

TEST_F(PrefillRun, FreeKvSelectsWhatTheLogSaysByEveryPath) {
  for (const char* recall : {"per-page", "batched", "staged", "zero-copy"}) {
    for (const char* layout : {"hybrid", "nhd"}) {
      SCOPED_TRACE(testing::Message() << recall << ", " << layout);
      Ready ready("freekv", With(kFreeKv, {{"recall", recall}, {"layout", layout}}), 2, 20, kDim,
                  40);
      ExpectWhatTheLogSays(ready, "freekv");
    }
  }
}

// Whose nodes wait for those of the graph before, where something is recalled a step ahead.
TEST_F(PrefillRun, StepsAsGraphsSelectWhatTheLogSays) {
  const auto expect = [](const std::string& name, const methods::ParamValues& params) {
    SCOPED_TRACE(name);
    Ready ready(name, params, 2, 20, kDim, 40);
    ready.input.host = ready.run.input.host = plan::Host::kGraph;
    ExpectWhatTheLogSays(ready, name);
  };
  expect("quest", {{"budget", "64"}, {"page", "8"}, {"dense_layers", "1"}});
  expect("freekv", With(kFreeKv, {{"recall", "zero-copy"}, {"correction", "off"}}));
}

// 32 tokens of window and some 100 that are admitted; the trace has only the prompt's last 5
// queries, so the first evictions see less than they want to.
const methods::ParamValues kWgKv{{"window", "32"}, {"page", "8"}, {"sparsity", "0.4"}};
const methods::ParamValues kSnapKv{{"evict", "snapkv"}, {"capacity", "100"}, {"observe", "16"}};

TEST_F(PrefillRun, WgKvGoesOnFromItToo) {
  const methods::ParamValues quest{{"select", "quest"}, {"budget", "72"}};
  for (const int32_t batch : {1, 2}) {
    ExpectStepsGoOn("wgkv", kWgKv, batch, 128);
    ExpectStepsGoOn("wgkv", With(kWgKv, quest), batch, 128);
    ExpectStepsGoOn("wgkv", With(kWgKv, kSnapKv), batch, 128);
    ExpectStepsGoOn("wgkv", With(With(kWgKv, kSnapKv), quest), batch, 128);
  }
}

TEST_F(PrefillRun, WgKvEvictsWhatTheLogSays) {
  const std::vector<methods::ParamValues> switches{
      {},
      {{"evict_share", "0.02"}},
      {{"observe", "32"}, {"smooth", "1"}},
      {{"gate", "oracle"}},
      {{"host", "as-coded"}},
      {{"page", "16"}, {"select", "quest"}, {"budget", "80"}},
      {{"select", "quest"}, {"budget", "72"}, {"evict_share", "0.02"}}};
  for (const int batch : {1, 2, 4}) {
    for (const auto& more : switches) {
      SCOPED_TRACE(testing::Message() << "batch " << batch << ", " << testing::PrintToString(more));
      Ready ready("wgkv", With(With(kWgKv, kSnapKv), more), batch, 40 / batch, 128, 40);
      ExpectWhatTheLogSays(ready, "wgkv", /*evicts=*/true);
    }
  }
}

TEST_F(PrefillRun, AttentionMatchesDoublePrecisionOverTheTracesKeysAndValues) {
  Ready ready("quest", {{"budget", "64"}, {"page", "8"}, {"dense_layers", "1"}}, 2, 1);
  constexpr int kHeads = kKvHeads * kGroup, kLast = kLayers - 1;
  const int64_t tokens = ready.input.prompt_tokens;
  std::vector<__nv_bfloat16> query(static_cast<size_t>(2 * tokens * kHeads * kDim)), output = query;
  std::vector<__nv_bfloat16> last(static_cast<size_t>(2 * kHeads * kDim));
  ready.Prefill([&] {
    const auto download = [](std::vector<__nv_bfloat16>& to, const __nv_bfloat16* from) {
      Check(cudaMemcpy(to.data(), from, to.size() * sizeof(to[0]), cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    };
    const PrefillIo& io = ready.recording->prefill_io;
    download(query, io.query), download(output, io.output), download(last, io.last_query);
  });
  const TraceTensors& trace = *ready.tensors;
  const auto of = [](const __nv_bfloat16* values, int i) {
    return static_cast<double>(__bfloat162float(values[i]));
  };
  double norm = 0, traced_norm = 0;
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (int head = 0; head < kHeads; ++head) {
      for (int64_t token = 0; token < tokens; ++token) {
        const int64_t row = ((sequence * tokens + token) * kHeads + head) * kDim;
        const __nv_bfloat16* q = query.data() + row;
        const bool captured = token >= trace.first_query_token();
        double squares = 0;
        for (int i = 0; i < kDim; ++i) {
          squares += of(q, i) * of(q, i);
          if (captured) {
            ASSERT_EQ(Bits(q[i]), Bits(trace.Query(kLast, head, token)[i])) << token;
          }
          if (token == tokens - 1) {
            ASSERT_EQ(Bits(q[i]),
                      Bits(last[static_cast<size_t>((sequence * kHeads + head) * kDim + i)]));
          }
        }
        (captured ? traced_norm : norm) += std::sqrt(squares);

        std::vector<double> weight;
        double sum = 0;
        for (int64_t t = 0; t <= token; ++t) {
          const __nv_bfloat16* key = trace.Key(kLast, head / kGroup, t);
          double dot = 0;
          for (int i = 0; i < kDim; ++i) dot += of(q, i) * of(key, i);
          weight.push_back(std::exp(dot * trace.softmax_scale()));
          sum += weight.back();
        }
        for (int i = 0; i < kDim; ++i) {
          double expected = 0, magnitude = 0;
          for (int64_t t = 0; t <= token; ++t) {
            const double value = of(trace.Value(kLast, head / kGroup, t), i);
            expected += weight[static_cast<size_t>(t)] / sum * value;
            magnitude += weight[static_cast<size_t>(t)] / sum * std::abs(value);
          }
          // Weights and result are rounded to bf16.
          ASSERT_NEAR(of(output.data() + row, i), expected, magnitude / 128 * 1.02 + 1e-6)
              << "sequence " << sequence << ", head " << head << ", token " << token;
        }
      }
    }
  }
  const auto captured = static_cast<double>(tokens - trace.first_query_token());
  EXPECT_NEAR(norm / (static_cast<double>(tokens) - captured) / (traced_norm / captured), 1, 0.1);
}

}  // namespace
}  // namespace stallcast::kernels
