#include "models/llm/config_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLlama = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
  "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";

constexpr const char* kQwen = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
  "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
  "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064})";

class ConfigJson : public testing::Test {
 protected:
  void SetUp() override { fs::create_directory(folder_); }

  fs::path Write(const std::string& text, const std::string& name = "config.json") const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  static std::string With(std::string text, const std::string& old, const std::string& fresh) {
    return text.replace(text.find(old), old.size(), fresh);
  }
  std::string Complaint(const std::string& text) const {
    try {
      ReadConfigJson(Write(text));
    } catch (const Error& error) {
      EXPECT_FALSE(error.where().empty());
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.problem();
    }
    return "";
  }

  ScratchFolder scratch_;
  fs::path folder_ = scratch_ / "my-model";
};

void ExpectSameShape(const Model& read, const Model& known) {
  EXPECT_EQ(read.layers, known.layers);
  EXPECT_EQ(read.query_heads, known.query_heads);
  EXPECT_EQ(read.kv_heads, known.kv_heads);
  EXPECT_EQ(read.head_dim, known.head_dim);
  EXPECT_EQ(read.hidden, known.hidden);
  EXPECT_EQ(read.intermediate, known.intermediate);
  EXPECT_EQ(read.vocabulary, known.vocabulary);
  EXPECT_EQ(read.qkv_bias, known.qkv_bias);
  EXPECT_EQ(read.tied_embeddings, known.tied_embeddings);
  EXPECT_EQ(read.max_context, known.max_context);
  EXPECT_EQ(read.element_bytes, known.element_bytes);
  EXPECT_EQ(read.WeightBytes(), known.WeightBytes());
}

TEST_F(ConfigJson, IsTheModelThatIsKnownByName) {
  ExpectSameShape(FindModel(Write(kLlama).string()), FindModel("llama-3.1-8b"));
  ExpectSameShape(FindModel(Write(kQwen).string()), FindModel("qwen2.5-7b"));
}

TEST_F(ConfigJson, IsNamedByWhatItSaysOrItsFolder) {
  EXPECT_EQ(ReadConfigJson(Write(kLlama)).name, "my-model");
  EXPECT_EQ(ReadConfigJson(Write(kLlama, "llama.json")).name, "llama");
  const std::string named = With(kLlama, "{", "{\"_name_or_path\": \"meta-llama/Llama-3.1-8B\", ");
  EXPECT_EQ(ReadConfigJson(Write(named)).name, "Llama-3.1-8B");
}

TEST_F(ConfigJson, LeavesOutWhatFollowsFromTheRest) {
  const std::string all_heads = With(kLlama, "\"num_key_value_heads\": 8, ", "");
  EXPECT_EQ(ReadConfigJson(Write(all_heads)).kv_heads, 32);
  const std::string wide = With(kLlama, "{", "{\"head_dim\": 256, ");
  EXPECT_EQ(ReadConfigJson(Write(wide)).head_dim, 256);
}

TEST_F(ConfigJson, RefusesWhatPlansAreNotWrittenFor) {
  const auto added = [](const std::string& field) { return With(kLlama, "{", "{" + field + ", "); };
  EXPECT_EQ(Complaint(added("\"num_local_experts\": 8")),
            "a mixture of experts (num_local_experts)");
  EXPECT_EQ(Complaint(added("\"n_routed_experts\": 160")),
            "a mixture of experts (n_routed_experts)");
  EXPECT_EQ(Complaint(added("\"kv_lora_rank\": 512")), "latent attention (kv_lora_rank)");
  EXPECT_EQ(Complaint(added("\"sliding_window\": 4096")),
            "layers attend 4096 tokens (sliding_window)");
  EXPECT_EQ(Complaint(With(kLlama, "\"silu\"", "\"gelu\"")),
            "an MLP that is no SwiGLU (hidden_act gelu)");
  EXPECT_EQ(Complaint(With(kLlama, "\"hidden_size\"", "\"n_embd\"")), "there is no hidden_size");
  EXPECT_EQ(Complaint(With(kLlama, ": 4096", ": \"wide\"")), "hidden_size is no count");
  EXPECT_NE(Complaint(With(kLlama, ": 4096", ": 0")), "");
  EXPECT_NE(Complaint(With(kLlama, "_heads\": 8", "_heads\": 7")), "");
  EXPECT_EQ(Complaint("not JSON"), "is no JSON object");
  EXPECT_EQ(Complaint("[1, 2]"), "is no JSON object");
  EXPECT_THROW(ReadConfigJson(folder_ / "missing.json"), Error);
  EXPECT_THROW(ReadConfigJson(folder_), Error);
}

}  // namespace
}  // namespace stallcast::llm
