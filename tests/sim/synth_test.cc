// Every statistic that synth promises, measured on the tensors it wrote, in double precision.
#include "sim/synth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "models/llm/model.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

SynthSpec SmallSpec() {
  SynthSpec spec;
  spec.model.name = spec.model.title = "small";
  spec.model.layers = 4;
  spec.model.query_heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_dim = 128;
  spec.model.hidden = 512;
  spec.model.intermediate = 1024;
  spec.model.vocabulary = 1000;
  spec.layers = 2;
  spec.prompt_tokens = 4096;
  spec.steps = 256;
  spec.spread = 8;
  return spec;
}

std::vector<std::byte> Bytes(const SynthSpec& spec) {
  std::vector<std::byte> bytes;
  traces::TraceWriter writer(&bytes, SynthInfo(spec));
  Synthesize(spec, writer);
  writer.Finish();
  return bytes;
}

traces::Trace Make(const SynthSpec& spec) { return traces::ReadTrace(Bytes(spec), "synth"); }

std::vector<double> Row(const traces::Tensor& tensor, int head, int64_t token) {
  std::vector<float> row(tensor.spec.head_dim);
  tensor.ToFloat(head, token, 1, row.data());
  return {row.begin(), row.end()};
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double Cosine(const std::vector<double>& a, const std::vector<double>& b) {
  return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
}

// Cosines of each decode query with its predecessor, all layers and query heads.
std::vector<double> AdjacentCosines(const traces::Trace& trace) {
  std::vector<double> cosines;
  for (int layer : trace.Layers()) {
    const traces::Tensor& q = *trace.Find(traces::TensorKind::kQuery, layer);
    for (int head = 0; head < q.spec.heads; ++head) {
      for (int64_t t = trace.info.prompt_tokens(); t < q.spec.end_token(); ++t) {
        cosines.push_back(Cosine(Row(q, head, t), Row(q, head, t - 1)));
      }
    }
  }
  return cosines;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// The full softmax of one query.
std::vector<double> Weights(const traces::Trace& trace, int layer, int head, int64_t token) {
  const traces::Tensor& q = *trace.Find(traces::TensorKind::kQuery, layer);
  const traces::Tensor& k = *trace.Find(traces::TensorKind::kKey, layer);
  const int kv_head = head / (q.spec.heads / k.spec.heads);
  const std::vector<double> query = Row(q, head, token);
  std::vector<double> weights;
  for (int64_t j = 0; j <= token; ++j) {
    weights.push_back(Dot(query, Row(k, kv_head, j)) / std::sqrt(q.spec.head_dim));
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (double& w : weights) w /= sum;
  return weights;
}

struct Masses {
  double sink = 0, local = 0, units = 0;  // units: exp of the entropy of the long-range mass
};

Masses MeasureMasses(const traces::Trace& trace, const SynthSpec& spec) {
  Masses mean;
  int queries = 0;
  for (int layer : trace.Layers()) {
    for (int head = 0; head < spec.model.query_heads; ++head) {
      for (int step = 0; step < spec.steps; step += 37, ++queries) {
        const int64_t token = spec.prompt_tokens + step;
        const std::vector<double> weights = Weights(trace, layer, head, token);
        std::map<int64_t, double> units;
        double far = 0;
        for (int64_t j = 0; j <= token; ++j) {
          if (j < spec.sink_tokens) {
            mean.sink += weights[j];
          } else if (j > token - spec.local_window) {
            mean.local += weights[j];
          } else {
            units[j / spec.unit_tokens] += weights[j];
            far += weights[j];
          }
        }
        double entropy = 0;
        for (const auto& [unit, mass] : units) {
          if (mass > 0) entropy -= mass / far * std::log(mass / far);
        }
        mean.units += std::exp(entropy);
      }
    }
  }
  return {mean.sink / queries, mean.local / queries, mean.units / queries};
}

TEST(Synth, MassesAndSpreadAreAsAsked) {
  struct Case {
    double sink, local;
    int64_t window;
    int spread, head_dim;
  };
  for (const Case& c : {Case{0.3, 0.3, 64, 8, 128}, Case{0.6, 0.1, 32, 1, 128},
                        Case{0.05, 0.2, 128, 20, 128}, Case{0.4, 0.4, 64, 8, 64}}) {
    SynthSpec spec = SmallSpec();
    spec.sink_mass = c.sink;
    spec.local_mass = c.local;
    spec.local_window = c.window;
    spec.spread = c.spread;
    spec.model.head_dim = c.head_dim;
    const Masses measured = MeasureMasses(Make(spec), spec);
    SCOPED_TRACE(testing::Message() << "window " << c.window << " spread " << c.spread);
    EXPECT_NEAR(measured.sink, c.sink, 0.02 * c.sink + 0.003);
    EXPECT_NEAR(measured.local, c.local, 0.02 * c.local + 0.003);
    EXPECT_NEAR(measured.units, c.spread, 0.08 * c.spread);
  }
}

TEST(Synth, SimilarityIsAsAsked) {
  for (double similarity : {0.3, 0.7, 0.9, 0.99}) {
    SynthSpec spec = SmallSpec();
    spec.prompt_tokens = 2048;
    spec.steps = 512;
    spec.similarity = similarity;
    // Jumps come at random, so the mean wanders with their number: 4 sigma of a binomial draw,
    // heads together in the worst case.
    const double draws = spec.layers * spec.model.kv_heads * spec.steps / 2.0;
    const double jump = std::min(1.0, (1 - similarity) * spec.segment_length / 2);
    const double tolerance = 4 * jump / std::sqrt(spec.segment_length * draws) + 1e-3 * jump;
    EXPECT_NEAR(Mean(AdjacentCosines(Make(spec))), similarity, tolerance);
  }
}

TEST(Synth, SegmentsHaveTheMeanLengthAsked) {
  for (double length : {4.0, 16.0, 50.0}) {
    SynthSpec spec = SmallSpec();
    spec.prompt_tokens = 2048;
    spec.steps = 1024;
    spec.similarity = 0.95;
    spec.segment_length = length;
    const std::vector<double> cosines = AdjacentCosines(Make(spec));
    // Half the deficit comes from jumps: each loses this much, steps within a segment less.
    const double jump = std::min(1.0, 0.05 * length / 2);
    const auto jumps = std::count_if(cosines.begin(), cosines.end(),
                                     [&](double c) { return c < 1 - 0.95 * jump; });
    const double mean = static_cast<double>(cosines.size()) / static_cast<double>(jumps);
    const double segments = static_cast<double>(jumps) / spec.model.group() / 2;
    EXPECT_NEAR(mean, length, 4 * length / std::sqrt(segments)) << "segments " << segments;
  }
}

TEST(Synth, LongRangeUnitsChangeAtJumpsOnly) {
  SynthSpec spec = SmallSpec();
  spec.segment_length = 8;
  const traces::Trace trace = Make(spec);
  const int layer = trace.Layers().front();
  const traces::Tensor& q = *trace.Find(traces::TensorKind::kQuery, layer);
  const auto heaviest = [&](int64_t token) {
    const std::vector<double> weights = Weights(trace, layer, 0, token);
    const auto begin = weights.begin() + spec.sink_tokens;
    return (std::max_element(begin, weights.end() - spec.local_window) - weights.begin()) /
           spec.unit_tokens;
  };
  int changes = 0;
  for (int64_t t = spec.prompt_tokens + 1; t < spec.prompt_tokens + 60; ++t) {
    const bool jump = Cosine(Row(q, 0, t), Row(q, 0, t - 1)) < 1 - 0.95 * 0.4;
    EXPECT_EQ(heaviest(t) != heaviest(t - 1), jump) << "token " << t;
    changes += jump;
  }
  EXPECT_GT(changes, 0);
}

TEST(Synth, MeanKeyTurnsAsAsked) {
  for (double drift : {0.0, 20.0, 60.0}) {
    SynthSpec spec = SmallSpec();
    spec.drift_degrees = drift;
    const traces::Trace trace = Make(spec);
    double turn = 0;
    int blocks = 0;
    for (int layer : trace.Layers()) {
      const traces::Tensor& k = *trace.Find(traces::TensorKind::kKey, layer);
      for (int head = 0; head < k.spec.heads; ++head) {
        std::vector<double> before;
        for (int64_t begin = 0; begin + 1024 <= spec.prompt_tokens; begin += 1024) {
          std::vector<double> sum(k.spec.head_dim);
          for (int64_t t = begin; t < begin + 1024; ++t) {
            const std::vector<double> row = Row(k, head, t);
            for (size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
          }
          if (!before.empty()) {
            turn += std::acos(Cosine(before, sum)) * 180 / std::numbers::pi;
            ++blocks;
          }
          before = sum;
        }
      }
    }
    // Keys of a block differ in topic and position too, which shows as a few degrees at no drift.
    EXPECT_NEAR(turn / blocks, drift, drift == 0 ? 4 : 0.05 * drift + 0.5);
  }
}

TEST(Synth, GeneratedUnitsAreAskedForInLongGeneration) {
  SynthSpec spec = SmallSpec();
  spec.prompt_tokens = 768;
  spec.steps = 2048;
  spec.spread = 4;
  spec.layers = 1;
  spec.model.query_heads = spec.model.kv_heads = 1;
  const traces::Trace trace = Make(spec);
  double generated = 0;
  for (int step = 1536; step < spec.steps; step += 16) {
    const int64_t token = spec.prompt_tokens + step;
    const std::vector<double> weights = Weights(trace, trace.Layers().front(), 0, token);
    for (int64_t j = spec.prompt_tokens; j <= token - spec.local_window; ++j)
      generated += weights[j];
  }
  EXPECT_GT(generated, 0.5);
}

TEST(Synth, SameSpecGivesSameTensors) {
  SynthSpec spec = SmallSpec();
  spec.prompt_tokens = 1024;
  spec.steps = 16;
  const auto elements = [](const SynthSpec& s) {
    std::vector<std::vector<std::byte>> data;
    for (traces::Tensor& tensor : Make(s).tensors) data.push_back(std::move(tensor.data));
    return data;
  };
  const auto first = elements(spec);
  EXPECT_EQ(first, elements(spec));
  spec.seed = 2;
  EXPECT_NE(first, elements(spec));
}

TEST(Synth, ARotationLeavesNoDimensionEmptyAndMassesAndSimilarityAsTheyWere) {
  SynthSpec spec = SmallSpec();
  const traces::Trace plain = Make(spec);
  spec.rotated = true;
  const traces::Trace rotated = Make(spec);
  const auto empty = [&](const traces::Trace& trace) {
    const traces::Tensor& keys = *trace.Find(traces::TensorKind::kKey, trace.Layers().front());
    const std::vector<double> row = Row(keys, 1, 1001);
    return std::count(row.begin(), row.end(), 0.0);
  };
  EXPECT_GT(empty(plain), spec.model.head_dim / 2);
  EXPECT_LT(empty(rotated), 4);
  const Masses was = MeasureMasses(plain, spec), is = MeasureMasses(rotated, spec);
  EXPECT_NEAR(is.sink, was.sink, 0.01);
  EXPECT_NEAR(is.local, was.local, 0.01);
  EXPECT_NEAR(is.units, was.units, 0.02 * was.units);
  EXPECT_NEAR(Mean(AdjacentCosines(rotated)), spec.similarity, 0.005);
}

TEST(Synth, SaysThatItIsSynthetic) {
  SynthSpec spec = SmallSpec();
  spec.prompt_tokens = 1024;
  spec.steps = 16;
  const traces::Trace trace = Make(spec);
  EXPECT_TRUE(trace.info.synthetic());
  EXPECT_EQ(trace.info.prompt_tokens(), 1024);
  EXPECT_EQ(trace.info.decode_steps(), 16);
  EXPECT_EQ(trace.Layers(), (std::vector<int>{1, 3}));
}

TEST(Synth, RefusesWhatCannotBe) {
  const auto refused = [](auto change) {
    SynthSpec spec = SmallSpec();
    change(spec);
    std::vector<std::byte> bytes;
    traces::TraceWriter writer(&bytes, {});
    try {
      Synthesize(spec, writer);
    } catch (const Error& error) {
      return error.usage();
    }
    return false;
  };
  EXPECT_TRUE(refused([](SynthSpec& s) { s.similarity = 1; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.similarity = NAN; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.sink_mass = 0.6, s.local_mass = 0.5; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.model.query_heads = 3; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.model.head_dim = 100; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.layers = 5; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.prompt_tokens = 256; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.spread = 1000; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.segment_length = 0; }));
  EXPECT_TRUE(refused([](SynthSpec& s) { s.steps = 0; }));
  // 32 dimensions hold too few frequencies for so sharp a window.
  EXPECT_TRUE(refused([](SynthSpec& s) { s.model.head_dim = 32, s.prompt_tokens = 1 << 17; }));
}

}  // namespace
}  // namespace stallcast::sim
