#include "models/hardware/profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/comma_locale.h"
#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ProfileTest : public testing::Test {
 protected:
  fs::path Write(const std::string& text) const {
    const fs::path path = folder_ / "edited.toml";
    std::ofstream(path) << text;
    return path;
  }

  /// A profile that was written by hand, with the first `from` replaced.
  fs::path Edited(const std::string& from, const std::string& to) const {
    std::string text =
        ReadAll(fs::path(STALLCAST_SOURCE_DIR) / "tests/models/hardware/by_hand.toml");
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Write(text.replace(at, from.size(), to));
  }

  /// What loading such an edit says.
  std::string Complaint(const std::string& from, const std::string& to) const {
    try {
      LoadProfile(Edited(from, to));
    } catch (const Error& error) {
      EXPECT_FALSE(error.usage());
      EXPECT_FALSE(error.remedy().empty());
      return error.what();
    }
    return "nothing";
  }

  ScratchFolder folder_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// To five significant digits.
auto Near(std::vector<double> values) {
  std::vector<testing::Matcher<double>> each;
  for (const double value : values) each.push_back(testing::DoubleNear(value, 1e-4 * value));
  return testing::ElementsAreArray(each);
}

int LineOf(const fs::path& path, const std::string& part) {
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (Has(line, part)) return number;
  }
  return -1;
}

