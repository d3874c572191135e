// The real program: what it prints, where, and its exit status.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/scratch_folder.h"
#include "traces/format/trace_file.h"
#include "traces/timeline.h"

namespace stallcast::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  int status = -1;
  std::string out, err;
};

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Outcome made =
        Run("synth t.kvt --heads 4 --kv-heads 2 --head-dim 64 "
            "--prompt 2K --steps 6 --spread 4");
    ASSERT_EQ(made.status, 0) << made.err;
  }

  // Of the suite: the trace is made once.
  static const fs::path& folder() {
    static const ScratchFolder folder;
    return folder.path();
  }

  // Runs `stallcast ARGUMENTS` in a shell, in the test's folder.
  static Outcome Run(const std::string& arguments, const std::string& environment = "") {
    const std::string command = "cd '" + folder().string() + "' && " + environment +
                                "'" STALLCAST_PROGRAM "' " + arguments + " 2>stderr.txt";
    Outcome outcome;
    FILE* pipe = ::popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (const size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      outcome.out.append(buffer.data(), size);
    }
    const int status = ::pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    outcome.err = ReadAll(folder() / "stderr.txt");
    return outcome;
  }

  // One line on standard error that says `says`, nothing on standard output.
  static void ExpectFails(const std::string& arguments, int status, const std::string& says) {
    const Outcome outcome = Run(arguments);
    SCOPED_TRACE(arguments);
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("stallcast: ")) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(says));
  }

  // The numbers of a column of CSV whose cells before it hold no commas.
  static std::vector<double> Column(const std::string& csv, const std::string& name) {
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    const auto end = line.begin() + static_cast<int64_t>(("," + line + ",").find("," + name + ","));
    const auto commas = std::count(line.begin(), end, ',');
    std::vector<double> values;
    while (std::getline(lines, line)) {
      for (int64_t i = 0; i < commas; ++i) line = line.substr(line.find(',') + 1);
      values.push_back(std::stod(line));
    }
    return values;
  }

  static std::vector<std::string> Files() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(Cli, AloneItPrintsTheOverview) {
  const Outcome outcome = Run("");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  for (const char* word : {"predict", "sweep", "info", "compare", "export", "synth", "Examples:"}) {
    EXPECT_THAT(outcome.out, HasSubstr(word));
  }
}

TEST_F(Cli, EachCommandHelpsWithAnExample) {
  for (const char* command :
       {"predict", "sweep", "advise", "info", "compare", "export", "synth", "trim", "reproduce"}) {
    const Outcome outcome = Run(std::string(command) + " --help");
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.out, HasSubstr(std::string("\n  stallcast ") + command));
    size_t line_begin = 0;
    for (size_t end; (end = outcome.out.find('\n', line_begin)) != std::string::npos;
         line_begin = end + 1) {
      EXPECT_LE(end - line_begin, 124u) << outcome.out.substr(line_begin, end - line_begin);
    }
  }
  EXPECT_THAT(Run("--version").out, testing::MatchesRegex("stallcast [0-9.]+\n"));
}

TEST_F(Cli, WrongUsageIsOneLineAndStatus2) {
  ExpectFails("predct t.kvt", 2, "did you mean 'predict'");
  ExpectFails("predict", 2, "run `stallcast predict --help`");
  ExpectFails("predict t.kvt --bogus", 2, "--bogus");
  ExpectFails("predict t.kvt --method frekv", 2, "did you mean 'freekv'");
  ExpectFails("predict t.kvt --method freekv -p budgt=1024", 2, "did you mean 'budget'");
  ExpectFails("predict t.kvt --method full -p budget=1024", 2, "budget");
  ExpectFails("predict t.kvt --method freekv -p budget", 2, "name=value");
  ExpectFails("predict t.kvt --method freekv -p budget=lots", 2, "lots");
  ExpectFails("predict t.kvt --method freekv --budget -3", 2, "-3");
  ExpectFails("predict t.kvt --method freekv --budget 0", 2, "budget");
  ExpectFails("predict t.kvt --method freekv --budget 99999999999999999999", 2, "budget");
  ExpectFails("predict t.kvt --model lama-3.1-8b", 2, "did you mean 'llama-3.1-8b'");
  ExpectFails("predict t.kvt --model trace --machine h2000", 2, "did you mean 'h200'");
  ExpectFails("predict t.kvt --set link.h2d=128GB", 2, "GB/s");
  ExpectFails("predict t.kvt --set link.h2d=-1GB/s", 2, "link.h2d");
  ExpectFails("predict t.kvt --set link.h2d=0GB/s", 2, "link.h2d");
  ExpectFails("predict t.kvt --set link.h2d=1e999GB/s", 2, "link.h2d");
  ExpectFails("predict t.kvt --set lnk.h2d=1GB/s", 2, "did you mean 'link.h2d'");
  ExpectFails("predict t.kvt --steps 0", 2, "--steps");
  ExpectFails("predict t.kvt --batch 0", 2, "--batch");
  ExpectFails("predict t.kvt --batch 99999999999999", 2, "--batch");
  ExpectFails("predict t.kvt --samples -1", 2, "--samples");
  ExpectFails("predict t.kvt --context -1", 2, "--context");
  ExpectFails("predict t.kvt --context 4GB", 2, "--context");
  ExpectFails("predict t.kvt --tp 3 --model llama-3.1-8b", 2, "3 GPUs");
  ExpectFails("predict t.kvt --format xml", 2, "table, json or csv");
  ExpectFails("predict t.kvt --timeline x.docx", 2, ".pftrace");
  ExpectFails("info", 2, "--methods");
  ExpectFails("info --parameters freekvv", 2, "did you mean 'freekv'");
  EXPECT_THAT(Run("info --machine h200").out, HasSubstr("kernel.gemm.flops "));
  ExpectFails("sweep t.kvt", 2, "--out");
  ExpectFails("sweep t.kvt --model trace --out r.sqlite -g budgte=1,2", 2, "did you mean 'budget'");
  ExpectFails("sweep t.kvt --out r.sqlite -g batch=1,2 -p budgte=1", 2, "--param: there is no");
  ExpectFails("sweep t.kvt --model trace --out r.sqlite -g link.h2d=1GB,2GB", 2, "GB/s");
  ExpectFails("synth x.kvt --similarity 1.5", 2, "--similarity");
  ExpectFails("synth x.kvt --heads 7", 2, "--heads");
  ExpectFails("synth x.kvt --prompt 64", 2, "--");
  ExpectFails("compare t.kvt --by colour", 2, "kind, role or layer");
  EXPECT_FALSE(fs::exists(folder() / "x.kvt"));
  EXPECT_FALSE(fs::exists(folder() / "r.sqlite"));
}

