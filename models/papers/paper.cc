#include "models/papers/paper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <set>
#include <utility>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "models/toml_file.h"
#include "traces/common/error.h"
#include "traces/common/nearest.h"
#include "traces/common/shipped.h"

namespace stallcast::papers {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 256;  // of an array
constexpr int64_t kMostTokens = int64_t{1} << 30;
constexpr int64_t kMostInterval = 4096;  // steps of a synthetic trace
constexpr int64_t kMostSequences = 1024;

struct MetricText {
  std::string_view name, unit;
};
constexpr std::array<MetricText, 9> kMetrics = {{{"step", "ms"},
                                                 {"step ratio", "x"},
                                                 {"end-to-end ratio", "x"},
                                                 {"prefill ratio", "x"},
                                                 {"throughput ratio", "x"},
                                                 {"layer prefill", "ms"},
                                                 {"memory reduction", ""},
                                                 {"role share", ""},
                                                 {"fits", ""}}};

bool IsPair(Metric metric) {
  return metric != Metric::kStep && metric != Metric::kRoleShare && metric != Metric::kFits;
}

class Reader {
 public:
  explicit Reader(const fs::path& path)
      : path_(path.string()), root_(ReadToml(path, "paper's experiments")) {}

  Paper Read() {
    CheckKeys(root_, "the file",
              {"name", "title", "source", "machine", "assumptions", "condition", "run", "row"});
    Paper paper;
    paper.name = Text(root_, "name");
    paper.title = Text(root_, "title");
    paper.source = Text(root_, "source");
    paper.machine = Text(root_, "machine");
    Known(root_, "machine", paper.machine, hardware::ProfileNames());
    paper.assumptions = Texts(root_, "assumptions");
    for (const auto& [name, table] : Tables("condition")) {
      paper.conditions.push_back(ReadCondition(name, *table));
    }
    for (const auto& [name, table] : Tables("run")) {
      paper.runs.push_back(ReadRun(paper, name, *table));
    }
    const toml::node& rows = Get(root_, "row");
    if (!rows.is_array_of_tables()) Fail(rows, "row is not a list of tables", "write [[row]]");
    std::set<std::string> ids;
    for (const toml::node& row : *rows.as_array()) {
      paper.rows.push_back(ReadRow(paper, *row.as_table()));
      if (!ids.insert(paper.rows.back().id).second) {
        Fail(row, fmt::format("there are two rows '{}'", paper.rows.back().id), "rename one");
      }
    }
    return paper;
  }

 private:
  [[noreturn]] void Fail(const toml::node& node, std::string problem, std::string remedy) const {
    throw Error(std::move(problem), fmt::format("{}:{}", path_, node.source().begin.line),
                std::move(remedy));
  }

  void CheckKeys(const toml::table& table, std::string_view in,
                 std::initializer_list<std::string_view> known) const {
    for (const auto& [key, node] : table) {
      if (std::find(known.begin(), known.end(), key.str()) == known.end()) {
        Fail(node, fmt::format("unknown key '{}' in {}", key.str(), in),
             Suggestion(key.str(), {known.begin(), known.size()}));
      }
    }
  }

  void Known(const toml::table& table, std::string_view what, const std::string& name,
             const std::vector<std::string>& names) const {
    const std::vector<std::string_view> known(names.begin(), names.end());
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      Fail(table, fmt::format("there is no {} '{}'", what, name), Suggestion(name, known));
    }
  }
  template <typename Named>
  void Known(const toml::table& table, std::string_view what, const std::string& name,
             const std::vector<Named>& all) const {
    std::vector<std::string> names;
    for (const Named& each : all) names.push_back(each.name);
    Known(table, what, name, names);
  }

