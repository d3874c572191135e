#include "models/llm/config_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "models/llm/config.h"
#include "models/llm/model_check.h"
#include "models/llm/widths.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

namespace fs = std::filesystem;
using Kind = Layer::Attention;

// What a family's code takes for a field that its files leave out.
struct Family {
  std::string_view type;  // model_type
  int32_t head_dim = 0;
  int64_t vocabulary = 0, max_context = 0;
  int64_t window = 0;
  /// Every so many layers one attends everything, the last of each; 0: the file says it.
  int32_t full_every = 0;
  bool tied_embeddings = false, qkv_bias = false, gelu = false, output_gate = false;
  bool sinks = false;  ///< attention has sinks, and all matrices biases
};

constexpr std::array kFamilies = {
    Family{.type = "llama"},
    Family{.type = "mistral"},
    Family{.type = "ministral3"},
    Family{.type = "mixtral"},
    Family{.type = "phi3"},
    Family{.type = "qwen2", .qkv_bias = true},
    Family{.type = "qwen2_moe", .qkv_bias = true},
    Family{.type = "qwen3"},
    Family{.type = "qwen3_moe"},
    Family{.type = "qwen3_next", .full_every = 4, .output_gate = true},
    Family{.type = "qwen3_5_text", .full_every = 4, .output_gate = true},
    Family{.type = "qwen3_5_moe_text", .full_every = 4, .output_gate = true},
    Family{.type = "gpt_oss", .full_every = 2, .qkv_bias = true, .sinks = true},
    Family{.type = "glm4_moe"},
    Family{.type = "glm_moe_dsa"},
    Family{.type = "deepseek_v2"},
    Family{.type = "deepseek_v3"},
    Family{.type = "deepseek_v32"},
    Family{.type = "kimi_k2"},
    Family{.type = "gemma", .head_dim = 256, .tied_embeddings = true, .gelu = true},
    Family{.type = "gemma2",
           .head_dim = 256,
           .vocabulary = 256'000,
           .max_context = 8192,
           .window = 4096,
           .full_every = 2,
           .tied_embeddings = true,
           .gelu = true},
    Family{.type = "gemma3_text",
           .head_dim = 256,
           .vocabulary = 262'208,
           .max_context = 131'072,
           .window = 4096,
           .full_every = 6,
           .tied_embeddings = true,
           .gelu = true},
    Family{.type = "stallcast", .tied_embeddings = true},
};

// Fields of shapes that no plan is written for, with what they mean.
constexpr std::pair<const char*, std::string_view> kOtherShapes[] = {
    {"mamba_d_state", "state-space layers"},
    {"ssm_state_size", "state-space layers"},
    {"hybrid_override_pattern", "state-space layers"},
    {"attention_chunk_size", "layers that attend chunks"},
    {"num_kv_shared_layers", "layers that share their KV"},
    {"block_configs", "layers of different widths"},
    {"global_head_dim", "layers with heads of different sizes"},
    {"interleave_moe_layer_step", "experts of Llama 4's kind"},
    {"is_encoder_decoder", "an encoder beside the decoder"},
    {"cross_attention_layers", "layers that attend an encoder"},
};

void RefuseOtherShapes(const Config& config) {
  for (const auto& [field, meaning] : kOtherShapes) {
    const auto found = config.json().find(field);
    if (found == config.json().end() || found->is_null() || *found == false || *found == 0 ||
        (found->is_array() && found->empty())) {
      continue;
    }
    throw config.Fail(fmt::format("{} ({})", meaning, field));
  }
}

void RefuseOtherMlps(const Config& config, const Family* family) {
  std::string act = config.Text("hidden_act");
  if (act.empty()) act = config.Text("hidden_activation");
  const bool gated_gelu = family != nullptr && family->gelu && act.starts_with("gelu");
  if (act.empty() || act == "silu" || act == "swish" || gated_gelu) return;
  throw config.Fail(fmt::format("an MLP that is no SwiGLU (hidden_act {})", act));
}

std::optional<int64_t> FirstOf(const Config& config, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto count = config.Count(name)) return count;
  }
  return std::nullopt;
}

void ReadLatent(const Config& config, Model& model) {
  if (config.Count("kv_lora_rank").value_or(0) == 0) {
    if (config.Count("index_topk").value_or(0) > 0) {
      throw config.Fail("an indexer without latent attention (index_topk without kv_lora_rank)");
    }
    return;
  }
  const auto narrow = [&](const char* name) { return static_cast<int32_t>(config.Need(name)); };
  Latent latent;
  latent.query_rank = static_cast<int32_t>(config.Count("q_lora_rank").value_or(0));
  latent.rank = narrow("kv_lora_rank");
  latent.rope = narrow("qk_rope_head_dim");
  latent.nope = narrow("qk_nope_head_dim");
  latent.value = narrow("v_head_dim");
  latent.top_k = static_cast<int32_t>(config.Count("index_topk").value_or(0));
  if (latent.top_k > 0) {
    latent.index_heads = narrow("index_n_heads");
    latent.index_dim = narrow("index_head_dim");
  }
  model.latent = latent;
  model.kv_heads = 1;
  model.head_dim = latent.width();
}

