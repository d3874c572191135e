// Plans of models whose layers are of several kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "models/methods/decoder_plan.h"
#include "models/methods/method.h"

namespace stallcast::methods {
namespace {

using plan::Op;

plan::Plan Decode(const llm::Model& model, const std::string& method, int32_t batch,
                  int64_t context) {
  return WriteDecode(*MakeMethod(method, {}).method,
                     {.model = model, .batch = batch, .prompt_tokens = context, .steps = 1});
}

// Works of a kind, by the model's layer.
template <class T>
std::multimap<int, T> Of(const plan::Plan& plan) {
  std::multimap<int, T> found;
  for (const Op& op : plan.ops) {
    if (const T* work = std::get_if<T>(&op.work)) found.emplace(op.layer, *work);
  }
  return found;
}

TEST(LayerKinds, WindowLayersAttendTheirWindowAndStayOnTheGpu) {
  const llm::Model model = llm::FindModel("gpt-oss-20b");
  const plan::Plan plan = Decode(model, "offload", 2, 8000);
  const auto attentions = Of<plan::DecodeAttention>(plan);
  ASSERT_EQ(attentions.size(), 24);
  for (const auto& [layer, attention] : attentions) {
    EXPECT_EQ(attention.kv_tokens_max, layer % 2 == 0 ? 128 : 8001) << layer;
  }
  for (const auto& [layer, copy] : Of<plan::Copy>(plan)) {
    EXPECT_TRUE(layer < 0 || layer % 2 == 1) << layer;
  }
}

TEST(LayerKinds, LinearLayersUpdateAState) {
  const llm::Model model = llm::FindModel("qwen3-next-80b-a3b");
  const plan::Plan plan = Decode(model, "full", 1, 32768);
  EXPECT_EQ(Of<plan::DecodeAttention>(plan).size(), 12);
  EXPECT_EQ(Of<plan::StateUpdate>(plan).size(), 36);
  EXPECT_FALSE(plan.notes.empty());  // predicted only
}

TEST(LayerKinds, AStepReadsTheWeightsOfActiveExperts) {
  const llm::Model model = llm::FindModel("mixtral-8x7b");
  for (const int32_t batch : {1, 4}) {
    const plan::Plan plan = Decode(model, "full", batch, 1024);
    const auto grouped = Of<plan::GroupedGemm>(plan);
    ASSERT_EQ(grouped.size(), 2 * 32);
    double read = 0;
    for (const auto& [layer, gemm] : grouped) {
      EXPECT_EQ(gemm.rows, 2 * batch);
      read += gemm.matrices * static_cast<double>(gemm.weights.Of(gemm.n * gemm.k));
    }
    const double an_expert = 3.0 * 4096 * 14336 * 2;
    EXPECT_NEAR(read, 32 * model.DistinctExperts(batch) * an_expert, 1);
  }
}

TEST(LayerKinds, ADenseModelsPlanReadsItsWeightsOnce) {
  for (const char* name : {"llama-3.1-8b", "qwen2.5-7b", "mistral-7b-v0.1", "gemma-3-12b",
                           "deepseek-v3", "qwen3-next-80b-a3b"}) {
    const llm::Model model = llm::FindModel(name);
    Bytes gemms = 0, layers = 0;
    for (const auto& [layer, gemm] : Of<plan::Gemm>(Decode(model, "full", 1, 512))) {
      if (layer >= 0) gemms += gemm.weights.Of(gemm.n * gemm.k);
    }
    for (int layer = 0; layer < model.layers; ++layer) {
      const llm::LayerWeights w = llm::WeightsOf(model, model.KindOf(layer));
      layers += w.bytes() - 2 * w.vectors - w.key_up.bytes() - w.value_up.bytes() -
                w.expert_gate_up.bytes() - w.expert_down.bytes();
    }
    EXPECT_EQ(gemms, layers) << name;
  }
}

TEST(LayerKinds, LatentsAreReadOnceForAllHeads) {
  const llm::Model model = llm::FindModel("deepseek-v3");
  const auto attentions = Of<plan::LatentAttention>(Decode(model, "full", 2, 4095));
  ASSERT_EQ(attentions.size(), 61);
  const plan::WorkCounts counts = plan::Count(attentions.begin()->second);
  EXPECT_EQ(counts.device_read - counts.device_written / 512 * 576, 2 * 4096 * 1152);
  EXPECT_EQ(counts.flops, 2.0 * 2 * 4096 * 128 * (576 + 512));
  const plan::Plan offloaded = Decode(model, "offload", 1, 4095);
  Bytes moved = 0;
  for (const auto& [layer, copy] : Of<plan::Copy>(offloaded)) {
    if (copy.direction == plan::Direction::kHostToDevice) moved += copy.pieces * copy.piece_bytes;
  }
  EXPECT_EQ(moved, 61 * 4095 * 1152);
}

TEST(LayerKinds, AnIndexerLeavesItsBestTokensToAttend) {
  const llm::Model model = llm::FindModel("deepseek-v3.2");
  const plan::Plan plan = Decode(model, "full", 1, 32767);
  for (const auto& [layer, attention] : Of<plan::LatentAttention>(plan)) {
    EXPECT_EQ(attention.kv_tokens, 2048);
  }
  for (const auto& [layer, index] : Of<plan::LatentIndex>(plan)) EXPECT_EQ(index.keys, 32768);
  EXPECT_TRUE(Of<plan::LatentIndex>(Decode(model, "full", 1, 2000)).empty());
}

TEST(LayerKinds, ShardsSumTwiceALayer) {
  const llm::Model shard = llm::Shard(llm::FindModel("llama-3.1-8b"), 4);
  const auto sums = Of<plan::AllReduce>(Decode(shard, "full", 3, 1024));
  ASSERT_EQ(sums.size(), 64);
  // A ring moves 2 (g - 1) / g of the buffer.
  EXPECT_EQ(plan::Count(sums.begin()->second).device_read, 3 * 4096 * 2 * 2 * 3 / 4);
  EXPECT_TRUE(Of<plan::AllReduce>(Decode(llm::FindModel("llama-3.1-8b"), "full", 3, 1024)).empty());
}

TEST(LayerKinds, SeveralQueriesReadTheCacheOnce) {
  llm::Model model = llm::FindModel("llama-3.1-8b");
  const plan::WorkCounts one =
      plan::Count(Of<plan::DecodeAttention>(Decode(model, "full", 1, 8191)).begin()->second);
  model.queries = 4;
  const plan::Plan plan = Decode(model, "full", 1, 8191);
  const plan::WorkCounts four = plan::Count(Of<plan::DecodeAttention>(plan).begin()->second);
  EXPECT_EQ(four.flops, 4 * one.flops);
  EXPECT_EQ(four.device_read - 4 * four.device_written / 4, one.device_read - one.device_written);
  for (const auto& [layer, gemm] : Of<plan::Gemm>(plan)) EXPECT_EQ(gemm.m, 4);
}

}  // namespace
}  // namespace stallcast::methods
