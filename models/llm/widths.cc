#include "models/llm/widths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace stallcast::llm {
namespace {

using plan::Width;

constexpr std::array kWidths = {
    NamedWidth{"bf16", {}, true, "16 bits (fp16 is the same)"},
    NamedWidth{"fp32", {.bits = 32}, false, "32 bits"},
    NamedWidth{"fp8", {.bits = 8}, true, "8 bits, one scale a tensor or channel"},
    NamedWidth{"int8",
               {.bits = 8, .group = 128, .scale_bits = 32},
               true,
               "8 bits, a scale of 32 bits for 128"},
    NamedWidth{"q8_0",
               {.bits = 8, .group = 32, .scale_bits = 16},
               true,
               "llama.cpp: 8 bits, a scale of 16 bits for 32"},
    NamedWidth{"int4",
               {.bits = 4, .group = 128, .scale_bits = 20},
               false,
               "AWQ and GPTQ: 4 bits, a scale of 16 and a zero point of 4 bits for 128"},
    NamedWidth{"q4_0",
               {.bits = 4, .group = 32, .scale_bits = 16},
               true,
               "llama.cpp: 4 bits, a scale of 16 bits for 32"},
    NamedWidth{"mxfp4",
               {.bits = 4, .group = 32, .scale_bits = 8},
               false,
               "4 bits, a scale of 8 bits for 32"},
    NamedWidth{"nvfp4",
               {.bits = 4, .group = 16, .scale_bits = 8},
               true,
               "4 bits, a scale of 8 bits for 16"},
    NamedWidth{"nf4",
               {.bits = 4, .group = 64, .scale_bits = 32},
               false,
               "bitsandbytes: 4 bits, a scale of 32 bits for 64"},
};

constexpr int32_t kScaleBits = 16;

int32_t Bits(const Config& config, const char* name, int64_t fallback) {
  const int64_t bits = config.Count(name).value_or(fallback);
  if (bits < 1 || bits > 16) throw config.Fail(fmt::format("{} is {}: use 1 to 16", name, bits));
  return static_cast<int32_t>(bits);
}

// -1, which stands for whole channels, and what is left out: no scales worth counting.
int32_t Group(const Config& config) {
  const auto found = config.json().find("group_size");
  if (found == config.json().end() || !found->is_number_integer() || *found <= 0) return 0;
  return static_cast<int32_t>(std::min<int64_t>(found->get<int64_t>(), 1 << 20));
}

Width Grouped(int32_t bits, int32_t group, int32_t scale_bits) {
  return group > 0 ? Width{bits, group, scale_bits} : Width{.bits = bits};
}

Width Gptq(const Config& config) {
  const int32_t bits = Bits(config, "bits", Bits(config, "w_bit", 4));
  return Grouped(bits, Group(config), kScaleBits + bits);  // a zero point has the weights' bits
}

Width Fp8(const Config& config) {
  const std::vector<int64_t> block = config.Counts("weight_block_size");
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) return {.bits = 8};
  const int64_t group = std::min<int64_t>(block[0], 1 << 15) * std::min<int64_t>(block[1], 1 << 15);
  return {.bits = 8,
          .group = static_cast<int32_t>(std::min<int64_t>(group, 1 << 30)),
          .scale_bits = 32};
}

Width BitsAndBytes(const Config& config) {
  if (config.Flag("load_in_8bit", false) || config.Flag("_load_in_8bit", false)) {
    return {.bits = 8};
  }
  if (config.Flag("load_in_4bit", false) || config.Flag("_load_in_4bit", false)) {
    const bool twice = config.Flag("bnb_4bit_use_double_quant", false);
    return {.bits = 4, .group = 64, .scale_bits = twice ? 8 : 32};
  }
  throw config.Fail("quantization_config of bitsandbytes says neither load_in_8bit nor _4bit");
}

// The groups of compressed-tensors and modelopt share a form; all must agree.
Width CompressedTensors(const Config& config) {
  std::optional<Width> all;
  const Config groups = config.Inside("config_groups");
  for (const auto& [name, group] : groups.json().items()) {
    const Config of_group = groups.Inside(name.c_str());
    const Config weights = of_group.Inside("weights");
    if (weights.empty()) continue;
    const int32_t bits = Bits(weights, "num_bits", 8), size = Group(weights);
    const bool fp4 = bits == 4 && weights.Text("type") == "float";
    const Width width = Grouped(bits, size, fp4 ? 8 : kScaleBits);
    if (all && *all != width) {
      throw config.Fail("quantization_config has groups of different widths (config_groups)");
    }
    all = width;
  }
  if (!all) throw config.Fail("quantization_config says no width (config_groups)");
  return *all;
}

