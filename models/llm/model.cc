#include "models/llm/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/llm/config_json.h"
#include "models/llm/model_check.h"
#include "models/llm/shapes.h"
#include "models/llm/widths.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

// Limits that keep every product of fields inside 64 bits.
constexpr int32_t kMostLayers = 1'000;
constexpr int32_t kMostHeads = 1'024;
constexpr int32_t kMostHeadDim = 1'024;
constexpr int64_t kMostWidth = 1'000'000;
constexpr int32_t kMostExperts = 10'000;

// A matrix of one GPU's shard; ways > 1 has been divided out of the model's own fields.
int64_t KvWidth(const Model& m) { return int64_t{m.kv_heads} * m.head_dim; }
int64_t QueryWidth(const Model& m) { return int64_t{m.query_heads} * m.head_dim; }

void AddDenseAttention(const Model& m, LayerWeights& w) {
  const int64_t outputs = (m.output_gate ? 2 : 1) * QueryWidth(m) + 2 * KvWidth(m);
  w.input = {outputs, m.hidden, m.weights};
  w.output = {m.hidden, QueryWidth(m), m.weights};
  if (m.qkv_bias) w.vectors += QueryWidth(m) + 2 * KvWidth(m);
}

void AddLatentAttention(const Model& m, LayerWeights& w) {
  const Latent& l = *m.latent;
  const int64_t heads = m.query_heads, queries = heads * (l.nope + l.rope);
  const bool compressed = l.query_rank > 0;
  w.input = {(compressed ? l.query_rank : queries) + l.width(), m.hidden, m.weights};
  if (compressed) w.query_up = {queries, l.query_rank, m.weights};
  // Absorbed matrices are kept in bf16: they are made from the file's when it is loaded.
  w.key_up = {l.rank, l.nope, {}, heads};
  w.value_up = {l.value, l.rank, {}, heads};
  w.output = {m.hidden, heads * l.value, m.weights};
  w.vectors += l.query_rank + l.rank;
  if (l.top_k == 0) return;
  w.index_query = {int64_t{l.index_heads} * l.index_dim, compressed ? l.query_rank : m.hidden,
                   m.weights};
  w.index_key = {l.index_dim + l.index_heads, m.hidden, m.weights};
}

void AddLinearAttention(const Model& m, LayerWeights& w) {
  const LinearAttention& l = *m.linear;
  const int64_t keys = int64_t{l.key_heads} * l.key_dim;
  const int64_t values = int64_t{l.value_heads} * l.value_dim;
  w.input = {2 * keys + 2 * values + 2 * int64_t{l.value_heads}, m.hidden, m.weights};
  w.output = {m.hidden, values, m.weights};
  w.vectors += l.convolution * (2 * keys + values) + 2 * int64_t{l.value_heads} + l.value_dim;
}

}  // namespace

Layer Model::KindOf(int layer) const {
  return kinds.empty() ? Layer{} : kinds[static_cast<size_t>(layer)];
}

int32_t Model::FullLayers() const {
  if (kinds.empty()) return layers;
  return static_cast<int32_t>(
      std::ranges::count(kinds, Layer::Attention::kFull, &Layer::attention));
}

Bytes Model::KvBytesPerTokenLayer() const {
  if (!latent) return int64_t{2} * kv_heads * KvRowBytes();
  // An indexer's keys are fp8 with a scale each, in every published form.
  const Bytes index_key = latent->top_k > 0 ? latent->index_dim + int64_t{sizeof(float)} : 0;
  return kv.Of(latent->width()) + index_key;
}

Bytes Model::OtherLayersBytes(int64_t context, int32_t batch) const {
  Bytes sum = 0;
  for (const Layer& layer : kinds) {
    if (layer.attention == Layer::Attention::kWindow) {
      sum += batch * std::min(layer.window, context) * KvBytesPerTokenLayer();
    } else if (layer.attention == Layer::Attention::kLinear && linear) {
      const int64_t convolved = 2 * int64_t{linear->key_heads} * linear->key_dim +
                                int64_t{linear->value_heads} * linear->value_dim;
      sum += batch * (int64_t{linear->value_heads} * linear->key_dim * linear->value_dim *
                          int64_t{sizeof(float)} +
                      linear->convolution * convolved * 2);
    }
  }
  return sum;
}

double Model::DistinctExperts(int64_t tokens) const {
  if (!experts) return 0;
  const auto count = static_cast<double>(experts->count);
  const auto active = static_cast<double>(experts->active);
  const auto taken_by_any = [tokens](double probability) {
    return 1 - std::pow(1 - std::min(probability, 1.0), static_cast<double>(tokens));
  };
  if (experts->taken.empty()) return count * taken_by_any(active / count);
  const double all = std::accumulate(experts->taken.begin(), experts->taken.end(), 0.0);
  double sum = 0;
  for (const double taken : experts->taken) sum += taken_by_any(active * taken / all);
  return sum;
}

