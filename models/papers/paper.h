// Published experiments as configurations: one TOML file a paper in this folder, a [[row]] each
// figure that the paper prints. What a paper leaves open is an assumption in its file; no value was
// chosen to meet a result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/methods/param.h"
#include "traces/timeline.h"

namespace stallcast::papers {

/// Statistics of the synthetic queries and keys that stand for a paper's model and data.
struct Condition {
  std::string name;
  double similarity = 0;        ///< mean cosine of queries of adjacent steps
  double segment_length = 0;    ///< mean steps between jumps of a head's query
  double head_correlation = 0;  ///< share of jumps that all heads of a layer make together
  int32_t spread = 0;           ///< units that carry the long-range attention of a query
  std::string source;           ///< which of these the paper says, which are assumed
};

/// What is run once for each model and batch of a row.
struct Run {
  std::string name;
  std::string method;
  methods::ParamValues params;
  std::string model;
  std::string condition;
  int64_t prompt = 0, generated = 0;  ///< tokens a sequence
  /// Decode steps between two times of what a method does seldom, which steps bear in equal parts;
  /// 0: nothing.
  int64_t interval = 0;
  int32_t batch = 1;
};

/// What is compared. Of two runs A (`runs`) and B (`against`), unless said otherwise.
enum class Metric : uint8_t {
  kStep,             ///< ms of a decode step of A, mean over the generation
  kStepRatio,        ///< step B / A
  kEndToEndRatio,    ///< prefill and all steps, B / A
  kPrefillRatio,     ///< time to the first token, B / A
  kThroughputRatio,  ///< most tokens per second over the batches that fit, A / B
  kLayerPrefill,     ///< ms that A's prefill takes longer than B's, a layer
  kMemoryReduction,  ///< 1 - GPU memory A / B
  kRoleShare,        ///< share of A's step that the critical path spends in `roles`
  kFits,             ///< 1 if A fits the machine, else 0
};
/// As in the files: "step ratio".
std::string_view Name(Metric metric);
/// "ms", "x" or empty.
std::string_view Unit(Metric metric);

struct Row {
  std::string id;  ///< "freekv-hl"; with ":case" where the paper gives several values
  std::string what;
  std::string where;         ///< section, table or figure
  std::string published_as;  ///< as printed: "up to 13.7 x"
  /// Empty: the figure is an input of the predictions, as `input` says.
  std::optional<Metric> metric;
  std::string input;
  double published = 0;
  /// Names of runs, pairwise. Several pairs, models or batches: the largest value counts, as the
  /// papers say "up to"; what does not fit the machine is left out.
  std::vector<std::string> runs, against;
  std::vector<std::string> models;  ///< instead of the runs' own
  std::vector<int32_t> batches;     ///< likewise
  std::vector<traces::Role> roles;  ///< of kRoleShare
  std::vector<std::string> assumptions;
  std::string explanation;  ///< where the prediction is off by more than 25 %: why
};

struct Paper {
  std::string name;     ///< "freekv"
  std::string title;    ///< "FreeKV"
  std::string source;   ///< where it was published
  std::string machine;  ///< profile that stands for its machine
  std::vector<std::string> assumptions;
  std::vector<Condition> conditions;
  std::vector<Run> runs;
  std::vector<Row> rows;

  const Run& FindRun(std::string_view name) const;
  const Condition& FindCondition(std::string_view name) const;
};

/// Reads a file. Unknown or missing keys, values out of range, names of runs, conditions, models or
/// machines that do not exist: Errors naming file, line and remedy. Methods may be unknown: those
/// are not built.
Paper LoadPaper(const std::filesystem::path& path);
/// The shipped papers, by name.
std::vector<Paper> ShippedPapers();
/// Where they are.
std::filesystem::path PaperFolder();

}  // namespace stallcast::papers
