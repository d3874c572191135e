// What prefill plans count.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "models/methods/decoder_plan.h"

namespace stallcast::methods {
namespace {

// Bytes that the compute stream moves between places in device memory, a sparse layer.
Bytes KeptBytes(const std::string& name, const ParamValues& params, const PlanInput& input) {
  const NamedMethod method = MakeMethod(name, params);
  const plan::Plan plan = WritePrefill(*method.method, input);
  Bytes bytes = 0;
  for (const plan::Op& op : plan.ops) {
    const auto* layout = std::get_if<plan::Layout>(&op.work);
    if (layout == nullptr || op.layer != input.model.layers - 1) continue;
    if (plan.lanes[static_cast<size_t>(plan::Index(op.lane))].compute) {
      bytes += layout->pieces * layout->piece_bytes;
    }
  }
  return bytes;
}

TEST(PrefillPlan, WhatStaysOnTheGpuIsTheBudget) {
  PlanInput input;
  input.model = llm::FindModel("llama-3.1-8b");
  input.batch = 3;
  const Bytes token = input.batch * input.model.KvBytesPerTokenLayer();
  const ParamValues pages{{"budget", "2048"}, {"page", "32"}, {"sink", "128"}, {"window", "256"}};
  for (const int64_t prompt : {4096, 32768}) {
    input.prompt_tokens = prompt;
    for (const char* name : {"arkvale", "arkvale-freekv", "freekv"}) {
      SCOPED_TRACE(name);
      EXPECT_EQ(KeptBytes(name, pages, input), 2048 * token);
    }
    EXPECT_EQ(KeptBytes("streaming", {{"budget", "1000"}}, input), 1000 * token);
    EXPECT_EQ(KeptBytes("full", {}, input), 0);
  }
  // A prompt within the budget stays whole.
  input.prompt_tokens = 1024;
  EXPECT_EQ(KeptBytes("freekv", pages, input), 1024 * token);
  EXPECT_EQ(KeptBytes("streaming", {{"budget", "2000"}}, input), 1024 * token);
}

}  // namespace
}  // namespace stallcast::methods
