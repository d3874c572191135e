#include "sim/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/methods/common/bf16.h"
#include "models/methods/common/hadamard.h"
#include "traces/common/error.h"
#include "traces/common/parallel.h"
#include "traces/common/split_mix.h"
#include "traces/tensor.h"

namespace stallcast::sim {
namespace {

constexpr int64_t kPromptQueries = 64;  // queries kept of the prompt
constexpr double kTopicOverBackground = 500;
constexpr double kMostLeak = 0.03;    // of the long-range mass, outside its units
constexpr double kMostSignal = 0.02;  // share of a query's squared norm that keys see
constexpr double kDriftNorm = 3;      // in lambda
constexpr double kNoiseNorm = 0.25;   // in lambda
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr double kPi = std::numbers::pi;

// Where the groups of dimensions begin; see synth.h.
struct Layout {
  explicit Layout(int d)
      : topics(d / 4),
        pairs(3 * d / 16),
        query(3 * d / 16),
        noise(d - 4 - topics - 2 * pairs - query) {}
  int topics, pairs, query, noise;  // sizes
  int sink_at() const { return 0; }
  int topics_at() const { return 2; }
  int position_at() const { return topics_at() + topics; }
  int query_at() const { return position_at() + 2 * pairs; }
  int drift_at() const { return query_at() + query; }
  int noise_at() const { return drift_at() + 2; }
};

class Random {
 public:
  enum class Purpose : uint64_t {
    kFrequencies = 1,
    kTopics,
    kLayerJumps,
    kJumps,
    kQueries,
    kNoise,
    kRotation
  };
  Random(uint64_t seed, Purpose purpose, uint64_t layer = 0, uint64_t head = 0)
      : state_(SplitMix(
            SplitMix(SplitMix(SplitMix(seed + 1) + static_cast<uint64_t>(purpose)) + layer + 1) +
            head + 1)) {}

  uint64_t Bits() { return SplitMix(state_ += kSplitMixStep); }
  /// In [0, 1).
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Uniform() * static_cast<double>(n)); }
  /// Mean 0, variance 1: the sum of four uniform numbers.
  double BellShaped() {
    const uint64_t bits = Bits();
    double sum = 0;
    for (int shift = 0; shift < 64; shift += 16)
      sum += static_cast<double>((bits >> shift) & 0xffff);
    return (sum / 65535 - 2) * std::numbers::sqrt3;
  }

 private:
  uint64_t state_;
};

// The value that bf16 holds.
float AsBf16(double value) { return methods::RoundToBf16(static_cast<float>(value)); }

uint16_t ToBf16(double value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(AsBf16(value)) >> 16);
}

// The logits that every head uses at one query token.
struct Logits {
  double sink = 0, topic = 0, position = 0;
  double squared() const { return sink * sink + topic * topic + position * position; }
};

// What all heads and layers share.
class Design {
 public:
  explicit Design(const SynthSpec& spec)
      : spec_(spec),
        layout_(spec.model.head_dim),
        first_query_(spec.prompt_tokens - std::min(kPromptQueries, spec.prompt_tokens)) {
    const int64_t tokens = spec.prompt_tokens + spec.steps;
    Random random(spec.seed, Random::Purpose::kFrequencies);
    for (int m = 0; m < layout_.pairs; ++m) {
      frequencies_.push_back((m + random.Uniform()) / layout_.pairs * kPi /
                             static_cast<double>(spec.local_window));
    }
    for (int64_t distance = 0; distance < tokens; ++distance) {
      double sum = 0;
      for (double w : frequencies_) sum += std::cos(w * static_cast<double>(distance));
      kernel_.push_back(sum / layout_.pairs);
    }
    ScheduleTopics();
    SolveMasses();
    double most = 0;
    for (const Logits& l : logits_) most = std::max(most, l.squared());
    const double signal = std::min(kMostSignal, (1 - spec.similarity) / 4);
    // A power of two, so that scaling by it costs no precision.
    lambda_ = std::exp2(std::ceil(std::log2(most * spec.model.head_dim / signal) / 4));
  }

