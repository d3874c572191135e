// Published experiments predicted: the figures follow from the runs, and no row is left out.
#include "sim/reproduce.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/explanation.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using papers::Metric;
using papers::Paper;
using papers::Row;
using Status = Reproduction::Status;

papers::Run RunOf(std::string name, std::string method, int64_t prompt, int64_t generated) {
  return {std::move(name), std::move(method), {}, "llama-3.1-8b", "any", prompt, generated, 0, 1};
}

Row RowOf(Metric metric, std::vector<std::string> runs, std::vector<std::string> against = {}) {
  Row row;
  row.id = std::string(Name(metric));
  row.metric = metric;
  row.published = 2;
  row.runs = std::move(runs);
  row.against = std::move(against);
  return row;
}

Paper Toy() {
  Paper paper;
  paper.name = "toy";
  paper.machine = "h200";
  paper.conditions = {{"any", 0.9, 8, 0.5, 4, "assumed"}};
  paper.runs = {RunOf("full", "full", 32768, 100), RunOf("streaming", "streaming", 32768, 100),
                RunOf("long", "full", 1000, 20000), RunOf("huge", "full", 4'000'000, 1)};
  return paper;
}

Reproduction Only(const Paper& paper) { return Reproduce({&paper, 1}, {.steps = 4}).at(0); }

TEST(Reproduce, ExplanationsNameWhatIsPredicted) {
  Row row;
  row.id = "toy";
  Reproduction r;
  r.row = &row;
  r.runs.resize(2);
  r.runs[0].step = Picoseconds(1'540'000'000);
  r.runs[1].exposed[static_cast<size_t>(traces::Role::kRecall)] = Picoseconds(250'000'000);
  row.explanation = "{0.step} ms, {1.recall} of them recall";
  EXPECT_EQ(Explanation(r), "1.5 ms, 0.2 of them recall");
  for (const char* wrong : {"{2.step}", "{0.stop}", "{", "a {0.step", "{}", "{x.step}"}) {
    row.explanation = wrong;
    EXPECT_THROW(Explanation(r), Error) << wrong;
  }
}

TEST(Reproduce, ValuesFollowFromTheRuns) {
  Paper paper = Toy();
  paper.rows = {RowOf(Metric::kStep, {"streaming"}),
                RowOf(Metric::kStepRatio, {"streaming"}, {"full"}),
                RowOf(Metric::kEndToEndRatio, {"streaming"}, {"full"}),
                RowOf(Metric::kPrefillRatio, {"streaming"}, {"full"}),
                RowOf(Metric::kLayerPrefill, {"streaming"}, {"full"}),
                RowOf(Metric::kMemoryReduction, {"streaming"}, {"full"}),
                RowOf(Metric::kFits, {"full"})};
  const std::vector<Reproduction> rows = Reproduce({&paper, 1}, {.steps = 4});
  const ReproducedRun &a = rows.at(1).runs.at(0), &b = rows.at(1).runs.at(1);
  EXPECT_EQ(a.run.method, "streaming");
  EXPECT_LT(a.step, b.step);
  EXPECT_DOUBLE_EQ(rows[0].predicted, Seconds(a.step) * 1e3);
  EXPECT_DOUBLE_EQ(rows[0].ratio, rows[0].predicted / 2);
  EXPECT_DOUBLE_EQ(rows[1].predicted, Seconds(b.step) / Seconds(a.step));
  EXPECT_DOUBLE_EQ(rows[2].predicted,
                   Seconds(b.prefill + 100 * b.step) / Seconds(a.prefill + 100 * a.step));
  EXPECT_DOUBLE_EQ(rows[3].predicted, Seconds(b.prefill) / Seconds(a.prefill));
  EXPECT_NEAR(rows[4].predicted, Seconds(a.prefill - b.prefill) * 1e3 / 32, 1e-12);
  // Beside 16.06 GB of weights, full attention holds 32,868 tokens of 128 KiB, streaming 2,048.
  const auto &few = rows[5].runs.at(0), &all = rows[5].runs.at(1);
  EXPECT_NEAR(static_cast<double>(all.gpu_memory - few.gpu_memory), 4.31e9 - 0.27e9, 0.02e9);
  EXPECT_GT(few.gpu_memory, 16.06e9 + 0.27e9);  // and what a prompt's pass needs
  EXPECT_DOUBLE_EQ(rows[5].predicted,
                   1 - static_cast<double>(few.gpu_memory) / static_cast<double>(all.gpu_memory));
  EXPECT_EQ(rows[6].predicted, 1);
  EXPECT_TRUE(std::isnan(rows[6].ratio));
  EXPECT_TRUE(rows[6].off());  // 2 was published
}

TEST(Reproduce, RoleShareIsThePartOfTheCriticalPath) {
  Paper paper = Toy();
  paper.rows = {RowOf(Metric::kRoleShare, {"full"})};
  for (int role = 0; role < traces::kRoles; ++role) {
    paper.rows[0].roles.push_back(static_cast<traces::Role>(role));
  }
  EXPECT_NEAR(Only(paper).predicted, 1, 1e-3);
  paper.rows[0].roles = {traces::Role::kRecall};
  EXPECT_EQ(Only(paper).predicted, 0);
}

TEST(Reproduce, LongGenerationIsTheMeanOfItsQuarters) {
  Paper paper = Toy();
  paper.machine = "a100-40gb";  // without timed points: its laws are linear
  paper.rows = {RowOf(Metric::kStep, {"long"})};
  const double mean = Only(paper).predicted;
  // Full attention's step is linear in the context, so the middle's is the mean of the quarters'.
  paper.runs = {RunOf("long", "full", 11000, 1)};
  EXPECT_NEAR(mean, Only(paper).predicted, 1e-3 * mean);
}

TEST(Reproduce, TheLargestOfSeveralCasesCounts) {
  Paper paper = Toy();
  paper.rows = {RowOf(Metric::kStepRatio, {"streaming"}, {"full"})};
  paper.rows[0].batches = {1, 8};
  const Reproduction row = Only(paper);
  EXPECT_EQ(row.runs.at(0).run.batch, 8);  // attention weighs more, the more sequences there are
  EXPECT_EQ(row.runs.at(1).run.batch, 8);
}

TEST(Reproduce, ThroughputsAreComparedAtTheirBestBatchThatFits) {
  Paper paper = Toy();
  paper.rows = {RowOf(Metric::kThroughputRatio, {"streaming"}, {"full"})};
  paper.rows[0].batches = {1, 16, 64};
  const Reproduction row = Only(paper);
  EXPECT_EQ(row.runs.at(0).run.batch, 64);
  EXPECT_EQ(row.runs.at(1).run.batch, 16);  // 64 x 4.3 GB is more than an H200 has
  EXPECT_DOUBLE_EQ(row.predicted, row.runs[0].TokensPerSecond() / row.runs[1].TokensPerSecond());
}

TEST(Reproduce, RowsThatCannotBePredictedAreListed) {
  Paper paper = Toy();
  paper.runs.push_back(RunOf("clever", "clairvoyance", 1000, 1));
  Row input;
  input.id = "input";
  input.input = "a property of the data";
  paper.rows = {RowOf(Metric::kStepRatio, {"clever"}, {"full"}), input,
                RowOf(Metric::kStep, {"huge"}), RowOf(Metric::kFits, {"huge"})};
  const std::vector<Reproduction> rows = Reproduce({&paper, 1}, {.steps = 4});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].status, Status::kNotBuilt);
  EXPECT_EQ(rows[0].reason, "clairvoyance");
  EXPECT_EQ(rows[1].status, Status::kInput);
  EXPECT_EQ(rows[1].reason, "a property of the data");
  EXPECT_EQ(rows[2].status, Status::kNoRoom);
  EXPECT_EQ(rows[3].predicted, 0);
  for (const Reproduction& row : rows) EXPECT_TRUE(std::isnan(row.ratio)) << row.row->id;
  EXPECT_EQ(Summarize(rows).rows, 0);
}

