// Replay of whole traces: attention mass, determinism, and traces that cannot be replayed.
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include <bit>
#include <cmath>
#include <functional>
#include <mutex>

#include "models/methods/attention_rule.h"
#include "models/methods/method.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"

namespace stallcast::methods {
namespace {

using traces::TensorKind;

// Parameters that make every method select on the small random traces.
ParamValues Small(const std::string& method) {
  if (method == "full" || method == "offload" || method == "cpu-attention") return {};
  if (method == "hisparse") {
    return {{"budget", "96"}, {"buffer", "160"}, {"page", "8"}, {"dense_layers", "1"}};
  }
  if (method == "pariskv") {
    return {{"topk", "20"},   {"sink", "16"},       {"local", "32"},
            {"update", "64"}, {"dense_until", "0"}, {"subspaces", "4"}};
  }
  if (method == "shadowkv") {
    return {{"budget", "40"}, {"outliers", "2"}, {"local", "2"}, {"dense_until", "0"}};
  }
  if (method == "snapkv" || method == "rkv" || method == "h2o") {
    ParamValues values{{"budget", "96"}, {"dense_layers", "1"}};
    if (method == "h2o") values["recent"] = "40";
    return values;
  }
  if (method == "raas") return {{"budget", "96"}, {"page", "8"}, {"dense_layers", "1"}};
  if (method == "duoattention" || method == "razorattention") {
    return {{"sink", "4"}, {"window", "40"}};
  }
  if (method == "retroinfer") return {{"retrieval", "0.1"}, {"window", "16"}, {"update", "64"}};
  if (method == "pqcache") return {{"bits", "4"}, {"block", "32"}, {"cache", "128"}};
  if (method == "magicpig") return {{"tables", "20"}, {"bits", "4"}, {"window", "16"}};
  if (method == "clusterkv" || method == "twilight") {
    return {{method == "clusterkv" ? "budget" : "base", "96"},
            {method == "clusterkv" ? "lists" : "page", "8"},
            {"dense_layers", "1"}};
  }
  if (method == "sparq") return {{"budget", "96"}, {"channels", "8"}, {"window", "16"}};
  if (method == "wgkv") return {{"window", "16"}, {"page", "8"}, {"gate", "oracle"}};
  ParamValues values{{"budget", "96"}};
  if (method == "streaming") return values;
  values["dense_layers"] = "1";
  values[method == "louiskv" ? "cluster" : "page"] = "8";
  if (method == "quest") return values;
  values["window"] = "16";
  if (method != "prkv") values["sink"] = "16";
  return values;
}

// Equal to the last bit; a similarity that was not compared is NaN on both sides.
void ExpectIdentical(const traces::AccessLog& a, const traces::AccessLog& b) {
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    traces::LayerAccess x = a.layers[i], y = b.layers[i];
    ASSERT_EQ(x.similarity.size(), y.similarity.size());
    for (size_t c = 0; c < x.similarity.size(); ++c) {
      ASSERT_EQ(std::bit_cast<uint32_t>(x.similarity[c]), std::bit_cast<uint32_t>(y.similarity[c]));
    }
    x.similarity.clear();
    y.similarity.clear();
    ASSERT_TRUE(x == y) << "layer " << x.layer;
  }
}

TEST(Replay, DoesNotDependOnTheNumberOfThreads) {
  const traces::Trace trace = RandomTrace(
      {.layers = 5, .kv_heads = 3, .group = 2, .prompt = 600, .steps = 300, .value_dim = 24});
  for (const MethodInfo& info : Methods()) {
    SCOPED_TRACE(info.name);
    const NamedMethod named = MakeMethod(info.name, Small(info.name));
    const auto replay = [&](size_t threads) {
      const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
      return Replay(trace, "hash", info.name, *named.method);
    };
    const traces::AccessLog one = replay(1);
    ExpectIdentical(one, replay(2));
    ExpectIdentical(one, replay(7));
  }
}

// The trace of a model whose groups have `group` query heads, those of `trace` by index, repeated.
traces::Trace WithGroups(const traces::Trace& trace, int group) {
  traces::Trace out = trace;
  for (traces::Tensor& tensor : out.tensors) {
    if (tensor.spec.kind != traces::TensorKind::kQuery) continue;
    const traces::TensorSpec from = tensor.spec;
    const int kv_heads = trace.Find(traces::TensorKind::kKey, from.layer)->spec.heads;
    const int traced_group = from.heads / kv_heads;
    std::vector<float> values;
    for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int member = 0; member < group; ++member) {
        std::vector<float> rows(static_cast<size_t>(from.tokens * from.head_dim));
        tensor.ToFloat(kv_head * traced_group + member % traced_group, from.first_token,
                       from.tokens, rows.data());
        values.insert(values.end(), rows.begin(), rows.end());
      }
    }
    tensor = MakeTensor(from.kind, from.layer, kv_heads * group, from.head_dim, from.first_token,
                        values);
  }
  return out;
}