std::optional<Width> ModelOpt(const std::string& algorithm) {
  if (algorithm == "FP8" || algorithm == "FP8_PB_WO") return Width{.bits = 8};
  if (algorithm == "NVFP4" || algorithm == "FP4") return WidthNamed("nvfp4", false, "");
  if (algorithm == "MXFP4") return WidthNamed("mxfp4", false, "");
  if (algorithm == "W4A16_AWQ" || algorithm == "W4A8_AWQ") return WidthNamed("int4", false, "");
  if (algorithm == "INT8_SQ" || algorithm == "W8A8_SQ_PER_CHANNEL") return Width{.bits = 8};
  return std::nullopt;
}

// What the KV cache is kept in where the file says it.
std::optional<Width> KvOf(const Config& config) {
  const Config scheme = config.Inside("kv_cache_scheme");
  if (!scheme.empty()) return Width{.bits = Bits(scheme, "num_bits", 8)};
  const std::string algorithm = config.Text("kv_cache_quant_algo");
  if (algorithm.empty()) return std::nullopt;
  if (const std::optional<Width> width = ModelOpt(algorithm)) return width;
  if (algorithm == "INT8") return Width{.bits = 8};
  throw config.Fail(fmt::format("kv_cache_quant_algo '{}' is not known", algorithm));
}

// Names of modules that stay as they are, but for those that are bf16 here anyway.
size_t LeftOut(const Config& config) {
  size_t count = 0;
  for (const char* list : {"modules_to_not_convert", "ignore", "exclude_modules"}) {
    for (const std::string& name : config.Texts(list)) {
      const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
      count += !(has("lm_head") || has("embed") || has("norm") || has("router") || has("gate") ||
                 has("vision") || has("visual") || has("multi_modal"));
    }
  }
  return count;
}

}  // namespace

std::span<const NamedWidth> Widths() { return kWidths; }

Width WidthNamed(std::string_view name, bool for_kv, std::string_view where) {
  if (name == "fp16" || name == "bfloat16" || name == "float16") name = "bf16";
  if (name == "fp8_e4m3" || name == "fp8_e5m2") name = "fp8";
  const auto found = std::ranges::find(kWidths, name, &NamedWidth::name);
  if (found != kWidths.end() && (found->kv || !for_kv)) return found->width;
  std::vector<std::string_view> known;
  for (const NamedWidth& each : kWidths) {
    if (each.kv || !for_kv) known.push_back(each.name);
  }
  throw UsageError(fmt::format("'{}' is no width of {}", name, for_kv ? "a KV cache" : "weights"),
                   std::string(where), fmt::format("give one of {}", fmt::join(known, ", ")));
}

std::string NameOf(const Width& width) {
  const auto found = std::ranges::find(kWidths, width, &NamedWidth::width);
  if (found != kWidths.end()) return std::string(found->name);
  if (width.group == 0) return fmt::format("{} bits", width.bits);
  return fmt::format("{} bits, {} for the scale of {}", width.bits, width.scale_bits, width.group);
}

void ApplyQuantization(const Config& config, Model& model) {
  std::string method = config.Text("quant_method");
  if (method.empty()) method = config.Text("quant_algo").empty() ? "" : "modelopt";
  Width width;
  bool experts_only = false;
  if (method == "fp8" || method == "fbgemm_fp8") {
    width = Fp8(config);
  } else if (method == "gptq" || method == "awq" || method == "gptq_marlin") {
    width = Gptq(config);
  } else if (method == "bitsandbytes") {
    width = BitsAndBytes(config);
  } else if (method == "compressed-tensors") {
    width = CompressedTensors(config);
  } else if (method == "mxfp4") {
    width = WidthNamed("mxfp4", false, "");
    experts_only = true;  // of gpt-oss, the one model that is published so
  } else if (method == "modelopt" || method == "modelopt_fp4") {
    const std::string algorithm = config.Text("quant_algo");
    if (const std::optional<Width> known = ModelOpt(algorithm)) {
      width = *known;
    } else if (algorithm.empty() && config.Has("config_groups")) {
      width = CompressedTensors(config);
    } else {
      throw config.Fail(fmt::format("quant_algo '{}' is not known", algorithm));
    }
  } else {
    throw config.Fail(method.empty() ? "quantization_config says no quant_method"
                                     : fmt::format("quant_method '{}' is not known", method));
  }
  if (experts_only && !model.experts) {
    throw config.Fail("mxfp4 is a width of experts, and the model has none");
  }
  if (!experts_only) model.weights = width;
  if (model.experts) model.experts->width = width;
  const std::string name = NameOf(width);
  model.notes.push_back(fmt::format("weights of {}: {}{}; embeddings and norms are bf16",
                                    experts_only ? "the experts" : "all layers", name,
                                    method == name ? "" : fmt::format(", by {}", method)));
  if (const size_t count = LeftOut(config); count > 0 && !experts_only) {
    model.notes.push_back(fmt::format(
        "quantization_config leaves {} named modules as they are: counted like the others", count));
  }
  if (const std::optional<Width> kv = KvOf(config)) model.kv = *kv;
}

}  // namespace stallcast::llm
