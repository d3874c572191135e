// Published experiments: the shipped files are whole, and a wrong file is one line that says where.
#include "models/papers/paper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::papers {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Figures that the papers print about efficiency; one with several values has a row for each,
// named "id:value".
const std::set<std::string> kPublished = {"freekv-arkvale-max",
                                          "freekv-shadowkv-longgen",
                                          "freekv-shadowkv-longin",
                                          "freekv-hl",
                                          "freekv-db",
                                          "freekv-sr",
                                          "freekv-arkvale-share",
                                          "freekv-shadowkv-share",
                                          "louiskv-arkvale-llo",
                                          "louiskv-share",
                                          "louiskv-arkvale-share",
                                          "louiskv-sr",
                                          "louiskv-seglen-reason",
                                          "louiskv-seglen-qa",
                                          "prkv-arkvale-max",
                                          "prkv-bt",
                                          "prkv-2r-prefill",
                                          "pariskv-128k",
                                          "full-128k",
                                          "shadowkv-128k",
                                          "retroinfer-128k",
                                          "quest-128k",
                                          "magicpig-128k",
                                          "pqcache-128k",
                                          "pariskv-1m",
                                          "pariskv-pqcache-1m",
                                          "pariskv-magicpig-1m",
                                          "pariskv-bs1",
                                          "pariskv-peak",
                                          "pariskv-uva",
                                          "wgkv-decode",
                                          "wgkv-prefill",
                                          "wgkv-mem",
                                          "wgkv-oom",
                                          "headinfer-step",
                                          "shadowkv-full"};

TEST(Papers, EveryPublishedFigureHasItsRows) {
  std::set<std::string> ids, whole;
  for (const Paper& paper : ShippedPapers()) {
    EXPECT_FALSE(paper.assumptions.empty()) << paper.name;
    for (const Row& row : paper.rows) {
      EXPECT_TRUE(whole.insert(row.id).second) << row.id;
      ids.insert(row.id.substr(0, row.id.find(':')));
    }
  }
  EXPECT_EQ(ids, kPublished);
}

TEST(Papers, EveryRunIsOfSomeRow) {
  for (const Paper& paper : ShippedPapers()) {
    std::set<std::string> used;
    for (const Row& row : paper.rows) {
      used.insert(row.runs.begin(), row.runs.end());
      used.insert(row.against.begin(), row.against.end());
    }
    for (const auto& run : paper.runs) EXPECT_TRUE(used.contains(run.name)) << run.name;
  }
}

constexpr const char* kGood = R"(name = "toy"
title = "Toy"
source = "nowhere"
machine = "h200"
assumptions = ["none"]

[condition.any]
similarity = 0.9
segment_length = 8
head_correlation = 0.5
spread = 4
source = "assumed"

[run.sparse]
method = "quest"
params = { budget = 512, group = "max" }
model = "qwen3-4b"
condition = "any"
prompt = 4096
generated = 10
interval = 12

[run.all]
method = "full"
model = "qwen3-4b"
condition = "any"
prompt = 4096
generated = 10
batch = 2

[[row]]
id = "a"
what = "a ratio"
where = "1"
published_as = "2 x"
metric = "step ratio"
published = 2
runs = ["sparse"]
against = ["all"]
)";

class PaperFile : public testing::Test {
 protected:
  // kGood with one part replaced.
  fs::path With(const std::string& part, const std::string& other) {
    std::string text = kGood;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    std::ofstream(path_) << text.replace(at, part.size(), other);
    return path_;
  }

  void ExpectError(const std::string& part, const std::string& other, const std::string& message) {
    try {
      LoadPaper(With(part, other));
      ADD_FAILURE() << "'" << other << "' was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_THAT(error.what(), HasSubstr(path_.string() + ":")) << "says no line";
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }

  ScratchFolder folder_;
  fs::path path_ = folder_ / "paper.toml";
};

TEST_F(PaperFile, IsReadWhole) {
  const Paper paper = LoadPaper(With("none", "nothing left open"));
  EXPECT_EQ(paper.assumptions, std::vector<std::string>{"nothing left open"});
  const auto& run = paper.FindRun("sparse");
  EXPECT_EQ(run.params, (methods::ParamValues{{"budget", "512"}, {"group", "max"}}));
  EXPECT_EQ(run.batch, 1);
  EXPECT_EQ(run.interval, 12);
  EXPECT_EQ(paper.FindRun("all").interval, 0);
  EXPECT_EQ(paper.FindRun("all").batch, 2);
  EXPECT_EQ(paper.FindCondition("any").spread, 4);
  ASSERT_EQ(paper.rows.size(), 1u);
  EXPECT_EQ(paper.rows[0].metric, Metric::kStepRatio);
  EXPECT_EQ(paper.rows[0].published, 2);
}

TEST_F(PaperFile, TakesMethodsThatAreNotBuilt) {
  EXPECT_EQ(LoadPaper(With("\"quest\"", "\"magicpig\"")).FindRun("sparse").method, "magicpig");
}

TEST_F(PaperFile, MistakesAreOneLine) {
  ExpectError("machine = \"h200\"", "machine = \"h2000\"", "there is no machine 'h2000'");
  ExpectError("\"qwen3-4b\"", "\"qwen3\"", "there is no model 'qwen3'");
  ExpectError("condition = \"any\"", "condition = \"some\"", "there is no condition 'some'");
  ExpectError("against = [\"all\"]", "against = [\"al\"]", "did you mean 'all'");
  ExpectError("against = [\"all\"]", "", "as many 'against' as 'runs'");
  ExpectError("step ratio", "steps ratio", "there is no metric 'steps ratio'");
  ExpectError("step ratio", "role share", "needs 'runs' alone");
  ExpectError("prompt = 4096", "prompt = -1", "'prompt' is not a whole number from 1");
  ExpectError("prompt = 4096", "prompt = \"4K\"", "'prompt' is not a whole number from 1");
  ExpectError("prompt = 4096\n", "", "'prompt' is missing");
  ExpectError("similarity = 0.9", "similarity = 1.5", "'similarity' is not a number from 0 to 1");
  ExpectError("similarity = 0.9", "similarity = nan", "'similarity' is not a number from 0 to 1");
  ExpectError("spread = 4", "sprad = 4", "did you mean 'spread'");
  ExpectError("budget = 512", "budget = [512]", "parameter 'budget' is neither text nor number");
  ExpectError("published = 2", "published = \"2\"", "'published' is not a number");
  ExpectError("[[row]]", "[row]", "row is not a list of tables");
  ExpectError("[run.all]", "[run.all", "not TOML");
  ExpectError("where = \"1\"", "where = \"1\"\ninput = \"given\"", "not both");
  ExpectError("batch = 2", "batch = 100000", "'batch' is not a whole number from 1 to 1024");
  ExpectError("interval = 12", "interval = 5000",
              "'interval' is not a whole number from 1 to 4096");
}

TEST(Papers, MissingFileIsAnError) { EXPECT_THROW(LoadPaper("/nonexistent/paper.toml"), Error); }

}  // namespace
}  // namespace stallcast::papers