  const Layout& layout() const { return layout_; }
  int64_t first_query() const { return first_query_; }
  std::span<const double> frequencies() const { return frequencies_; }
  /// Token from which each topic may be asked for, ascending.
  std::span<const int64_t> topic_from() const { return topic_from_; }
  const Logits& logits(int64_t query) const { return logits_[static_cast<size_t>(query)]; }
  int64_t queries() const { return std::ssize(logits_); }
  /// Amplitude of the keys and norm of the queries.
  double lambda() const { return lambda_; }
  /// Units [first_unit, UnitsBy(t)) are complete and outside the window of token t.
  int64_t first_unit() const {
    return (spec_.sink_tokens + spec_.unit_tokens - 1) / spec_.unit_tokens;
  }
  int64_t UnitsBy(int64_t token) const {
    return std::max(first_unit(), (token - spec_.local_window + 1) / spec_.unit_tokens);
  }

 private:
  void ScheduleTopics() {
    const int64_t units = UnitsBy(first_query_) - first_unit();
    const auto first = std::min<int64_t>(layout_.topics / 2, units / spec_.spread);
    if (first < 2) {
      throw UsageError(
          fmt::format("a prompt of {} tokens has no room for sink, window and two sets of {} units "
                      "of {} tokens",
                      spec_.prompt_tokens, spec_.spread, spec_.unit_tokens),
          "--prompt", "lengthen it, or lower --spread or --unit");
    }
    topic_from_.assign(static_cast<size_t>(first), first_query_);
    const int64_t later = layout_.topics - first;
    for (int64_t i = 1; i <= later; ++i) {
      const int64_t token =
          first_query_ + i * (spec_.prompt_tokens + spec_.steps - first_query_) / (later + 1);
      if (UnitsBy(token) - first_unit() >= (std::ssize(topic_from_) + 1) * spec_.spread) {
        topic_from_.push_back(token);
      }
    }
  }

  // Sums of exp(logit) over the window, and over far tokens that are not in the topic, with their
  // derivatives by the position logit.
  struct Sums {
    double window = 0, window_slope = 0, far = 0, far_slope = 0;
  };
  Sums SumsAt(int64_t token, double beta) const {
    Sums s;
    int64_t odd_window = 0, odd_far = 0;
    const int64_t window_begin = token - spec_.local_window + 1;
    for (int64_t j = spec_.sink_tokens; j <= token; ++j) {
      const bool near = j >= window_begin;
      if (j % 2 != 0) {
        ++(near ? odd_window : odd_far);
        continue;
      }
      const double k = kernel_[static_cast<size_t>(token - j)];
      const double weight = std::exp(beta * k);
      (near ? s.window : s.far) += weight;
      (near ? s.window_slope : s.far_slope) += weight * k;
    }
    s.window += static_cast<double>(odd_window);
    s.far += static_cast<double>(odd_far - TopicTokens());
    return s;
  }

  int64_t TopicTokens() const { return int64_t{spec_.spread} * spec_.unit_tokens / 2; }

  // Newton's iteration on log(window) - log(long range) from `beta`.
  Logits Solve(int64_t token, double beta) const {
    // A query's entry is gamma sqrt(d) over a power of two: choose a gamma that bf16 holds exactly.
    const double root_d = std::sqrt(static_cast<double>(spec_.model.head_dim));
    const double gamma =
        AsBf16(root_d * std::log(kTopicOverBackground * static_cast<double>(std::ssize(kernel_)) /
                                 static_cast<double>(TopicTokens()))) /
        root_d;
    const double topic = std::exp(gamma) * static_cast<double>(TopicTokens());
    const double rest = 1 - spec_.sink_mass - spec_.local_mass;
    Sums s = SumsAt(token, beta);
    for (int i = 0; i < 60 && spec_.local_mass > 0; ++i) {
      const double error = std::log(s.window / (topic + s.far) * rest / spec_.local_mass);
      if (std::abs(error) < 1e-9 || (beta == 0 && error > 0)) break;
      const double slope = s.window_slope / s.window - s.far_slope / (topic + s.far);
      // The window's share stops growing once far tokens grow as fast.
      const double step = slope > 0.05 ? std::clamp(error / slope, -2.0, 2.0) : 2.0;
      beta = std::max(0.0, beta - step);
      s = SumsAt(token, beta);
    }
    const double total = (s.window + topic + s.far) / (1 - spec_.sink_mass);
    const double window_mass = s.window / total;
    if (s.far > kMostLeak * topic ||
        (beta > 0 && std::abs(window_mass - spec_.local_mass) > 1e-6)) {
      throw UsageError(
          fmt::format("{} dimensions a head cannot hold a local mass of {} on a window of "
                      "{} tokens in a context of {}",
                      spec_.model.head_dim, spec_.local_mass, spec_.local_window, token),
          "--local-mass", "lower it, widen --local-window or raise --head-dim");
    }
    const double sink =
        spec_.sink_mass > 0 ? std::log(spec_.sink_mass * total / spec_.sink_tokens) : 0;
    return {sink, gamma, beta};
  }

