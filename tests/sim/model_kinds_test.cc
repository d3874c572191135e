// The configurations that people run: each is predicted, or refused for a stated reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "sim/predict.h"
#include "tests/models/methods/random_trace.h"
#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

// config.json of nine models as they are published, their other fields left out.
const std::map<std::string, std::string> kConfigs = {
    {"Qwen3-30B-A3B",
     R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
         "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
         "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
         "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": [],
         "sliding_window": null, "use_sliding_window": false, "max_window_layers": 48,
         "vocab_size": 151936, "hidden_act": "silu", "max_position_embeddings": 40960})"},
    {"gpt-oss-20b",
     R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
         "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
         "experts_per_token": 4, "sliding_window": 128, "attention_bias": true,
         "swiglu_limit": 7.0, "vocab_size": 201088, "hidden_act": "silu",
         "max_position_embeddings": 131072, "quantization_config": {"quant_method": "mxfp4",
         "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}})"},
    {"DeepSeek-V3",
     R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
         "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432,
         "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
         "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
         "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
         "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "hidden_act": "silu",
         "max_position_embeddings": 163840, "num_nextn_predict_layers": 1,
         "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})"},
    {"Mixtral-8x7B",
     R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
         "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
         "vocab_size": 32000, "hidden_act": "silu", "max_position_embeddings": 32768})"},
    {"gemma-3-1b",
     R"({"model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "intermediate_size": 6912, "sliding_window": 512, "sliding_window_pattern": 6,
         "vocab_size": 262144, "hidden_activation": "gelu_pytorch_tanh",
         "max_position_embeddings": 32768})"},
    {"Mistral-7B-v0.1",
     R"({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
         "sliding_window": 4096, "vocab_size": 32000, "hidden_act": "silu",
         "max_position_embeddings": 32768})"},
    {"gemma-3-12b",
     R"({"model_type": "gemma3", "vision_config": {"hidden_size": 1152}, "text_config": {
         "model_type": "gemma3_text", "hidden_size": 3840, "num_hidden_layers": 48,
         "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 15360,
         "sliding_window": 1024}})"},
    {"Llama-3.3-70B",
     R"({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
         "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
         "vocab_size": 128256, "hidden_act": "silu", "max_position_embeddings": 131072})"},
    {"Phi-3",
     R"({"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192,
         "sliding_window": 262144, "vocab_size": 32064, "hidden_act": "silu",
         "max_position_embeddings": 131072})"},
};

class ModelKinds : public testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", (folder_ / "user").c_str(), 1);
    methods::RandomTraceOptions options;
    options.layers = 2;
    options.dim = 32;
    const traces::Trace trace = methods::RandomTrace(options);
    traces::TraceWriter writer(folder_ / "random.kvt", trace.info);
    for (const traces::Tensor& tensor : trace.tensors) writer.Write(tensor.spec, tensor.data);
    writer.Finish();
    for (const auto& [name, config] : kConfigs) {
      fs::create_directory(folder_ / name);
      std::ofstream(folder_ / name / "config.json") << config;
    }
  }
  void TearDown() override { unsetenv("XDG_CACHE_HOME"); }

  Prediction Predict(const std::string& model, const std::string& method,
                     llm::ModelValues options = {}) const {
    PredictRequest request;
    request.method = method;
    if (method == "quest")
      request.params = {{"budget", "64"}, {"page", "16"}, {"dense_layers", "0"}};
    request.model = (folder_ / model / "config.json").string();
    request.model_options = std::move(options);
    request.context = 20'000;
    request.steps = 2;
    return Predictor(folder_ / "random.kvt").Predict(request);
  }
  // Why it is refused; empty: it is predicted.
  std::string Refusal(const std::string& model, const std::string& method) const {
    try {
      EXPECT_GT(Predict(model, method).metrics.step_mean.count(), 0);
    } catch (const Error& error) {
      EXPECT_FALSE(error.remedy().empty());
      return error.problem();
    }
    return "";
  }

  ScratchFolder folder_;
};

TEST_F(ModelKinds, EachIsPredictedOrRefusedForAReason) {
  for (const auto& [name, config] : kConfigs) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Refusal(name, "full"), "");
    const bool windows = name == "Mistral-7B-v0.1";
    EXPECT_EQ(Refusal(name, "offload").empty(), !windows);
    // One latent for all heads, and nothing but windows: nothing to select from.
    const std::string selection = Refusal(name, "quest");
    EXPECT_EQ(selection.empty(), !windows && name != "DeepSeek-V3") << selection;
  }
}