TEST(Replay, AModelsGroupsAreTheTracesByIndexAndRepeated) {
  const traces::Trace trace = RandomTrace(
      {.layers = 2, .kv_heads = 2, .group = 3, .prompt = 400, .steps = 40, .value_dim = 24});
  for (const int group : {1, 2, 5, 7}) {
    const traces::Trace other = WithGroups(trace, group);
    for (const MethodInfo& info : Methods()) {
      SCOPED_TRACE(info.name + ", groups of " + std::to_string(group));
      const NamedMethod named = MakeMethod(info.name, Small(info.name));
      const traces::AccessLog log =
          Replay(trace, "hash", info.name, *named.method, {.group = group, .progress = {}});
      ExpectIdentical(log, Replay(other, "hash", info.name, *named.method));
      EXPECT_EQ(log.query_heads, 2 * group);
      EXPECT_EQ(log.params.at(kGroupParam), std::to_string(group));
    }
  }
}

TEST(Replay, EveryInstructionSetMeasuresTheSame) {
  const traces::Trace trace = RandomTrace({.dim = 33, .prompt = 530, .steps = 9, .value_dim = 31});
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  AttendedRanges attended(1);
  std::vector<std::vector<bool>> tokens;
  for (int step = 0; step < layer.steps; ++step) {
    tokens.emplace_back(static_cast<size_t>(layer.prompt + step + 1));
    for (int64_t t = step; t < layer.prompt; t += 13) {
      attended.Add(t, t + 5);
      for (int64_t i = t; i < std::min<int64_t>(t + 5, layer.prompt); ++i) tokens.back()[i] = true;
      for (int64_t i = layer.prompt; i < t + 5 && i < layer.prompt + step + 1; ++i) {
        tokens.back()[i] = true;
      }
    }
    attended.EndCell();
  }
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    const AttentionFidelity fidelity = MeasureAttention(tensors, attended);
    for (int step = 0; step < layer.steps; ++step) {
      EXPECT_NEAR(fidelity.mass[step], brute::Mass(layer, step, {tokens[step]}), 1e-5);
      EXPECT_NEAR(fidelity.output_error[step], brute::OutputError(layer, step, {tokens[step]}),
                  1e-5);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(MeasureAttention, WholeAndNothingAndComplements) {
  const traces::Trace trace = RandomTrace({.dim = 64, .prompt = 900, .steps = 12, .value_dim = 64});
  const LayerTensors tensors(trace, 0);
  AttendedRanges all(1), none(1), odd(1), even(1);
  for (int step = 0; step < 12; ++step) {
    all.Add(0, 901 + step);
    for (int64_t t = 0; t < 901 + step; ++t) (t % 3 == 1 ? odd : even).Add(t, t + 1);
    for (AttendedRanges* ranges : {&all, &none, &odd, &even}) ranges->EndCell();
  }
  const AttentionFidelity whole = MeasureAttention(tensors, all);
  const AttentionFidelity nothing = MeasureAttention(tensors, none);
  const AttentionFidelity part = MeasureAttention(tensors, odd);
  const AttentionFidelity rest = MeasureAttention(tensors, even);
  for (int step = 0; step < 12; ++step) {
    EXPECT_EQ(whole.mass[step], 1.0f);
    EXPECT_EQ(whole.output_error[step], 0.0f);
    EXPECT_EQ(nothing.mass[step], 0.0f);
    EXPECT_EQ(nothing.output_error[step], 1.0f);
    EXPECT_NEAR(part.mass[step] + rest.mass[step], 1.0, 1e-6);
    EXPECT_GT(part.output_error[step], 0.0f);
  }
}

TEST(MeasureAttention, ValuesThatAreAllAlikeLoseNothing) {
  // Any average of equal vectors is that vector; of zeros, an error has no meaning.
  for (const float value : {0.0f, 3.0f}) {
    traces::Trace trace = RandomTrace({.prompt = 300, .steps = 6, .value_dim = 20});
    for (traces::Tensor& tensor : trace.tensors) {
      if (tensor.spec.kind != TensorKind::kValue) continue;
      auto* values = reinterpret_cast<float*>(tensor.data.data());
      std::fill_n(values, tensor.spec.elements(), value);
    }
    const LayerTensors tensors(trace, 0);
    AttendedRanges some(1);
    for (int step = 0; step < 6; ++step) {
      some.Add(40, 90);
      some.EndCell();
    }
    for (const float error : MeasureAttention(tensors, some).output_error) {
      if (value == 0) {
        EXPECT_TRUE(std::isnan(error));
      } else {
        EXPECT_NEAR(error, 0, 1e-5);
      }
    }
  }
}

TEST(MeasureAttention, ValuesLargeAndSmallGiveTheSameError) {
  traces::Trace trace = RandomTrace({.prompt = 400, .steps = 5, .value_dim = 16});
  AttendedRanges some(2);
  for (int step = 0; step < 5; ++step) {
    for (const int head : {0, 1}) {
      some.Add(head * 50, 300);
      some.EndCell();
    }
  }
  const std::vector<float> before = MeasureAttention(LayerTensors(trace, 0), some).output_error;
  for (traces::Tensor& tensor : trace.tensors) {
    if (tensor.spec.kind != TensorKind::kValue) continue;
    auto* values = reinterpret_cast<float*>(tensor.data.data());
    for (int64_t i = 0; i < tensor.spec.elements(); ++i) values[i] *= 0x1p40f;
  }
  EXPECT_EQ(MeasureAttention(LayerTensors(trace, 0), some).output_error, before);
}

TEST(AttentionMass, ScaleOfTheModelIsUsed) {
  traces::Trace trace = RandomTrace({.prompt = 50, .steps = 4});
  trace.info.mutable_model()->set_softmax_scale(0.7);
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  AttendedRanges first_ten(1);
  for (int step = 0; step < 4; ++step) {
    first_ten.Add(0, 10);
    first_ten.EndCell();
  }
  const std::vector<float> mass = MeasureAttention(tensors, first_ten).mass;
  for (int step = 0; step < 4; ++step) {
    std::vector<bool> attended(static_cast<size_t>(51 + step));
    std::fill(attended.begin(), attended.begin() + 10, true);
    EXPECT_NEAR(mass[step], brute::Mass(layer, step, {attended}), 1e-5);
  }
}

// What a layer's attention is, in double precision.
struct Expected {
  double mass = 0, error = 0;
};
Expected TrueAttention(const brute::Layer& layer, int step, const traces::proto::Attention& rule,
                       const std::vector<bool>& attended) {
  const int64_t token = layer.prompt + step;
  Expected mean;
  for (int head = 0; head < layer.query_heads; ++head) {
    const int kv_head = head / layer.group;
    const double sink = rule.sinks_size() > 0 ? std::exp(rule.sinks(head)) : 0;
    double total = 0, kept = 0;
    brute::Vector full(layer.values[kv_head][0].size()), sparse(full.size());
    for (int64_t t = 0; t <= token; ++t) {
      if (rule.window() > 0 && t <= token - rule.window()) continue;
      if (rule.chunk() > 0 && t / rule.chunk() != token / rule.chunk()) continue;
      double logit = layer.scale * brute::Dot(layer.Query(head, token), layer.keys[kv_head][t]);
      if (rule.soft_cap() > 0) logit = rule.soft_cap() * std::tanh(logit / rule.soft_cap());
      const double weight = std::exp(logit);
      total += weight;
      if (attended[t]) kept += weight;
      for (size_t i = 0; i < full.size(); ++i) {
        full[i] += weight * layer.values[kv_head][t][i];
        if (attended[t]) sparse[i] += weight * layer.values[kv_head][t][i];
      }
    }
    double difference = 0, norm = 0;
    for (size_t i = 0; i < full.size(); ++i) {
      const double of_all = full[i] / (total + sink);
      const double of_kept = kept > 0 ? sparse[i] / (kept + sink) : 0;
      difference += (of_kept - of_all) * (of_kept - of_all);
      norm += of_all * of_all;
    }
    mean.mass += kept / total / layer.query_heads;
    mean.error += std::sqrt(difference / norm) / layer.query_heads;
  }
  return mean;
}

TEST(MeasureAttention, WindowsChunksCapsAndSinksAreTheLayersOwn) {
  std::vector<traces::proto::Attention> rules(6);
  rules[0].set_window(40);
  rules[1].set_window(300);  // ends inside a panel of keys, and before one
  rules[2].set_chunk(64);
  rules[3].set_soft_cap(1.5);
  for (const double sink : {2.0, 0.0, -3.0, 5.0, 1.0, 8.0}) rules[4].add_sinks(sink);
  rules[5] = rules[4];
  rules[5].set_window(70);
  rules[5].set_soft_cap(2);
  for (size_t i = 0; i < rules.size(); ++i) {
    const traces::proto::Attention& rule = rules[i];
    SCOPED_TRACE(i);
    traces::Trace trace = RandomTrace({.layers = 2, .prompt = 600, .steps = 9, .value_dim = 16});
    *trace.info.mutable_model()->add_attention() = {};
    *trace.info.mutable_model()->add_attention() = rule;
    const LayerTensors tensors(trace, 1);
    const brute::Layer layer(trace, 1);
    AttendedRanges some(1), all(1);
    std::vector<std::vector<bool>> kept;
    for (int step = 0; step < 9; ++step) {
      kept.emplace_back(static_cast<size_t>(layer.prompt + step + 1));
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 4}, {250, 330}, {590, 603}}) {
        some.Add(begin, end);
        for (int64_t t = begin; t < std::min(end, std::ssize(kept.back())); ++t) {
          kept.back()[t] = true;
        }
      }
      all.Add(0, layer.prompt + step + 1);
      some.EndCell();
      all.EndCell();
    }
    const AttentionFidelity measured = MeasureAttention(tensors, trace.info.model(), some);
    const AttentionFidelity whole = MeasureAttention(tensors, trace.info.model(), all);
    for (int step = 0; step < 9; ++step) {
      const Expected expected = TrueAttention(layer, step, rule, kept[step]);
      EXPECT_NEAR(measured.mass[step], expected.mass, 1e-5);
      EXPECT_NEAR(measured.output_error[step], expected.error, 1e-5);
      EXPECT_EQ(whole.mass[step], 1.0f);
      EXPECT_EQ(whole.output_error[step], 0.0f);
    }
  }
}