  void SolveMasses() {
    logits_.resize(static_cast<size_t>(spec_.prompt_tokens + spec_.steps - first_query_));
    logits_[0] = Solve(first_query_, 1);
    ParallelFor(std::ssize(logits_) - 1, [&](int, int64_t i) {
      logits_[static_cast<size_t>(i) + 1] = Solve(first_query_ + i + 1, logits_[0].position);
    });
  }

  const SynthSpec& spec_;
  Layout layout_;
  int64_t first_query_;
  std::vector<double> frequencies_, kernel_;
  std::vector<int64_t> topic_from_;
  std::vector<Logits> logits_;
  double lambda_ = 0;
};

// A KV head of a layer: its topics and segments.
class Head {
 public:
  Head(const SynthSpec& spec, const Design& design, int layer, int head)
      : spec_(spec),
        design_(design),
        layer_(static_cast<uint64_t>(layer)),
        head_(static_cast<uint64_t>(head)) {
    DrawTopics();
    DrawSegments();
  }

  // Keys of tokens [begin, end), [token][dim].
  void Keys(int64_t begin, int64_t end, uint16_t* out) const {
    const Layout& at = design_.layout();
    const int d = spec_.model.head_dim;
    const double lambda = design_.lambda();
    const double turn = spec_.drift_degrees / 180 * kPi / 1024;
    const double carrier = lambda / std::sqrt(static_cast<double>(at.pairs));
    const double noise = kNoiseNorm * lambda / std::sqrt(static_cast<double>(at.noise));
    for (int64_t j = begin; j < end; ++j, out += d) {
      std::fill_n(out, d, uint16_t{0});
      const auto token = static_cast<double>(j);
      const int topic = TopicOf(j);
      if (j < spec_.sink_tokens) {
        out[at.sink_at()] = out[at.sink_at() + 1] = ToBf16(lambda);
      } else if (j % 2 == 0) {
        for (int m = 0; m < at.pairs; ++m) {
          const double angle = design_.frequencies()[m] * token;
          out[at.position_at() + 2 * m] = ToBf16(carrier * std::cos(angle));
          out[at.position_at() + 2 * m + 1] = ToBf16(carrier * std::sin(angle));
        }
      } else if (topic >= 0) {
        out[at.topics_at() + topic] = ToBf16(lambda);
      }
      out[at.drift_at()] = ToBf16(kDriftNorm * lambda * std::cos(turn * token));
      out[at.drift_at() + 1] = ToBf16(kDriftNorm * lambda * std::sin(turn * token));
      Random random(spec_.seed, Random::Purpose::kNoise, layer_,
                    (head_ << 40) + static_cast<uint64_t>(j));
      for (int i = 0; i < at.noise; ++i)
        out[at.noise_at() + i] = ToBf16(noise * random.BellShaped());
    }
  }