TEST_F(ProfileTest, ShipsTheMachinesOfTheDocumentation) {
  const std::vector<std::string> names = ProfileNames();
  for (const char* name :
       {"h200", "a100-40gb", "a100-80gb", "a6000", "h100", "gh200", "b200", "gb200", "l40s", "h20",
        "rtx-pro-6000", "rtx-5090", "rtx-5060-ti", "rtx-4090", "rtx-4070", "rtx-3090"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST_F(ProfileTest, EveryShippedValueHasASource) {
  for (const std::string& name : ProfileNames()) {
    SCOPED_TRACE(name);
    const Profile profile = FindProfile(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_FALSE(profile.provenance.empty());
    for (const ProfileField& field : ProfileFields()) {
      EXPECT_FALSE(profile.sources.find(field.path)->second.empty()) << field.path;
      if (!field.in_file()) continue;
      // What a node of a graph's launch takes may be too little to measure; copies of one way
      // follow one another at once.
      const bool may_vanish = field.path == "host.graph_node" ||
                              field.path.ends_with("h2d.h2d.stream") ||
                              field.path.ends_with("d2h.d2h.stream") ||
                              field.path.starts_with("memory.drag_") || field.optional();
      EXPECT_TRUE(field.In(profile) > 0 || may_vanish) << field.path;
    }
    for (const auto& [kind, fit] : profile.kernels) EXPECT_FALSE(fit.source.empty()) << kind;
    const bool calibrated = name == "h200" || name == "h100";
    EXPECT_EQ(profile.status == "measured", calibrated) << profile.status;
  }
}

TEST_F(ProfileTest, WhatOnlySomeCalibrationsHaveReadsBackToo) {
  Profile profile = FindProfile("h200");
  profile.copy.group_turn = 2.2e-6;
  profile.zero_copy.translation = Curve({1, 3e9}, {1.1e-9, 44.77e-9});
  profile.copy.translation = {};
  SaveProfile(profile, folder_ / "saved.toml");
  const Profile read = LoadProfile(folder_ / "saved.toml");
  EXPECT_DOUBLE_EQ(read.copy.group_turn, profile.copy.group_turn);
  EXPECT_EQ(read.zero_copy.translation.x(), profile.zero_copy.translation.x());
  EXPECT_THAT(read.zero_copy.translation.y(),
              testing::Pointwise(testing::DoubleEq(), profile.zero_copy.translation.y()));
  EXPECT_TRUE(read.copy.translation.empty());
}

// Rounded to five digits once, a profile stays as it is.
TEST_F(ProfileTest, SavedProfilesReadBackTheSame) {
  for (const std::string& name : ProfileNames()) {
    SCOPED_TRACE(name);
    const Profile before = FindProfile(name);
    SaveProfile(before, folder_ / "saved.toml");
    const Profile after = LoadProfile(folder_ / "saved.toml");
    EXPECT_EQ(after.name, before.name);
    EXPECT_EQ(after.title, before.title);
    EXPECT_EQ(after.status, before.status);
    EXPECT_EQ(after.provenance, before.provenance);
    EXPECT_EQ(after.notes, before.notes);
    EXPECT_EQ(after.sources, before.sources);
    for (const ProfileField& field : ProfileFields()) {
      EXPECT_NEAR(field.In(after), field.In(before), 1e-4 * field.In(before)) << field.path;
    }
    for (const CurveField& field : CurveFields()) {
      EXPECT_EQ(field.In(after).x(), field.In(before).x()) << field.path;
      EXPECT_THAT(field.In(after).y(), Near(field.In(before).y())) << field.path;
    }
    for (const SurfaceField& field : SurfaceFields()) {
      EXPECT_EQ(field.In(after).rows(), field.In(before).rows());
      EXPECT_EQ(field.In(after).columns(), field.In(before).columns());
      EXPECT_THAT(field.In(after).values(), Near(field.In(before).values()));
    }
    SaveProfile(after, folder_ / "again.toml");
    EXPECT_EQ(ReadAll(folder_ / "again.toml"), ReadAll(folder_ / "saved.toml"));
    ASSERT_EQ(after.kernels.size(), before.kernels.size());
    for (const auto& [kind, fit] : before.kernels) {
      const KernelFit& read = after.kernels.at(kind);
      for (const KernelField& field : KernelFields()) {
        EXPECT_NEAR(read.*field.member, fit.*field.member, 1e-4 * fit.*field.member)
            << kind << " " << field.path;
      }
      EXPECT_NEAR(read.min_bytes, fit.min_bytes, 1e-4 * fit.min_bytes);
      EXPECT_NEAR(read.max_bytes, fit.max_bytes, 1e-4 * fit.max_bytes);
      EXPECT_EQ(read.source, fit.source);
    }
  }
}

TEST_F(ProfileTest, TimedPointsAndPieceCurvesReadBackTheSame) {
  Profile profile = FindProfile("h200");
  profile.kernels["k_means"].points.clear();
  profile.copy.h2d_piece = Curve({256, 1'000, 3e5}, {2.7e-6 / 7, 1e-6 / 3, 1.1e-6});
  profile.copy.d2h_piece = Curve({4'096}, {1.3e-6});
  profile.host.gather_row = Curve({1, 2, 48}, {4.7e-8 / 3, 1.3e-8 / 7, 1e-10});
  KernelFit& fit = profile.kernels["gemm"];
  fit.host_s = 1e-5 / 3;
  fit.points = {{{1, 4096, 4096, 1}, 1e-5 / 7, 1.0 / 3, 7.0 / 9, 4e-6 / 7},
                {{8, 2, 3, 4}, 2e-6, 1.25, 2}};
  profile.recorder.launch = 1e-6 / 7;
  profile.recorder.copy = 0;  // which a file need not have
  SaveProfile(profile, folder_ / "timed.toml");
  const Profile read = LoadProfile(folder_ / "timed.toml");
  EXPECT_NEAR(read.recorder.launch, profile.recorder.launch, 1e-11);
  EXPECT_EQ(read.recorder.copy, 0);
  EXPECT_EQ(read.copy.h2d_piece.x(), profile.copy.h2d_piece.x());
  EXPECT_THAT(read.copy.h2d_piece.y(), Near(profile.copy.h2d_piece.y()));
  EXPECT_THAT(read.copy.d2h_piece.y(), Near(profile.copy.d2h_piece.y()));
  EXPECT_THAT(read.host.gather_row.y(), Near(profile.host.gather_row.y()));
  const KernelFit& timed = read.kernels.at("gemm");
  EXPECT_NEAR(timed.host_s, fit.host_s, 1e-10);
  ASSERT_EQ(timed.points.size(), fit.points.size());
  for (size_t i = 0; i < fit.points.size(); ++i) {
    const KernelPoint &a = timed.points[i], &b = fit.points[i];
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_THAT((std::vector{a.seconds, a.factor, a.host_factor, a.drag}),
                Near({b.seconds, b.factor, b.host_factor, b.drag}));
  }
  EXPECT_TRUE(read.kernels.at("k_means").points.empty());
}

TEST_F(ProfileTest, SavedProfilesAreAlikeInEveryLocale) {
  const auto saved = [&] {
    SaveProfile(FindProfile("h200"), folder_ / "saved.toml");
    std::ifstream file(folder_ / "saved.toml");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string before = saved();
  const CommaLocale locale;
  if (!locale.found()) GTEST_SKIP() << "no locale with a decimal comma is installed";
  EXPECT_EQ(saved(), before);
}

TEST_F(ProfileTest, AFileThatChangesIsReadAnew) {
  Profile profile = FindProfile("h200");
  for (const double launch : {2e-6, 3e-6}) {  // as many bytes either way
    profile.host.launch = launch;
    SaveProfile(profile, folder_ / "changing.toml");
    EXPECT_EQ(LoadProfile(folder_ / "changing.toml").host.launch, launch);
    EXPECT_EQ(LoadProfile(folder_ / "changing.toml").host.launch, launch);
  }
}

TEST_F(ProfileTest, SavesAnyValueToFiveDigits) {
  Profile profile = FindProfile("h200");
  profile.link.h2d = 1e9 * 50.7 / 3 * 2.99999999;
  profile.copy.h2d_start = 2.7e-6 / 7;
  profile.title = "quotes \" and \\ and\nlines";
  profile.link.both_h2d = profile.link.h2d;
  SaveProfile(profile, folder_ / "odd.toml");
  const Profile read = LoadProfile(folder_ / "odd.toml");
  EXPECT_NEAR(read.link.h2d, profile.link.h2d, 1e-4 * profile.link.h2d);
  EXPECT_NEAR(read.copy.h2d_start, profile.copy.h2d_start, 1e-4 * profile.copy.h2d_start);
  EXPECT_EQ(read.title, profile.title);
}

TEST_F(ProfileTest, FaultsNameFileLineAndRemedy) {
  const std::string link = "h2d = { value = \"50.7 GB/s\"";
  const std::string unit = Complaint(link, "h2d = { value = \"50.7 GB\"");
  const int line = LineOf(folder_ / "edited.toml", "h2d = { value = \"50.7 GB\"");
  EXPECT_TRUE(Has(unit, "edited.toml:" + std::to_string(line))) << unit;
  EXPECT_TRUE(Has(unit, "link.h2d")) << unit;
  EXPECT_TRUE(Has(unit, "is a size")) << unit;

  EXPECT_TRUE(Has(Complaint(link, "h2f = { value = \"50.7 GB/s\""), "missing: link.h2d"));
  const std::string extra = Complaint("[link]\n", "[link]\nh2dd = { value = \"1 GB/s\" }\n");
  EXPECT_TRUE(Has(extra, "link.h2dd") && Has(extra, "did you mean 'link.h2d'")) << extra;
  EXPECT_TRUE(Has(Complaint("[link]\n", "[lynk]\n"), "missing"));
  EXPECT_TRUE(Has(Complaint("status = \"measured\"", "status = \"guessed\""), "guessed"));
  EXPECT_TRUE(Has(Complaint("name = \"h200\"", "colour = \"green\"\nname = \"h200\""), "colour"));
  EXPECT_TRUE(Has(Complaint(", source = \"", ", sauce = \""), "sauce"));
  EXPECT_TRUE(Has(Complaint("fixed = \"3.74 us\"", "fixed = \"3.74 GB\""), "kernel.gemm.fixed"));
  EXPECT_TRUE(Has(Complaint("[kernel.gemm]", "[kernel.gem]"), "kernel.gemm"));
  EXPECT_TRUE(Has(Complaint("[link]", "[link"), "not TOML"));
}

// By another version's calibration: a value less, one more, one of another kind.
TEST_F(ProfileTest, WhatAnotherVersionMadeIsToBeCalibratedAgain) {
  const std::string link = "h2d = { value = \"50.7 GB/s\"";
  const std::vector<std::string> lines = {"h2f = { value = \"50.7 GB/s\"", "zz = 1\n" + link,
                                          "h2d = { value = \"50.7 GB/s\", threads = [ 1.0 ]"};
  for (const std::string& now : lines) {
    const std::string complaint = Complaint(link, now);
    EXPECT_TRUE(Has(complaint, "calibrate again")) << complaint;
    EXPECT_LT(complaint.size(), 400u) << complaint;
  }
}

TEST_F(ProfileTest, RefusesValuesThatMakeNoSense) {
  const std::string link = "value = \"50.7 GB/s\"";
  for (const char* bad : {"-1 GB/s", "nan GB/s", "inf GB/s", "0 GB/s", "1e400 GB/s", "1e300 GB/s",
                          "50.7", "", "GB/s", "5 B/s", "41 GB/s"}) {
    EXPECT_NE(Complaint(link, "value = \"" + std::string(bad) + "\""), "nothing") << bad;
  }
  EXPECT_NE(Complaint(link, "value = 50.7"), "nothing");
  EXPECT_NE(Complaint(link, "value = [\"50.7 GB/s\"]"), "nothing");
  EXPECT_NE(Complaint("value = \"2.7 us\"", "value = \"2.7 s\""), "nothing");
  EXPECT_NE(Complaint("value = \"132\"", "value = \"0\""), "nothing");
  EXPECT_NE(Complaint("time_us = [", "time_us = [1, "), "nothing");
  EXPECT_NE(Complaint("time_us = [", "time_us = \"1\" #"), "nothing");
  EXPECT_NE(Complaint("piece_bytes = [256, 1024", "piece_bytes = [1024, 256"), "nothing");
  EXPECT_NE(Complaint("piece_bytes = [256, 1024", "piece_bytes = [nan, 1024"), "nothing");
  EXPECT_NE(Complaint("rate_gb_per_s = [\n", "rate_gb_per_s = [\n[1, 2],\n"), "nothing");
  EXPECT_NE(Complaint("range = [\"33 MB\", \"1.08 GB\"]", "range = [\"33 GB\", \"1 GB\"]"),
            "nothing");
  EXPECT_NE(Complaint("range = [\"33 MB\", \"1.08 GB\"]", "range = [\"33 MB\"]"), "nothing");
}

TEST_F(ProfileTest, AllThatIsMissingIsSaidAtOnce) {
  const std::string complaint = Complaint("[link]\n", "[links]\n");
  for (const char* path : {"link.h2d", "link.d2h", "link.both_h2d", "link.both_d2h"}) {
    EXPECT_TRUE(Has(complaint, path)) << complaint;
  }
}

TEST_F(ProfileTest, HandoffsAreTablesOfFromAndTo) {
  const Profile profile = LoadProfile(Edited("[link]", "[link]"));
  EXPECT_DOUBLE_EQ(profile.handoff(Site::kKernel, Site::kKernel, How::kStream), 1.18e-6);
  EXPECT_DOUBLE_EQ(profile.handoff(Site::kKernel, Site::kHost, How::kEvent), 2.9e-6);
  EXPECT_DOUBLE_EQ(profile.handoff(Site::kKernel, Site::kKernel, How::kGraph), 0.53e-6);
  const std::string row = "kernel = [1.18, 1.5, 1.5, 0]";
  for (const char* bad :
       {"kernel = [1.18, 1.5, 1.5]", "kernel = [1.18, 1.5, 1.5, 1]", "kernel = [-1, 1.5, 1.5, 0]",
        "kernel = [nan, 1.5, 1.5, 0]", "kernel = \"1.18 us\"", "colonel = [1.18, 1.5, 1.5, 0]"}) {
    EXPECT_NE(Complaint(row, bad), "nothing") << bad;
  }
  EXPECT_NE(Complaint("\"kernel\", \"h2d\"", "\"h2d\", \"kernel\""), "nothing");
  EXPECT_NE(Complaint("[handoff.graph_us]", "[handoff.graphs_us]"), "nothing");
}

TEST_F(ProfileTest, AProfileMayBeAnotherWithAFewFigures) {
  const std::string head =
      "base = \"h100\"\nname = \"new\"\ntitle = \"New\"\nstatus = \"derived\"\n"
      "provenance = \"a data sheet\"\n";
  const Profile base = FindProfile("h100");
  const Profile same = LoadProfile(Write(head));
  EXPECT_EQ(same.name, "new");
  for (const ProfileField& field : ProfileFields()) {
    EXPECT_EQ(field.In(same), field.In(base)) << field.path;
  }
  const Profile read = LoadProfile(
      Write(head + "[memory]\nbandwidth = { value = \"6 TB/s\", source = \"data sheet\" }\n"
                   "[kernel.gemm]\nflops = \"2000 TFLOPS\"\nsource = \"data sheet\"\n"));
  Profile set = base;
  Set(set, "memory.bandwidth", "6TB/s");
  Set(set, "kernel.gemm.flops", "2000TFLOPS");
  for (const ProfileField& field : ProfileFields()) {
    EXPECT_EQ(field.In(read), field.In(set)) << field.path;
  }
  for (const auto& [kind, fit] : set.kernels) {
    EXPECT_EQ(read.kernels.at(kind).bandwidth, fit.bandwidth) << kind;
    EXPECT_EQ(read.kernels.at(kind).flops_rate, fit.flops_rate) << kind;
    EXPECT_EQ(read.kernels.at(kind).points.size(), fit.points.size()) << kind;
  }
  EXPECT_TRUE(Has(read.sources.at("link.h2d"), "h100"));
  EXPECT_EQ(read.sources.at("memory.bandwidth"), "data sheet");
  std::ofstream(folder_ / "a.toml") << "base = \"b.toml\"\n" + head.substr(head.find('\n') + 1);
  std::ofstream(folder_ / "b.toml") << "base = \"a.toml\"\n" + head.substr(head.find('\n') + 1);
  EXPECT_THROW(LoadProfile(folder_ / "a.toml"), Error);
}

// Run with STALLCAST_UPDATE=1 it writes the page.
TEST(ProfileReference, IsMadeFromTheTables) {
  const fs::path page = fs::path(STALLCAST_SOURCE_DIR) / "models/hardware/reference.md";
  if (std::getenv("STALLCAST_UPDATE") != nullptr) std::ofstream(page) << ProfileReference();
  EXPECT_EQ(ReadAll(page), ProfileReference());
}

TEST_F(ProfileTest, RefusesWhatIsNoProfile) {
  EXPECT_THROW(LoadProfile(folder_ / "absent.toml"), Error);
  EXPECT_THROW(LoadProfile(folder_.path()), Error);
  EXPECT_THROW(LoadProfile(Write("")), Error);
  EXPECT_THROW(LoadProfile(Write("link = 3")), Error);
  EXPECT_THROW(LoadProfile(Write(std::string(2 << 20, '#'))), Error);
  EXPECT_THROW(SaveProfile(FindProfile("h200"), folder_ / "no" / "such" / "folder.toml"), Error);
}

TEST_F(ProfileTest, FindsProfilesByNamePathAndFolder) {
  Profile mine = FindProfile("h200");
  mine.name = "mine";
  SaveProfile(mine, folder_ / "mine.toml");
  EXPECT_EQ(FindProfile((folder_ / "mine.toml").string()).name, "mine");
  EXPECT_THROW(FindProfile("mine"), Error);
  setenv("STALLCAST_PROFILES", ("/nowhere::" + folder_.string()).c_str(), 1);
  EXPECT_EQ(FindProfile("mine").name, "mine");
  unsetenv("STALLCAST_PROFILES");
  try {
    FindProfile("h2000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(error.usage());
    EXPECT_TRUE(Has(error.what(), "did you mean 'h200'")) << error.what();
    EXPECT_TRUE(Has(error.what(), "a100-40gb")) << error.what();
  }
}

TEST(ProfileSetTest, SetsEveryScalarAndKernelValue) {
  const auto text = [](Dimension dimension) {
    switch (dimension) {
      case Dimension::kNumber:
        return "1.5";
      case Dimension::kTime:
        return "3us";
      case Dimension::kBytes:
        return "3MB";
      case Dimension::kRate:
        return "45GB/s";
      case Dimension::kFlops:
        return "3TFLOPS";
    }
    return "";
  };
  for (const ProfileField& field : ProfileFields()) {
    Profile profile = FindProfile("h200");
    const bool share = std::string_view(field.path).ends_with("_share");
    const bool yes = field.path == std::string_view("host.recorded");
    const std::string value = share ? "0.5" : yes ? "1" : text(field.dimension);
    Set(profile, field.path, value);
    EXPECT_EQ(field.In(profile), ParseQuantity(value, field.dimension, "")) << field.path;
    EXPECT_EQ(profile.overrides.size(), 1u);
  }
  for (const std::string_view kind : KernelKinds()) {
    for (const KernelField& field : KernelFields()) {
      Profile profile = FindProfile("h200");
      Set(profile, "kernel." + std::string(kind) + "." + std::string(field.path),
          text(field.dimension));
      EXPECT_EQ(profile.kernels.find(kind)->second.*field.member,
                ParseQuantity(text(field.dimension), field.dimension, ""));
    }
  }
}

TEST(ProfileSetTest, ACurveNamesTheValueThatItScalesWith) {
  for (const CurveField& curve : CurveFields()) {
    Profile profile = FindProfile("h200");
    try {
      Set(profile, curve.path, "2x");
      FAIL() << curve.path;
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage());
      EXPECT_NE(error.remedy().find(curve.scaled.with), std::string::npos) << curve.path;
    }
  }
}

TEST(ProfileSetTest, AFactorIsOfTheValueAsItIs) {
  const Profile before = FindProfile("h200");
  Profile after = before, direct = before;
  Set(after, "link.h2d", "2x");
  Set(direct, "link.h2d", fmt::format("{}B/s", 2 * before.link.h2d));
  EXPECT_EQ(after.link.h2d, direct.link.h2d);
  Set(after, "link.h2d", "0.5x");
  EXPECT_DOUBLE_EQ(after.link.h2d, before.link.h2d);
  Set(after, "kernel.gemm.flops", "3x");
  EXPECT_EQ(after.kernels.at("gemm").flops_rate, 3 * before.kernels.at("gemm").flops_rate);
  for (const char* wrong : {"x", "0x", "-2x", "2xx", "1e400x", "nanx", "1e308x"}) {
    EXPECT_THROW(Set(after, "link.h2d", wrong), Error) << wrong;
  }
}

TEST(ProfileSetTest, ALinkTakesItsBothWaysAndZeroCopyRatesAlong) {
  const Profile before = FindProfile("h200");
  Profile after = before;
  Set(after, "link.h2d", fmt::format("{}B/s", 2 * before.link.h2d));
  EXPECT_DOUBLE_EQ(after.link.both_h2d, 2 * before.link.both_h2d);
  EXPECT_EQ(after.link.both_d2h, before.link.both_d2h);
  EXPECT_EQ(after.link.d2h, before.link.d2h);
  for (size_t i = 0; i < before.zero_copy.rate.values().size(); ++i) {
    const double ratio = after.zero_copy.rate.values()[i] / before.zero_copy.rate.values()[i];
    EXPECT_GT(ratio, 1);
    EXPECT_LE(ratio, 2 + 1e-12);
  }
  after = before;
  Set(after, "link.d2h", fmt::format("{}B/s", 2 * before.link.d2h));
  EXPECT_DOUBLE_EQ(after.link.both_d2h, 2 * before.link.both_d2h);
  EXPECT_EQ(after.zero_copy.rate.values(), before.zero_copy.rate.values());
}

TEST(ProfileSetTest, MemoryTakesTheKernelsAlong) {
  const Profile before = FindProfile("h200");
  Profile after = before;
  Set(after, "memory.bandwidth", fmt::format("{}B/s", 2 * before.memory.bandwidth));
  for (const auto& [kind, fit] : before.kernels) {
    EXPECT_DOUBLE_EQ(after.kernels.at(kind).bandwidth, 2 * fit.bandwidth) << kind;
    for (size_t i = 0; i < fit.points.size(); ++i) {
      EXPECT_DOUBLE_EQ(after.kernels.at(kind).points[i].drag, fit.points[i].drag / 2) << kind;
    }
    EXPECT_EQ(after.kernels.at(kind).fixed_s, fit.fixed_s);
  }
  EXPECT_DOUBLE_EQ(after.zero_copy.memory_loss.At(16), 2 * before.zero_copy.memory_loss.At(16));
}

TEST(ProfileSetTest, ASlowerHostIsSlowerInAllItsCallsAndGathers) {
  const Profile before = FindProfile("h200");
  Profile after = before;
  Set(after, "host.op", "200ns");
  Set(after, "host.slower", "1.5");
  EXPECT_DOUBLE_EQ(after.host.op, 0.3e-6);
  EXPECT_DOUBLE_EQ(after.host.launch, 1.5 * before.host.launch);
  EXPECT_DOUBLE_EQ(after.host.copy_call, 1.5 * before.host.copy_call);
  EXPECT_DOUBLE_EQ(after.copy.h2d_inline_call.At(8192), 1.5 * before.copy.h2d_inline_call.At(8192));
  for (const auto& [kind, fit] : before.kernels) {
    EXPECT_DOUBLE_EQ(after.kernels.at(kind).host_s, 1.5 * fit.host_s) << kind;
    EXPECT_EQ(after.kernels.at(kind).fixed_s, fit.fixed_s);
  }
  EXPECT_DOUBLE_EQ(after.batch.host_piece.At(65536), 1.5 * before.batch.host_piece.At(65536));
  EXPECT_EQ(after.batch.engine_piece.At(65536), before.batch.engine_piece.At(65536));
  EXPECT_EQ(after.handoff(Site::kKernel, Site::kHost, How::kEvent),
            before.handoff(Site::kKernel, Site::kHost, How::kEvent));
  EXPECT_DOUBLE_EQ(after.host.gather_thread, before.host.gather_thread / 1.5);
  EXPECT_DOUBLE_EQ(after.host.gather_rate.At(4), before.host.gather_rate.At(4) / 1.5);
  EXPECT_EQ(after.host.memory, before.host.memory);
  Set(after, "host.slower", "1");
  EXPECT_DOUBLE_EQ(after.host.launch, before.host.launch);
  EXPECT_DOUBLE_EQ(after.host.gather_rate.At(4), before.host.gather_rate.At(4));
}

TEST(ProfileSetTest, ASlowerLaunchIsSlowerForEveryKernel) {
  const Profile before = FindProfile("h200");
  Profile after = before;
  Set(after, "host.launch", fmt::format("{:.9g}s", 2 * before.host.launch));
  for (const auto& [kind, fit] : before.kernels) {
    EXPECT_NEAR(after.kernels.at(kind).host_s, 2 * fit.host_s, 1e-12) << kind;
  }
  EXPECT_EQ(after.host.copy_call, before.host.copy_call);
}

TEST(ProfileSetTest, MistakesAreUsageErrorsAndChangeNothing) {
  const auto complaint = [](std::string_view path, std::string_view value) -> std::string {
    Profile profile = FindProfile("h200");
    try {
      Set(profile, path, value);
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage()) << error.what();
      EXPECT_EQ(profile.link.h2d, FindProfile("h200").link.h2d);
      EXPECT_TRUE(profile.overrides.empty());
      return error.what();
    }
    return "nothing";
  };
  EXPECT_TRUE(Has(complaint("link.h2d", "128GB"), "is a size"));
  EXPECT_TRUE(Has(complaint("link.h2b", "128GB/s"), "did you mean 'link.h2d'"));
  // Another word for a value is no misspelling of its neighbour.
  EXPECT_TRUE(Has(complaint("memory.capacity", "80GB"), "bytes"));
  EXPECT_FALSE(Has(complaint("memory.capacity", "80GB"), "did you mean"));
  EXPECT_TRUE(Has(complaint("kernel.gem.fixed", "1us"), "did you mean 'kernel.gemm.fixed'"));
  EXPECT_TRUE(Has(complaint("kernel.gemm.speed", "1us"), "kernel.gemm.s"));
  for (const char* path : {"", ".", "kernel", "kernel.", "kernel..", "kernel.gemm", "link"}) {
    EXPECT_NE(complaint(path, "1us"), "nothing") << path;
  }
  EXPECT_NE(complaint(std::string(100'000, 'x'), "1us"), "nothing");
  for (const char* value : {"-5GB/s", "nan", "inf GB/s", "1e999GB/s", "0GB/s", "", "five"}) {
    EXPECT_NE(complaint("link.h2d", value), "nothing") << value;
  }
  EXPECT_TRUE(Has(complaint("link.both_h2d", "60GB/s"), "while the other runs"));
  // Copies that come once in years would never let a run end.
  EXPECT_NE(complaint("background.h2d", "1e-3B/s"), "nothing");
  EXPECT_EQ(complaint("background.h2d", "0B/s"), "nothing");
}

TEST(ProfileCheckTest, EveryKernelKindIsNeededAndNoOther) {
  Profile profile = FindProfile("h200");
  profile.kernels.erase("score");
  EXPECT_THROW(Check(profile, "test"), Error);
  profile = FindProfile("h200");
  profile.kernels["skore"] = profile.kernels["score"];
  EXPECT_THROW(Check(profile, "test"), Error);
  profile = FindProfile("h200");
  profile.zero_copy.rate = {};
  EXPECT_THROW(Check(profile, "test"), Error);
}

TEST_F(ProfileTest, ALinkIsSetByItsName) {
  Profile profile = FindProfile("h200");
  Set(profile, "link", "pcie4x8");
  EXPECT_NEAR(profile.link.h2d, 12.75e9, 1e6);
  EXPECT_NEAR(profile.link.d2h, 12.75e9, 1e6);
  Set(profile, "link", "c2c");
  EXPECT_GT(profile.link.h2d, profile.link.d2h);
  for (const char* name : {"", "pcie", "pcie7x16", "pcie4x3", "pcie5", "nvlink"}) {
    EXPECT_THROW(Set(profile, "link", name), Error) << name;
  }
}

}  // namespace
}  // namespace stallcast::hardware
