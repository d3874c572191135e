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
  EXPECT_EQ(read.weights, known.weights);
  EXPECT_EQ(read.kinds, known.kinds);
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

std::string Added(const std::string& field) {
  return std::string(kLlama).replace(0, 1, "{" + field + ", ");
}

TEST_F(ConfigJson, TakesWidthsFromItsQuantization) {
  const auto read = [&](const std::string& quantization) {
    return ReadConfigJson(Write(Added("\"quantization_config\": " + quantization)));
  };
  const Model bf16 = ReadConfigJson(Write(kLlama));
  const Bytes embeddings = 2 * 128256 * 4096 * 2, vectors = (2 * 32 + 1) * 4096 * 2;
  const Bytes matrices = bf16.WeightBytes() - embeddings - vectors;
  const auto of_matrices = [&](const Model& model) {
    return model.WeightBytes() - embeddings - vectors;
  };
  const Model fp8 = read(R"({"quant_method": "fp8", "weight_block_size": [128, 128]})");
  // A scale of four bytes for each block of 128 x 128.
  EXPECT_EQ(of_matrices(fp8), matrices / 2 + matrices / 2 / 16384 * 4);
  EXPECT_EQ(of_matrices(read(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})")),
            matrices / 4 + matrices / 2 / 128 * 20 / 8);
  EXPECT_EQ(of_matrices(read(R"({"quant_method": "awq", "bits": 4, "group_size": 64})")),
            matrices / 4 + matrices / 2 / 64 * 20 / 8);
  EXPECT_EQ(of_matrices(read(R"({"quant_method": "bitsandbytes", "load_in_8bit": true})")),
            matrices / 2);
  EXPECT_EQ(of_matrices(read(R"({"quant_method": "compressed-tensors", "config_groups":
              {"group_0": {"weights": {"num_bits": 8, "type": "int", "group_size": null}}}})")),
            matrices / 2);
  EXPECT_EQ(of_matrices(read(R"({"quant_method": "modelopt", "quant_algo": "NVFP4",
              "kv_cache_quant_algo": "FP8"})")),
            matrices / 4 + matrices / 2 / 16);
  EXPECT_FALSE(fp8.notes.empty());
  EXPECT_EQ(fp8.KvBytesPerToken(), bf16.KvBytesPerToken());
  const Model kv = read(R"({"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}})");
  EXPECT_EQ(2 * kv.KvBytesPerToken(), bf16.KvBytesPerToken());
  for (const char* unknown :
       {"{\"quant_method\": \"of my own\"}", "{\"bits\": 4}",
        "{\"quant_method\": \"bitsandbytes\"}", "{\"quant_method\": \"gptq\", \"bits\": 400}",
        "{\"quant_method\": \"mxfp4\"}", "[]"}) {
    EXPECT_NE(Complaint(Added(std::string("\"quantization_config\": ") + unknown)), "") << unknown;
  }
}

TEST_F(ConfigJson, ReadsTheDecoderOfNestedFilesAndInfinities) {
  const std::string nested = std::string(R"({"model_type": "seen", "vision_config": {}, )") +
                             R"("text_config": )" + kLlama + "}";
  const Model model = ReadConfigJson(Write(nested));
  EXPECT_EQ(model.WeightBytes(), FindModel("llama-3.1-8b").WeightBytes());
  EXPECT_FALSE(model.notes.empty());
  const std::string infinite =
      Added(R"("swiglu_limit": Infinity, "other": [-Infinity, NaN, "NaN \" Infinity"])");
  EXPECT_EQ(ReadConfigJson(Write(infinite)).WeightBytes(), model.WeightBytes());
}

TEST_F(ConfigJson, LayersHaveTheKindsThatTheFileSays) {
  const Model window = ReadConfigJson(Write(Added("\"sliding_window\": 4096")));
  EXPECT_EQ(window.FullLayers(), 0);
  EXPECT_EQ(window.KindOf(31).window, 4096);
  const Model wide = ReadConfigJson(Write(Added("\"sliding_window\": 131072")));
  EXPECT_EQ(wide.FullLayers(), 32);
  EXPECT_FALSE(wide.notes.empty());
  std::string types;
  for (int i = 0; i < 32; ++i) {
    types += std::string(i > 0 ? ", " : "") +
             (i % 4 == 3 ? "\"full_attention\"" : "\"sliding_attention\"");
  }
  const Model mixed =
      ReadConfigJson(Write(Added("\"sliding_window\": 512, \"layer_types\": [" + types + "]")));
  EXPECT_EQ(mixed.FullLayers(), 8);
  EXPECT_EQ(mixed.KindOf(3).attention, Layer::Attention::kFull);
  EXPECT_EQ(mixed.KvBytesPerToken(), 8 * 4096);
  EXPECT_EQ(mixed.OtherLayersBytes(100'000, 2), Bytes{2} * 24 * 512 * 4096);
  EXPECT_EQ(Complaint(Added("\"layer_types\": [\"full_attention\"]")),
            "layer_types has 1 entries, num_hidden_layers is 32");
  EXPECT_NE(Complaint(Added("\"layer_types\": [" + types + "]")), "");  // no window
}

TEST_F(ConfigJson, AnUnknownArchitectureIsSaid) {
  const Model model = ReadConfigJson(Write(With(kLlama, "\"llama\"", "\"of my own\"")));
  ASSERT_EQ(model.notes.size(), 1);
  EXPECT_NE(model.notes.front().find("of my own"), std::string::npos);
}

TEST_F(ConfigJson, RefusesWhatPlansAreNotWrittenFor) {
  const auto added = Added;
  EXPECT_NE(Complaint(added("\"num_local_experts\": 8")), "");  // how many are active?
  EXPECT_NE(Complaint(added("\"num_local_experts\": 8, \"num_experts_per_tok\": 9")), "");
  EXPECT_NE(Complaint(added("\"kv_lora_rank\": 512")), "");  // which heads?
  EXPECT_NE(Complaint(added("\"index_topk\": 2048")), "");
  EXPECT_EQ(Complaint(added("\"mamba_d_state\": 128")), "state-space layers (mamba_d_state)");
  EXPECT_NE(Complaint(added("\"num_kv_shared_layers\": 10")), "");
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