  // Queries of query head `g` of the group at all query tokens, [token][dim].
  void Queries(int g, uint16_t* out) const {
    const Layout& at = design_.layout();
    const int d = spec_.model.head_dim;
    const double norm = design_.lambda();
    const double scale = std::sqrt(static_cast<double>(d)) / norm;
    const double carrier = scale / std::sqrt(static_cast<double>(at.pairs));
    const double deficit = 1 - spec_.similarity;
    const double jump = std::min(1.0, deficit * std::max(1.0, spec_.segment_length / 2));
    const double within = spec_.segment_length > 1 ? (deficit - jump / spec_.segment_length) /
                                                         (1 - 1 / spec_.segment_length)
                                                   : 0;
    Random random(spec_.seed, Random::Purpose::kQueries, layer_,
                  head_ * static_cast<uint64_t>(spec_.model.group()) + static_cast<uint64_t>(g));
    const int first_free = at.query_at();
    std::vector<double> now(d), before(d);
    for (int64_t i = 0; i < design_.queries(); ++i, out += d) {
      std::fill(now.begin(), now.end(), 0.0);
      const Logits& logits = design_.logits(i);
      const auto token = static_cast<double>(design_.first_query() + i);
      now[at.sink_at()] = AsBf16(logits.sink * scale);
      now[at.sink_at() + 1] = logits.sink * scale - now[at.sink_at()];
      now[at.topics_at() + segment_topic_[i]] = logits.topic * scale;
      for (int m = 0; m < at.pairs; ++m) {
        const double angle = design_.frequencies()[m] * token;
        now[at.position_at() + 2 * m] = logits.position * carrier * std::cos(angle);
        now[at.position_at() + 2 * m + 1] = logits.position * carrier * std::sin(angle);
      }
      const double seen = Dot(now, before);
      const double left = std::sqrt(norm * norm - Dot(now, now));
      std::span<double> y(now.data() + first_free, at.query);
      const std::span<const double> u(before.data() + first_free, at.query);
      for (double& v : y) v = random.BellShaped();
      const double missing = jumps_[i] ? jump : within * (0.5 + random.Uniform());
      if (i == 0) {
        Scale(y, left / std::sqrt(Dot(y, y)));
      } else {
        const double u_norm = std::sqrt(Dot(u, u));
        const double wanted = norm * norm * (1 - missing) - seen;
        const double along = std::clamp(wanted / (left * u_norm), -1.0, 1.0);
        const double overlap = Dot(y, u) / (u_norm * u_norm);
        for (size_t k = 0; k < y.size(); ++k) y[k] -= overlap * u[k];
        Scale(y, left * std::sqrt(1 - along * along) / std::sqrt(Dot(y, y)));
        for (size_t k = 0; k < y.size(); ++k) y[k] += left * along * u[k] / u_norm;
      }
      for (int k = 0; k < d; ++k) out[k] = ToBf16(now[k]);
      std::swap(now, before);
    }
  }

 private:
  static double Dot(std::span<const double> a, std::span<const double> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  static void Scale(std::span<double> v, double factor) {
    for (double& x : v) x *= factor;
  }

  int TopicOf(int64_t token) const {
    const auto unit = static_cast<size_t>(token / spec_.unit_tokens);
    return unit < topic_of_unit_.size() ? topic_of_unit_[unit] : -1;
  }

  void DrawTopics() {
    Random random(spec_.seed, Random::Purpose::kTopics, layer_, head_);
    const auto from = design_.topic_from();
    topic_of_unit_.assign(static_cast<size_t>(design_.UnitsBy(from.back())), -1);
    std::vector<int64_t> free;
    int64_t seen = design_.first_unit();
    for (size_t topic = 0; topic < from.size(); ++topic) {
      for (; seen < design_.UnitsBy(from[topic]); ++seen) free.push_back(seen);
      for (int i = 0; i < spec_.spread; ++i) {
        std::swap(free[random.Below(std::ssize(free))], free.back());
        topic_of_unit_[free.back()] = static_cast<int>(topic);
        free.pop_back();
      }
    }
  }

  void DrawSegments() {
    Random of_layer(spec_.seed, Random::Purpose::kLayerJumps, layer_);
    Random of_head(spec_.seed, Random::Purpose::kJumps, layer_, head_);
    const auto from = design_.topic_from();
    int topic = -1;
    for (int64_t i = 0; i < design_.queries(); ++i) {
      const bool together = of_layer.Uniform() < spec_.head_correlation;
      const double layer_draw = of_layer.Uniform(), head_draw = of_head.Uniform();
      const bool jump = (together ? layer_draw : head_draw) * spec_.segment_length < 1;
      const auto known = static_cast<int>(
          std::upper_bound(from.begin(), from.end(), design_.first_query() + i) - from.begin());
      // Any topic but the present one.
      const auto draw = static_cast<int>(of_head.Below(known - (topic < 0 ? 0 : 1)));
      if (topic < 0) {
        topic = draw;
      } else if (jump) {
        topic = draw + (draw >= topic ? 1 : 0);
      }
      jumps_.push_back(i > 0 && jump);
      segment_topic_.push_back(topic);
    }
  }

  const SynthSpec& spec_;
  const Design& design_;
  uint64_t layer_, head_;
  std::vector<int> topic_of_unit_;  // -1: none
  std::vector<int> segment_topic_;  // by query
  std::vector<bool> jumps_;         // by query
};

// Random signs, and a Walsh-Hadamard transform of as many dimensions as it fits.
class Rotation {
 public:
  explicit Rotation(const SynthSpec& spec)
      : block_(size_t{1} << std::countr_zero(static_cast<unsigned>(spec.model.head_dim))) {
    Random random(spec.seed, Random::Purpose::kRotation);
    const double norm = std::sqrt(static_cast<double>(block_));
    for (int i = 0; i < spec.model.head_dim; ++i) {
      scale_.push_back((random.Bits() & 1 ? 1 : -1) / norm);
    }
  }