TEST_F(ModelKinds, AStepTakesNoLessThanItsWeightsAndKvAtTheMemorysPeak) {
  constexpr double kPeak = 4.8e12;  // H200
  for (const auto& [name, config] : kConfigs) {
    SCOPED_TRACE(name);
    const Prediction p = Predict(name, "full");
    double read = static_cast<double>(p.footprint.gpu_kv);
    const llm::Model& m = p.model;
    read += static_cast<double>(m.WeightBytes() - m.vocabulary * m.hidden * 2);
    for (int layer = 0; layer < m.layers; ++layer) {
      if (!m.KindOf(layer).experts) continue;
      const llm::LayerWeights w = llm::WeightsOf(m, m.KindOf(layer));
      read -= static_cast<double>(w.expert_gate_up.bytes() + w.expert_down.bytes()) *
              (1 - m.DistinctExperts(1) / m.experts->count);
    }
    EXPECT_GT(Seconds(p.metrics.step_mean), read / kPeak);
    EXPECT_LT(Seconds(p.metrics.step_mean), 5 * read / kPeak + 20e-3);
  }
}

TEST_F(ModelKinds, OptionsOfAModelReachThePrediction) {
  const Prediction plain = Predict("Llama-3.3-70B", "full");
  const Prediction narrow = Predict("Llama-3.3-70B", "full", {{"kv-dtype", "fp8"}});
  EXPECT_EQ(2 * narrow.footprint.gpu_kv, plain.footprint.gpu_kv);
  EXPECT_LT(narrow.metrics.step_mean, plain.metrics.step_mean);
  const Prediction several =
      Predict("Llama-3.3-70B", "full", {{"queries", "4"}, {"accepted", "2.5"}});
  EXPECT_NEAR(several.metrics.tokens_per_second * Seconds(several.metrics.step_mean), 2.5, 1e-6);
  EXPECT_LT(several.metrics.step_mean, 2 * plain.metrics.step_mean);
}

TEST_F(ModelKinds, ExpertsAreTakenAsTheTracesRouterTookThem) {
  traces::Trace trace = traces::ReadTrace(folder_ / "random.kvt");
  for (int layer = 0; layer < 2; ++layer) {
    // Two of eight take all tokens, other ones in each layer.
    traces::proto::ExpertUse& use = *trace.info.add_expert_use();
    use.set_layer(layer);
    for (int expert = 0; expert < 8; ++expert) {
      use.add_prompt(10);
      use.add_decode(expert / 2 == layer ? 50 : 0);
    }
  }
  traces::TraceWriter writer(folder_ / "routed.kvt", trace.info);
  for (const traces::Tensor& tensor : trace.tensors) writer.Write(tensor.spec, tensor.data);
  writer.Finish();
  const auto predict = [&](const char* file, llm::ModelValues options) {
    PredictRequest request;
    request.method = "full";
    request.model = (folder_ / "Mixtral-8x7B" / "config.json").string();
    options["queries"] = "4";
    request.model_options = std::move(options);
    request.context = 2000;
    request.steps = 2;
    return Predictor(folder_ / file).Predict(request);
  };
  const Prediction uniform = predict("random.kvt", {});
  const Prediction routed = predict("routed.kvt", {});
  EXPECT_NEAR(routed.model.DistinctExperts(4), 2, 1e-9);
  EXPECT_GT(uniform.model.DistinctExperts(4), 5);
  EXPECT_LT(routed.metrics.step_mean, uniform.metrics.step_mean);
  EXPECT_TRUE(std::ranges::any_of(
      routed.notes, [](const std::string& note) { return note.starts_with("routing: "); }));
  // What is asked for counts before what was captured.
  EXPECT_EQ(predict("routed.kvt", {{"routing", "uniform"}}).metrics.step_mean,
            uniform.metrics.step_mean);
}

TEST_F(ModelKinds, WhatOnlyPredictionsHaveIsSaid) {
  const auto says = [&](const std::string& model) {
    const Prediction p = Predict(model, "full");
    return std::ranges::any_of(
        p.notes, [](const std::string& note) { return note.starts_with("predicted only"); });
  };
  EXPECT_FALSE(says("Llama-3.3-70B"));
  EXPECT_FALSE(says("Mixtral-8x7B"));
  EXPECT_TRUE(says("DeepSeek-V3"));
}

}  // namespace
}  // namespace stallcast::sim
