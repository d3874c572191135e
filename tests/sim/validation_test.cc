// Predictions against what was measured on an H200 (capture/results/h200-*validation.csv and
// traces/measured): a change that makes them worse fails here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "sim/compare.h"
#include "sim/predict.h"
#include "sim/recorded_run.h"
#include "tests/models/methods/samples.h"
#include "traces/common/median.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

const std::filesystem::path kSource = STALLCAST_SOURCE_DIR;

using Row = std::map<std::string, std::string>;

std::vector<std::string> Split(const std::string& line, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(line);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<Row> ReadRows(const std::filesystem::path& path) {
  std::vector<Row> rows;
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> titles = Split(line, ',');
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = Split(line, ',');
    Row row;
    for (size_t i = 0; i < titles.size() && i < cells.size(); ++i) row[titles[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> MeasuredRuns() {
  std::vector<Row> rows;
  for (const char* name : {"h200-validation.csv", "h200-louiskv-prkv-validation.csv",
                           "h200-pariskv-wgkv-validation.csv"}) {
    std::ranges::move(ReadRows(kSource / "capture/results" / name), std::back_inserter(rows));
  }
  return rows;
}

PredictRequest RequestOf(const Row& row) {
  PredictRequest request;
  request.method = row.at("method");
  for (const std::string& param : Split(row.at("params"), ' ')) {
    const size_t equals = param.find('=');
    request.params[param.substr(0, equals)] = param.substr(equals + 1);
  }
  request.model = row.at("model");
  request.batch = std::stoi(row.at("batch"));
  request.steps = std::stoi(row.at("steps"));
  request.graph = row.at("graph") == "true";
  request.machine = "h200";
  request.prefill = false;
  // As all runs were made: with a layer's own heads and one threshold for every trace.
  request.repeat_heads = true;
  for (const auto& [method, tau] : {std::pair("freekv", "0.9"), std::pair("louiskv", "0.7")}) {
    if (request.method == method) request.params.emplace("tau", tau);
  }
  return request;
}

Predictor& PredictorOf(const std::string& sample) {
  static std::map<std::string, std::unique_ptr<Predictor>> predictors;
  std::unique_ptr<Predictor>& predictor = predictors[sample];
  if (!predictor) {
    PredictorOptions options;
    options.cache = false;
    predictor = std::make_unique<Predictor>(methods::kMeasuredTraces / sample, options);
  }
  return *predictor;
}

// Runs on traces that are kept; those on the synthetic trace of 64K are not repeated here.
TEST(Validation, StepTimesAreAsNearToTheMeasuredAsTheyWere) {
  const std::map<std::string, std::string> samples = {{"8192", "code-8k.kvt"},
                                                      {"32000", "code-32k.kvt"}};
  int compared = 0;
  std::vector<double> errors;
  for (const Row& row : MeasuredRuns()) {
    const auto sample = samples.find(row.at("context"));
    if (sample == samples.end()) continue;
    SCOPED_TRACE(row.at("method") + " " + row.at("params") + " context " + row.at("context") +
                 " batch " + row.at("batch"));
    const Prediction prediction = PredictorOf(sample->second).Predict(RequestOf(row));
    const double measured = std::stod(row.at("measured_ms"));
    const double error = Seconds(prediction.metrics.step_mean) * 1e3 / measured - 1;
    const double recorded = std::stod(row.at("error_percent")) / 100;
    EXPECT_LE(std::abs(error), std::abs(recorded) + 0.005);
    errors.push_back(std::abs(error));
    ++compared;
  }
  ASSERT_GE(compared, 79);
  EXPECT_LE(Median(errors), 0.03);
}

// The recordings were made by the executor from the same plans: each op has its twin, as near as it
// was when capture/results/residuals.py wrote residuals.csv.
TEST(Validation, EveryOpOfAPlanIsFoundInItsRecordingAsNearAsItWas) {
  constexpr double kMore = 0.005;
  std::map<std::string, std::map<std::string, double>> recordings;
  for (const Row& row : ReadRows(kSource / "traces/measured/residuals.csv")) {
    recordings[row.at("recording")][row.at("op")] = std::stod(row.at("median_relative"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "traces/measured")) {
    if (entry.path().extension() == ".kvt") {
      EXPECT_TRUE(recordings.contains(entry.path().stem())) << entry.path();
    }
  }
  ASSERT_GE(recordings.size(), 11U);
  for (const auto& [file, were] : recordings) {
    SCOPED_TRACE(file);
    const traces::Trace recorded = traces::ReadTrace(kSource / "traces/measured" / (file + ".kvt"));
    ASSERT_EQ(recorded.timelines.size(), 1U);
    PredictRequest request = RunOf(recorded.info, file).request;
    request.prefill = false;
    request.machine_overrides = {{"host.recorded", "1"}};
    traces::Timeline predicted;
    PredictorOf("code-8k.kvt").Predict(request, &predicted);
    const Comparison comparison =
        Compare(Predicted<const traces::Timeline*>{&predicted},
                Measured<const traces::Timeline*>{&recorded.timelines[0]});
    EXPECT_TRUE(comparison.only_predicted.value.empty());
    EXPECT_EQ(comparison.steps.size(), static_cast<size_t>(request.steps));
    ASSERT_TRUE(comparison.exposed);
    std::map<std::string, double> are;
    for (const ResidualSummary& group : Summarize(comparison, GroupBy::kName)) {
      are[group.group] = group.median_relative;
    }
    for (const auto& [op, median] : were) {
      ASSERT_TRUE(are.contains(op)) << op;
      EXPECT_LE(are[op], median + kMore) << op;
    }
    EXPECT_TRUE(WithinExposedGoal(comparison.exposed->role(traces::Role::kRecall)));
    // What a product or an attention takes is known best: half of them within 8 %, but of what
    // LouisKV and full offload attend, which has just come from the host and is in the cache in
    // part: 7.0 us instead of 7.4, and 12.0 instead of 13.3.
    EXPECT_LE(are["gemm"], 0.08);
    if (file != "louiskv" && file != "offload") {
      EXPECT_LE(are["decode_attention"], 0.08);
    }
  }
}

}  // namespace
}  // namespace stallcast::sim
