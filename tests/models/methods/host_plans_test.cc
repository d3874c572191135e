// Plans in which the host attends, looks up or gathers: what each part attends is what the log
// says.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "models/methods/decoder_plan.h"
#include "models/methods/method.h"
#include "tests/models/methods/random_trace.h"

namespace stallcast::methods {
namespace {

constexpr int64_t kPrompt = 203;
constexpr int kSteps = 40, kLayers = 3;

llm::Model SmallModel() {
  llm::Model model;
  model.title = "small";
  model.layers = kLayers;
  model.kv_heads = 2;
  model.query_heads = 6;
  model.head_dim = 24;
  model.hidden = 144;
  model.intermediate = 512;
  model.vocabulary = 1000;
  return model;
}

class Planned {
 public:
  Planned(const std::string& name, const ParamValues& values, int32_t batch = 1)
      : method_(MakeMethod(name, values).method) {
    const traces::Trace trace = RandomTrace({.layers = kLayers, .steps = kSteps});
    if (method_->NewPolicy()) log_ = Replay(trace, "", name, *method_);
    input_ = {SmallModel(), batch, kPrompt, kSteps, plan::Host::kCpp, log_ ? &*log_ : nullptr};
    decode = WriteDecode(*method_, input_);
    prefill = WritePrefill(*method_, input_);
  }

  // Sums of a field of a kind of work, by step and layer.
  template <class Kind>
  std::map<std::pair<int, int>, int64_t> Sum(const std::function<int64_t(const Kind&)>& of) const {
    std::map<std::pair<int, int>, int64_t> sums;
    for (const plan::Op& op : decode.ops) {
      if (const Kind* work = std::get_if<Kind>(&op.work)) sums[{op.step, op.layer}] += of(*work);
    }
    return sums;
  }
  // Tokens that a layer's cells attend in a step.
  int64_t Attended(int step, int layer) const {
    const traces::LayerAccess& access = log_->layers[static_cast<size_t>(layer)];
    int64_t sum = 0;
    for (int head = 0; head < access.heads; ++head) {
      sum += access.attended_tokens[static_cast<size_t>(step * access.heads + head)];
    }
    return sum;
  }
  int64_t Recalled(int step, int layer) const {
    const traces::LayerAccess& access = log_->layers[static_cast<size_t>(layer)];
    int64_t sum = 0;
    for (int head = 0; head < access.heads; ++head) {
      sum += std::ssize(access.recalled_now[int64_t{step} * access.heads + head]);
    }
    return sum;
  }
  bool Notes(const std::string& part) const {
    for (const std::string& note : decode.notes) {
      if (note.find(part) != std::string::npos) return true;
    }
    return false;
  }

  plan::Plan decode, prefill;

