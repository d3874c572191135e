// What a budget can reach: no choice beats the oracle, and pages do not beat tokens.
#include "tests/models/methods/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

std::vector<float> Mass(const Policy& policy, const LayerTensors& tensors) {
  traces::LayerAccess access;
  AttendedRanges attended;
  policy.Replay(tensors, access, attended);
  return MeasureAttention(tensors, attended).mass;
}

double Mean(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Weight of the `budget` heaviest tokens a KV head, in double precision, mean over query heads.
double OracleMass(const brute::Layer& layer, int step, size_t budget) {
  double mass = 0;
  for (int head = 0; head < layer.kv_heads; ++head) {
    std::vector<double> mean(static_cast<size_t>(layer.prompt + step + 1));
    for (int g = 0; g < layer.group; ++g) {
      const brute::Vector weights = brute::Weights(layer, head * layer.group + g, step);
      for (size_t t = 0; t < mean.size(); ++t) mean[t] += weights[t] / layer.query_heads;
    }
    std::sort(mean.rbegin(), mean.rend());
    mean.resize(std::min(budget, mean.size()));
    mass += std::accumulate(mean.begin(), mean.end(), 0.0);
  }
  return mass;
}

TEST(TokenReference, OracleTakesTheHeaviestTokens) {
  for (const int group : {1, 4}) {
    const traces::Trace trace =
        RandomTrace({.group = group, .prompt = 300, .steps = 21, .seed = 3});
    const LayerTensors tensors(trace, 0);
    const brute::Layer layer(trace, 0);
    const std::vector<float> mass =
        Mass(TokenReference(40, TokenReference::Choice::kOracle), tensors);
    for (int step = 0; step < 21; ++step) {
      EXPECT_NEAR(mass[step], OracleMass(layer, step, 40), 1e-5);
    }
  }
}

TEST(TokenReference, ReuseAttendsTheLastChoiceAndTheNewestToken) {
  for (const int64_t prompt_queries : {0, 1}) {
    const traces::Trace trace =
        RandomTrace({.prompt = 120, .steps = 20, .prompt_queries = prompt_queries});
    const LayerTensors tensors(trace, 0);
    traces::LayerAccess oracle, reuse;
    AttendedRanges attended;
    TokenReference(31, TokenReference::Choice::kOracle).Replay(tensors, oracle, attended);
    TokenReference(32, TokenReference::Choice::kReuse).Replay(tensors, reuse, attended);
    for (int step = 1; step < 20; ++step) {
      for (int head = 0; head < 2; ++head) {
        const auto before = oracle.selected[(step - 1) * 2 + head];
        std::vector<uint32_t> want(before.begin(), before.end());
        want.push_back(static_cast<uint32_t>(120 + step));
        const auto got = reuse.selected[step * 2 + head];
        EXPECT_EQ(std::vector<uint32_t>(got.begin(), got.end()), want);
      }
    }
  }
}

// Methods that choose for whole groups and attend at most `budget` tokens.
std::vector<NamedMethod> PageMethods(const std::string& budget, const std::string& page,
                                     const std::string& kept) {
  std::vector<NamedMethod> methods;
  methods.push_back(MakeMethod("quest", {{"budget", budget}, {"page", page}, {"group", "max"}}));
  for (const char* name : {"arkvale", "arkvale-freekv", "freekv"}) {
    methods.push_back(
        MakeMethod(name, {{"budget", budget}, {"page", page}, {"sink", kept}, {"window", kept}}));
  }
  return methods;
}

TEST(TokenReference, NoMethodBeatsTheOracleInAnyStep) {
  const traces::Trace trace = RandomTrace({.dim = 32, .prompt = 500, .steps = 60});
  const LayerTensors tensors(trace, 0);
  const std::vector<float> oracle =
      Mass(TokenReference(96, TokenReference::Choice::kOracle), tensors);
  for (const NamedMethod& named : PageMethods("96", "8", "16")) {
    const std::vector<float> mass = Mass(*named.method->NewPolicy(), tensors);
    for (size_t step = 0; step < mass.size(); ++step) {
      EXPECT_LE(mass[step], oracle[step] + 1e-5) << named.name << ", step " << step;
    }
  }
}

TEST(TokenReference, OracleThenReuseThenPagesOnRealTensors) {
  const std::vector<std::filesystem::path> samples = Samples();
  if (samples.empty()) GTEST_SKIP() << "no sample in traces/samples";
  for (const std::filesystem::path& path : samples) {
    SCOPED_TRACE(path.filename().string());
    const traces::Trace trace = traces::ReadTrace(path);
    if (trace.info.synthetic()) continue;
    std::map<std::string, double> mean;
    int layers = 0;
    for (const int layer : trace.Layers()) {
      if (layer == 0) continue;  // dense in every method
      ++layers;
      const LayerTensors tensors(trace, layer);
      const std::vector<float> oracle =
          Mass(TokenReference(1024, TokenReference::Choice::kOracle), tensors);
      const std::vector<float> reuse =
          Mass(TokenReference(1024, TokenReference::Choice::kReuse), tensors);
      mean["oracle"] += Mean(oracle);
      mean["reuse"] += Mean(reuse);
      for (const NamedMethod& named : PageMethods("1024", "32", "64")) {
        const std::vector<float> mass = Mass(*named.method->NewPolicy(), tensors);
        mean[named.name] += Mean(mass);
        for (size_t step = 0; step < mass.size(); ++step) {
          EXPECT_LE(mass[step], oracle[step] + 1e-5) << named.name << ", layer " << layer;
        }
      }
    }
    if (layers == 0) continue;
    EXPECT_GE(mean["oracle"], mean["reuse"]);
    for (const auto& [name, sum] : mean) {
      if (name != "oracle") {
        EXPECT_GE(mean["reuse"], sum) << name;
      }
      RecordProperty(path.stem().string() + " " + name, std::to_string(sum / layers));
    }
  }
}

}  // namespace
}  // namespace stallcast::methods
