// WG-KV: gates against their definitions, replays against the vertical-slash mask, Quest over what
// is admitted and the paper's eviction, all in double precision; and weights that do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "models/llm/safetensors.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/method.h"
#include "models/methods/wgkv/gate.h"
#include "models/methods/wgkv/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/scratch_folder.h"

namespace stallcast::methods {
namespace {

namespace fs = std::filesystem;

struct Replayed {
  Replayed(const WgKvParams& params, const LayerTensors& tensors) {
    WgKvPolicy(params).Replay(tensors, access, attended);
  }
  std::vector<bool> Attended(int step, int head, int64_t context) const {
    std::vector<bool> tokens(static_cast<size_t>(context));
    for (const AttendedRanges::Range& r : attended.Cell(step, head)) {
      for (int t = r.begin; t < r.end; ++t) tokens.at(static_cast<size_t>(t)) = true;
    }
    return tokens;
  }
  traces::LayerAccess access;
  AttendedRanges attended;
};

class WgKv : public testing::Test {
 protected:
  // Weights of one layer as the public code names them.
  struct Weights {
    int heads = 2, dim = 16, expand = 4;
    std::vector<float> w1, b1, w2, b2;
    int64_t hidden() const { return int64_t{expand} * dim; }
  };
  static Weights RandomWeights(int heads, int dim, uint32_t seed) {
    Weights w{.heads = heads, .dim = dim, .w1 = {}, .b1 = {}, .w2 = {}, .b2 = {}};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& to, int64_t count, float deviation) {
      for (int64_t i = 0; i < count; ++i) {
        // Representable in bf16, so that storing loses nothing.
        to.push_back(std::round(normal(random) * 16) / 16 * deviation);
      }
    };
    fill(w.w1, heads * w.hidden() * 2 * dim, 0.125f);
    fill(w.b1, heads * w.hidden(), 0.25f);
    fill(w.w2, heads * w.hidden(), 0.5f);
    fill(w.b2, heads, 0.25f);
    return w;
  }
  void Write(const Weights& w, const std::string& w1_shape = "") const {
    const std::string prefix = "model.layers.0.self_attn.gate.";
    std::string header = "{", data;
    const auto add = [&](const std::string& name, const std::string& shape,
                         const std::vector<float>& values) {
      header += (header.size() > 1 ? ",\"" : "\"") + prefix + name +
                "\":{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":[" +
                std::to_string(data.size()) + "," +
                std::to_string(data.size() + 4 * values.size()) + "]}";
      data.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    };
    const auto text = [](int64_t x) { return std::to_string(x); };
    const int64_t rows = w.heads * w.hidden();
    add("conv1.weight",
        w1_shape.empty() ? "[" + text(rows) + "," + text(int64_t{2} * w.dim) + ",1]" : w1_shape,
        w.w1);
    add("conv1.bias", "[" + text(rows) + "]", w.b1);
    add("conv2.weight", "[" + text(w.heads) + "," + text(w.hidden()) + ",1]", w.w2);
    add("conv2.bias", "[" + text(w.heads) + "]", w.b2);
    header += "}";
    const auto size = static_cast<uint64_t>(header.size());
    std::ofstream file(file_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), 8);
    file << header << data;
  }
  WgKvParams Mlp() const {
    WgKvParams params;
    params.gate = WgKvParams::Gate::kMlp;
    params.gate_file = file_.string();
    return params;
  }