TEST_F(Cli, WhatIsGivenTwiceOrEmptyIsRefused) {
  ExpectFails("predict t.kvt -m freekv -p budget=2048 -p budget=4096", 2,
              "budget is given twice: 2048 and 4096");
  ExpectFails("predict t.kvt -m freekv --budget 2048 -p budget=4096", 2,
              "budget is given twice: 4096 and 2048");
  ExpectFails("predict t.kvt --set link.h2d=9GB/s --set link.h2d=8GB/s", 2,
              "link.h2d is given twice: 9GB/s and 8GB/s");
  ExpectFails("predict t.kvt --model ''", 2, "--model: an empty value");
  ExpectFails("predict t.kvt --timeline=", 2, "--timeline=: an empty value");
  ExpectFails("predict ''", 2, "argument 2: an empty value");
  ExpectFails("predict t.kvt -m full -p budget=4096", 2,
              "there is no parameter 'budget'; known: cache");
}

TEST_F(Cli, BadFilesAreOneLineAndStatus1) {
  std::ofstream(folder() / "text.kvt") << "not a trace at all, just text\n";
  std::ofstream(folder() / "empty.kvt").close();
  for (const char* command : {"predict ", "info ", "compare ", "export -o x.json "}) {
    const std::string c = command;
    ExpectFails(c + "missing.kvt", 1, "missing.kvt");
    ExpectFails(c + "text.kvt", 1, "text.kvt");
    ExpectFails(c + "empty.kvt", 1, "empty.kvt");
    ExpectFails(c + ".", 1, ".");
  }
  std::ofstream(folder() / "text.pftrace") << "not a trace at all, just text\n";
  ExpectFails("info text.pftrace", 1, "Chrome or Kineto JSON, or an SQLite export");
  ExpectFails("export t.kvt -o x.json", 1, "no timeline");
  ExpectFails("compare t.kvt", 1, "no timeline");
  ExpectFails("sweep --show missing.sqlite", 1, "missing.sqlite");
  ExpectFails("sweep --show t.kvt", 1, "t.kvt");
}

TEST_F(Cli, OutputsThatCannotBeWrittenLeaveNothing) {
  fs::create_directories(folder() / "taken.json");
  ASSERT_EQ(Run("predict t.kvt --model trace --method full --timeline full.kvt").status, 0);
  const auto before = Files();
  ExpectFails("predict t.kvt --model trace --method full --timeline no/folder/x.json", 1, "x.json");
  ExpectFails("predict t.kvt --model trace --method full --timeline taken.json", 1, "taken.json");
  ExpectFails("export full.kvt --as json -o /dev/full", 1, "/dev/full");
  ExpectFails("export full.kvt --as csv -o /dev/full", 1, "/dev/full");
  ExpectFails("export full.kvt --as pftrace -o /dev/full", 1, "/dev/full");
  ExpectFails("export full.kvt --as kvt -o /dev/full", 1, "/dev/full");
  ExpectFails("synth no/folder/x.kvt", 1, "x.kvt");
  ExpectFails("synth /dev/full", 1, "/dev/full");
  ExpectFails("sweep t.kvt --model trace --out no/folder/r.sqlite -g batch=1", 1, "r.sqlite");
  EXPECT_EQ(Run("info --models > /dev/full").status, 1);
  EXPECT_THAT(ReadAll(folder() / "stderr.txt"), HasSubstr("standard output"));
  EXPECT_EQ(Run("--help > /dev/full").status, 1);
  EXPECT_EQ(Files(), before);
}

TEST_F(Cli, NoFileThatIsReadIsWrittenOver) {
  ASSERT_EQ(Run("predict t.kvt --model trace --method full --timeline own.kvt").status, 0);
  fs::copy_file(folder() / "t.kvt", folder() / "trace.kvt");
  fs::create_symlink("trace.kvt", folder() / "link.kvt");
  fs::create_hard_link(folder() / "own.kvt", folder() / "same.kvt");
  const std::string trace = ReadAll(folder() / "trace.kvt"), own = ReadAll(folder() / "own.kvt");
  const char* why = "is read here and would be lost";
  ExpectFails("predict trace.kvt --method full --timeline trace.kvt", 2, why);
  ExpectFails("predict trace.kvt --method full --timeline ./link.kvt", 2, why);
  ExpectFails("predict link.kvt --method full --timeline trace.kvt", 2, why);
  ExpectFails("sweep trace.kvt -g batch=1 --out link.kvt", 2, why);
  ExpectFails("export own.kvt -o own.kvt", 2, why);
  ExpectFails("export own.kvt --as json -o same.kvt", 2, why);
  EXPECT_TRUE(ReadAll(folder() / "trace.kvt") == trace);
  EXPECT_TRUE(ReadAll(folder() / "own.kvt") == own);
}

TEST_F(Cli, AFailedExportLeavesTheOldFile) {
  ASSERT_EQ(Run("predict t.kvt --model trace --method full --timeline keep.kvt").status, 0);
  const std::string old = ReadAll(folder() / "keep.kvt");
  // A limit on file size stands for a full disk.
  const std::string limited = "'" STALLCAST_PROGRAM "' synth keep.kvt --prompt 8K --steps 1";
  const std::string command = "cd '" + folder().string() + "' && (ulimit -f 64; trap '' XFSZ; " +
                              limited + ") 2>stderr.txt";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_TRUE(ReadAll(folder() / "keep.kvt") == old);
  for (const std::string& name : Files()) EXPECT_EQ(name.find(".part-"), std::string::npos) << name;
}

TEST_F(Cli, ADamagedTraceIsUsedUnlessStrict) {
  std::string bytes = ReadAll(folder() / "t.kvt");
  std::ofstream(folder() / "cut.kvt", std::ios::binary) << bytes.substr(0, bytes.size() - 100);
  const Outcome lenient = Run("predict cut.kvt --model trace --method freekv --budget 1280");
  EXPECT_EQ(lenient.status, 0) << lenient.err;
  EXPECT_THAT(lenient.out, HasSubstr("truncated"));
  EXPECT_THAT(Run("info cut.kvt").out, HasSubstr("Problems"));
  ExpectFails("predict cut.kvt --method freekv --strict", 1, "cut.kvt");
  // What is left is too little: the error says why.
  std::ofstream(folder() / "stump.kvt", std::ios::binary) << bytes.substr(0, 2000);
  ExpectFails("predict stump.kvt --model trace --method freekv --budget 1280", 1,
              "stump.kvt, trace: no layer has both queries and keys (truncated after chunk");
}

TEST_F(Cli, WhatIsLostOfTheTensorsIsSaidAndNotCached) {
  const std::string bytes = ReadAll(folder() / "t.kvt");
  for (size_t at = 2000; at < bytes.size(); at += bytes.size() / 12) {
    std::string flipped = bytes;
    flipped[at] ^= 1;
    std::ofstream(folder() / "flipped.kvt", std::ios::binary) << flipped;
    const Outcome outcome = Run("predict flipped.kvt --model trace --method freekv --budget 1248");
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr("damaged: checksum")) << at;
  }
}