TEST(Replay, DescribesItsRun) {
  const traces::Trace trace = RandomTrace({.layers = 3, .steps = 30});
  const NamedMethod freekv = MakeMethod("freekv", Small("freekv"));
  std::vector<double> progress;
  std::mutex mutex;
  const traces::AccessLog log =
      Replay(trace, "abc", "freekv", *freekv.method, {.group = 0, .progress = [&](double share) {
                                                        const std::lock_guard lock(mutex);
                                                        progress.push_back(share);
                                                      }});
  EXPECT_EQ(log.method, "freekv");
  EXPECT_EQ(log.trace_hash, "abc");
  EXPECT_EQ(log.unit, "page");
  EXPECT_EQ(log.unit_tokens, 8);
  EXPECT_EQ(log.prompt_tokens, 203);
  EXPECT_EQ(log.steps, 30);
  EXPECT_EQ(log.kv_heads, 2);
  EXPECT_EQ(log.query_heads, 6);
  EXPECT_EQ(log.params, freekv.method->Params(true));
  EXPECT_FALSE(log.params.contains("recall")) << "a plan parameter must not shape the cache key";
  ASSERT_EQ(log.layers.size(), 3u);
  EXPECT_TRUE(log.layers[0].dense);
  EXPECT_EQ(log.layers[0].heads, 0);
  EXPECT_EQ(log.layers[0].attention_mass, std::vector<float>(30, 1.0f));
  EXPECT_FALSE(log.layers[1].dense);
  EXPECT_EQ(log.layers[1].attention_mass.size(), 30u);
  for (const traces::LayerAccess& layer : log.layers) EXPECT_TRUE(layer.output_error.empty());
  ASSERT_EQ(progress.size(), 3u);
  EXPECT_EQ(*std::max_element(progress.begin(), progress.end()), 1.0);
}

