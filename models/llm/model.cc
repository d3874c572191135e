#include "models/llm/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "models/llm/config_json.h"
#include "models/llm/model_check.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

// Limits that keep every product of fields inside 64 bits.
constexpr int32_t kMostLayers = 1'000;
constexpr int32_t kMostHeads = 1'024;
constexpr int32_t kMostHeadDim = 1'024;
constexpr int64_t kMostWidth = 1'000'000;

const std::array kModels = {
    Model{.name = "llama-3.1-8b",
          .title = "Llama-3.1-8B",
          .layers = 32,
          .query_heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 4096,
          .intermediate = 14336,
          .vocabulary = 128256,
          .max_context = 131072,
          .source = "config.json of meta-llama/Llama-3.1-8B"},
    Model{.name = "llama-3-70b",
          .title = "Llama-3-70B",
          .layers = 80,
          .query_heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 8192,
          .intermediate = 28672,
          .vocabulary = 128256,
          .max_context = 8192,
          .source = "config.json of meta-llama/Meta-Llama-3-70B"},
    Model{.name = "llama-3.1-70b",
          .title = "Llama-3.1-70B",
          .layers = 80,
          .query_heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 8192,
          .intermediate = 28672,
          .vocabulary = 128256,
          .max_context = 131072,
          .source = "config.json of meta-llama/Llama-3.1-70B"},
    Model{.name = "qwen2.5-7b",
          .title = "Qwen2.5-7B",
          .layers = 28,
          .query_heads = 28,
          .kv_heads = 4,
          .head_dim = 128,
          .hidden = 3584,
          .intermediate = 18944,
          .vocabulary = 152064,
          .qkv_bias = true,
          .max_context = 131072,
          .source = "config.json of Qwen/Qwen2.5-7B"},
    Model{.name = "qwen2.5-14b",
          .title = "Qwen2.5-14B",
          .layers = 48,
          .query_heads = 40,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 5120,
          .intermediate = 13824,
          .vocabulary = 152064,
          .qkv_bias = true,
          .max_context = 131072,
          .source = "config.json of Qwen/Qwen2.5-14B"},
    Model{.name = "qwen3-4b",
          .title = "Qwen3-4B",
          .layers = 36,
          .query_heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 2560,
          .intermediate = 9728,
          .vocabulary = 151936,
          .tied_embeddings = true,
          .max_context = 40960,
          .source = "config.json of Qwen/Qwen3-4B"},
    Model{.name = "qwen3-8b",
          .title = "Qwen3-8B",
          .layers = 36,
          .query_heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .hidden = 4096,
          .intermediate = 12288,
          .vocabulary = 151936,
          .max_context = 40960,
          .source = "config.json of Qwen/Qwen3-8B"},
    Model{.name = "stallcast-25m",
          .title = "Stallcast 25M",
          .layers = 6,
          .query_heads = 8,
          .kv_heads = 2,
          .head_dim = 128,
          .hidden = 512,
          .intermediate = 1408,
          .vocabulary = 8192,
          .tied_embeddings = true,
          .max_context = 32768,
          .source = "config.json of the model that the shipped traces were captured from"},
};

}  // namespace

Bytes Model::WeightBytes() const {
  const int64_t query_width = int64_t{query_heads} * head_dim;
  const int64_t kv_width = int64_t{kv_heads} * head_dim;
  const int64_t attention = 2 * hidden * query_width + 2 * hidden * kv_width +
                            (qkv_bias ? query_width + 2 * kv_width : 0);
  const int64_t layer = attention + 3 * hidden * intermediate + 2 * hidden;
  const int64_t embeddings = (tied_embeddings ? 1 : 2) * vocabulary * hidden;
  return (layers * layer + embeddings + hidden) * element_bytes;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  names.reserve(kModels.size());
  for (const Model& model : kModels) names.push_back(model.name);
  return names;
}

Model FindModel(std::string_view name) {
  if (IsConfigJson(name)) return ReadConfigJson(name);
  const auto found = std::ranges::find(kModels, name, &Model::name);
  if (found == kModels.end()) {
    throw UsageError(
        fmt::format("there is no model '{}'", name), "",
        fmt::format("known: {}; or give a model's config.json", fmt::join(ModelNames(), ", ")));
  }
  return *found;
}

void CheckShape(const Model& model, const std::string& where, const std::string& remedy) {
  const auto check = [&](int64_t value, int64_t most, std::string_view field) {
    if (value < 1 || value > most) {
      throw Error(fmt::format("{} {}: a model has 1 to {}", value, field, most), where, remedy);
    }
  };
  check(model.layers, kMostLayers, "layers");
  check(model.query_heads, kMostHeads, "query heads");
  check(model.kv_heads, kMostHeads, "KV heads");
  check(model.head_dim, kMostHeadDim, "elements a head");
  check(model.hidden, kMostWidth, "hidden elements");
  check(model.intermediate, kMostWidth, "MLP elements");
  check(model.vocabulary, kMostWidth, "vocabulary entries");
  if (model.query_heads % model.kv_heads != 0) {
    throw Error(fmt::format("{} query heads are not a multiple of {} KV heads", model.query_heads,
                            model.kv_heads),
                where, remedy);
  }
}

Model FromTrace(const traces::proto::Model& model) {
  Model made;
  if (const auto known = std::ranges::find(kModels, model.name(), &Model::name);
      known != kModels.end()) {
    made = *known;  // what a trace does not say: bias, tied embeddings, longest context
  }
  made.name = made.title = model.name().empty() ? "traced model" : model.name();
  made.layers = model.layers();
  made.query_heads = model.query_heads();
  made.kv_heads = model.kv_heads();
  made.head_dim = model.head_dim();
  made.hidden = model.hidden();
  made.intermediate = model.intermediate();
  made.vocabulary = model.vocabulary();
  made.source = "trace";
  CheckShape(made, "model of the trace", "name one with --model, or capture the trace again");
  return made;
}

traces::proto::Model ToTrace(const Model& model) {
  traces::proto::Model made;
  made.set_name(model.name);
  made.set_layers(model.layers);
  made.set_query_heads(model.query_heads);
  made.set_kv_heads(model.kv_heads);
  made.set_head_dim(model.head_dim);
  made.set_hidden(static_cast<int32_t>(model.hidden));
  made.set_intermediate(static_cast<int32_t>(model.intermediate));
  made.set_vocabulary(static_cast<int32_t>(model.vocabulary));
  return made;
}

Model Shard(const Model& model, int32_t ways) {
  const auto divide = [&](int64_t value, std::string_view what) {
    if (ways < 1 || value % ways != 0) {
      throw UsageError(
          fmt::format("{} {} of {} cannot be divided over {} GPUs", value, what, model.title, ways),
          "tensor parallelism", "choose a number that divides the heads and widths");
    }
    return value / ways;
  };
  Model shard = model;
  shard.query_heads = static_cast<int32_t>(divide(model.query_heads, "query heads"));
  shard.kv_heads = static_cast<int32_t>(divide(model.kv_heads, "KV heads"));
  shard.intermediate = divide(model.intermediate, "MLP elements");
  shard.vocabulary = divide(model.vocabulary, "vocabulary entries");
  shard.tensor_parallel = model.tensor_parallel * ways;
  return shard;
}

}  // namespace stallcast::llm
