// One door for every format: recognition, round trips, damage.
#include "traces/convert/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/traces/convert/import_files.h"
#include "tests/traces/convert/timeline_rows.h"
#include "tests/traces/sample.h"
#include "traces/common/error.h"
#include "traces/convert/export.h"

namespace stallcast::traces {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Export = void (*)(std::span<const Timeline>, const std::filesystem::path&);

// Slices at random on four lanes, many overlapping, some empty, some alike.
Timeline RandomTimeline(unsigned seed) {
  std::mt19937_64 random(seed);
  Timeline t;
  t.origin = Timeline::Origin::kMeasured;
  t.title = "run: " + std::to_string(seed);
  t.notes = {"3 records dropped", "a \"quoted\" note"};
  t.lanes = {{"host", LaneKind::kHost, false},
             {"compute", LaneKind::kStream, true},
             {"compute", LaneKind::kStream, false},
             {"unused", LaneKind::kCopyEngine, false}};
  t.names = {"x", "two words", "\"quoted\\\n", ""};
  for (int i = 0; i < 300; ++i) {
    t.lane.push_back(static_cast<uint16_t>(random() % 3));
    t.op.push_back(random() % 8 == 0 ? -1 : i / 2);
    t.step.push_back(static_cast<int32_t>(random() % 4) - 1);
    t.layer.push_back(static_cast<int16_t>(static_cast<int>(random() % 33) - 1));
    t.role.push_back(static_cast<Role>(random() % kRoles));
    t.name.push_back(static_cast<uint32_t>(random() % t.names.size()));
    t.start.emplace_back(1'700'000'000'000'000'000 + static_cast<int64_t>(random() % 3'000'000));
    t.duration.emplace_back(random() % 4 == 0 ? 0 : random() % 200'000);
    t.bytes.push_back(random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % (1 << 20)));
    t.flows.push_back({static_cast<int64_t>(random() % 160), static_cast<int64_t>(random() % 160)});
  }
  return t;
}

std::string Exported(Export write, std::span<const Timeline> timelines) {
  return Written([&](const std::filesystem::path& path) { write(timelines, path); });
}

void ExpectRoundTrips(Export write, bool nanoseconds) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Timeline timeline = RandomTimeline(seed);
    const ImportedTrace imported = ImportText(Exported(write, std::span(&timeline, 1)));
    EXPECT_THAT(imported.report.problems, IsEmpty());
    ASSERT_EQ(imported.trace.timelines.size(), 1u);
    const Timeline& again = imported.trace.timelines[0];
    EXPECT_EQ(FirstFault(again), "");
    EXPECT_EQ(again.lanes, timeline.lanes);
    EXPECT_EQ(again.title, timeline.title);
    EXPECT_EQ(again.notes, timeline.notes);
    EXPECT_EQ(again.origin, timeline.origin);
    EXPECT_EQ(RowsOf(again), RowsOf(timeline, nanoseconds));
    EXPECT_EQ(FlowsOf(again), FlowsOf(timeline));
  }
}

TEST(RoundTripTest, ChromeJsonHoldsEverything) {
  ExpectRoundTrips(ExportChromeJson, /*nanoseconds=*/false);
}

TEST(RoundTripTest, PerfettoHoldsEverythingInNanoseconds) {
  ExpectRoundTrips(ExportPerfetto, /*nanoseconds=*/true);
}