Bytes LayerWeights::bytes() const {
  Bytes sum = vectors * 2;
  for (const Matrix* matrix : {&input, &query_up, &key_up, &value_up, &index_query, &index_key,
                               &output, &router, &expert_gate_up, &expert_down, &gate_up, &down}) {
    sum += matrix->bytes();
  }
  return sum;
}

LayerWeights WeightsOf(const Model& m, const Layer& layer) {
  LayerWeights w;
  w.vectors = 2 * m.hidden;
  switch (layer.attention) {
    case Layer::Attention::kFull:
    case Layer::Attention::kWindow:
      if (m.latent) {
        AddLatentAttention(m, w);
      } else {
        AddDenseAttention(m, w);
      }
      break;
    case Layer::Attention::kLinear:
      AddLinearAttention(m, w);
      break;
    case Layer::Attention::kNone:
      break;
  }
  int64_t dense = m.intermediate;
  if (layer.experts && m.experts) {
    const Experts& e = *m.experts;
    w.router = {e.count, m.hidden, {}};
    w.expert_gate_up = {2 * e.intermediate, m.hidden, e.width, e.count};
    w.expert_down = {m.hidden, e.intermediate, e.width, e.count};
    dense = e.shared_intermediate;
  }
  if (dense > 0) {
    w.gate_up = {2 * dense, m.hidden, m.weights};
    w.down = {m.hidden, dense, m.weights};
  }
  return w;
}

Bytes Model::WeightBytes() const {
  Bytes sum = ((tied_embeddings ? 1 : 2) * vocabulary * hidden + hidden) * 2;
  if (kinds.empty()) return sum + layers * WeightsOf(*this, {}).bytes();
  for (const Layer& layer : kinds) sum += WeightsOf(*this, layer).bytes();
  return sum;
}

Bytes Model::ActivationBytes(int64_t tokens, int64_t sequences) const {
  const int64_t rows =
      prefill_chunk > 0 ? std::min(tokens, std::max(prefill_chunk, sequences)) : tokens;
  int64_t widest = 0;
  const auto add = [&](const Layer& layer) {
    const LayerWeights w = WeightsOf(*this, layer);
    const int64_t attention = w.input.n + w.query_up.n + w.output.k;
    // Of a mixture each token has a row for every expert that it takes.
    const int64_t of_experts =
        experts && layer.experts ? experts->active * (3 * experts->intermediate + hidden) : 0;
    widest = std::max({widest, attention, w.gate_up.n + w.down.k, of_experts});
  };
  if (kinds.empty()) add({});
  for (const Layer& layer : kinds) add(layer);
  constexpr Bytes kLogit = 2 + 4;  // bf16, and in single precision to choose from
  return rows * (2 * hidden + widest) * kActivationBytes +
         sequences * queries * vocabulary * kLogit;
}

Model FullAttentionOnly(const Model& model) {
  Model view = model;
  view.layers = model.FullLayers();
  std::erase_if(view.kinds, [](const Layer& l) { return l.attention != Layer::Attention::kFull; });
  return view;
}

Model AtContext(Model model, int64_t longest) {
  int64_t widened = 0, window = 0;
  for (Layer& layer : model.kinds) {
    if (layer.attention != Layer::Attention::kWindow || layer.window < longest) continue;
    window = layer.window;
    layer = {.experts = layer.experts};
    ++widened;
  }
  if (widened > 0) {
    model.notes.push_back(fmt::format(
        "{} layers with windows of {} tokens attend the whole context, which is shorter", widened,
        window));
  }
  return model;
}

std::string Describe(const Model& m) {
  const auto width = [](const plan::Width& w) {
    return fmt::format("{}/{}/{}", w.bits, w.group, w.scale_bits);
  };
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} kv={} w={} q={} a={}", m.name, m.layers,
                  m.query_heads, m.kv_heads, m.head_dim, m.hidden, m.intermediate, m.vocabulary,
                  m.qkv_bias, m.tied_embeddings, m.output_gate, m.max_context, m.tensor_parallel,
                  width(m.kv), width(m.weights), m.queries, m.accepted);
  text += fmt::format(" p={}", m.prefill_chunk);
  for (const Layer& layer : m.kinds) {
    text +=
        fmt::format(" {}:{}:{}", static_cast<int>(layer.attention), layer.window, layer.experts);
  }
  if (const auto& e = m.experts) {
    text += fmt::format(" e={},{},{},{},{},{}", e->count, e->active, e->intermediate,
                        e->shared_intermediate, width(e->width), fmt::join(e->taken, ","));
  }
  if (const auto& l = m.latent) {
    text += fmt::format(" l={},{},{},{},{},{},{},{}", l->query_rank, l->rank, l->rope, l->nope,
                        l->value, l->top_k, l->index_heads, l->index_dim);
  }
  if (const auto& l = m.linear) {
    text += fmt::format(" s={},{},{},{},{}", l->key_heads, l->value_heads, l->key_dim, l->value_dim,
                        l->convolution);
  }
  return text;
}

