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

class Run {
 public:
  Run(const std::string& name, const ParamValues& values, int32_t batch = 1)
      : method_(MakeMethod(name, values).method) {
    const traces::Trace trace = RandomTrace({.layers = kLayers, .steps = kSteps});
    if (method_->NewPolicy()) log_ = Replay(trace, "", name, *method_);
    input_ = {SmallModel(), batch, kPrompt, kSteps, false, log_ ? &*log_ : nullptr};
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

using Device = plan::DecodeAttention;
const auto kDeviceTokens = [](const Device& work) { return work.kv_tokens; };

TEST(ClusterKvPlan, BringsNoMoreThanItAttends) {
  const Run run("clusterkv", {{"budget", "64"}, {"lists", "20"}, {"dense_layers", "0"}});
  auto brought = run.Sum<plan::ZeroCopyGather>([](const auto& work) { return work.pieces; });
  auto device = run.Sum<Device>(kDeviceTokens);
  for (int step = 0; step < kSteps; ++step) {
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_EQ((device[{step, layer}]), run.Attended(step, layer));
      EXPECT_LE((brought[{step, layer}]), 2 * run.Attended(step, layer));
      if (run.Recalled(step, layer) > 0) EXPECT_GT((brought[{step, layer}]), 0);
    }
  }
}

}  // namespace
}  // namespace stallcast::methods
