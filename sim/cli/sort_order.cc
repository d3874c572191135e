#include "sim/cli/sort_order.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "sim/names.h"

namespace stallcast::cli {
namespace {

struct ShortKey {
  std::string_view key, field;
};
constexpr std::array kShort = {
    ShortKey{"time", "step_mean_ms"},   ShortKey{"tokens", "tokens_per_second"},
    ShortKey{"mass", "attention_mass"}, ShortKey{"gpu", "gpu_bytes"},
    ShortKey{"host", "host_bytes"},     ShortKey{"exposed", "exposed_ms"},
    ShortKey{"recall", "recall_bytes"}, ShortKey{"prefill", "prefill_s"}};

// More of these is better; of all others less.
constexpr std::array<std::string_view, 7> kLargestFirst = {
    "fits",           "tokens_per_second", "hit_rate",
    "attention_mass", "query_similarity",  "largest_context_tokens",
    "largest_batch"};

}  // namespace

SortOrder::SortOrder() : SortOrder("time") {}

SortOrder::SortOrder(std::string_view key) {
  std::string_view name = key;
  std::vector<std::string> known;
  for (const ShortKey& each : kShort) {
    known.emplace_back(each.key);
    if (each.key == key) name = each.field;
  }
  const auto fields = sim::PredictionFields();
  for (const sim::PredictionField& field : fields) known.push_back(field.name);
  const auto at = std::find_if(fields.begin(), fields.end(),
                               [&](const sim::PredictionField& f) { return f.name == name; });
  if (at == fields.end()) sim::CheckName("key", key, known, "--sort");
  field_ = &*at;
  largest_first_ =
      std::find(kLargestFirst.begin(), kLargestFirst.end(), name) != kLargestFirst.end();
}

bool SortOrder::Before(double a, double b) const {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return largest_first_ ? a > b : a < b;
}

void AddSort(CLI::App& command, SortOrder& order) {
  command
      .add_option_function<std::string>(
          "--sort", [&order](const std::string& key) { order = SortOrder(key); },
          "Sort by time (default), tokens, mass, gpu, host, exposed, recall, prefill, or any name "
          "in --format json")
      ->type_name("KEY")
      ->group("Output");
}

}  // namespace stallcast::cli
