#include "models/methods/wgkv/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/llm/safetensors.h"
#include "models/methods/common/bf16.h"
#include "models/methods/common/ranking.h"
#include "models/methods/common/rope.h"
#include "models/methods/vector_kernels.h"
#include "traces/common/error.h"
#include "traces/common/split_mix.h"

namespace stallcast::methods {
namespace {

constexpr float kNormEpsilon = 1e-6f;  // of the public code's RMSNorm

Admission Random(const LayerTensors& tensors, const WgKvParams& params) {
  Admission admitted(static_cast<size_t>(tensors.kv_heads()));
  const int64_t tokens = tensors.prompt_tokens() + tensors.steps();
  for (int head = 0; head < tensors.kv_heads(); ++head) {
    const uint64_t stream =
        SplitMix(SplitMix(static_cast<uint64_t>(params.seed) + 1) +
                 (static_cast<uint64_t>(tensors.layer()) << 32) + static_cast<uint64_t>(head));
    for (int64_t token = 0; token < tokens; ++token) {
      const uint64_t draw = SplitMix(stream + (static_cast<uint64_t>(token) + 1) * kSplitMixStep);
      const double uniform = static_cast<double>(draw >> 11) * 0x1p-53;
      admitted[head].push_back(uniform >= params.sparsity ? 1 : 0);
    }
  }
  return admitted;
}

// Keys of a head as panels of kPanel tokens.
std::vector<float> PackKeys(const LayerTensors& tensors, int head, int64_t tokens) {
  const int64_t dim = tensors.head_dim();
  const int64_t panels = (tokens + kPanel - 1) / kPanel;
  std::vector<float> packed(static_cast<size_t>(panels * kPanel * dim));
  std::vector<float> keys(static_cast<size_t>(kPanel * dim));
  for (int64_t p = 0; p < panels; ++p) {
    const int64_t count = std::min(kPanel, tokens - p * kPanel);
    tensors.ReadKeys(head, p * kPanel, count, keys.data());
    PackPanel(keys.data(), count, dim, packed.data() + p * kPanel * dim);
  }
  return packed;
}

// Mean weight that each token gets from queries that are at least `window` tokens later.
std::vector<float> LaterAttention(const LayerTensors& tensors, int head, int64_t window) {
  const int64_t dim = tensors.head_dim();
  const int64_t tokens = tensors.prompt_tokens() + tensors.steps();
  const std::vector<float> keys = PackKeys(tensors, head, tokens);
  const auto stride = static_cast<int64_t>(keys.size()) / dim;
  std::vector<double> sums(static_cast<size_t>(tokens));
  std::vector<float> rows(static_cast<size_t>(kRowBlock * dim));
  std::vector<float> dots(static_cast<size_t>(kRowBlock * stride));
  for (int g = 0; g < tensors.group(); ++g) {
    for (int64_t begin = tensors.prompt_tokens(); begin < tokens; begin += kRowBlock) {
      const int64_t count = std::min(kRowBlock, tokens - begin);
      for (int64_t r = 0; r < count; ++r) {
        std::ranges::copy(tensors.Query(head * tensors.group() + g, begin + r),
                          rows.begin() + r * dim);
      }
      for (int64_t p = 0; p < stride; p += kPanel) {
        PanelDots(rows.data(), count, dim, keys.data() + p * dim, std::min(kPanel, tokens - p),
                  dots.data() + p, stride);
      }
      for (int64_t r = 0; r < count; ++r) {
        float* row = dots.data() + r * stride;
        const int64_t context = begin + r + 1;
        const float most = *std::max_element(row, row + context);
        double total = 0;
        for (int64_t t = 0; t < context; ++t) {
          row[t] = std::exp(tensors.softmax_scale() * (row[t] - most));
          total += row[t];
        }
        for (int64_t t = 0; t + window < context; ++t) sums[t] += row[t] / total;
      }
    }
  }
  std::vector<float> mean(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t queries = tokens - std::max(tensors.prompt_tokens(), t + window);
    if (queries > 0) mean[t] = static_cast<float>(sums[t] / static_cast<double>(queries));
  }
  return mean;
}

Admission Oracle(const LayerTensors& tensors, const WgKvParams& params) {
  const int64_t tokens = tensors.prompt_tokens() + tensors.steps();
  const int64_t leaving = std::max<int64_t>(0, tokens - params.window);
  Admission admitted(static_cast<size_t>(tensors.kv_heads()),
                     std::vector<uint8_t>(static_cast<size_t>(tokens)));
  std::vector<float> scores(static_cast<size_t>(tensors.kv_heads() * leaving));
  tbb::parallel_for(0, tensors.kv_heads(), [&](int head) {
    const std::vector<float> mean = LaterAttention(tensors, head, params.window);
    std::copy(mean.begin(), mean.begin() + leaving, scores.begin() + head * leaving);
  });
  const auto count = std::llround((1 - params.sparsity) * static_cast<double>(scores.size()));
  for (const uint32_t at : Best(scores, 0, count)) admitted[at / leaving][at % leaving] = 1;
  return admitted;
}

void Normalise(const float* in, const std::vector<float>& weight, float* out) {
  const auto dim = static_cast<int64_t>(weight.size());
  float squares = 0;
  for (int64_t i = 0; i < dim; ++i) squares += in[i] * in[i];
  const float factor = 1 / std::sqrt(squares / static_cast<float>(dim) + kNormEpsilon);
  for (int64_t i = 0; i < dim; ++i) {
    out[i] = RoundToBf16(in[i] * factor * weight[static_cast<size_t>(i)]);
  }
}

Admission Learned(const LayerTensors& tensors, const WgKvParams& params) {
  const int64_t dim = tensors.head_dim(), inputs = 2 * dim, hidden = params.expand * dim;
  const int64_t tokens = tensors.prompt_tokens() + tensors.steps();
  const int64_t panels = (hidden + kPanel - 1) / kPanel;
  const GateWeights mlp = ReadGate(params, tensors.layer(), tensors.kv_heads(), dim);
  // sigmoid(x) >= threshold, without the sigmoid.
  const double least = std::log(params.threshold / (1 - params.threshold));
  Admission admitted(static_cast<size_t>(tensors.kv_heads()),
                     std::vector<uint8_t>(static_cast<size_t>(tokens)));
  tbb::parallel_for(0, tensors.kv_heads(), [&](int head) {
    std::vector<float> packed(static_cast<size_t>(panels * kPanel * inputs));
    for (int64_t p = 0; p < panels; ++p) {
      PackPanel(mlp.w1.data() + (head * hidden + p * kPanel) * inputs,
                std::min(kPanel, hidden - p * kPanel), inputs, packed.data() + p * kPanel * inputs);
    }
    tbb::parallel_for(int64_t{0}, (tokens + kRowBlock - 1) / kRowBlock, [&](int64_t block) {
      const int64_t begin = block * kRowBlock, count = std::min(kRowBlock, tokens - begin);
      std::vector<float> keys(static_cast<size_t>(count * dim)), before(keys.size());
      std::vector<float> rows(static_cast<size_t>(count * inputs));
      std::vector<float> dots(static_cast<size_t>(kRowBlock * panels * kPanel));
      tensors.ReadKeys(head, begin, count, keys.data());
      ReadKeysBeforeRope(tensors, head, begin, count, before.data());
      for (int64_t r = 0; r < count; ++r) {
        Normalise(before.data() + r * dim, mlp.pre_norm, rows.data() + r * inputs);
        Normalise(keys.data() + r * dim, mlp.post_norm, rows.data() + r * inputs + dim);
      }
      for (int64_t p = 0; p < panels; ++p) {
        PanelDots(rows.data(), count, inputs, packed.data() + p * kPanel * inputs,
                  std::min(kPanel, hidden - p * kPanel), dots.data() + p * kPanel, panels * kPanel);
      }
      for (int64_t r = 0; r < count; ++r) {
        double score = mlp.b2[static_cast<size_t>(head)];
        for (int64_t j = 0; j < hidden; ++j) {
          const auto at = static_cast<size_t>(head * hidden + j);
          const double x = dots[static_cast<size_t>(r * panels * kPanel + j)] + mlp.b1[at];
          score += 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)) * mlp.w2[at];
        }
        admitted[head][begin + r] = score >= least ? 1 : 0;
      }
    });
  });
  return admitted;
}

}  // namespace