std::string WhyNotExecutable(const Model& model) {
  const auto has = [&](Layer::Attention attention) {
    return std::ranges::find(model.kinds, attention, &Layer::attention) != model.kinds.end();
  };
  if (model.latent) return "latent attention is predicted only";
  if (model.output_gate) return "gated attention is predicted only";
  if (model.head_dim != 64 && model.head_dim != 128) {
    return fmt::format("attention of heads of {} channels is predicted only", model.head_dim);
  }
  if (has(Layer::Attention::kLinear)) return "layers of linear attention are predicted only";
  if (has(Layer::Attention::kNone)) return "layers that do not attend are predicted only";
  if (model.weights != plan::Width{} || model.kv != plan::Width{}) {
    return "weights and KV other than bf16 are predicted only";
  }
  if (model.experts && model.experts->width != plan::Width{}) {
    return fmt::format("experts of {} are predicted only; --weight-dtype bf16 runs them as bf16",
                       NameOf(model.experts->width));
  }
  if (model.tensor_parallel != 1) return "what GPUs of a shared model exchange is predicted only";
  if (model.queries != 1) return "several tokens a step are predicted only";
  return "";
}

std::string WhyNoPrefill(const Model& model) {
  if (model.experts) {
    return "no kernel multiplies the many rows that a prompt gives each expert";
  }
  if (model.FullLayers() != model.layers) return "no kernel attends a window in a prompt";
  return "";
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  names.reserve(Shapes().size());
  for (const Shape& shape : Shapes()) names.emplace_back(shape.name);
  return names;
}

namespace {

const Shape* Known(std::string_view name) {
  const auto found = std::ranges::find(Shapes(), name, &Shape::name);
  return found == Shapes().end() ? nullptr : &*found;
}

}  // namespace

Model FindModel(std::string_view name) {
  if (IsConfigJson(name)) return ReadConfigJson(name);
  if (const Shape* shape = Known(name)) return ModelOf(*shape);
  throw UsageError(
      fmt::format("there is no model '{}'", name), "",
      fmt::format("known: {}; or give a model's config.json", fmt::join(ModelNames(), ", ")));
}

void CheckLayers(const Model& model, const std::string& where) {
  if (model.layers >= 1 && model.layers <= kMostLayers) return;
  throw Error(fmt::format("{} layers: a model has 1 to {}", model.layers, kMostLayers), where,
              "check num_hidden_layers");
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
  const bool all_experts =
      !model.kinds.empty() && std::ranges::all_of(model.kinds, &Layer::experts);
  if (!all_experts) check(model.intermediate, kMostWidth, "MLP elements");
  check(model.vocabulary, kMostWidth, "vocabulary entries");
  if (model.query_heads % model.kv_heads != 0) {
    throw Error(fmt::format("{} query heads are not a multiple of {} KV heads", model.query_heads,
                            model.kv_heads),
                where, remedy);
  }
  if (const auto& e = model.experts) {
    check(e->count, kMostExperts, "experts");
    check(e->active, e->count, "active experts of so many");
    check(e->intermediate, kMostWidth, "elements an expert");
  }
  if (const auto& l = model.latent) {
    check(l->rank, kMostWidth, "elements a latent");
    check(l->rope, kMostHeadDim, "RoPE elements");
    check(l->nope, kMostHeadDim, "elements a key without RoPE");
    check(l->value, kMostHeadDim, "elements a value");
    if (l->top_k > 0) {
      check(l->index_heads, kMostHeads, "index heads");
      check(l->index_dim, kMostHeadDim, "elements an index key");
    }
  }
  if (const auto& l = model.linear) {
    check(l->key_heads, kMostHeads, "linear key heads");
    check(l->value_heads, kMostHeads, "linear value heads");
    check(l->key_dim, kMostHeadDim, "elements a linear key");
    check(l->value_dim, kMostHeadDim, "elements a linear value");
  }
}

Model FromTrace(const traces::proto::Model& model) {
  Model made;
  if (const Shape* known = Known(model.name())) {
    made = ModelOf(*known);  // what a trace does not say: bias, experts, kinds of layers, ...
    if (made.layers != model.layers() || made.hidden != model.hidden()) made = {};
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
  // The latents of all heads are one: each GPU has it whole.
  if (!model.latent) shard.kv_heads = static_cast<int32_t>(divide(model.kv_heads, "KV heads"));
  shard.intermediate = divide(model.intermediate, "MLP elements");
  // Embeddings are padded to a whole number of entries a GPU.
  shard.vocabulary = (model.vocabulary + ways - 1) / std::max(ways, 1);
  if (shard.experts) {
    Experts& e = *shard.experts;
    e.intermediate = divide(e.intermediate, "elements an expert");
    e.shared_intermediate = divide(e.shared_intermediate, "elements of shared experts");
  }
  if (shard.linear) {
    LinearAttention& l = *shard.linear;
    l.key_heads = static_cast<int32_t>(divide(l.key_heads, "linear key heads"));
    l.value_heads = static_cast<int32_t>(divide(l.value_heads, "linear value heads"));
  }
  shard.tensor_parallel = model.tensor_parallel * ways;
  return shard;
}

}  // namespace stallcast::llm