TEST(Replay, MeasuresTheErrorOfLayersWithValues) {
  traces::Trace trace = RandomTrace({.layers = 3, .steps = 30, .value_dim = 12});
  // Values of layer 2 that lack the last tokens are as good as none.
  traces::Tensor& cut = trace.tensors.back();
  ASSERT_EQ(cut.spec.kind, TensorKind::kValue);
  cut = MakeTensor(TensorKind::kValue, 2, 2, 12, 0, std::vector<float>(2 * 12 * 232));
  const traces::AccessLog log =
      Replay(trace, "", "freekv", *MakeMethod("freekv", Small("freekv")).method);
  EXPECT_EQ(log.layers[0].output_error, std::vector<float>(30, 0.0f)) << "dense";
  EXPECT_EQ(log.layers[1].output_error.size(), 30u);
  EXPECT_GT(log.layers[1].output_error[0], 0.0f);
  EXPECT_TRUE(log.layers[2].output_error.empty());
}

TEST(Replay, MethodsWithoutPolicyAttendEverything) {
  const traces::Trace trace = RandomTrace({.layers = 2, .steps = 5});
  for (const char* name : {"full", "offload"}) {
    const traces::AccessLog log = Replay(trace, "", name, *MakeMethod(name, {}).method);
    for (const traces::LayerAccess& layer : log.layers) {
      EXPECT_TRUE(layer.dense);
      EXPECT_EQ(layer.attention_mass, std::vector<float>(5, 1.0f));
    }
  }
}