void ReadLinear(const Config& config, Model& model) {
  const auto narrow = [&](const char* name) { return static_cast<int32_t>(config.Need(name)); };
  model.linear = {narrow("linear_num_key_heads"), narrow("linear_num_value_heads"),
                  narrow("linear_key_head_dim"), narrow("linear_value_head_dim"),
                  narrow("linear_conv_kernel_dim")};
}

std::optional<Kind> KindNamed(std::string_view name) {
  if (name == "full_attention" || name == "attention") return Kind::kFull;
  if (name == "sliding_attention") return Kind::kWindow;
  if (name == "linear_attention") return Kind::kLinear;
  if (name == "none" || name == "no_attention") return Kind::kNone;
  return std::nullopt;
}

// Each layer's way to attend, from layer_types or the older fields.
std::vector<Kind> KindsOf(const Config& config, const Family* family, const Model& model,
                          bool windows) {
  const auto layers = static_cast<size_t>(model.layers);
  const std::vector<std::string> named = config.Texts("layer_types");
  std::vector<Kind> kinds;
  if (!named.empty()) {
    if (named.size() != layers) {
      throw config.Fail(
          fmt::format("layer_types has {} entries, num_hidden_layers is {}", named.size(), layers));
    }
    for (const std::string& name : named) {
      const std::optional<Kind> kind = KindNamed(name);
      if (!kind) throw config.Fail(fmt::format("layer_types has '{}', which is not known", name));
      kinds.push_back(*kind);
    }
    return kinds;
  }
  const std::optional<int64_t> interval = config.Count("full_attention_interval");
  const bool linear = interval || config.Has("linear_num_value_heads");
  const int64_t pattern = FirstOf(config, {"full_attention_interval", "sliding_window_pattern",
                                           "_sliding_window_pattern"})
                              .value_or(family == nullptr ? 0 : family->full_every);
  const Kind other = linear ? Kind::kLinear : Kind::kWindow;
  const int64_t first_windows = config.Count("max_window_layers").value_or(0);
  for (size_t i = 0; i < layers; ++i) {
    bool full = !linear && !windows;
    if (!full && pattern > 0) full = (i + 1) % static_cast<size_t>(pattern) == 0;
    // Qwen2: windows begin behind so many layers.
    if (!linear && static_cast<int64_t>(i) < first_windows) full = true;
    kinds.push_back(full ? Kind::kFull : other);
  }
  return kinds;
}

void ReadKinds(const Config& config, const Family* family, Model& model) {
  int64_t window = config.Count("sliding_window").value_or(family == nullptr ? 0 : family->window);
  // What the file sets to nothing has no windows, whatever the family has.
  if (config.json().contains("sliding_window") && !config.Has("sliding_window")) window = 0;
  const bool windows = window > 0 && config.Flag("use_sliding_window", true);
  const std::vector<Kind> kinds = KindsOf(config, family, model, windows);
  for (const Kind kind : kinds) {
    Layer& layer = model.kinds.emplace_back(Layer{.attention = kind});
    if (kind == Kind::kLinear && !model.linear) ReadLinear(config, model);
    if (kind != Kind::kWindow) continue;
    if (window < 1) throw config.Fail("layers with a window, but there is no sliding_window");
    layer.window = window;
    if (model.max_context > 0 && window >= model.max_context) layer = {};
  }
  if (windows && model.max_context > 0 && window >= model.max_context) {
    model.notes.push_back(
        fmt::format("sliding_window {} holds the longest context of {}: layers attend everything",
                    window, model.max_context));
  }
}

void ReadExperts(const Config& config, Model& model) {
  const auto count = FirstOf(config, {"num_local_experts", "num_experts", "n_routed_experts"});
  if (count.value_or(0) <= 1) return;
  Experts experts;
  experts.count = static_cast<int32_t>(*count);
  const auto active =
      FirstOf(config, {"num_experts_per_tok", "experts_per_token", "num_experts_per_token"});
  if (!active) throw config.Fail("experts, but there is no num_experts_per_tok");
  if (*active < 1 || *active > *count) {
    throw config.Fail(
        fmt::format("{} of {} experts a token (num_experts_per_tok)", *active, *count));
  }
  experts.active = static_cast<int32_t>(*active);
  experts.intermediate =
      FirstOf(config, {"moe_intermediate_size", "intermediate_size"}).value_or(0);
  const int64_t shared = config.Count("n_shared_experts").value_or(0) * experts.intermediate;
  experts.shared_intermediate =
      FirstOf(config, {"shared_expert_intermediate_size", "shared_intermediate_size"})
          .value_or(shared);
  const auto dense_first = config.Count("first_k_dense_replace").value_or(0);
  const auto every =
      std::max<int64_t>(FirstOf(config, {"decoder_sparse_step", "moe_layer_freq"}).value_or(1), 1);
  const bool counts_from_one = config.Has("decoder_sparse_step");
  const std::vector<int64_t> dense = config.Counts("mlp_only_layers");
  for (int64_t i = 0; i < model.layers; ++i) {
    const bool turn = (counts_from_one ? i + 1 : i) % every == 0;
    model.kinds[static_cast<size_t>(i)].experts =
        i >= dense_first && turn && std::ranges::find(dense, i) == dense.end();
  }
  model.experts = experts;
}

