// Replay of whole traces: attention mass, determinism, and traces that cannot be replayed.
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <tbb/global_control.h>

#include <bit>
#include <cmath>
#include <functional>
#include <mutex>

#include "models/methods/method.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"

namespace stallcast::methods {
namespace {

using traces::TensorKind;

// Parameters that make every method select on the small random traces.
ParamValues Small(const std::string& method) {
  if (method == "full" || method == "offload") return {};
  if (method == "pariskv") {
    return {{"topk", "20"},   {"sink", "16"},       {"local", "32"},
            {"update", "64"}, {"dense_until", "0"}, {"subspaces", "4"}};
  }
  if (method == "wgkv") return {{"window", "16"}, {"page", "8"}, {"gate", "oracle"}};
  ParamValues values{{"budget", "96"}};
  if (method == "streaming") return values;
  values["page"] = "8";
  values["dense_layers"] = "1";
  if (method == "quest") return values;
  values["sink"] = values["window"] = "16";
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
  const traces::Trace trace =
      RandomTrace({.layers = 5, .kv_heads = 3, .group = 2, .prompt = 600, .steps = 300});
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

TEST(Replay, EveryInstructionSetMeasuresTheSameMass) {
  const traces::Trace trace = RandomTrace({.dim = 33, .prompt = 530, .steps = 9});
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
    const std::vector<float> mass = AttentionMass(tensors, attended);
    for (int step = 0; step < layer.steps; ++step) {
      EXPECT_NEAR(mass[step], brute::Mass(layer, step, {tokens[step]}), 1e-5);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(AttentionMass, WholeAndNothingAndComplements) {
  const traces::Trace trace = RandomTrace({.dim = 64, .prompt = 900, .steps = 12});
  const LayerTensors tensors(trace, 0);
  AttendedRanges all(1), none(1), odd(1), even(1);
  for (int step = 0; step < 12; ++step) {
    all.Add(0, 901 + step);
    for (int64_t t = 0; t < 901 + step; ++t) (t % 3 == 1 ? odd : even).Add(t, t + 1);
    for (AttendedRanges* ranges : {&all, &none, &odd, &even}) ranges->EndCell();
  }
  const std::vector<float> whole = AttentionMass(tensors, all);
  const std::vector<float> nothing = AttentionMass(tensors, none);
  const std::vector<float> part = AttentionMass(tensors, odd);
  const std::vector<float> rest = AttentionMass(tensors, even);
  for (int step = 0; step < 12; ++step) {
    EXPECT_EQ(whole[step], 1.0f);
    EXPECT_EQ(nothing[step], 0.0f);
    EXPECT_NEAR(part[step] + rest[step], 1.0, 1e-6);
  }
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
  const std::vector<float> mass = AttentionMass(tensors, first_ten);
  for (int step = 0; step < 4; ++step) {
    std::vector<bool> attended(static_cast<size_t>(51 + step));
    std::fill(attended.begin(), attended.begin() + 10, true);
    EXPECT_NEAR(mass[step], brute::Mass(layer, step, {attended}), 1e-5);
  }
}

TEST(Replay, DescribesItsRun) {
  const traces::Trace trace = RandomTrace({.layers = 3, .steps = 30});
  const NamedMethod freekv = MakeMethod("freekv", Small("freekv"));
  std::vector<double> progress;
  std::mutex mutex;
  const traces::AccessLog log = Replay(trace, "abc", "freekv", *freekv.method, [&](double share) {
    const std::lock_guard lock(mutex);
    progress.push_back(share);
  });
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
  ASSERT_EQ(progress.size(), 3u);
  EXPECT_EQ(*std::max_element(progress.begin(), progress.end()), 1.0);
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
        Broken{"NoHeads",
               [](traces::Trace& trace) {
                 traces::Tensor& k = Of(trace, TensorKind::kKey);
                 k.spec.heads = 0;
                 k.data.clear();
               },
               "empty"}),
    [](const auto& param) { return std::string(param.param.name); });

TEST_P(BrokenTrace, IsOneErrorWithARemedy) {
  traces::Trace trace = RandomTrace({});
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