TEST_F(Cli, PredictPrintsATableBestFirst) {
  const Outcome outcome =
      Run("predict t.kvt --model trace --machine h200,a100-40gb --set link.h2d=40GB/s");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");  // no progress bar away from a terminal
  EXPECT_THAT(outcome.out, HasSubstr("(measured), link.h2d = 40GB/s"));
  EXPECT_THAT(outcome.out, HasSubstr("A100"));
  EXPECT_THAT(outcome.out, HasSubstr("synthetic"));
  EXPECT_THAT(outcome.out, HasSubstr("derived"));
}

// Lines of what is printed where $COLUMNS says how wide it may be.
TEST_F(Cli, TablesFitTheWidthThatThereIs) {
  ASSERT_EQ(Run("sweep t.kvt --model trace --out w.sqlite -m freekv,full --no-prefill "
                "-g budget=1280,1536 -g batch=1,2")
                .status,
            0);
  for (const int width : {40, 80, 120, 200}) {
    for (const char* command :
         {"predict t.kvt --model trace --no-prefill --budget 1280",
          "predict t.kvt --model trace --no-prefill -m freekv --budget 1280",
          "sweep --show w.sqlite", "info --methods", "info --models", "info --machines",
          "info --parameters freekv", "info --machine h200", "info t.kvt",
          "reproduce --row full-128k --steps 2", "predict --help", "sweep --help", "--help"}) {
      const Outcome outcome = Run(command, fmt::format("COLUMNS={} ", width));
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      std::istringstream lines(outcome.out);
      for (std::string line; std::getline(lines, line);) {
        // Examples are to be copied, and a word may be longer than a narrow screen.
        const bool one_word = line.find(' ', line.find_first_not_of(' ')) == std::string::npos;
        const bool example = line.find("  stallcast ") == 0 || line.find("      -") == 0;
        if (one_word || example || width < 80) continue;
        EXPECT_LE(line.size(), static_cast<size_t>(width) + 8) << command << "\n" << line;
      }
    }
  }
}

TEST_F(Cli, TheStarHasABar) {
  const std::string run = "predict t.kvt --model trace --no-prefill --budget 1280 --format json ";
  const auto best = [&](const std::string& more) {
    const Outcome outcome = Run(run + more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<nlohmann::json> found;
    const nlohmann::json record = nlohmann::json::parse(outcome.out);
    for (const auto& row : record["predictions"]) {
      if (row["best"]) found.push_back(row);
    }
    return found;
  };
  const auto any = best("--min-mass 0"), whole = best("--min-mass 1");
  ASSERT_EQ(any.size(), 1u);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["attention_mass"], 1.0);
  EXPECT_LE(any[0]["step_mean_ms"], whole[0]["step_mean_ms"]);
  EXPECT_TRUE(best("--max-step 1ns").empty());
  const std::string none = Run("predict t.kvt --model trace --no-prefill --max-step 1ns").out;
  EXPECT_THAT(none, HasSubstr("The nearest is"));
  ExpectFails("predict t.kvt --min-mass 1.5", 2, "--min-mass");
  ExpectFails("predict t.kvt --max-gpu 24", 2, "40GB");
  ExpectFails("predict t.kvt --sort mas", 2, "did you mean 'mass'");
}

TEST_F(Cli, RowsAreSortedAsAskedFor) {
  const std::string run =
      "predict t.kvt --model trace --no-prefill --budget 1280 --format csv --sort ";
  std::vector<double> masses = Column(Run(run + "mass").out, "attention_mass");
  EXPECT_TRUE(std::is_sorted(masses.rbegin(), masses.rend()));
  const std::vector<double> gpu = Column(Run(run + "gpu_bytes").out, "gpu_bytes");
  EXPECT_TRUE(std::is_sorted(gpu.begin(), gpu.end()));
}