// Arrows of exports go forward in time, and a host's wait begins before the copy it waits for.
TEST(RoundTripTest, AWaitStillWaitsForItsCopy) {
  Timeline t;
  t.origin = Timeline::Origin::kPredicted;
  t.lanes = {{"host", LaneKind::kHost, false}, {"copies", LaneKind::kStream, false}};
  t.names = {"host_sync", "copy"};
  t.lane = {0, 1};
  t.op = {5, 3};
  t.step = {0, 0};
  t.layer = {-1, -1};
  t.role = {Role::kSync, Role::kRecall};
  t.name = {0, 1};
  t.start = {Picoseconds(0), Picoseconds(20'000)};
  t.duration = {Picoseconds(90'000), Picoseconds(60'000)};
  t.bytes = {0, 4096};
  t.flows = {{3, 5}};
  for (const Export write : {Export{ExportChromeJson}, Export{ExportPerfetto}}) {
    const ImportedTrace imported = ImportText(Exported(write, std::span(&t, 1)));
    EXPECT_EQ(imported.trace.timelines.at(0).flows, t.flows);
  }
}

TEST(RoundTripTest, OrderedRowsKeepTheirOrder) {
  const Timeline timeline = SampleTimeline();
  const ImportedTrace imported = ImportText(Exported(ExportChromeJson, std::span(&timeline, 1)));
  const Timeline& again = imported.trace.timelines.at(0);
  EXPECT_EQ(again.op, timeline.op);
  EXPECT_EQ(again.lane, timeline.lane);
}

TEST(RoundTripTest, SeveralTimelinesStayApart) {
  std::vector<Timeline> timelines = {SampleTimeline(), SampleTimeline(), RandomTimeline(7)};
  timelines[1].origin = Timeline::Origin::kMeasured;
  for (const Export write : {Export{ExportChromeJson}, Export{ExportPerfetto}}) {
    const ImportedTrace imported = ImportText(Exported(write, timelines));
    ASSERT_EQ(imported.trace.timelines.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      const Timeline& again = imported.trace.timelines[i];
      EXPECT_EQ(again.origin, timelines[i].origin);
      EXPECT_EQ(again.lanes, timelines[i].lanes);
      EXPECT_EQ(RowsOf(again, true), RowsOf(timelines[i], true));
      EXPECT_EQ(FlowsOf(again), FlowsOf(timelines[i]));
    }
  }
}

TEST(RoundTripTest, AKvtComesThroughTheSameDoor) {
  const std::vector<std::byte> file = SampleFile();
  const ImportedTrace imported = Import(file, "sample");
  EXPECT_EQ(imported.format, FileFormat::kTrace);
  EXPECT_EQ(imported.trace.tensors.size(), 4u);
  EXPECT_EQ(imported.trace.timelines.at(0), SampleTimeline());
  EXPECT_EQ(imported.report.dropped, 3);
}

TEST(ImportTest, GzipIsReadAsWhatIsInIt) {
  for (const Export write : {Export{ExportChromeJson}, Export{ExportPerfetto}}) {
    const Timeline timeline = RandomTimeline(1);
    const std::string plain = Exported(write, std::span(&timeline, 1));
    EXPECT_EQ(ImportText(Gzipped(plain)).trace.timelines, ImportText(plain).trace.timelines);
    // Members one after another are one file.
    const std::string parts = Gzipped(plain.substr(0, 1000)) + Gzipped(plain.substr(1000));
    EXPECT_EQ(ImportText(parts).trace.timelines, ImportText(plain).trace.timelines);
  }
}

TEST(ImportTest, FormatsAreRecognisedByContent) {
  EXPECT_EQ(ImportText(" \n[]").format, FileFormat::kChromeJson);
  EXPECT_EQ(ImportText("\n{\"traceEvents\": []}").format, FileFormat::kChromeJson);
  EXPECT_EQ(ImportText("\xef\xbb\xbf[]").format, FileFormat::kChromeJson);
  EXPECT_EQ(ImportText(Gzipped("[]")).format, FileFormat::kChromeJson);
  EXPECT_EQ(ImportText(std::string("\x0a\x02\x40\x01", 4)).format, FileFormat::kPerfetto);
  EXPECT_EQ(ImportText(NsightFile("CREATE TABLE NVTX_EVENTS(start INT, end INT);")).format,
            FileFormat::kNsightSqlite);
}

TEST(ImportTest, OtherFilesAreErrors) {
  for (const std::string& file :
       {std::string(), std::string("hello"), std::string("{\"a\": 1}"), std::string("{"),
        std::string("\x0a\xff\xff\xff\xff\xff", 6), Gzipped("hello"), Gzipped(""),
        std::string("SQLite format 3\0 and no more", 29),
        NsightFile("CREATE TABLE something(x INT);")}) {
    EXPECT_THROW(ImportText(file), Error) << file;
  }
  EXPECT_THROW(Import("/nowhere/x.json"), Error);
  EXPECT_THROW(Import("/tmp"), Error);
}

TEST(ImportTest, AReportOfNsightNamesTheExport) {
  try {
    ImportText("some bytes", {}, "run.nsys-rep");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.remedy(), HasSubstr("nsys export"));
  }
}

TEST(ImportTest, StrictRefusesWhatIsDamaged) {
  const std::string cut = R"([{"ph": "X", "ts": 1, "dur": 1, "name": "a"},)";
  EXPECT_TRUE(ImportText(cut).report.truncated);
  ImportOptions options;
  options.strict = true;
  EXPECT_THROW(ImportText(cut, options), Error);
  EXPECT_NO_THROW(ImportText(cut + "{}]", options));
}

TEST(ImportTest, ProgressMayStopTheImport) {
  struct Stop {};
  ImportOptions options;
  options.progress = [](double) { throw Stop(); };
  std::string file = "[";
  for (int i = 0; i < 100'000; ++i) file += "{\"ph\":\"X\",\"ts\":1},";
  EXPECT_THROW(ImportText(file + "{}]", options), Stop);
}

// What must hold of a file that is cut anywhere: an error only where nothing is there yet; more
// bytes never give fewer rows; it is said that the file is cut, but for the last few bytes, which
// may be a line feed.
void CutEverywhere(const std::string& file, size_t whole_from) {
  const int64_t whole = ImportText(file).report.records;
  int64_t rows = 0;
  for (size_t size = 0; size <= file.size(); ++size) {
    try {
      const ImportedTrace imported = ImportText(file.substr(0, size));
      for (const Timeline& timeline : imported.trace.timelines) {
        ASSERT_EQ(FirstFault(timeline), "") << size;
      }
      ASSERT_GE(imported.report.records, rows) << size;
      rows = imported.report.records;
      if (size < whole_from) {
        ASSERT_FALSE(imported.report.problems.empty()) << size;
      }
    } catch (const Error&) {
      ASSERT_EQ(rows, 0) << size;
    }
  }
  EXPECT_EQ(rows, whole);
}

TEST(CutTest, ChromeJsonGivesEveryCompleteEvent) {
  const Timeline timeline = SampleTimeline();
  const std::string file = Exported(ExportChromeJson, std::span(&timeline, 1));
  CutEverywhere(file, file.rfind('}'));
  CutEverywhere(KinetoFile(), KinetoFile().rfind('}'));
}

TEST(CutTest, GzipGivesWhatItStillHolds) {
  const std::string file = Gzipped(KinetoFile());
  CutEverywhere(file, file.size() - 8);  // behind it a checksum
}

TEST(CutTest, PerfettoGivesEveryCompletePacket) {
  const Timeline timeline = SampleTimeline();
  const std::string file = Exported(ExportPerfetto, std::span(&timeline, 1));
  int64_t rows = 0;
  for (size_t size = 0; size <= file.size(); ++size) {
    try {
      const ImportedTrace imported = ImportText(file.substr(0, size));
      ASSERT_GE(imported.report.records, rows) << size;
      rows = imported.report.records;
    } catch (const Error&) {
      ASSERT_EQ(rows, 0) << size;
    }
  }
  EXPECT_EQ(rows, timeline.rows());
}

TEST(CutTest, SqliteNeverCrashes) {
  const std::string file = NsightSample();
  int64_t readable = 0;
  for (size_t size = 0; size <= file.size(); size += 64) {
    try {
      const ImportedTrace imported = ImportText(file.substr(0, size));
      if (size + 512 < file.size()) {
        EXPECT_FALSE(imported.report.problems.empty()) << size;
      }
      ++readable;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(readable, 0);
}

// The fuzzer's seeds, and files that once failed.
TEST(ImportDamageTest, TheCorpusIsReadOrRefused) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/traces/corpus_import")) {
    SCOPED_TRACE(entry.path());
    ++files;
    try {
      for (const Timeline& t : Import(entry.path()).trace.timelines) EXPECT_EQ(FirstFault(t), "");
    } catch (const Error&) {
    }
  }
  EXPECT_GE(files, 5);
}

TEST(ImportDamageTest, ChangedBytesNeverCrash) {
  const Timeline timeline = SampleTimeline();
  std::mt19937_64 random(1);
  for (const std::string& file : {Exported(ExportChromeJson, std::span(&timeline, 1)),
                                  Exported(ExportPerfetto, std::span(&timeline, 1)), KinetoFile(),
                                  NsightSample(), Gzipped(KinetoFile())}) {
    for (int i = 0; i < 500; ++i) {
      std::string damaged = file;
      for (int changes = 0; changes < 4; ++changes) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      try {
        for (const Timeline& t : ImportText(damaged).trace.timelines) {
          ASSERT_EQ(FirstFault(t), "");
        }
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::traces
