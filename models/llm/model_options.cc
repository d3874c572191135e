#include "models/llm/model_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <vector>

#include "models/llm/widths.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

constexpr int32_t kMostQueries = 64;

std::string Where(std::string_view option) { return fmt::format("--{}", option); }

double Number(std::string_view text, std::string_view option, double least, double most) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) return value;
  throw UsageError(fmt::format("'{}' is no number from {} to {}", text, least, most), Where(option),
                   fmt::format("give {} to {}", least, most));
}

void SetKv(std::string_view value, Model& model) {
  model.kv = WidthNamed(value, /*for_kv=*/true, Where("kv-dtype"));
}

void SetWeights(std::string_view value, Model& model) {
  model.weights = WidthNamed(value, /*for_kv=*/false, Where("weight-dtype"));
  if (model.experts) model.experts->width = model.weights;
  std::erase_if(model.notes,
                [](const std::string& note) { return note.starts_with("weights of "); });
  model.notes.push_back(
      fmt::format("weights of all layers: {}, as asked; embeddings and norms are "
                  "bf16",
                  value));
}

void SetQueries(std::string_view value, Model& model) {
  const double queries = Number(value, "queries", 1, kMostQueries);
  if (queries != std::floor(queries)) {
    throw UsageError(fmt::format("'{}' is no whole number", value), Where("queries"),
                     "give a number of tokens");
  }
  model.queries = static_cast<int32_t>(queries);
  model.accepted = 1;
}

void SetAccepted(std::string_view value, Model& model) {
  model.accepted = Number(value, "accepted", 1, kMostQueries);
  if (model.accepted <= model.queries) return;
  throw UsageError(fmt::format("{} tokens cannot be kept of {} a step", value, model.queries),
                   Where("accepted"), "give at most --queries");
}

// Numbers by spaces, commas or lines: how many tokens took each expert.
void SetRouting(std::string_view value, Model& model) {
  const std::string where = Where("routing");
  if (!model.experts) {
    throw UsageError(fmt::format("{} has no experts", model.title), where, "leave it out");
  }
  if (value == "uniform") {
    model.experts->taken.clear();
    return;
  }
  std::ifstream file{std::string(value)};
  if (!file) {
    throw UsageError(fmt::format("'{}' cannot be read", value), where,
                     "give uniform, or a file with the number of tokens that took each expert");
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  std::ranges::replace(text, ',', ' ');
  std::vector<double> taken;
  double sum = 0;
  for (size_t at = 0; (at = text.find_first_not_of(" \t\r\n", at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    sum +=
        taken.emplace_back(Number(std::string_view(text).substr(at, end - at), "routing", 0, 1e15));
    at = end;
  }
  if (taken.size() != static_cast<size_t>(model.experts->count) || !(sum > 0)) {
    throw UsageError(
        fmt::format("{} counts in '{}', for {} experts", taken.size(), value, model.experts->count),
        where, "give one count an expert, not all zero");
  }
  model.experts->taken = std::move(taken);
}

void SetChunk(std::string_view value, Model& model) {
  model.prefill_chunk = static_cast<int64_t>(Number(value, "prefill-chunk", 0, 1 << 30));
}

std::string WidthHelp(std::string_view what, bool for_kv) {
  std::vector<std::string_view> names;
  for (const NamedWidth& each : Widths()) {
    if (each.kv || !for_kv) names.push_back(each.name);
  }
  return fmt::format("Width of {}: {} (default: the model's)", what, fmt::join(names, ", "));
}

}  // namespace

std::span<const ModelOption> ModelOptions() {
  static const std::vector<ModelOption> options = {
      {"kv-dtype", "NAME", WidthHelp("keys and values", true), SetKv},
      {"weight-dtype", "NAME", WidthHelp("the layers' matrices", false), SetWeights},
      {"routing", "FILE",
       "Tokens that took each expert, a number each, for how many experts a step reads "
       "(default: uniform)",
       SetRouting},
      {"queries", "N", "Tokens of a sequence that a step runs, with speculation (default: 1)",
       SetQueries},
      {"prefill-chunk", "N",
       "Tokens of all prompts that the prefill runs together; 0: all (default: 8192)", SetChunk},
      {"accepted", "X", "How many of them a step keeps, the mean (default: 1)", SetAccepted},
  };
  return options;
}

Model WithOptions(Model model, const ModelValues& values) {
  for (const auto& [name, value] : values) {
    if (std::ranges::find(ModelOptions(), name, &ModelOption::name) != ModelOptions().end())
      continue;
    std::vector<std::string_view> known;
    for (const ModelOption& option : ModelOptions()) known.push_back(option.name);
    throw UsageError(fmt::format("a model has no option '{}'", name), "model",
                     fmt::format("known: {}", fmt::join(known, ", ")));
  }
  for (const ModelOption& option : ModelOptions()) {
    const auto value = values.find(std::string(option.name));
    if (value != values.end()) option.apply(value->second, model);
  }
  return model;
}

}  // namespace stallcast::llm