TEST_F(Cli, NumbersAreReadAlikeEverywhere) {
  const auto context = [](const std::string& more) {
    const Outcome outcome =
        Run("predict t.kvt --model trace -m full --no-prefill --format json " + more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["predictions"][0];
  };
  EXPECT_EQ(context("--context 1M --steps 1")["context_tokens"], 1 << 20);
  EXPECT_EQ(context("--steps 010")["steps"], 10);
  EXPECT_EQ(context("--batch 002")["batch"], 2);
  const Outcome budget =
      Run("predict t.kvt --model trace -m freekv --budget 2K --no-prefill --format json");
  EXPECT_EQ(nlohmann::json::parse(budget.out)["predictions"][0]["params"]["budget"], 2048);
  ExpectFails("predict t.kvt --batch four", 2, "`four` is not a whole number");
  ExpectFails("predict t.kvt --steps 0x10", 2, "0x10");
}

TEST_F(Cli, AContextAtTheModelsLimitLeavesRoomForTheSteps) {
  const Outcome outcome =
      Run("predict t.kvt --model llama-3.1-8b -m full --no-prefill --steps 4 "
          "--context 128K --format json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto row = nlohmann::json::parse(outcome.out)["predictions"][0];
  EXPECT_EQ(row["context_tokens"], 128 * 1024 - 4);
  EXPECT_THAT(row["notes"].dump(), HasSubstr("context 131072 less 4"));
  const Outcome none =
      Run("predict t.kvt --model llama-3.1-8b -m full --no-prefill --steps 1 "
          "--set memory.bytes=0B --format json");
  EXPECT_EQ(nlohmann::json::parse(none.out)["predictions"][0]["gpu_limit_bytes"], 0);
}

TEST_F(Cli, NamesAreKnownWhateverTheirCapitals) {
  const Outcome outcome =
      Run("predict t.kvt --model LLaMA-3.1-8B --machine H100 -m Full "
          "--no-prefill --steps 1 --format json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const auto row = nlohmann::json::parse(outcome.out)["predictions"][0];
  EXPECT_EQ(row["machine"], "h100");
  EXPECT_EQ(row["method"], "full");
}

TEST_F(Cli, AModelHasToBeNamedWhereTheTracesOwnIsNone) {
  ExpectFails("predict t.kvt", 2, "--model llama-3.1-8b");
  ExpectFails("sweep t.kvt -o r.sqlite -g batch=1,2", 2, "--model trace");
  EXPECT_EQ(Run("sweep t.kvt -o m.sqlite -m full --no-prefill --steps 1 "
                "-g model=llama-3.1-8b,qwen3-8b")
                .status,
            0);
}

TEST_F(Cli, AFactorIsOfTheMachinesValue) {
  const auto step = [](const std::string& set) {
    const Outcome o =
        Run("predict t.kvt --model llama-3.1-8b -m offload --no-prefill --format csv --set "
            "link.h2d=" +
            set);
    EXPECT_EQ(o.status, 0) << o.err;
    return Column(o.out, "step_mean_ms").at(0);
  };
  EXPECT_GT(step("0.1x"), step("1x"));
  EXPECT_GT(step("1x"), step("10x"));
  ExpectFails("predict t.kvt --set link.h2d=0x", 2, "link.h2d");
}

TEST_F(Cli, AParameterAppliesWhereItCan) {
  const std::string all = "predict t.kvt --model trace --no-prefill --format json --method all ";
  const Outcome outcome = Run(all + "--budget 1280 -p recall=zero-copy");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto json = nlohmann::json::parse(outcome.out);
  bool freekv = false;
  for (const auto& row : json["predictions"]) {
    if (row["method"] != "freekv") continue;
    freekv = true;
    EXPECT_EQ(row["params"]["recall"], "zero-copy");
  }
  EXPECT_TRUE(freekv);
  EXPECT_THAT(json["left_out"].dump(), HasSubstr("louiskv"));
  EXPECT_THAT(json["remarks"].dump(), HasSubstr("full"));
  ExpectFails("predict t.kvt -p recall=by-pigeon", 2, "by-pigeon");
}

TEST_F(Cli, ParametersAreTyped) {
  const std::string run = "predict t.kvt --model trace -m freekv --budget 1280 --no-prefill ";
  const auto params =
      nlohmann::json::parse(Run(run + "--format json").out)["predictions"][0]["params"];
  EXPECT_TRUE(params["budget"].is_number_integer());
  EXPECT_TRUE(params["tau"].is_number_float());
  EXPECT_TRUE(params["correction"].is_boolean());
  EXPECT_TRUE(params["recall"].is_string());
  EXPECT_EQ(Column(Run(run + "--format csv").out, "params.budget").at(0), 1280);
}

TEST_F(Cli, WhatDoesNotFitComesFirstInAReport) {
  const Outcome outcome =
      Run("predict t.kvt --model llama-3.1-8b -m full --no-prefill --steps 1 "
          "--set memory.bytes=8GB");
  EXPECT_LT(outcome.out.find("does not fit"), outcome.out.find("step "));
}

TEST_F(Cli, ASweepFoldsWhatHasNoEffectAndPlots) {
  const Outcome outcome =
      Run("sweep t.kvt --model trace -o fold.sqlite -m full,offload "
          "--no-prefill -g link.h2d=10GB/s,20GB/s,40GB/s --plot fold.svg");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::ContainsRegex("full +any "));
  const std::string svg = ReadAll(folder() / "fold.svg");
  EXPECT_TRUE(svg.starts_with("<svg "));
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("<polyline ", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2u);  // a line a method
  EXPECT_THAT(svg, HasSubstr("offload"));
  ExpectFails("sweep --show fold.sqlite --plot fold.sqlite", 2, "read here");
}

TEST_F(Cli, RecordsOfASweepAreTheSameInEachFormat) {
  ASSERT_EQ(Run("sweep t.kvt --model trace -o each.sqlite -m freekv,full --no-prefill "
                "-g batch=1,2 -g budget=1280,1536")
                .status,
            0);
  const std::string show = "sweep --show each.sqlite --pareto --format ";
  const auto records = nlohmann::json::parse(Run(show + "json").out);
  ASSERT_EQ(records.size(), 6u);
  const std::string csv = Run(show + "csv").out;
  const std::vector<double> steps = Column(csv, "step_mean_ms");
  ASSERT_EQ(steps.size(), records.size());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(records[i]["step_mean_ms"], steps[i]);
  // A parameter that FreeKV alone has is a column of all.
  EXPECT_THAT(csv.substr(0, csv.find('\n')), HasSubstr("params.budget"));
  // The best of each batch, as in the table.
  EXPECT_EQ(std::ranges::count_if(records, [](const auto& record) { return record["best"]; }), 2);
  const std::string table = Run("sweep --show each.sqlite").out;
  size_t stars = 0;
  for (size_t at = 0; (at = table.find("\n*  ", at)) != std::string::npos; ++at) ++stars;
  EXPECT_EQ(stars, 2u) << table;
}

TEST_F(Cli, AMachineOfOnesOwnIsItsBaseWithWhatWasGiven) {
  const Outcome nothing = Run("profile new mine --bandwidth 1792 --link pcie9x16");
  EXPECT_EQ(nothing.status, 2);
  for (const char* each : {"--base", "--memory", "--sms", "--flops", "--bandwidth", "pcie9x16"}) {
    EXPECT_THAT(nothing.err, HasSubstr(each));
  }
  EXPECT_EQ(std::count(nothing.err.begin(), nothing.err.end(), '\n'), 1) << nothing.err;
  const std::string command =
      "profile new mine --base rtx-pro-6000 --memory 32607MiB --bandwidth 1792GB/s --sms 170 "
      "--link pcie4x16 --flops 200TFLOPS";
  const Outcome made = Run(command);
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("memory.bandwidth"));
  EXPECT_THAT(made.out, HasSubstr("kernel.*.bandwidth"));
  ExpectFails(command, 2, "is there already");
  const std::string run = "predict t.kvt --model llama-3.1-8b -m freekv --steps 4 --format json ";
  const auto step = [](const Outcome& outcome) {
    return nlohmann::json::parse(outcome.out)["predictions"][0]["step_mean_ms"].get<double>();
  };
  const double own = step(Run(run + "--machine mine.toml"));
  const double set = step(
      Run(run +
          "--machine rtx-pro-6000 --set memory.bandwidth=1523.2GB/s --set memory.bytes=32607MiB "
          "--set device.sms=170 --set link=pcie4x16 --set kernel.gemm.flops=150TFLOPS "
          "--set kernel.prefill_attention.flops=120TFLOPS"));
  EXPECT_NEAR(own, set, 1e-4 * set);
  EXPECT_THAT(Run("profile new --help").out, HasSubstr("Usage: stallcast profile new NAME"));
  EXPECT_THAT(Run("info --machines").out, HasSubstr("public figures"));
}

TEST_F(Cli, AFrontIsOfAWorkload) {
  ASSERT_EQ(
      Run("sweep t.kvt --model trace -o front.sqlite -m full --no-prefill -g batch=1,2,4").status,
      0);
  // Larger batches are slower and need more: no reason to leave them out.
  const Outcome outcome = Run("sweep --show front.sqlite --pareto --format json");
  const nlohmann::json rows = nlohmann::json::parse(outcome.out);
  for (const auto& row : rows) EXPECT_TRUE(row["pareto"]) << row;
}

TEST_F(Cli, AdviceExplainsItself) {
  const std::string run =
      "advise t.kvt --model llama-3.1-8b --steps 4 --context 32K "
      "--method freekv,streaming,full -g budget=1K,2K ";
  const Outcome table = Run(run + "--max-gpu 18GB --min-mass 0.5");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("Best: "));
  EXPECT_THAT(table.out, HasSubstr("--max-gpu"));
  EXPECT_THAT(table.out, HasSubstr("Exact: "));
  const Outcome json = Run(run + "--objective cost --price h200=3.50 --format json");
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_TRUE(parsed["exact"]);
  EXPECT_GT(parsed["candidates"][0]["cost_per_million_tokens"].get<double>(), 0);
  ExpectFails(run + "--objective cost", 2, "--price h200=");
  ExpectFails(run + "--objective fame", 2, "tokens/s, step or cost");
}