  // Vectors [token][dim], in place.
  void Turn(std::span<uint16_t> elements) const {
    std::vector<double> row(scale_.size());
    for (size_t at = 0; at < elements.size(); at += row.size()) {
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = traces::FromBf16(elements[at + i]) * scale_[i];
      for (size_t i = 0; i < row.size(); i += block_) {
        methods::WalshHadamard(std::span(row).subspan(i, block_));
      }
      for (size_t i = 0; i < row.size(); ++i) elements[at + i] = ToBf16(row[i]);
    }
  }

 private:
  size_t block_;
  std::vector<double> scale_;  // by dimension: its sign, over the transform's norm
};

void Require(bool good, const char* option, const std::string& rule) {
  if (!good) throw UsageError("value out of range", option, rule);
}

// Layers of the model that get tensors, each in the middle of its share of the depth.
std::vector<int> LayersOf(const SynthSpec& spec) {
  std::vector<int> layers(static_cast<size_t>(spec.layers));
  for (int i = 0; i < spec.layers; ++i) {
    layers[static_cast<size_t>(i)] = (2 * i + 1) * spec.model.layers / (2 * spec.layers);
  }
  return layers;
}

}  // namespace

void CheckSynth(const SynthSpec& spec) {
  const llm::Model& m = spec.model;
  Require(m.layers >= 1 && m.layers <= 1000, "--model-layers", "give 1 to 1000");
  Require(spec.layers >= 1 && spec.layers <= m.layers, "--layers",
          fmt::format("give 1 to {}, the model's layers", m.layers));
  Require(m.kv_heads >= 1 && m.kv_heads <= 1024, "--kv-heads", "give 1 to 1024");
  Require(m.query_heads >= 1 && m.query_heads <= 1024 && m.query_heads % m.kv_heads == 0, "--heads",
          fmt::format("give a multiple of the {} KV heads, 1024 at most", m.kv_heads));
  Require(m.head_dim >= 32 && m.head_dim <= 1024 && m.head_dim % 16 == 0, "--head-dim",
          "give a multiple of 16 from 32 to 1024");
  Require(spec.prompt_tokens >= 1 && spec.prompt_tokens <= int64_t{1} << 23, "--prompt",
          "give 1 to 8388608 tokens");
  Require(spec.steps >= 1 && spec.steps <= 1 << 20, "--steps", "give 1 to 1048576");
  Require(spec.similarity > 0 && spec.similarity < 1, "--similarity",
          "give a cosine between 0 and 1");
  Require(spec.segment_length >= 1 && spec.segment_length <= 1e6, "--segment-length",
          "give 1 to 1000000 steps");
  Require(spec.head_correlation >= 0 && spec.head_correlation <= 1, "--head-correlation",
          "give a share from 0 to 1");
  Require(spec.sink_mass >= 0 && spec.local_mass >= 0 && spec.sink_mass + spec.local_mass <= 0.99,
          "--sink-mass, --local-mass", "give shares from 0 that add up to at most 0.99");
  Require(spec.sink_tokens >= 0 && spec.sink_tokens <= 4096 &&
              (spec.sink_tokens > 0 || spec.sink_mass == 0),
          "--sink-tokens", "give 1 to 4096 tokens, or 0 together with --sink-mass 0");
  Require(spec.local_window >= 8 && spec.local_window <= spec.prompt_tokens, "--local-window",
          "give 8 tokens up to the prompt's length");
  Require(spec.spread >= 1 && spec.spread <= 1 << 20, "--spread", "give 1 to 1048576 units");
  Require(spec.unit_tokens >= 2 && spec.unit_tokens <= 65536 && spec.unit_tokens % 2 == 0, "--unit",
          "give an even number of tokens from 2 to 65536");
  Require(std::abs(spec.drift_degrees) <= 180, "--drift", "give -180 to 180 degrees a 1024 tokens");
}

