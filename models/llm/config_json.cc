#include "models/llm/config_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "models/llm/model_check.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kRemedy =
    "give the config.json of a dense decoder like Llama, Qwen or Mistral";

class Config {
 public:
  explicit Config(const fs::path& file) : where_(file.string()) {
    std::error_code failed;
    if (fs::is_directory(file, failed)) throw Error("is a folder", where_, kRemedy);
    std::ifstream stream(file);
    if (!stream) throw Error(std::strerror(errno), where_, kRemedy);
    json_ = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) throw Error("is no JSON object", where_, kRemedy);
  }

  /// Empty where the file leaves it out or says null.
  std::optional<int64_t> Count(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end() || found->is_null()) return std::nullopt;
    // More than any model has; less than what 32 bits hold.
    constexpr int64_t kMost = 1'000'000'000;
    if (!found->is_number_integer() || *found < 0 || *found > kMost) {
      throw Fail(fmt::format("{} is no count", name));
    }
    return found->get<int64_t>();
  }
  int64_t Need(const char* name) const {
    if (const std::optional<int64_t> count = Count(name)) return *count;
    throw Fail(fmt::format("there is no {}", name));
  }
  bool Flag(const char* name, bool fallback) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_boolean() ? found->get<bool>() : fallback;
  }
  std::string Text(const char* name) const {
    const auto found = json_.find(name);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
  }
  Error Fail(std::string problem) const { return {std::move(problem), where_, kRemedy}; }

 private:
  std::string where_;
  Json json_;
};

// What would make layers other than those that plans are written for.
void RefuseOtherLayers(const Config& config) {
  for (const char* experts : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (config.Count(experts).value_or(0) > 1) {
      throw config.Fail(fmt::format("a mixture of experts ({})", experts));
    }
  }
  if (config.Count("kv_lora_rank").value_or(0) > 0) {
    throw config.Fail("latent attention (kv_lora_rank)");
  }
  if (const std::string act = config.Text("hidden_act"); !act.empty() && act != "silu") {
    throw config.Fail(fmt::format("an MLP that is no SwiGLU (hidden_act {})", act));
  }
  const int64_t window = config.Count("sliding_window").value_or(0);
  if (window > 0 && window < config.Count("max_position_embeddings").value_or(0) &&
      config.Flag("use_sliding_window", true)) {
    throw config.Fail(fmt::format("layers attend {} tokens (sliding_window)", window));
  }
}

// The last part of a path or of "owner/name"; a path may end in a slash.
std::string LastPart(fs::path path) {
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

std::string NameOf(const Config& config, const fs::path& file) {
  if (std::string name = LastPart(config.Text("_name_or_path")); !name.empty()) return name;
  if (file.filename() != "config.json") return file.stem().string();
  std::string folder = LastPart(fs::absolute(file).lexically_normal().parent_path());
  return folder.empty() ? file.stem().string() : folder;
}

}  // namespace

bool IsConfigJson(std::string_view name) { return name.ends_with(".json"); }

Model ReadConfigJson(const fs::path& file) {
  const Config config(file);
  RefuseOtherLayers(config);
  Model model;
  model.name = model.title = NameOf(config, file);
  model.hidden = config.Need("hidden_size");
  model.layers = static_cast<int32_t>(config.Need("num_hidden_layers"));
  model.query_heads = static_cast<int32_t>(config.Need("num_attention_heads"));
  model.kv_heads = static_cast<int32_t>(
      config.Count("num_key_value_heads").value_or(config.Need("num_attention_heads")));
  model.head_dim = static_cast<int32_t>(
      config.Count("head_dim").value_or(model.hidden / std::max(model.query_heads, 1)));
  model.intermediate = config.Need("intermediate_size");
  model.vocabulary = config.Need("vocab_size");
  // Qwen2's code has biases without a word in the file.
  model.qkv_bias = config.Flag("attention_bias", config.Text("model_type") == "qwen2");
  model.tied_embeddings = config.Flag("tie_word_embeddings", false);
  model.max_context = config.Count("max_position_embeddings").value_or(0);
  model.source = file.string();
  CheckShape(model, file.string(), kRemedy);
  return model;
}

}  // namespace stallcast::llm