TEST_F(Cli, AStepTableHasEveryBatchAndContext) {
  const Outcome csv =
      Run("export t.kvt --step-table --model llama-3.1-8b --method full "
          "--context 1K:4K:x2 --batch 1,4 -o steps.csv");
  ASSERT_EQ(csv.status, 0) << csv.err;
  const std::string rows = ReadAll(folder() / "steps.csv");
  EXPECT_EQ(Column(rows, "context_tokens"),
            (std::vector<double>{1024, 1024, 2048, 2048, 4096, 4096}));
  EXPECT_EQ(Column(rows, "batch"), (std::vector<double>{1, 4, 1, 4, 1, 4}));
  ASSERT_EQ(Run("export t.kvt --step-table --model llama-3.1-8b --method full "
                "--context 1K --batch 1,4 -o steps.json")
                .status,
            0);
  const auto json = nlohmann::json::parse(ReadAll(folder() / "steps.json"));
  EXPECT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["step_ms"], Column(rows, "step_ms").at(0));
  ExpectFails("export t.kvt --step-table -o steps.csv", 2, "--model");
}

TEST_F(Cli, CompletesCommandsOptionsAndNames) {
  std::ofstream(folder() / "complete.bash")
      << Run("completion bash").out
      << "complete_line() { COMP_LINE=\"$1\"; COMP_POINT=${#1}; COMP_WORDBREAKS=' :='; "
         "_stallcast; echo \"${COMPREPLY[@]}\"; }\n"
         "complete_line \"$1\"\n";
  const auto complete = [&](const std::string& line) {
    const std::string command =
        "cd '" + folder().string() + "' && bash complete.bash '" + line + "' > completed.txt 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::string text = ReadAll(folder() / "completed.txt");
    return text.substr(0, text.find_last_not_of("\n ") + 1);
  };
  EXPECT_EQ(complete("stallcast pred"), "predict");
  EXPECT_EQ(complete("stallcast predict x.kvt --min-m"), "--min-mass");
  EXPECT_EQ(complete("stallcast predict --machine h1"), "h100");
  EXPECT_EQ(complete("stallcast predict --method quest,stream"), "quest,streaming");
  EXPECT_EQ(complete("stallcast predict --format "), "table json csv");
  EXPECT_THAT(complete("stallcast predict sample:"), HasSubstr("8k"));
  const Outcome zsh = Run("completion zsh");
  EXPECT_TRUE(zsh.out.starts_with("#compdef stallcast\n"));
  if (std::system("command -v zsh > /dev/null") == 0) {
    std::ofstream(folder() / "_stallcast") << zsh.out;
    EXPECT_EQ(std::system(("zsh -n '" + (folder() / "_stallcast").string() + "'").c_str()), 0);
  }
  ExpectFails("completion fish", 2, "bash or zsh");
}

TEST_F(Cli, TheFastestIsTheOneOfMostTokensASecond) {
  // LouisKV retrieves in few of the steps, so that its median step is far below its mean.
  const Outcome csv =
      Run("predict t.kvt --model trace --method all --budget 1280 --no-prefill --format csv");
  EXPECT_EQ(csv.status, 0) << csv.err;
  const std::vector<double> means = Column(csv.out, "step_mean_ms");
  const std::vector<double> medians = Column(csv.out, "step_p50_ms");
  ASSERT_GE(means.size(), 10u);
  EXPECT_TRUE(std::is_sorted(means.begin(), means.end()));
  EXPECT_FALSE(std::is_sorted(medians.begin(), medians.end()));
}

TEST_F(Cli, WhatDoesNotFitIsSaidAndComesLast) {
  const Outcome outcome =
      Run("predict t.kvt --model llama-3.1-8b --context 128K --batch 16 "
          "--method full,freekv --machine a100-40gb --steps 2 --no-prefill --min-mass 0");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const size_t freekv = outcome.out.find("*  freekv"), full = outcome.out.find("does not fit");
  EXPECT_NE(freekv, std::string::npos) << outcome.out;
  EXPECT_NE(full, std::string::npos) << outcome.out;
  EXPECT_LT(freekv, full);
  EXPECT_THAT(outcome.out, HasSubstr("more memory than there is"));
}

TEST_F(Cli, WhichMemoryIsTooSmallIsSaid) {
  const std::string run =
      "predict t.kvt --model llama-3.1-8b --method offload --steps 2 --no-prefill ";
  const auto line = [](const std::string& text, const std::string& begin) {
    const size_t at = text.find("\n" + begin) + 1;
    return text.substr(at, text.find('\n', at) - at);
  };
  const std::string host = Run(run + "--set host.bytes=100MB").out;
  EXPECT_THAT(line(host, "host memory"), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(line(host, "GPU memory"), testing::Not(HasSubstr("DOES NOT FIT")));
  const std::string gpu = Run(run + "--set memory.bytes=8GB").out;
  EXPECT_THAT(line(gpu, "GPU memory"), HasSubstr("DOES NOT FIT"));
  EXPECT_THAT(line(gpu, "host memory"), testing::Not(HasSubstr("DOES NOT FIT")));
}

TEST_F(Cli, MethodsLeftOutAreToldInEveryFormat) {
  const std::string run =
      "predict t.kvt --model trace --method all --as-run --no-prefill --budget 1280 --format ";
  const Outcome json = Run(run + "json"), csv = Run(run + "csv");
  EXPECT_THAT(json.out, HasSubstr("\"left_out\": ["));
  EXPECT_THAT(json.out, HasSubstr("\"reason\": "));
  EXPECT_THAT(csv.err, HasSubstr("left out on h200: "));
  EXPECT_EQ(Run("predict t.kvt --model trace --method full --no-prefill --format csv").err, "");
}

TEST_F(Cli, JsonAndCsvHaveEveryFieldWithItsUnit) {
  const Outcome json =
      Run("predict t.kvt --model trace --method freekv,full --budget 1280 --format json");
  EXPECT_EQ(json.status, 0) << json.err;
  const Outcome csv =
      Run("predict t.kvt --model trace --method freekv,full --budget 1280 --format csv");
  const std::string header = csv.out.substr(0, csv.out.find('\n'));
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 3);
  for (const char* field : {"step_p50_ms", "recall_bytes", "prefill_s", "role_recall_exposed_ms",
                            "largest_context_tokens", "attention_mass", "notes"}) {
    EXPECT_THAT(json.out, HasSubstr(fmt::format("\"{}\": ", field)));
    EXPECT_THAT(header, HasSubstr(field));
  }
  EXPECT_THAT(json.out, HasSubstr("\"sampled_p50_ms\": null"));
}