  const toml::node& Get(const toml::table& table, std::string_view key) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) Fail(table, fmt::format("'{}' is missing", key), "add it");
    return *node;
  }

  std::string Text(const toml::table& table, std::string_view key) const {
    const toml::node& node = Get(table, key);
    if (!node.is_string() || node.as_string()->get().empty()) {
      Fail(node, fmt::format("'{}' is not text", key), "quote it");
    }
    return node.as_string()->get();
  }
  std::string TextOr(const toml::table& table, std::string_view key, std::string text) const {
    return table.contains(key) ? Text(table, key) : std::move(text);
  }

  double Number(const toml::table& table, std::string_view key, double least, double most) const {
    const toml::node& node = Get(table, key);
    const std::optional<double> number = node.value<double>();
    if (!node.is_number() || !number || !(*number >= least && *number <= most)) {
      Fail(node, fmt::format("'{}' is not a number from {} to {}", key, least, most), "correct it");
    }
    return *number;
  }
  int64_t Whole(const toml::node& node, std::string_view key, int64_t most) const {
    const auto* number = node.as_integer();
    if (number == nullptr || number->get() < 1 || number->get() > most) {
      Fail(node, fmt::format("'{}' is not a whole number from 1 to {}", key, most), "correct it");
    }
    return number->get();
  }

  // Entries of an optional array.
  std::vector<const toml::node*> Array(const toml::table& table, std::string_view key) const {
    std::vector<const toml::node*> nodes;
    const toml::node* node = table.get(key);
    if (node == nullptr) return nodes;
    const toml::array* array = node->as_array();
    if (array == nullptr || array->empty() || array->size() > kMostEntries) {
      Fail(*node, fmt::format("'{}' is not an array of 1 to {}", key, kMostEntries), "correct it");
    }
    for (const toml::node& each : *array) nodes.push_back(&each);
    return nodes;
  }
  std::vector<std::string> Texts(const toml::table& table, std::string_view key) const {
    std::vector<std::string> texts;
    for (const toml::node* each : Array(table, key)) {
      if (!each->is_string()) Fail(*each, fmt::format("'{}' holds no text", key), "quote it");
      texts.push_back(each->as_string()->get());
    }
    return texts;
  }

  // [key.NAME] tables in the order of their names.
  std::vector<std::pair<std::string, const toml::table*>> Tables(std::string_view key) const {
    std::vector<std::pair<std::string, const toml::table*>> tables;
    const toml::node* outer = root_.get(key);
    if (outer == nullptr) return tables;
    if (!outer->is_table()) Fail(*outer, fmt::format("'{}' is no table", key), "name each");
    for (const auto& [name, node] : *outer->as_table()) {
      if (!node.is_table()) {
        Fail(node, fmt::format("'{}.{}' is no table", key, name.str()), "give it a section");
      }
      tables.emplace_back(name.str(), node.as_table());
    }
    return tables;
  }

  Condition ReadCondition(const std::string& name, const toml::table& table) const {
    CheckKeys(table, "condition." + name,
              {"similarity", "segment_length", "head_correlation", "spread", "source"});
    Condition condition;
    condition.name = name;
    condition.similarity = Number(table, "similarity", 0, 1);
    condition.segment_length = Number(table, "segment_length", 1, 1e6);
    condition.head_correlation = Number(table, "head_correlation", 0, 1);
    condition.spread = static_cast<int32_t>(Whole(Get(table, "spread"), "spread", 1 << 16));
    condition.source = Text(table, "source");
    return condition;
  }

  methods::ParamValues ReadParams(const toml::table& table) const {
    methods::ParamValues params;
    const toml::node* node = table.get("params");
    if (node == nullptr) return params;
    if (!node->is_table()) Fail(*node, "'params' is not { name = value }", "correct it");
    for (const auto& [name, value] : *node->as_table()) {
      std::string text;
      if (value.is_string()) {
        text = value.as_string()->get();
      } else if (value.is_integer()) {
        text = fmt::to_string(value.as_integer()->get());
      } else if (value.is_floating_point()) {
        text = fmt::to_string(value.as_floating_point()->get());
      } else {
        Fail(value, fmt::format("parameter '{}' is neither text nor number", name.str()),
             "quote it");
      }
      params.emplace(name.str(), std::move(text));
    }
    return params;
  }

  Run ReadRun(const Paper& paper, const std::string& name, const toml::table& table) const {
    CheckKeys(
        table, "run." + name,
        {"method", "params", "model", "condition", "prompt", "generated", "interval", "batch"});
    Run run;
    run.name = name;
    run.method = Text(table, "method");
    run.params = ReadParams(table);
    run.model = Text(table, "model");
    Known(table, "model", run.model, llm::ModelNames());
    run.condition = Text(table, "condition");
    Known(table, "condition", run.condition, paper.conditions);
    run.prompt = Whole(Get(table, "prompt"), "prompt", kMostTokens);
    run.generated = Whole(Get(table, "generated"), "generated", kMostTokens);
    if (const toml::node* interval = table.get("interval"); interval != nullptr) {
      run.interval = Whole(*interval, "interval", kMostInterval);
    }
    if (const toml::node* batch = table.get("batch"); batch != nullptr) {
      run.batch = static_cast<int32_t>(Whole(*batch, "batch", kMostSequences));
    }
    return run;
  }

  Row ReadRow(const Paper& paper, const toml::table& table) const {
    CheckKeys(table, "a row",
              {"id", "what", "where", "published", "published_as", "metric", "input", "runs",
               "against", "models", "batches", "roles", "assumptions", "explanation"});
    Row row;
    row.id = Text(table, "id");
    row.what = Text(table, "what");
    row.where = Text(table, "where");
    row.published_as = Text(table, "published_as");
    row.assumptions = Texts(table, "assumptions");
    row.explanation = TextOr(table, "explanation", "");
    row.input = TextOr(table, "input", "");
    if (!row.input.empty()) {
      if (table.contains("metric") || table.contains("runs")) {
        Fail(table, "a row is an input or has a metric and runs, not both", "leave one out");
      }
      return row;
    }
    row.metric = ReadMetric(table);
    row.published = Number(table, "published", 0, 1e9);
    row.runs = Texts(table, "runs");
    row.against = Texts(table, "against");
    if (row.runs.empty() || row.against.size() != (IsPair(*row.metric) ? row.runs.size() : 0)) {
      Fail(table,
           fmt::format("'{}' needs {}", Name(*row.metric),
                       IsPair(*row.metric) ? "as many 'against' as 'runs'" : "'runs' alone"),
           "correct runs and against");
    }
    for (const auto* names : {&row.runs, &row.against}) {
      for (const std::string& name : *names) Known(table, "run", name, paper.runs);
    }
    row.models = Texts(table, "models");
    for (const std::string& model : row.models) Known(table, "model", model, llm::ModelNames());
    for (const toml::node* batch : Array(table, "batches")) {
      row.batches.push_back(static_cast<int32_t>(Whole(*batch, "batches", kMostSequences)));
    }
    row.roles = ReadRoles(table);
    if (row.roles.empty() == (row.metric == Metric::kRoleShare)) {
      Fail(table, "'roles' belongs to the metric 'role share', and only there", "correct it");
    }
    return row;
  }

  Metric ReadMetric(const toml::table& table) const {
    const std::string name = Text(table, "metric");
    std::vector<std::string> names;
    for (const MetricText& metric : kMetrics) names.emplace_back(metric.name);
    Known(table, "metric", name, names);
    return static_cast<Metric>(std::find(names.begin(), names.end(), name) - names.begin());
  }

  std::vector<traces::Role> ReadRoles(const toml::table& table) const {
    std::vector<std::string> names;
    for (int role = 0; role < traces::kRoles; ++role) {
      names.emplace_back(traces::Name(static_cast<traces::Role>(role)));
    }
    std::vector<traces::Role> roles;
    for (const std::string& name : Texts(table, "roles")) {
      Known(table, "role", name, names);
      roles.push_back(
          static_cast<traces::Role>(std::find(names.begin(), names.end(), name) - names.begin()));
    }
    return roles;
  }

  std::string path_;
  toml::table root_;
};