 private:
  std::unique_ptr<Method> method_;
  std::optional<traces::AccessLog> log_;
  PlanInput input_;
};

using Host = plan::HostAttention;
using Device = plan::DecodeAttention;
const auto kHostTokens = [](const Host& work) { return work.kv_tokens; };
const auto kDeviceTokens = [](const Device& work) { return work.kv_tokens; };

TEST(CpuAttentionPlan, HostAndGpuAttendEveryTokenOnce) {
  for (const int64_t on_gpu : {0, 50, 210, 1000}) {
    const Planned run("cpu-attention", {{"gpu_tokens", std::to_string(on_gpu)}}, /*batch=*/2);
    auto host = run.Sum<Host>(kHostTokens);
    auto device = run.Sum<Device>(kDeviceTokens);
    auto merged = run.Sum<plan::MergeStates>([](const auto& work) { return work.rows; });
    for (int step = 0; step < kSteps; ++step) {
      const int64_t context = kPrompt + step + 1;
      for (int layer = 0; layer < kLayers; ++layer) {
        const std::pair place{step, layer};
        EXPECT_EQ(host[place] + device[place], 2 * 2 * context);
        EXPECT_EQ(device[place], 2 * 2 * std::min(on_gpu, context));
        EXPECT_EQ(merged[place], host[place] > 0 && device[place] > 0 ? 2 * 6 : 0);
      }
    }
    EXPECT_EQ(run.Notes("merge_states"), on_gpu > 0 && on_gpu < 1000) << "predicted only";
  }
}

TEST(CpuAttentionPlan, ThePromptGoesToTheHostOnce) {
  const Planned run("cpu-attention", {});
  Bytes sent = 0;
  for (const plan::Op& op : run.prefill.ops) {
    if (op.role == plan::Role::kOffload) sent += plan::Count(op.work).link_d2h;
  }
  EXPECT_EQ(sent, kPrompt * SmallModel().KvBytesPerToken());
}

TEST(MagicPigPlan, TheHostAttendsWhatIsSampled) {
  const Planned run("magicpig", {{"bits", "4"}, {"tables", "20"}, {"window", "16"}});
  auto host = run.Sum<Host>(kHostTokens);
  auto device = run.Sum<Device>(kDeviceTokens);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 1; layer < kLayers; ++layer) {
      const std::pair place{step, layer};
      // The GPU's tokens are of a KV head; each of its three query heads attends them.
      EXPECT_EQ(host[place] + 3 * device[place], run.Attended(step, layer));
      EXPECT_EQ(device[place], 2 * (4 + 16 + step + 1));
      EXPECT_GT(host[place], 0);
    }
  }
}

TEST(PqCachePlan, GathersWhatTheCacheLacksAndAttendsAHeadEach) {
  const Planned run("pqcache", {{"bits", "4"}, {"block", "16"}, {"cache", "64"}});
  auto gathered = run.Sum<plan::HostGather>([](const auto& work) { return work.pieces; });
  auto device = run.Sum<Device>(kDeviceTokens);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ((gathered[{step, layer}]), 2 * run.Recalled(step, layer));
      EXPECT_EQ((device[{step, layer}]), 3 * run.Attended(step, layer));
    }
  }
}

// Codes of 8 bytes are as many times what a byte each would be.
TEST(PqCachePlan, CodesComeWholeInEveryStep) {
  for (const auto& [codes, bytes] : {std::pair{"int64", 8}, std::pair{"compact", 1}}) {
    const Planned run("pqcache", {{"codes", codes}, {"bits", "4"}});
    int64_t came = 0;
    for (const plan::Op& op : run.decode.ops) {
      if (op.role == plan::Role::kIndex) came += plan::Count(op.work).link_h2d;
    }
    const int64_t a_layer = int64_t{2} * ((kPrompt + kSteps) * 2 * bytes + 16 * 24 * 2);
    EXPECT_EQ(came, a_layer * kLayers * kSteps);
  }
}

TEST(RetroInferPlan, BringsClustersThatTheCacheLacks) {
  const Planned run("retroinfer",
                    {{"retrieval", "0.2"}, {"cluster", "8"}, {"window", "16"}, {"update", "24"}});
  auto brought = run.Sum<plan::ZeroCopyGather>([](const auto& work) { return work.pieces; });
  auto device = run.Sum<Device>(kDeviceTokens);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ((brought[{step, layer}]), 2 * run.Recalled(step, layer));
      EXPECT_EQ((device[{step, layer}]), run.Attended(step, layer));
    }
  }
  EXPECT_TRUE(run.Notes("weighted_attention"));
  EXPECT_TRUE(run.Notes("host_lookup"));
}

TEST(ClusterKvPlan, BringsNoMoreThanItAttends) {
  const Planned run("clusterkv", {{"budget", "64"}, {"lists", "20"}, {"dense_layers", "0"}});
  auto brought = run.Sum<plan::ZeroCopyGather>([](const auto& work) { return work.pieces; });
  auto device = run.Sum<Device>(kDeviceTokens);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ((device[{step, layer}]), run.Attended(step, layer));
      EXPECT_LE((brought[{step, layer}]), 2 * run.Attended(step, layer));
      if (run.Recalled(step, layer) > 0) {
        EXPECT_GT((brought[{step, layer}]), 0);
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::methods