TEST_F(Cli, AFasterLinkIsNeverSlower) {
  const auto step = [](const std::string& rate) {
    const Outcome o = Run(
        "predict t.kvt --model trace --method offload --format csv --no-prefill --set link.h2d=" +
        rate);
    return Column(o.out, "step_mean_ms").at(0);
  };
  EXPECT_GT(step("1GB/s"), step("100GB/s"));
}

TEST_F(Cli, TimelinesAreWrittenAndConverted) {
  ASSERT_EQ(
      Run("predict t.kvt --model trace --method freekv --budget 1280 --timeline run.kvt").status,
      0);
  const traces::Trace file = traces::ReadTrace(folder() / "run.kvt");
  ASSERT_EQ(file.timelines.size(), 1u);
  EXPECT_EQ(file.timelines[0].origin, traces::Timeline::Origin::kPredicted);
  EXPECT_GT(file.timelines[0].rows(), 0);
  for (const char* name : {"run.pftrace", "run.json", "run.csv"}) {
    const Outcome outcome = Run(std::string("export run.kvt -o ") + name);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_GT(fs::file_size(folder() / name), 100u);
  }
  ExpectFails("export run.kvt -o run.json --timeline 2", 2, "timeline 2");
  const std::string info = Run("info run.kvt").out;
  EXPECT_THAT(info, HasSubstr("predicted from t.kvt: "));
  EXPECT_THAT(info, HasSubstr("NVIDIA H200"));
  ASSERT_EQ(Run("predict t.kvt --method full --model llama-3.1-8b --machine a100-40gb --steps 1 "
                "--no-prefill --timeline a100.kvt")
                .status,
            0);
  const std::string other = Run("info a100.kvt").out;
  EXPECT_THAT(other, HasSubstr("llama-3.1-8b: 32 layers"));
  EXPECT_THAT(other, testing::ContainsRegex("machine +NVIDIA A100"));
}

TEST_F(Cli, FilesOfOtherProgramsAreShownAndConverted) {
  const fs::path files = fs::path(STALLCAST_SOURCE_DIR) / "tests/traces/corpus_import";
  for (const char* name : {"kineto.json", "kineto.json.gz", "nsight.sqlite"}) {
    const std::string path = (files / name).string();
    EXPECT_THAT(Run("info " + path).out, HasSubstr("GPU 0 stream 7"));
    ASSERT_EQ(Run("export " + path + " -o converted.kvt").status, 0);
    const traces::Trace converted = traces::ReadTrace(folder() / "converted.kvt");
    EXPECT_EQ(converted.timelines.at(0).origin, traces::Timeline::Origin::kImported);
    EXPECT_THAT(converted.info.machine(), HasSubstr("Some GPU"));
  }
  const std::string kineto = (files / "kineto.json").string();
  EXPECT_THAT(Run("info " + kineto + " --step-range layer --format json").out,
              HasSubstr("\"steps\": 1"));
  fs::copy_file(kineto, folder() / "cut.json");
  fs::resize_file(folder() / "cut.json", 1000);
  EXPECT_THAT(Run("info cut.json").out, HasSubstr("truncated after"));
  ExpectFails("info cut.json --strict", 1, "truncated after");
  const Outcome cut = Run("export cut.json -o cut_out.kvt");
  EXPECT_EQ(cut.status, 0);
  EXPECT_THAT(cut.err, HasSubstr("cut.json: truncated after"));
  EXPECT_THAT(Run("info " + kineto).out, HasSubstr("2 steps, median"));
  ExpectFails("info " + kineto + " --step-range nothing", 1, "ProfilerStep (3)");
  const Outcome same = Run("compare " + kineto + " " + kineto);
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("only a: 0\nonly b: 0\n"));
  const Outcome replay = Run("replay " + kineto + " --set link.h2d=2x --top --format json");
  EXPECT_EQ(replay.status, 0) << replay.err;
  const auto replayed = nlohmann::json::parse(replay.out);
  EXPECT_NEAR(replayed["replay_error"].get<double>(), 0, 1e-6);
  EXPECT_EQ(replayed["stages"].size(), 2u);
  const auto info = nlohmann::json::parse(Run("info " + kineto + " --format json").out);
  EXPECT_EQ(info["recordings"][0]["top"], replayed["top"]) << "of the recording, unchanged";
  // Its own machine, and not one whose name is the beginning of it.
  for (const char* gpu : {"NVIDIA H200", "NVIDIA H20", "NVIDIA RTX PRO 6000 Blackwell"}) {
    std::string text = ReadAll(kineto);
    text.replace(text.find("Some GPU"), 8, gpu);
    std::ofstream(folder() / "named.json") << text;
    const auto named = nlohmann::json::parse(Run("replay named.json --format json").out);
    // "NVIDIA H20 96GB, PCIe ...", "NVIDIA H200, PCIe ..."
    EXPECT_THAT(
        named["machine"].get<std::string>(),
        testing::AnyOf(StartsWith(fmt::format("{},", gpu)), StartsWith(fmt::format("{} ", gpu))));
  }
  const Outcome grid = Run("replay " + kineto +
                           " -g host.speed=1:4:x2 -g TIME=1,2 --change \"scale all TIME\""
                           " --format json");
  EXPECT_EQ(grid.status, 0) << grid.err;
  const auto points = nlohmann::json::parse(grid.out)["grid"];
  ASSERT_EQ(points.size(), 6u);
  EXPECT_NEAR(points[0]["effect_ms"].get<double>(), 0, 1e-6);  // neither changed
  EXPECT_EQ(points[5]["host.speed"], "4");
  EXPECT_EQ(points[5]["TIME"], "2");
  EXPECT_GT(points[1]["computing_ms"].get<double>(), points[0]["computing_ms"].get<double>());
  EXPECT_LE(points[4]["step_ms"].get<double>(), points[0]["step_ms"].get<double>());
  ExpectFails("replay " + kineto + " -g TIME=1,2", 2, "TIME");
  ExpectFails("replay " + kineto + " -g link=1,2 --top", 2, "--grid");
  ExpectFails("replay " + kineto + " --change \"remove kind=nothing\"", 1, "matches no op");
  ExpectFails("replay " + kineto + " --change \"forget all\"", 2, "forget");
  ExpectFails("predict " + kineto, 2, "not a .kvt trace");
}