// `all` holds it: LoadPaper() has checked every name.
template <typename Named>
const Named& Find(const std::vector<Named>& all, std::string_view name) {
  return *std::find_if(all.begin(), all.end(), [&](const Named& n) { return n.name == name; });
}

}  // namespace

std::string_view Name(Metric metric) { return kMetrics[static_cast<size_t>(metric)].name; }
std::string_view Unit(Metric metric) { return kMetrics[static_cast<size_t>(metric)].unit; }

const Run& Paper::FindRun(std::string_view run) const { return Find(runs, run); }
const Condition& Paper::FindCondition(std::string_view condition) const {
  return Find(conditions, condition);
}

Paper LoadPaper(const fs::path& path) { return Reader(path).Read(); }

fs::path PaperFolder() { return Shipped("models/papers"); }

std::vector<Paper> ShippedPapers() {
  std::vector<Paper> papers;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(PaperFolder(), error)) {
    if (entry.path().extension() == ".toml") papers.push_back(LoadPaper(entry.path()));
  }
  if (papers.empty()) {
    throw Error("there are no papers", PaperFolder().string(),
                "install Stallcast anew: its data folder is incomplete");
  }
  std::sort(papers.begin(), papers.end(),
            [](const Paper& a, const Paper& b) { return a.name < b.name; });
  return papers;
}

}  // namespace stallcast::papers