// ShadowKV's decompositions come with the first step of an interval's next.
TEST(Reproduce, StepsBearInEqualPartsWhatComesOnceAnInterval) {
  Paper paper = Toy();
  papers::Run often = RunOf("often", "shadowkv", 8192, 128);
  often.params = {{"update", "32"}};
  papers::Run seldom = often, alone = often;
  often.interval = 32;
  seldom.name = "seldom", seldom.params["update"] = "64", seldom.interval = 64;
  alone.name = "alone", alone.params["update"] = "0", alone.interval = 64;
  paper.runs = {often, seldom, alone};
  paper.rows = {RowOf(Metric::kStep, {"often"}), RowOf(Metric::kStep, {"seldom"}),
                RowOf(Metric::kStep, {"alone"})};
  const std::vector<Reproduction> rows = Reproduce({&paper, 1});
  const auto index = [&](int row) {
    return Seconds(rows.at(row).runs.at(0).busy[static_cast<size_t>(traces::Role::kIndex)]);
  };
  EXPECT_GT(index(0), 0.01);
  EXPECT_NEAR(index(0) / index(1), 65.0 / 33, 0.01);
  EXPECT_EQ(index(2), 0);
}

TEST(Reproduce, WrongParametersNameTheRun) {
  Paper paper = Toy();
  paper.runs[1].params["window"] = "many";
  paper.rows = {RowOf(Metric::kStep, {"streaming"})};
  try {
    Only(paper);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "paper toy, run streaming");
  }
}

TEST(Reproduce, SummaryIsOfTheRatios) {
  const Row row = RowOf(Metric::kStep, {"full"});
  std::vector<Reproduction> rows(12);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].row = &row;
    if (i < 11) rows[i].ratio = 0.5 + 0.1 * static_cast<double>(i);  // 0.5, 0.6, ... 1.5
  }
  const RatioSummary summary = Summarize(rows);
  EXPECT_EQ(summary.rows, 11);
  EXPECT_EQ(summary.within, 5);  // 0.8 to 1.2
  EXPECT_NEAR(summary.p10, 0.6, 1e-9);
  EXPECT_NEAR(summary.p50, 1.0, 1e-9);
  EXPECT_NEAR(summary.p90, 1.4, 1e-9);
}

TEST(Reproduce, ShippedPapersArePredictedAndExplained) {
  const std::vector<Paper> papers = papers::ShippedPapers();
  const std::vector<Reproduction> rows = Reproduce(papers);
  EXPECT_GE(Summarize(rows).rows, 20);
  for (const Reproduction& row : rows) {
    SCOPED_TRACE(row.row->id);
    EXPECT_EQ(row.status == Status::kPredicted, std::isfinite(row.predicted));
    EXPECT_EQ(std::isfinite(row.ratio),
              row.status == Status::kPredicted && row.row->metric != Metric::kFits);
    // What is off or does not fit has a reason, and what is not has none left over.
    EXPECT_EQ(row.off() || row.status == Status::kNoRoom, !row.row->explanation.empty())
        << row.ratio;
  }

  for (const Reproduction& row : rows) {
    if (!row.off()) continue;
    EXPECT_EQ(Explanation(row).find('{'), std::string::npos) << row.row->id;
  }
}

}  // namespace
}  // namespace stallcast::sim