TEST_F(Cli, CompareFindsTheErrorAndKeepsTheLimit) {
  ASSERT_EQ(
      Run("predict t.kvt --model trace --method freekv --budget 1280 --timeline p.kvt").status, 0);
  traces::Trace file = traces::ReadTrace(folder() / "p.kvt");
  traces::Timeline measured = file.timelines[0];
  measured.origin = traces::Timeline::Origin::kMeasured;
  for (int64_t row = 0; row < measured.rows(); ++row) {
    measured.start[row] = measured.start[row] * 10 / 9;
    measured.duration[row] = measured.duration[row] * 10 / 9;
  }
  traces::TraceWriter writer(folder() / "m.kvt", file.info);
  writer.Write(measured);
  writer.Finish();
  traces::TraceWriter both(folder() / "both.kvt", file.info);
  both.Write(measured);
  both.Write(file.timelines[0]);
  both.Finish();
  for (const char* files : {"p.kvt m.kvt", "m.kvt p.kvt", "both.kvt"}) {
    const Outcome outcome = Run(std::string("compare --max-step-error 11% ") + files);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("step time error: 10.00 % median"));
    EXPECT_THAT(outcome.out, HasSubstr("only predicted: 0"));
  }
  EXPECT_EQ(Run("compare p.kvt m.kvt --max-step-error 9%").status, 1);
  EXPECT_EQ(Run("compare p.kvt m.kvt --by role --format csv").status, 0);
  EXPECT_THAT(Run("compare p.kvt m.kvt --by layer --format json").out, HasSubstr("\"layer 1\""));
  // What `export` wrote is as good as the file that it came from.
  ASSERT_EQ(Run("export p.kvt -o p.pftrace").status, 0);
  ASSERT_EQ(Run("export m.kvt -o m.json").status, 0);
  EXPECT_THAT(Run("compare p.kvt m.json").out, HasSubstr("step time error: 10.00 % median"));
  EXPECT_THAT(Run("compare p.pftrace m.json").out, HasSubstr("only measured: 0"));
  EXPECT_THAT(Run("compare p.kvt p.kvt").out, HasSubstr("only a: 0"));
  ExpectFails("compare p.kvt both.kvt", 2, "--predicted N");
  EXPECT_EQ(Run("compare p.kvt both.kvt --predicted 1").status, 0);
}

TEST_F(Cli, CompareTellsExposedTimeByRole) {
  // Recall 20 of 100 ns predicted and 40 of 120 measured, in one step of each.
  const auto made = [](traces::Timeline::Origin origin, int64_t recall_ns) {
    traces::Timeline t;
    t.origin = origin;
    t.title = "made";
    t.lanes = {{"compute", traces::LaneKind::kStream, true}};
    t.names = {"gemm", "copy"};
    t.lane = {0, 0};
    t.op = {0, 1};
    t.step = {0, 0};
    t.layer = {0, 0};
    t.role = {traces::Role::kMlp, traces::Role::kRecall};
    t.name = {0, 1};
    t.start = {Picoseconds(0), Picoseconds(80'000)};
    t.duration = {Picoseconds(80'000), Picoseconds(recall_ns * 1000)};
    t.bytes = {0, 0};
    return t;
  };
  traces::TraceWriter writer(folder() / "exposed.kvt", {});
  writer.Write(made(traces::Timeline::Origin::kPredicted, 20));
  writer.Write(made(traces::Timeline::Origin::kMeasured, 40));
  writer.Finish();
  EXPECT_EQ(Run("compare exposed.kvt --exposed --format csv").out,
            "exposed,predicted_ms,measured_ms,residual_us,relative,within_goal\n"
            "recall,2e-05,4e-05,-0.02,-0.5,true\n"
            "nothing runs,0.0,0.0,0.0,0.0,true\n"
            "all,2e-05,4e-05,-0.02,-0.5,true\n");
  const std::string table = Run("compare exposed.kvt --exposed").out;
  EXPECT_THAT(table, testing::ContainsRegex("\nrecall +0.000 +0.000 +-0.0 +-50.0 +yes\n"));
  EXPECT_THAT(Run("compare exposed.kvt").out, HasSubstr("\n" + table + "\n"));
  const std::string rows = Run("compare exposed.kvt --exposed --format json").out;
  EXPECT_TRUE(rows.starts_with("[\n  {\n    \"exposed\": \"recall\"")) << rows;
  EXPECT_THAT(Run("compare exposed.kvt --format json").out, HasSubstr("\"within_goal\": true"));
  // The same, down its only layer: the copy begins when predicted and ends 20 ns later.
  const std::string down = Run("compare exposed.kvt --typical-layer").out;
  EXPECT_THAT(down, HasSubstr("1 of 1 layers"));
  EXPECT_THAT(down, testing::ContainsRegex("\ncopy +0.08 +0.08 +0.00 +0.00 +0.02 +0.04 +0.02\n"));
  // The limit holds whatever is printed: 100 ns are predicted, 120 measured.
  for (const char* alone : {"", " --exposed", " --typical-layer"}) {
    const std::string compare = std::string("compare exposed.kvt") + alone;
    EXPECT_EQ(Run(compare + " --max-step-error 20%").status, 0) << alone;
    EXPECT_EQ(Run(compare + " --max-step-error 10%").status, 1) << alone;
  }
}

TEST_F(Cli, SweepResumesAndShows) {
  const std::string sweep =
      "sweep t.kvt --model trace --out s.sqlite --method freekv,full --no-prefill -g batch=1:4:x2 ";
  const Outcome first = Run(sweep + "-g budget=1280");
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("6 points: 6 predicted, 0 failed, 0 there already"));
  const Outcome more = Run(sweep + "-g budget=1280,64");
  EXPECT_EQ(more.status, 1);  // with all that there is
  EXPECT_THAT(more.out, HasSubstr("9 points: 0 predicted, 3 failed, 6 there already"));
  const Outcome table = Run("sweep --show s.sqlite --pareto");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("- failed (3): "));
  EXPECT_THAT(table.out, HasSubstr("\n*"));
  EXPECT_THAT(table.out, HasSubstr("machine h200"));
  EXPECT_THAT(table.out, HasSubstr("- synthetic"));
  // The failed points' few parameters do not make columns of all the others'.
  EXPECT_EQ(table.out.find("correction"), std::string::npos) << table.out;
  EXPECT_THAT(more.err, HasSubstr("failed (3): "));
}

// WG-KV has a parameter with the name of a column that all methods have.
TEST_F(Cli, SweepTellsWhoIssuesFromAParameterOfThatName) {
  const Outcome made = Run(
      "sweep t.kvt --model trace --out h.sqlite --method wgkv --no-prefill -g host=cpp,graph");
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("wgkv    graph"));
  EXPECT_THAT(made.out, HasSubstr("wgkv    cpp"));
}

TEST_F(Cli, ASweepAndAPredictionHaveTheSameFields) {
  const std::string what = " --method freekv --budget 1280 --no-prefill --set link.h2d=40GB/s ";
  const Outcome predicted = Run("predict t.kvt --model trace" + what + "--format json");
  const Outcome swept = Run("sweep t.kvt --model trace --out same.sqlite" + what + "--format json");
  ASSERT_EQ(swept.status, 0) << swept.err;
  const auto records = nlohmann::json::parse(predicted.out)["predictions"];
  nlohmann::json one = records[0], other = nlohmann::json::parse(swept.out)[0];
  for (const char* name : {"point", "status", "message", "finished"}) other.erase(name);
  EXPECT_EQ(one, other);
  EXPECT_TRUE(one["fits"].is_boolean());
  EXPECT_TRUE(one["largest_context_tokens"].is_number_integer());
}

TEST_F(Cli, ASweepOfWhichAllPointsFailFails) {
  ExpectFails("sweep t.kvt --model trace --out f.sqlite -m freekv --no-prefill -g budget=64,128", 1,
              "none of 2 points can be predicted");
  ExpectFails("sweep t.kvt --model trace --out f.sqlite -m freekv --no-prefill -g budget=64,128", 1,
              "none of 2 points can be predicted");
}

TEST_F(Cli, SynthIsDeterministic) {
  const std::string shape =
      " --layers 1 --model-layers 1 --heads 2 --kv-heads 1 --prompt 1K --steps 2 --spread 4 --seed "
      "7";
  ASSERT_EQ(Run("synth a.kvt" + shape).status, 0);
  ASSERT_EQ(Run("synth b.kvt" + shape).status, 0);
  EXPECT_TRUE(ReadAll(folder() / "a.kvt") == ReadAll(folder() / "b.kvt"));
}

TEST_F(Cli, ReproduceTellsARowInEveryFormat) {
  const Outcome table = Run("reproduce --row full-128k,pariskv-uva --steps 2");
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("23.13 ms"));
  EXPECT_THAT(table.out, HasSubstr("not built"));
  EXPECT_THAT(table.out, HasSubstr("2 rows: 1 predicted, 1 not built"));
  EXPECT_THAT(table.out, HasSubstr("attention"));  // the step by role
  EXPECT_THAT(table.out, HasSubstr("derived"));

  const Outcome json = Run("reproduce --row full-128k --steps 2 --format json");
  EXPECT_EQ(json.status, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("\"published\": 23.13"));
  EXPECT_THAT(json.out, HasSubstr("\"ratio_p50\""));
  const Outcome csv = Run("reproduce --paper pariskv --row pariskv-uva --format csv");
  EXPECT_EQ(csv.status, 0) << csv.err;
  EXPECT_THAT(csv.out, HasSubstr("gather,step ratio,x,,40.0,"));
}