// The decoder of a file that holds more: images, sound.
Config TextOf(const Config& config, Model& model) {
  for (const char* name : {"text_config", "llm_config", "language_config"}) {
    Config text = config.Inside(name);
    if (text.empty()) continue;
    Config::Json merged = text.json();
    for (const char* outer : {"quantization_config", "tie_word_embeddings", "_name_or_path"}) {
      if (!merged.contains(outer) && config.Has(outer)) merged[outer] = config.json()[outer];
    }
    model.notes.push_back(
        fmt::format("the decoder of {} alone: what else the file describes is left out", name));
    return {std::move(merged), model.source};
  }
  return config;
}

const Family* FamilyOf(const Config& config, Model& model) {
  const std::string type = config.Text("model_type");
  const auto found = std::ranges::find(kFamilies, type, &Family::type);
  if (found != kFamilies.end()) return &*found;
  if (!type.empty()) {
    model.notes.push_back(
        fmt::format("model_type '{}' is not known: its shape is what the file's fields say", type));
  }
  return nullptr;
}

int64_t IntermediateOf(const Config& config, const Model& model) {
  const bool all_experts = std::ranges::all_of(model.kinds, &Layer::experts);
  if (all_experts) return config.Count("intermediate_size").value_or(0);
  return config.Need("intermediate_size");
}

Model ModelOf(const Config& file, const std::string& where) {
  Model model;
  model.source = where;
  const Config config = TextOf(file, model);
  RefuseOtherShapes(config);
  const Family* family = FamilyOf(config, model);
  RefuseOtherMlps(config, family);
  const Family fallback = family == nullptr ? Family{} : *family;
  model.hidden = config.Need("hidden_size");
  model.layers = static_cast<int32_t>(config.Need("num_hidden_layers"));
  model.query_heads = static_cast<int32_t>(config.Need("num_attention_heads"));
  model.kv_heads = static_cast<int32_t>(
      config.Count("num_key_value_heads").value_or(config.Need("num_attention_heads")));
  const int64_t head_dim =
      fallback.head_dim > 0 ? fallback.head_dim : model.hidden / std::max(model.query_heads, 1);
  model.head_dim = static_cast<int32_t>(config.Count("head_dim").value_or(head_dim));
  model.vocabulary = fallback.vocabulary > 0
                         ? config.Count("vocab_size").value_or(fallback.vocabulary)
                         : config.Need("vocab_size");
  model.qkv_bias = config.Flag("attention_bias", fallback.qkv_bias);
  model.tied_embeddings = config.Flag("tie_word_embeddings", fallback.tied_embeddings);
  model.output_gate = config.Flag("attn_output_gate", fallback.output_gate);
  model.max_context = config.Count("max_position_embeddings").value_or(fallback.max_context);
  CheckLayers(model, where);
  ReadLatent(config, model);
  ReadKinds(config, family, model);
  ReadExperts(config, model);
  model.intermediate = IntermediateOf(config, model);
  if (std::ranges::all_of(model.kinds, [](const Layer& l) { return l == Layer{}; })) {
    model.kinds.clear();
  }
  const Config quantization = config.Inside("quantization_config");
  if (!quantization.empty()) ApplyQuantization(quantization, model);
  if (fallback.sinks) {
    model.notes.emplace_back("left out: attention sinks, and the biases of its matrices");
  }
  const std::string dtype =
      config.Text("dtype").empty() ? config.Text("torch_dtype") : config.Text("dtype");
  if (dtype == "float32") model.notes.emplace_back("weights of float32 are run as bf16");
  if (config.Count("num_nextn_predict_layers").value_or(0) > 0) {
    model.notes.emplace_back("layers that predict further tokens are left out");
  }
  CheckShape(model, where, "check the field that the message names");
  return model;
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

std::string TextOfFile(const fs::path& file) {
  constexpr const char* kGiveAFile = "give the path of a model's config.json";
  std::error_code failed;
  if (fs::is_directory(file, failed)) throw Error("is a folder", file.string(), kGiveAFile);
  std::ifstream stream(file);
  if (!stream) throw Error(std::strerror(errno), file.string(), kGiveAFile);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

bool IsConfigJson(std::string_view name) { return name.ends_with(".json"); }

Model ReadConfigJson(const fs::path& file) {
  const Config config = ParseConfig(TextOfFile(file), file.string());
  Model model = ModelOf(config, file.string());
  model.name = model.title = NameOf(config, file);
  return model;
}

Model ParseConfigJson(std::string_view text, const std::string& where) {
  return ModelOf(ParseConfig(text, where), where);
}

}  // namespace stallcast::llm
