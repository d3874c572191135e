#include "models/llm/model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>

#include "models/llm/model_options.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

// Parameter counts as the publishers state them; our counts leave out QK norms only.
TEST(ModelTest, WeightsMatchPublishedParameterCounts) {
  const auto billions = [](const char* name) {
    return std::round(static_cast<double>(FindModel(name).WeightBytes()) / 2 / 1e7) / 100;
  };
  EXPECT_EQ(FindModel("llama-3.1-8b").WeightBytes(), 16'060'522'496);
  EXPECT_NEAR(billions("llama-3.1-8b"), 8.03, 0.005);
  EXPECT_NEAR(billions("qwen2.5-7b"), 7.62, 0.005);
  EXPECT_NEAR(billions("qwen2.5-14b"), 14.77, 0.005);
  EXPECT_NEAR(billions("qwen3-4b"), 4.02, 0.005);
  EXPECT_NEAR(billions("qwen3-8b"), 8.19, 0.005);
  EXPECT_NEAR(billions("llama-3-70b"), 70.55, 0.005);
  EXPECT_EQ(FindModel("stallcast-25m").WeightBytes(), 50'082'816);
}

// Totals that the publishers state, in billions; MTP layers, gates' biases and QK norms apart.
TEST(ModelTest, ParametersOfMixturesAndHybridsMatchPublishedCounts) {
  const auto billions = [](const char* name) {
    Model model = FindModel(name);
    model.weights = {};
    if (model.experts) model.experts->width = {};
    return static_cast<double>(model.WeightBytes()) / 2e9;
  };
  EXPECT_NEAR(billions("mixtral-8x7b"), 46.7, 0.05);
  EXPECT_NEAR(billions("qwen3-30b-a3b"), 30.5, 0.05);
  EXPECT_NEAR(billions("gpt-oss-20b"), 20.9, 0.1);
  EXPECT_NEAR(billions("gpt-oss-120b"), 116.8, 0.3);
  EXPECT_NEAR(billions("glm-4.5-air"), 106, 1);
  EXPECT_NEAR(billions("deepseek-v3"), 671, 1);
  EXPECT_NEAR(billions("qwen3-next-80b-a3b"), 80, 0.5);
  EXPECT_NEAR(billions("gemma-3-12b"), 11.8, 0.1);
  EXPECT_NEAR(billions("mistral-7b-v0.1"), 7.24, 0.005);
}

// Mixtures and windows are run as bf16; their prompts are not.
TEST(ModelTest, TheExecutorRunsStepsOfMixturesAndWindowsOfBf16) {
  const auto as_bf16 = [](const char* name) {
    return WithOptions(FindModel(name), {{"weight-dtype", "bf16"}});
  };
  for (const char* name : {"llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b", "mistral-7b-v0.1"}) {
    EXPECT_EQ(WhyNotExecutable(FindModel(name)), "") << name;
  }
  EXPECT_NE(WhyNotExecutable(FindModel("gpt-oss-20b")), "");
  EXPECT_EQ(WhyNotExecutable(as_bf16("gpt-oss-20b")), "");
  for (const char* name : {"deepseek-v3", "qwen3-next-80b-a3b", "gemma-3-12b"}) {
    EXPECT_NE(WhyNotExecutable(as_bf16(name)), "") << name;
  }
  EXPECT_EQ(WhyNoPrefill(FindModel("llama-3.1-8b")), "");
  for (const char* name : {"qwen3-30b-a3b", "mistral-7b-v0.1"}) {
    EXPECT_NE(WhyNoPrefill(FindModel(name)), "") << name;
  }
}

TEST(ModelTest, OnlyLayersThatAttendEverythingGrowWithTheContext) {
  // 12 of 24 layers, 8 heads of 64; the others keep 128 tokens.
  const Model oss = FindModel("gpt-oss-20b");
  EXPECT_EQ(oss.KvBytesPerToken(), 12 * 2048);
  EXPECT_EQ(oss.OtherLayersBytes(131072, 1), 12 * 128 * 2048);
  EXPECT_EQ(FindModel("gemma-3-12b").FullLayers(), 8);
  EXPECT_EQ(FindModel("qwen3-next-80b-a3b").FullLayers(), 12);
  // 512 + 64 elements of two bytes, whatever the number of heads.
  EXPECT_EQ(FindModel("deepseek-v3").KvBytesPerTokenLayer(), 1152);
  EXPECT_EQ(FindModel("deepseek-v3.2").KvBytesPerTokenLayer(), 1152 + 132);
}

// The expected number by counting every way in which tokens can choose one expert each.
TEST(ModelTest, DistinctExpertsAreWhatCountingGives) {
  Model model = FindModel("mixtral-8x7b");
  model.experts->count = 4;
  model.experts->active = 1;
  for (int tokens = 1; tokens <= 5; ++tokens) {
    const int ways = 1 << (2 * tokens);
    double sum = 0, weighted = 0;
    const double shares[] = {0.5, 0.25, 0.25, 0};
    for (int way = 0; way < ways; ++way) {
      int seen = 0;
      double probability = 1;
      for (int token = 0; token < tokens; ++token) {
        const int expert = way >> (2 * token) & 3;
        seen |= 1 << expert;
        probability *= shares[expert];
      }
      sum += std::popcount(static_cast<unsigned>(seen));
      weighted += probability * std::popcount(static_cast<unsigned>(seen));
    }
    model.experts->taken.clear();
    EXPECT_NEAR(model.DistinctExperts(tokens), sum / ways, 1e-12);
    model.experts->taken = {200, 100, 100, 0};
    EXPECT_NEAR(model.DistinctExperts(tokens), weighted, 1e-12);
  }
  EXPECT_NEAR(FindModel("qwen3-30b-a3b").DistinctExperts(1), 8, 1e-9);
}

TEST(ModelTest, WindowsThatHoldTheContextAttendEverything) {
  const Model mistral = FindModel("mistral-7b-v0.1");
  EXPECT_EQ(mistral.FullLayers(), 0);
  EXPECT_EQ(AtContext(mistral, 4096).FullLayers(), 32);
  EXPECT_EQ(AtContext(mistral, 4097).FullLayers(), 0);
  EXPECT_EQ(FullAttentionOnly(FindModel("gemma-3-12b")).layers, 8);
}

TEST(ModelTest, KvCacheOfATokenByHand) {
  EXPECT_EQ(FindModel("llama-3.1-8b").KvBytesPerTokenLayer(), 4096);
  EXPECT_EQ(FindModel("llama-3.1-8b").KvBytesPerToken(), 128 * 1024);
  EXPECT_EQ(FindModel("qwen2.5-7b").KvBytesPerToken(), 56 * 1024);
  EXPECT_EQ(FindModel("qwen3-8b").KvBytesPerToken(), 144 * 1024);
  EXPECT_EQ(FindModel("stallcast-25m").KvBytesPerToken(), 6 * 1024);
}

TEST(ModelTest, EveryModelIsConsistent) {
  for (const std::string& name : ModelNames()) {
    SCOPED_TRACE(name);
    const Model model = FindModel(name);
    EXPECT_EQ(model.name, name);
    EXPECT_EQ(model.query_heads % model.kv_heads, 0);
    EXPECT_FALSE(model.source.empty());
    EXPECT_GT(model.max_context, 0);
  }
}

TEST(ModelTest, ShardsAddUpToTheModel) {
  const Model model = FindModel("llama-3-70b");
  const Model shard = Shard(model, 8);
  EXPECT_EQ(shard.kv_heads, 1);
  EXPECT_EQ(shard.group(), model.group());
  EXPECT_EQ(shard.KvBytesPerToken() * 8, model.KvBytesPerToken());
  EXPECT_EQ(shard.tensor_parallel, 8);
  // Norms are on every GPU.
  const Bytes norms = (2 * 80 + 1) * 8192 * 2;
  EXPECT_EQ((shard.WeightBytes() - norms) * 8 + norms, model.WeightBytes());
}

TEST(ModelTest, RefusesShardsThatDoNotDivide) {
  for (const int32_t ways : {0, -1, 3, 16}) {
    EXPECT_THROW(Shard(FindModel("llama-3.1-8b"), ways), Error) << ways;
  }
}

TEST(ModelTest, UnknownModelsListTheKnown) {
  try {
    FindModel("gpt-5");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(error.usage());
    EXPECT_NE(std::string(error.what()).find("qwen3-8b"), std::string::npos);
  }
}

traces::proto::Model TracedModel() {
  traces::proto::Model model;
  model.set_name("stallcast-25m");
  model.set_layers(6);
  model.set_query_heads(8);
  model.set_kv_heads(2);
  model.set_head_dim(128);
  model.set_hidden(512);
  model.set_intermediate(1408);
  model.set_vocabulary(8192);
  return model;
}

TEST(ModelTest, TracedModelHasTheTracesShape) {
  const Model model = FromTrace(TracedModel());
  EXPECT_EQ(model.WeightBytes(), FindModel("stallcast-25m").WeightBytes());
  traces::proto::Model unknown = TracedModel();
  unknown.set_name("of my own");
  unknown.set_layers(7);
  EXPECT_EQ(FromTrace(unknown).layers, 7);
  EXPECT_FALSE(FromTrace(unknown).tied_embeddings);
}

TEST(ModelTest, RefusesSenselessTracedModels) {
  const auto refused = [](auto change) {
    traces::proto::Model model = TracedModel();
    change(model);
    EXPECT_THROW(FromTrace(model), Error);
  };
  refused([](auto& m) { m.clear_layers(); });
  refused([](auto& m) { m.set_kv_heads(0); });
  refused([](auto& m) { m.set_kv_heads(3); });
  refused([](auto& m) { m.set_head_dim(-128); });
  refused([](auto& m) { m.set_hidden(2'000'000'000); });
  refused([](auto& m) { m.clear_vocabulary(); });
  refused([](auto& m) { m.clear_intermediate(); });
}

}  // namespace
}  // namespace stallcast::llm