// A host that spends 1 ms on each op leaves 32 layers of a dozen no less than 0.3 s.
TEST_F(Cli, ReproduceAsksWhatIf) {
  const std::string row = "reproduce --row quest-128k --steps 2";
  const Outcome slow = Run(row + " --set host.op=1ms");
  EXPECT_EQ(slow.status, 0) << slow.err;
  EXPECT_THAT(slow.out, HasSubstr("overridden: host.op"));
  EXPECT_THAT(slow.out, Not(HasSubstr("is off:"))) << "that is of the profile as it is";
  const Outcome usual = Run(row);
  EXPECT_THAT(usual.out, HasSubstr("is off:"));
  EXPECT_THAT(usual.out, Not(HasSubstr("overridden")));
  const Outcome json = Run(row + " --set host.op=1ms --format json");
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_GT(parsed["rows"][0]["predicted"].get<double>(), 300);
  EXPECT_EQ(parsed["rows"][0]["explanation"], "");
  ExpectFails(row + " --set host.nothing=1ms", 2, "host.nothing");
  ExpectFails(row + " --set host.op", 2, "name=value");
}

TEST_F(Cli, ReproduceRefusesWhatItDoesNotKnow) {
  const Outcome row = Run("reproduce --row full-128");
  EXPECT_EQ(row.status, 2);
  EXPECT_THAT(row.err, HasSubstr("full-128k"));
  EXPECT_EQ(Run("reproduce --paper flashkv").status, 2);
  std::ofstream(folder() / "bad.toml") << "name = 1\n";
  const Outcome bad = Run("reproduce --paper bad.toml");
  EXPECT_EQ(bad.status, 1);
  EXPECT_EQ(std::count(bad.err.begin(), bad.err.end(), '\n'), 1);
  EXPECT_THAT(bad.err, HasSubstr("bad.toml:1"));
}

// What cannot be is one line: the parameter or file, what is wrong with it, what to give.
TEST_F(Cli, AMethodsParametersThatCannotBeAreOneLine) {
  const std::string snapkv = "wgkv -p evict=snapkv -p ";
  for (const auto& [given, says] : std::vector<std::pair<std::string, const char*>>{
           {"wgkv -p sparsity=1.01", "give 0 to 1"},
           {"wgkv -p select=quest -p budget=255", "less than the local window"},
           {"wgkv -p gate=mlp", "gate_file is not given"},
           {"wgkv -p gate=mlp -p gate_file=.", "this is no file"},
           {"wgkv -p gate=mlp -p gate_file=missing.safetensors", "no such file"},
           {snapkv + "evict_share=-0.1", "give 0 to 1"},
           {snapkv + "evict_share=1", "between 0 and 1"},
           {snapkv + "capacity=271", "less than the local window and a page"},
           {snapkv + "observe=257", "lower observe"},
           {snapkv + "smooth=2", "odd number"},
           {"pariskv -p topk=1000000", "more than the context"},
           {"pariskv -p subspaces=7", "7 subspaces of a head dimension of 64"},
           {"pariskv -p rho=1.5", "give 0 to 1"},
           {"pariskv -p ratios=fixed -p rho=0.1 -p beta=0.2", "give rho >= beta"}}) {
    ExpectFails("predict t.kvt --model trace -m " + given, 2, says);
  }
  std::ofstream(folder() / "none.safetensors") << "no weights";
  ExpectFails("predict t.kvt --model trace -m wgkv -p gate=mlp -p gate_file=none.safetensors", 1,
              "does not fit the file");
}

TEST_F(Cli, AReaderThatStopsEarlyIsNoError) {
  const Outcome outcome = Run("info --machine h200 --format json | head -1");
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace stallcast::cli