struct Broken {
  const char* name;
  std::function<void(traces::Trace&)> damage;
  const char* says;
};

traces::Tensor& Of(traces::Trace& trace, TensorKind kind) {
  return *std::find_if(trace.tensors.begin(), trace.tensors.end(),
                       [&](const traces::Tensor& t) { return t.spec.kind == kind; });
}

void Poke(traces::Tensor& tensor, int64_t element, float value) {
  std::memcpy(tensor.data.data() + element * 4, &value, 4);
}

class BrokenTrace : public testing::TestWithParam<Broken> {};
INSTANTIATE_TEST_SUITE_P(
    Replay, BrokenTrace,
    testing::Values(
        Broken{"NaNKey", [](traces::Trace& trace) { Poke(Of(trace, TensorKind::kKey), 777, NAN); },
               "not a number"},
        Broken{"InfiniteQuery",
               [](traces::Trace& trace) { Poke(Of(trace, TensorKind::kQuery), 5, -INFINITY); },
               "infinite"},
        Broken{"NoKeys",
               [](traces::Trace& trace) {
                 std::erase_if(trace.tensors,
                               [](auto& x) { return x.spec.kind == TensorKind::kKey; });
               },
               "no layer"},
        Broken{"NoTensors", [](traces::Trace& trace) { trace.tensors.clear(); }, "no layer"},
        Broken{"NoSteps", [](traces::Trace& trace) { trace.info.set_decode_steps(-3); },
               "decodes -3 tokens"},
        Broken{"NoPrompt", [](traces::Trace& trace) { trace.info.set_prompt_tokens(0); }, "prompt"},
        Broken{"LyingSteps", [](traces::Trace& trace) { trace.info.set_decode_steps(INT64_MAX); },
               "2^31"},
        Broken{"LyingPrompt",
               [](traces::Trace& trace) { trace.info.set_prompt_tokens(INT32_MAX - 70); }, "cover"},
        Broken{"MoreStepsThanKeys", [](traces::Trace& trace) { trace.info.set_decode_steps(71); },
               "cover"},
        Broken{"QueriesStartLate", [](traces::Trace& trace) { trace.info.set_prompt_tokens(150); },
               "cover"},
        Broken{"HeadsNotDivisible",
               [](traces::Trace& trace) {
                 traces::Tensor& q = Of(trace, TensorKind::kQuery);
                 q.spec.heads = 5;
                 q.data.resize(static_cast<size_t>(q.spec.bytes()));
               },
               "not a multiple"},
        Broken{"OtherDimension",
               [](traces::Trace& trace) {
                 traces::Tensor& q = Of(trace, TensorKind::kQuery);
                 q.spec.head_dim = 12;
                 q.data.resize(static_cast<size_t>(q.spec.bytes()));
               },
               "dimensions"},
        Broken{"NaNValue",
               [](traces::Trace& trace) { Poke(Of(trace, TensorKind::kValue), 50, NAN); },
               "value elements are infinite or not a number"},
        Broken{"ValuesOfOtherHeads",
               [](traces::Trace& trace) {
                 traces::Tensor& v = Of(trace, TensorKind::kValue);
                 v.spec.heads = 1;
                 v.data.resize(static_cast<size_t>(v.spec.bytes()));
               },
               "values have 1 heads, keys 2"},
        Broken{"NoHeads",
               [](traces::Trace& trace) {
                 traces::Tensor& k = Of(trace, TensorKind::kKey);
                 k.spec.heads = 0;
                 k.data.clear();
               },
               "empty"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_P(BrokenTrace, IsOneErrorWithARemedy) {
  traces::Trace trace = RandomTrace({.value_dim = 24});
  GetParam().damage(trace);
  const NamedMethod quest = MakeMethod("quest", {{"dense_layers", "0"}});
  try {
    Replay(trace, "", "quest", *quest.method);
    FAIL() << "replayed";
  } catch (const Error& error) {
    EXPECT_NE(error.problem().find(GetParam().says), std::string::npos) << error.what();
    EXPECT_FALSE(error.usage());
    EXPECT_FALSE(error.remedy().empty());
    EXPECT_FALSE(error.where().empty());
  }
}

TEST(LayerTensors, NamesTheLayerThatIsMissing) {
  const traces::Trace trace = RandomTrace({.layers = 2});
  try {
    const LayerTensors tensors(trace, 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 5"), std::string::npos) << error.what();
  }
}

TEST(LayerTensors, StepsComeFromTheQueriesWhereTheWriterDidNotKnow) {
  traces::Trace trace = RandomTrace({.prompt = 40, .steps = 9});
  trace.info.set_decode_steps(0);
  EXPECT_EQ(DecodeSteps(trace), 9);
  EXPECT_EQ(LayerTensors(trace, 0).steps(), 9);
}

}  // namespace
}  // namespace stallcast::methods