traces::proto::TraceInfo SynthInfo(const SynthSpec& spec) {
  traces::proto::TraceInfo info;
  *info.mutable_model() = llm::ToTrace(spec.model);
  info.mutable_model()->mutable_rope()->set_type("none");
  info.set_synthetic(true);
  info.set_prompt_tokens(spec.prompt_tokens);
  info.set_decode_steps(spec.steps);
  info.set_provenance("made by stallcast synth");
  auto& p = *info.mutable_parameters();
  p["layers"] = fmt::to_string(spec.layers);
  p["seed"] = fmt::to_string(spec.seed);
  p["similarity"] = fmt::to_string(spec.similarity);
  p["segment_length"] = fmt::to_string(spec.segment_length);
  p["head_correlation"] = fmt::to_string(spec.head_correlation);
  p["sink_mass"] = fmt::to_string(spec.sink_mass);
  p["sink_tokens"] = fmt::to_string(spec.sink_tokens);
  p["local_mass"] = fmt::to_string(spec.local_mass);
  p["local_window"] = fmt::to_string(spec.local_window);
  p["spread"] = fmt::to_string(spec.spread);
  p["unit_tokens"] = fmt::to_string(spec.unit_tokens);
  p["drift_degrees"] = fmt::to_string(spec.drift_degrees);
  p["rotated"] = spec.rotated ? "true" : "false";
  return info;
}

void Synthesize(const SynthSpec& spec, traces::TraceWriter& writer,
                const std::function<void(double)>& progress) {
  CheckSynth(spec);
  const Design design(spec);
  const llm::Model& m = spec.model;
  const int64_t d = m.head_dim;
  const int64_t tokens = spec.prompt_tokens + spec.steps;
  const int64_t chunk = std::clamp<int64_t>(kChunkBytes / (m.kv_heads * d * 2), 1, tokens);
  std::vector<uint16_t> elements;
  const std::vector<int> layers = LayersOf(spec);
  const std::optional<Rotation> rotation =
      spec.rotated ? std::optional<Rotation>(spec) : std::nullopt;
  const auto turn = [&](uint16_t* vectors, int64_t count) {
    if (rotation) rotation->Turn({vectors, static_cast<size_t>(count * d)});
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    const int layer = layers[i];
    std::vector<Head> heads;
    heads.reserve(static_cast<size_t>(m.kv_heads));
    for (int h = 0; h < m.kv_heads; ++h) heads.emplace_back(spec, design, layer, h);

    elements.resize(static_cast<size_t>(m.query_heads * design.queries() * d));
    ParallelFor(m.query_heads, [&](int, int64_t q) {
      uint16_t* out = &elements[q * design.queries() * d];
      heads[static_cast<size_t>(q / m.group())].Queries(static_cast<int>(q % m.group()), out);
      turn(out, design.queries());
    });
    traces::TensorSpec tensor{
        traces::TensorKind::kQuery, traces::DType::kBf16, layer, m.query_heads, m.head_dim,
        design.first_query(),       design.queries()};
    writer.Write(tensor, std::as_bytes(std::span(elements)));

    tensor.kind = traces::TensorKind::kKey;
    tensor.heads = m.kv_heads;
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      tensor.first_token = begin;
      tensor.tokens = std::min(chunk, tokens - begin);
      elements.resize(static_cast<size_t>(tensor.elements()));
      ParallelFor(m.kv_heads, [&](int, int64_t h) {
        uint16_t* out = &elements[h * tensor.tokens * d];
        heads[static_cast<size_t>(h)].Keys(begin, tensor.end_token(), out);
        turn(out, tensor.tokens);
      });
      writer.Write(tensor, std::as_bytes(std::span(elements)));
      if (progress) {
        const double share = static_cast<double>(tensor.end_token()) / static_cast<double>(tokens);
        progress((static_cast<double>(i) + share) / static_cast<double>(layers.size()));
      }
    }
  }
}

}  // namespace stallcast::sim