GateWeights ReadGate(const WgKvParams& params, int layer, int64_t heads, int64_t dim) {
  const llm::SafeTensors file(params.gate_file);
  const int64_t hidden = params.expand * dim;
  const std::string in_layer = fmt::format("layers.{}.", layer);
  const auto read = [&](const std::string& ending, std::vector<int64_t> shape,
                        bool optional) -> std::vector<float> {
    std::string name;
    for (const std::string& each : file.names()) {
      if (each.find(in_layer) != std::string::npos && each.ends_with(ending)) name = each;
    }
    if (name.empty()) {
      if (optional) return std::vector<float>(static_cast<size_t>(shape[0]), 1.0f);
      throw UsageError(fmt::format("layer {} has no {}", layer, ending), file.path().string(),
                       "give a file with a gate for every layer of the trace");
    }
    llm::WeightTensor tensor = file.Read(name);
    if (tensor.shape != shape) {
      throw UsageError(fmt::format("{} is [{}], not [{}]", name, fmt::join(tensor.shape, ", "),
                                   fmt::join(shape, ", ")),
                       file.path().string(),
                       "give the gate of this model, or its width with expand");
    }
    if (!std::ranges::all_of(tensor.values, [](float w) { return std::isfinite(w); })) {
      throw Error(fmt::format("{} is not finite", name), file.path().string(), "store it again");
    }
    for (float& w : tensor.values) w = RoundToBf16(w);
    return std::move(tensor.values);
  };
  return {.w1 = read("conv1.weight", {heads * hidden, 2 * dim, 1}, false),
          .b1 = read("conv1.bias", {heads * hidden}, false),
          .w2 = read("conv2.weight", {heads, hidden, 1}, false),
          .b2 = read("conv2.bias", {heads}, false),
          .pre_norm = read("pre_key_norm.weight", {dim}, true),
          .post_norm = read("post_key_norm.weight", {dim}, true)};
}

Admission Admit(const LayerTensors& tensors, const WgKvParams& params) {
  switch (params.gate) {
    case WgKvParams::Gate::kRandom:
      return Random(tensors, params);
    case WgKvParams::Gate::kOracle:
      return Oracle(tensors, params);
    case WgKvParams::Gate::kMlp:
      break;
  }
  return Learned(tensors, params);
}

}  // namespace stallcast::methods