  ScratchFolder folder_;
  fs::path file_ = folder_ / "gate.safetensors";
};

TEST_F(WgKv, RandomMasksAdmitTheShareAskedFor) {
  const traces::Trace trace = RandomTrace({.kv_heads = 4, .group = 1, .prompt = 20'000});
  const LayerTensors tensors(trace, 0);
  for (const double sparsity : {0.0, 0.25, 0.75, 1.0}) {
    WgKvParams params;
    params.sparsity = sparsity;
    const Admission admitted = Admit(tensors, params);
    for (const auto& head : admitted) {
      const double share =
          std::accumulate(head.begin(), head.end(), 0.0) / static_cast<double>(head.size());
      EXPECT_NEAR(share, 1 - sparsity, 0.016);  // five deviations of a binomial
    }
    if (sparsity == 0.75) {
      EXPECT_NE(admitted[0], admitted[1]);
      params.seed = 2;
      EXPECT_NE(admitted, Admit(tensors, params));
    }
  }
}

TEST_F(WgKv, TheOracleAdmitsWhatLaterQueriesAttend) {
  const traces::Trace trace = RandomTrace({.dim = 16, .prompt = 120, .steps = 40});
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  WgKvParams params;
  params.gate = WgKvParams::Gate::kOracle;
  params.window = 24;
  params.sparsity = 0.7;
  std::vector<double> kept, dropped;
  const Admission admitted = Admit(tensors, params);
  for (int head = 0; head < layer.kv_heads; ++head) {
    for (int64_t t = 0; t < 160 - 24; ++t) {
      double sum = 0;
      int queries = 0;
      for (int64_t i = std::max<int64_t>(120, t + 24); i < 160; ++i, ++queries) {
        for (int g = 0; g < layer.group; ++g) {
          brute::Vector logits;
          for (int64_t j = 0; j <= i; ++j) {
            logits.push_back(layer.scale * brute::Dot(layer.Query(head * layer.group + g, i),
                                                      layer.keys[head][j]));
          }
          sum += brute::Softmax(logits)[static_cast<size_t>(t)];
        }
      }
      (admitted[head][t] != 0 ? kept : dropped).push_back(sum / queries);
    }
  }
  EXPECT_EQ(kept.size(), static_cast<size_t>(std::llround(0.3 * 2 * 136)));
  EXPECT_GE(*std::ranges::min_element(kept), *std::ranges::max_element(dropped) * (1 - 1e-5));
}

TEST_F(WgKv, TheMlpIsThePapersFormula) {
  traces::Trace trace = RandomTrace({.kv_heads = 2, .dim = 16, .prompt = 300, .steps = 20});
  trace.info.mutable_model()->mutable_rope()->set_theta(10'000);
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  const Weights w = RandomWeights(2, 16, 3);
  Write(w);
  const Admission admitted = Admit(tensors, Mlp());
  int sure = 0, passed = 0;
  for (int head = 0; head < 2; ++head) {
    for (int64_t t = 0; t < 320; ++t) {
      const brute::Vector& key = layer.keys[head][t];
      brute::Vector pre(16), input;
      for (int i = 0; i < 8; ++i) {
        const double angle = static_cast<double>(t) * std::pow(10'000.0, -i / 8.0);
        pre[i] = key[i] * std::cos(angle) + key[i + 8] * std::sin(angle);
        pre[i + 8] = key[i + 8] * std::cos(angle) - key[i] * std::sin(angle);
      }
      for (const brute::Vector& part : {pre, key}) {
        const double rms = std::sqrt(brute::Dot(part, part) / 16 + 1e-6);
        for (const double x : part) input.push_back(x / rms);
      }
      double score = w.b2[head];
      for (int64_t j = 0; j < w.hidden(); ++j) {
        const int64_t row = head * w.hidden() + j;
        double x = w.b1[row];
        for (int i = 0; i < 32; ++i) x += w.w1[row * 32 + i] * input[i];
        score += x * std::erfc(-x / std::sqrt(2.0)) / 2 * w.w2[row];
      }
      const double gate = 1 / (1 + std::exp(-score));
      if (std::abs(score - std::log(1 / 9.0)) < 0.05) continue;  // inputs are rounded to bf16
      ++sure;
      passed += gate >= 0.1 ? 1 : 0;
      ASSERT_EQ(admitted[head][t] != 0, gate >= 0.1) << head << " " << t;
    }
  }
  EXPECT_GT(sure, 500);
  EXPECT_GT(passed, sure / 20);
  EXPECT_LT(passed, sure * 19 / 20);
}

TEST_F(WgKv, ALogIsKeyedByTheWeightsContent) {
  const ParamValues values{{"gate", "mlp"}, {"gate_file", file_.string()}};
  Write(RandomWeights(2, 16, 3));
  const auto key = [&] { return MakeMethod("wgkv", values).method->Params(true); };
  const auto first = key();
  Write(RandomWeights(2, 16, 4));
  EXPECT_NE(key(), first);
  Write(RandomWeights(2, 16, 3));
  EXPECT_EQ(key(), first);
  for (const char* path : {"", "/", "/dev/zero", "/no/such/file"}) {
    EXPECT_THROW(MakeMethod("wgkv", {{"gate", "mlp"}, {"gate_file", path}}).method->Params(true),
                 Error)
        << path;
  }
}

TEST_F(WgKv, HeadsAttendTheirRowOfTheMask) {
  for (const auto gate : {WgKvParams::Gate::kRandom, WgKvParams::Gate::kOracle}) {
    for (const int64_t prompt : {10, 203}) {
      const traces::Trace trace = RandomTrace({.prompt = prompt, .steps = 70});
      const LayerTensors tensors(trace, 0);
      WgKvParams params;
      params.gate = gate;
      params.window = 16;
      params.page = 8;
      const Replayed log(params, tensors);
      const Admission admitted = Admit(tensors, params);
      for (int step = 0; step < 70; ++step) {
        const int64_t i = prompt + step;
        for (int head = 0; head < 2; ++head) {
          const std::vector<bool> attended = log.Attended(step, head, i + 1);
          int64_t count = 0;
          for (int64_t j = 0; j <= i; ++j) {
            ASSERT_EQ(attended[j], i - j < 16 || admitted[head][j] != 0) << i << " " << j;
            count += attended[j] ? 1 : 0;
          }
          const auto cell = static_cast<size_t>(step) * 2 + head;
          ASSERT_EQ(log.access.attended_tokens[cell], count);
          ASSERT_EQ(log.access.cached_tokens[cell], count);
          ASSERT_EQ(log.access.flags[cell], 0);
        }
      }
      EXPECT_EQ(log.access.recalled_now.total(), 0);
    }
  }
}

TEST_F(WgKv, QuestChoosesAmongPagesOfWhatWasAdmitted) {
  const traces::Trace trace = RandomTrace({.prompt = 400, .steps = 40, .similarity = 0.6});
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  WgKvParams params;
  params.window = 16;
  params.page = 8;
  params.sparsity = 0.5;
  params.select = WgKvParams::Select::kQuest;
  params.budget = 16 + 6 * 8;
  const Replayed log(params, tensors);
  const Admission admitted = Admit(tensors, params);
  int selected = 0;
  for (int step = 0; step < 40; ++step) {
    const int64_t i = 400 + step;
    for (int head = 0; head < 2; ++head) {
      std::vector<int64_t> global;
      for (int64_t j = 0; j + 16 <= i; ++j) {
        if (admitted[head][j] != 0) global.push_back(j);
      }
      const auto whole = static_cast<int64_t>(global.size()) / 8;
      const int64_t room = 6 - (global.size() % 8 != 0 ? 1 : 0);
      brute::Vector scores;
      for (int64_t page = 0; page < whole; ++page) {
        double best = -1e300;
        for (int g = 0; g < layer.group; ++g) {
          double bound = 0;
          for (int d = 0; d < layer.dim; ++d) {
            double most = -1e300;
            for (int64_t t = page * 8; t < page * 8 + 8; ++t) {
              most = std::max(
                  most, layer.Query(head * layer.group + g, i)[d] * layer.keys[head][global[t]][d]);
            }
            bound += most;
          }
          best = std::max(best, bound);
        }
        scores.push_back(best);
      }
      const brute::Choice choice = brute::Top(brute::Range(0, whole), scores, 0, room);
      if (choice.ambiguous) continue;
      const int64_t cell = int64_t{step} * 2 + head;
      const std::span<const uint32_t> got = log.access.selected[cell];
      ASSERT_EQ(std::set<uint32_t>(got.begin(), got.end()), choice.ids);
      ASSERT_EQ(log.access.flags[cell], whole > room ? traces::kSelectedNow : 0);
      ASSERT_LE(log.access.attended_tokens[cell], params.budget);
      const std::vector<bool> attended = log.Attended(step, head, i + 1);
      for (int64_t n = 0; n < static_cast<int64_t>(global.size()); ++n) {
        const bool want = n / 8 >= whole || choice.ids.contains(static_cast<uint32_t>(n / 8));
        ASSERT_EQ(attended[global[n]], want);
      }
      ++selected;
    }
  }
  EXPECT_GT(selected, 60);
}

TEST_F(WgKv, EvictionDropsTheLeastImportantTenth) {
  const traces::Trace trace =
      RandomTrace({.kv_heads = 1, .group = 2, .dim = 16, .prompt = 150, .steps = 60});
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  WgKvParams params;
  params.window = 16;
  params.page = 8;
  params.sparsity = 0.2;
  params.evict = WgKvParams::Evict::kSnapKv;
  params.capacity = 100;
  params.observe = 12;
  const Replayed log(params, tensors);
  const Admission admitted = Admit(tensors, params);
  std::vector<int64_t> global;
  int evictions = 0;
  int64_t left = 0;
  for (int step = 0; step < 60; ++step) {
    const int64_t i = 150 + step;
    for (; left + 16 <= i; ++left) {
      if (admitted[0][left] != 0) global.push_back(left);
    }
    const bool evicted = global.size() + 16 > 100;
    const auto before = static_cast<int64_t>(global.size());
    if (evicted) {
      std::vector<int64_t> all = global;
      for (int64_t t = left; t <= i; ++t) all.push_back(t);
      std::vector<double> raw(all.size());
      for (int64_t q = std::max<int64_t>(149, i - 12); q < i; ++q) {
        std::vector<double> largest(all.size());
        for (int g = 0; g < 2; ++g) {
          brute::Vector logits;
          for (const int64_t t : all) {
            logits.push_back(t > q ? -1e9
                                   : layer.scale * brute::Dot(layer.Query(g, q), layer.keys[0][t]));
          }
          const brute::Vector weights = brute::Softmax(logits);
          for (size_t n = 0; n < all.size(); ++n) largest[n] = std::max(largest[n], weights[n]);
        }
        for (size_t n = 0; n < all.size(); ++n) raw[n] += largest[n];
      }
      std::vector<std::pair<double, size_t>> order;
      for (size_t n = 0; n < global.size(); ++n) {
        const size_t from = n < 2 ? 0 : n - 2, to = std::min(all.size(), n + 3);
        order.emplace_back(*std::max_element(raw.begin() + static_cast<int64_t>(from),
                                             raw.begin() + static_cast<int64_t>(to)),
                           n);
      }
      // Of equals, the older goes.
      std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
        return std::abs(a.first - b.first) > 1e-6 * a.first ? a.first < b.first
                                                            : a.second < b.second;
      });
      order.erase(
          order.begin(),
          order.begin() + static_cast<int64_t>(std::ceil(0.1 * static_cast<double>(all.size()))));
      std::vector<int64_t> keep;
      keep.reserve(order.size());
      for (const auto& entry : order) keep.push_back(global[entry.second]);
      std::sort(keep.begin(), keep.end());
      global = keep;
    }
    evictions += evicted ? 1 : 0;
    ASSERT_EQ(log.access.flags[step], evicted ? traces::kEvicted : 0) << step;
    ASSERT_EQ(log.access.evicted[step], before - static_cast<int64_t>(global.size())) << step;
    ASSERT_EQ(log.access.cached_tokens[step], static_cast<int64_t>(global.size()) + 16);
    const std::vector<bool> attended = log.Attended(step, 0, i + 1);
    for (int64_t j = 0; j + 16 <= i; ++j) {
      ASSERT_EQ(attended[j], std::ranges::binary_search(global, j)) << step << " " << j;
    }
  }
  EXPECT_GE(evictions, 5);  // the first ones in a row: the prompt leaves more than one drops
  EXPECT_LT(evictions, 30);
}

TEST_F(WgKv, PlansKeepTheShareAdmittedAtOtherContexts) {
  const traces::Trace trace = RandomTrace({.prompt = 2'000, .steps = 10});
  WgKvParams params;
  const auto method = MakeMethod("wgkv", {}).method;
  const traces::AccessLog log = Replay(trace, "", "wgkv", *method);
  llm::Model model;
  model.layers = 1;
  model.kv_heads = 2;
  model.query_heads = 6;
  model.head_dim = 24;
  model.hidden = 144;
  model.intermediate = 256;
  model.vocabulary = 100;
  const auto tokens = [&](int64_t context) {
    const plan::Plan plan = WriteDecode(*method, {model, 1, context, 1, {}, &log});
    for (const plan::Op& op : plan.ops) {
      if (const auto* work = std::get_if<plan::DecodeAttention>(&op.work)) return work->kv_tokens;
    }
    return int64_t{0};
  };
  EXPECT_EQ(tokens(2'000), log.layers[0].attended_tokens[0] + log.layers[0].attended_tokens[1]);
  EXPECT_EQ(tokens(100), 202);
  const double share = static_cast<double>(tokens(2'000) - 512) / (2 * 1'745);
  EXPECT_NEAR(static_cast<double>(tokens(100'000)), 512 + share * 2 * (100'001 - 256), 2);
  // Prefill attends a window and the admitted columns, unless it is to be dense.
  const auto prefill = [&](const ParamValues& values) {
    const auto m = MakeMethod("wgkv", values).method;
    const plan::Plan plan = WritePrefill(*m, {model, 1, 100'000, 0, {}, &log});
    double flops = 0;
    for (const plan::Op& op : plan.ops) {
      if (op.role == plan::Role::kAttention) flops += plan::Count(op.work).flops;
    }
    return flops;
  };
  const double skipped = prefill({}) / prefill({{"prefill", "dense"}});
  EXPECT_NEAR(skipped, share + (1 - share) * 2 * 256 / 100'000, 0.01);
}

llm::Model ModelOf(const traces::AccessLog& log, int32_t head_dim) {
  llm::Model model;
  model.layers = static_cast<int32_t>(log.layers.size());
  model.kv_heads = log.kv_heads;
  model.query_heads = log.query_heads;
  model.head_dim = head_dim;
  model.hidden = 144;
  model.intermediate = 256;
  model.vocabulary = 100;
  return model;
}

// An eviction is a score, a choice, a move (and summaries for Quest) in the steps and layers of
// which the log says it, once a sequence, and it moves what the log says.
TEST_F(WgKv, PlansEvictWhereTheLogDoes) {
  constexpr int kPrompt = 300, kSteps = 60, kWindow = 32, kPage = 8, kDim = 24;
  const traces::Trace trace = RandomTrace(
      {.layers = 3, .kv_heads = 2, .group = 3, .dim = kDim, .prompt = kPrompt, .steps = kSteps});
  for (const char* select : {"none", "quest"}) {
    for (const int32_t batch : {1, 3}) {
      SCOPED_TRACE(testing::Message() << select << ", batch " << batch);
      const ParamValues values{{"window", "32"},      {"page", "8"},       {"sparsity", "0.5"},
                               {"evict", "snapkv"},   {"capacity", "140"}, {"observe", "32"},
                               {"evict_share", ".1"}, {"select", select},  {"budget", "64"}};
      const auto method = MakeMethod("wgkv", values).method;
      const traces::AccessLog log = Replay(trace, "", "wgkv", *method);
      const llm::Model model = ModelOf(log, kDim);
      const int steps = kSteps / batch;
      const plan::Plan plan = WriteDecode(*method, {model, batch, kPrompt, steps, {}, &log});
      std::map<std::pair<int, int>, std::vector<plan::Work>> works;
      for (const plan::Op& op : plan.ops) {
        const bool quest =
            op.role == plan::Role::kSelection && (std::holds_alternative<plan::Score>(op.work) ||
                                                  std::holds_alternative<plan::Layout>(op.work));
        if (op.layer < 0 || quest) continue;
        if (std::holds_alternative<plan::WindowScore>(op.work) ||
            std::holds_alternative<plan::TopK>(op.work) ||
            std::holds_alternative<plan::Layout>(op.work) ||
            std::holds_alternative<plan::Summarize>(op.work)) {
          works[{op.step, op.layer}].push_back(op.work);
        }
      }
      int evictions = 0;
      for (int step = 0; step < steps; ++step) {
        for (size_t layer = 0; layer < log.layers.size(); ++layer) {
          std::vector<plan::Work> want;
          for (int sequence = 0; sequence < batch; ++sequence) {
            const traces::LayerAccess& access = log.layers[layer];
            const auto cell = static_cast<size_t>(step + sequence * steps) * 2;
            if ((access.flags[cell] & traces::kEvicted) == 0) continue;
            ++evictions;
            int64_t after[2], before[2];
            for (const size_t head : {0, 1}) {
              after[head] = access.cached_tokens[cell + head] - kWindow;
              before[head] = after[head] + access.evicted[cell + head];
            }
            // A sequence that starts later in the trace keeps no more than has left its window.
            const int64_t left = kPrompt + step + 1 - kWindow;
            ASSERT_LT(std::max(before[0], before[1]), left);
            want.push_back(plan::WindowScore{2, before[0] + before[1] + 2 * kWindow, 32, 3, kDim});
            want.push_back(plan::TopK{2, std::max(before[0], before[1]),
                                      std::max(access.evicted[cell], access.evicted[cell + 1])});
            want.push_back(plan::Layout{2 * (after[0] + after[1]), kDim * 2});
            if (select == std::string("quest")) {
              want.push_back(plan::Summarize{after[0] / kPage + after[1] / kPage, kPage, 2, kDim});
            }
          }
          std::vector<plan::Work> got = works[{step, static_cast<int>(layer)}];
          // Quest's own choice of pages comes last.
          if (select == std::string("quest") && !got.empty() &&
              std::holds_alternative<plan::TopK>(got.back())) {
            got.pop_back();
          }
          ASSERT_EQ(got, want) << "step " << step << ", layer " << layer;
        }
      }
      EXPECT_GT(evictions, 6);
      EXPECT_LT(evictions, 3 * kSteps / 2);
    }
  }
}

TEST_F(WgKv, ACapacityThatIsNeverReachedChangesNoPlan) {
  const traces::Trace trace = RandomTrace({.layers = 2, .prompt = 300, .steps = 40});
  const auto plan_of = [&](const char* evict) {
    const ParamValues values{
        {"window", "32"}, {"evict", evict}, {"capacity", "400"}, {"observe", "32"}};
    const auto method = MakeMethod("wgkv", values).method;
    const traces::AccessLog log = Replay(trace, "", "wgkv", *method);
    std::vector<plan::Plan> plans;
    const PlanInput input{ModelOf(log, 24), 2, 300, 20, {}, &log};
    plans.push_back(WriteDecode(*method, input));
    plans.push_back(WritePrefill(*method, input));
    return plans;
  };
  const auto with = plan_of("snapkv"), without = plan_of("none");
  for (const int i : {0, 1}) {
    ASSERT_EQ(with[i].ops.size(), without[i].ops.size());
    for (size_t op = 0; op < with[i].ops.size(); ++op) {
      const plan::Op a = with[i].ops[op], b = without[i].ops[op];
      ASSERT_EQ(a.work, b.work) << i << ", op " << op << ", step " << a.step;
    }
  }
}

TEST_F(WgKv, RefusesWhatCannotBe) {
  const auto refuses = [](const ParamValues& values, const char* says) {
    try {
      MakeMethod("wgkv", values);
      ADD_FAILURE() << "accepted: " << says;
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage());
      EXPECT_NE(error.problem().find(says), std::string::npos) << error.what();
    }
  };
  refuses({{"sparsity", "1.5"}}, "1.5");
  refuses({{"sparsity", "-0.1"}}, "-0.1");
  refuses({{"threshold", "2"}}, "2");
  refuses({{"evict_share", "1.01"}}, "1.01");
  refuses({{"select", "quest"}, {"budget", "200"}}, "less than the local window");
  refuses({{"evict", "snapkv"}, {"capacity", "200"}}, "less than the local window");
  refuses({{"evict", "snapkv"}, {"observe", "257"}}, "more than the local window");
  refuses({{"evict", "snapkv"}, {"smooth", "4"}}, "smooth of 4");
  refuses({{"evict", "snapkv"}, {"evict_share", "0"}}, "evict_share of 0");
  refuses({{"evict", "snapkv"}, {"evict_share", "1"}}, "evict_share of 1");
  refuses({{"gate", "mlp"}}, "gate_file is not given");
  refuses({{"gate_file", "x"}}, "gate is not mlp");
}

TEST_F(WgKv, RefusesWeightsThatDoNotFit) {
  traces::Trace trace = RandomTrace({.kv_heads = 2, .dim = 16, .prompt = 50, .steps = 3});
  const Weights w = RandomWeights(2, 16, 3);
  const auto says = [&](const char* text) {
    try {
      Admit(LayerTensors(trace, 0), Mlp());
      ADD_FAILURE() << "accepted, but: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      EXPECT_FALSE(error.remedy().empty());
    }
  };
  says("cannot read");
  Write(w);
  says("how positions were encoded");
  trace.info.mutable_model()->mutable_rope()->set_theta(10'000);
  EXPECT_NO_THROW(Admit(LayerTensors(trace, 0), Mlp()));
  Write(RandomWeights(3, 16, 3));
  says("conv1.weight is [192, 32, 1], not [128, 32, 1]");
  Write(w, "[128,32,2]");
  says("larger than its data");
  Write(w, "[128,-32,1]");
  says("larger than its data");
  Write(w, "[128,16,1]");
  says("differ in size");
  Write(w);
  fs::resize_file(file_, fs::file_size(file_) - 1);
  says("outside the file");
  std::ofstream(file_, std::ios::binary) << "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
  says("does not fit the file");
  std::ofstream(file_, std::ios::binary) << std::string("\x02\0\0\0\0\0\0\0{]", 10);
  says("not JSON");
  std::ofstream(file_, std::ios::binary) << std::string("\x02\0\0\0\0\0\0\0{}", 10);
  says("has no conv1.weight");
}

}  // namespace
}  // namespace stallcast::methods
