#include "sim/sweep.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sim/prediction_fields.h"
#include "tests/scratch_folder.h"
#include "tests/sim/small_trace.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Values(std::string_view axis) { return ParseAxis(axis).values; }

TEST(Axis, Lists) {
  EXPECT_EQ(ParseAxis("budget=1024,2048").name, "budget");
  EXPECT_EQ(Values("budget=1024,2048"), (std::vector<std::string>{"1024", "2048"}));
  EXPECT_EQ(Values("link.h2d=25GB/s,50GB/s"), (std::vector<std::string>{"25GB/s", "50GB/s"}));
}

TEST(Axis, RangesIncludeBothEnds) {
  EXPECT_EQ(Values("batch=1:8:x2"), (std::vector<std::string>{"1", "2", "4", "8"}));
  EXPECT_EQ(Values("page=16:64:16"), (std::vector<std::string>{"16", "32", "48", "64"}));
  EXPECT_EQ(Values("tau=0.7:0.9:0.1"), (std::vector<std::string>{"0.7", "0.8", "0.9"}));
  EXPECT_EQ(Values("link.h2d=25GB/s:100GB/s:x2"),
            (std::vector<std::string>{"25GB/s", "50GB/s", "100GB/s"}));
  EXPECT_EQ(Values("page=16:40:16"), (std::vector<std::string>{"16", "32"}));
}

TEST(Axis, RefusesWhatIsNone) {
  for (const char* text :
       {"", "budget", "=3", "budget=", "budget=1,,2", "budget=1:2", "budget=2:1:1", "budget=1:9:0",
        "budget=1:9:x1", "budget=0:9:x2", "budget=1:1e9:1", "link.h2d=1GB/s:2MB/s:x2",
        "budget=a:b:c", "budget=1:inf:1", "budget=nan:1:1", "budget=1:9:-1"}) {
    try {
      ParseAxis(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage()) << text;
    }
  }
}

TEST(Tokens, PlainOrKilo) {
  EXPECT_EQ(ParseTokens("32768", ""), 32768);
  EXPECT_EQ(ParseTokens("32K", ""), 32768);
  EXPECT_EQ(ParseTokens("1048576K", ""), int64_t{1} << 30);
  for (const char* text :
       {"", "0", "-5", "32KB", "1e3", "99999999999999999999", "3.5K", "K", "1048577K"}) {
    EXPECT_THROW(ParseTokens(text, ""), Error) << text;
  }
}

PredictRequest Base() {
  PredictRequest request;
  request.method = "freekv";
  request.context = 1024;
  request.prefill = false;
  return request;
}

TEST(Grid, IsTheProductOfItsAxes) {
  const auto points = ExpandGrid(Base(), {{"batch", {"1", "2"}}, {"context", {"1K", "2K", "4K"}}});
  ASSERT_EQ(points.size(), 6u);
  std::set<std::pair<int, int64_t>> seen;
  for (const GridPoint& p : points) seen.insert({p.request.batch, p.request.context});
  EXPECT_EQ(seen.size(), 6u);
}

TEST(Grid, PointsThatDifferInNothingAreOne) {
  // The full cache has no budget, so its three points collapse.
  const auto points =
      ExpandGrid(Base(), {{"budget", {"1536", "2048", "3072"}}, {"method", {"full", "freekv"}}});
  EXPECT_EQ(points.size(), 1u + 3u);
  // The default, said or unsaid, has one key; so have two ways to write a number or a rate.
  EXPECT_EQ(ExpandGrid(Base(), {{"budget", {"2048"}}})[0].key, ExpandGrid(Base(), {})[0].key);
  EXPECT_EQ(ExpandGrid(Base(), {{"tau", {"0.8", "0.80"}}}).size(), 1u);
  EXPECT_EQ(ExpandGrid(Base(), {{"link.h2d", {"25GB/s", "25000MB/s"}}}).size(), 1u);
  EXPECT_EQ(ExpandGrid(Base(), {{"link.h2d", {"25GB/s", "26GB/s"}}}).size(), 2u);
}

TEST(Grid, WrongNamesAndValuesAreUsageErrors) {
  const std::vector<std::vector<Axis>> wrong = {
      {{"metod", {"full"}}},
      {{"method", {"frekv"}}},
      {{"model", {"lama"}}},
      {{"machine", {"h2000"}}},
      {{"batch", {"0"}}},
      {{"batch", {"2.5"}}},
      {{"context", {"-1"}}},
      {{"link.h2d", {"128GB"}}},
      {{"link.h2dd", {"1GB/s"}}},
      {{"budget", {"many"}}},
      {{"budget", {"-1"}}},
      {{"batch", {"1"}}, {"batch", {"2"}}},
      {{"batch", {"9999999999999"}}},
      {{"tp", {"0"}}},
  };
  for (const auto& axes : wrong) {
    try {
      ExpandGrid(Base(), axes);
      ADD_FAILURE() << axes[0].name << "=" << axes[0].values[0];
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage()) << error.what();
    }
  }
  std::vector<std::string> many(4000, "1");
  EXPECT_THROW(ExpandGrid(Base(), {{"batch", many}, {"context", many}}), Error);
}

TEST(Pareto, IsWhatNoOtherPointBeatsInAnyNumberOfCoordinates) {
  std::mt19937 random(7);
  for (const size_t dimensions : {1, 2, 3, 4}) {
    for (const int values : {2, 5, 1000}) {
      std::vector<std::vector<double>> points(300);
      for (auto& point : points) {
        for (size_t i = 0; i < dimensions; ++i)
          point.push_back(static_cast<int>(random() % values));
      }
      const std::vector<bool> front = ParetoFront(points);
      for (size_t i = 0; i < points.size(); ++i) {
        const bool beaten = std::ranges::any_of(points, [&](const auto& other) {
          return other != points[i] && std::ranges::equal(other, points[i], std::less_equal<>());
        });
        EXPECT_EQ(front[i], !beaten) << dimensions << " " << values << " " << i;
      }
    }
  }
}

TEST(Pareto, MatchesItsDefinition) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::vector<double>> points = {{1, 5}, {2, 4}, {3, 4},  {2, 4},
                                                   {5, 1}, {6, 6}, {0, nan}};
  EXPECT_EQ(ParetoFront(points), (std::vector<bool>{true, true, false, true, true, false, false}));
}

class SweepTest : public testing::Test {
 protected:
  void SetUp() override { WriteSmallTrace(trace()); }

  static PredictRequest Of2K() {
    PredictRequest base = Base();
    base.context = 2048;
    return base;
  }
  static std::vector<Axis> Axes(const std::vector<std::string>& budgets = {"1280", "1536"}) {
    return {{"budget", budgets}, {"link.h2d", {"25GB/s", "50GB/s"}}, {"batch", {"1", "2"}}};
  }
  static std::vector<GridPoint> Points() { return ExpandGrid(Of2K(), Axes()); }
  // On the results file, as another program may write it.
  void Execute(const std::string& sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(results().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(database);
  }
  fs::path results() const { return folder_ / "r.sqlite"; }
  fs::path trace() const { return folder_ / "t.kvt"; }

  ScratchFolder folder_;
};

TEST_F(SweepTest, PredictsEachWantedPointUntilStopped) {
  Predictor predictor(trace());
  const auto points = Points();
  std::set<size_t> done;
  const auto take = [&](PointResult&& result) {
    EXPECT_TRUE(result.prediction) << result.problem;
    EXPECT_TRUE(done.insert(result.point).second);
  };
  PredictAll(predictor, points, take, [](size_t point) { return point % 2 == 0; });
  EXPECT_EQ(done, (std::set<size_t>{0, 2, 4, 6}));

  done.clear();
  std::stop_source stop;
  PredictAll(
      predictor, points,
      [&](PointResult&& result) {
        take(std::move(result));
        stop.request_stop();
      },
      {}, stop.get_token());
  EXPECT_GE(done.size(), 1u);
  EXPECT_LT(done.size(), points.size());
  PredictAll(
      predictor, points, [](PointResult&&) { FAIL(); }, {}, stop.get_token());
}

TEST_F(SweepTest, StoresWhatPredictSays) {
  Predictor predictor(trace());
  const Grid points(Of2K(), Axes());
  ASSERT_EQ(points.size(), 8u);
  ResultStore store(results(), true);
  std::vector<int64_t> finished;
  const SweepCounts counts =
      Sweep(predictor, points, store, false, [&](int64_t n) { finished.push_back(n); });
  EXPECT_EQ(counts.done, 8);
  EXPECT_EQ(counts.failed, 0);
  EXPECT_EQ(finished, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));

  const ResultStore::Rows rows = store.Read();
  ASSERT_EQ(rows.rows.size(), 8u);
  for (size_t p = 0; p < points.size(); ++p) {
    const GridPoint point = points[p];
    const auto row = std::find_if(rows.rows.begin(), rows.rows.end(), [&](const auto& r) {
      return std::get<std::string>(r[rows.Column("point")]) == point.key;
    });
    ASSERT_NE(row, rows.rows.end());
    const Prediction prediction = predictor.Predict(point.request);
    for (const PredictionField& field : PredictionFields()) {
      const ResultStore::Value& stored = (*row)[rows.Column(field.name)];
      const double value = field.Of(prediction);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::holds_alternative<std::monostate>(stored)) << field.name;
      } else {
        EXPECT_EQ(std::get<double>(stored), value) << field.name;
      }
    }
  }
}

TEST_F(SweepTest, GoesOnWhereItStopped) {
  Predictor predictor(trace());
  const Grid points(Of2K(), Axes());
  {
    ResultStore store(results(), true);
    Sweep(predictor, Grid(Of2K(), Axes({"1536"})), store, false);
  }
  ResultStore store(results(), true);
  const SweepCounts counts = Sweep(predictor, points, store, false);
  EXPECT_EQ(counts.present, 4);
  EXPECT_EQ(counts.done, 4);
  EXPECT_EQ(Sweep(predictor, points, store, true).done, 8);
  EXPECT_EQ(store.Read().rows.size(), 8u);
}

TEST_F(SweepTest, PredictsAnewWhatAnotherBuildLeft) {
  Predictor predictor(trace());
  const Grid points(Of2K(), Axes());
  ResultStore store(results(), true);
  Sweep(predictor, points, store, false);
  Execute("INSERT INTO texts (text) VALUES ('another')");
  Execute(
      "UPDATE rows SET program = (SELECT id FROM texts WHERE text = 'another'), step_mean_ms = -1 "
      "WHERE batch = 2");
  EXPECT_TRUE(store.Find(points[7].key, predictor.key())->by_others);
  const SweepCounts counts = Sweep(predictor, points, store, false);
  EXPECT_EQ(counts.anew, 4);
  EXPECT_EQ(counts.done, 4);
  EXPECT_EQ(counts.present, 4);
  const ResultStore::Rows rows = store.Read();
  for (const auto& row : rows.rows)
    EXPECT_GT(std::get<double>(row[rows.Column("step_mean_ms")]), 0);
  EXPECT_EQ(Sweep(predictor, points, store, false).present, 8);
}

TEST_F(SweepTest, GoesOnInAFileOfAnEarlierVersion) {
  Predictor predictor(trace());
  const auto grid = [](const std::vector<std::string>& batches) {
    return Grid(Of2K(), {{"batch", batches}});
  };
  {
    ResultStore store(results(), true);
    Sweep(predictor, grid({"1", "2"}), store, false);
  }
  Execute("DROP VIEW points");
  for (const char* column : {"evicted_units", "step_p50_ms", "program"}) {
    Execute(std::string("ALTER TABLE rows DROP COLUMN ") + column);
  }
  Execute("CREATE VIEW points AS SELECT id, point, trace, finished FROM rows");
  ResultStore store(results(), true);
  // What it lacks is not known of the points that it holds: they are predicted anew where wanted.
  const Grid wanted = grid({"2", "3"});
  EXPECT_EQ(Sweep(predictor, wanted, store, false).anew, 1);
  const ResultStore::Rows rows = store.Read();
  ASSERT_EQ(rows.rows.size(), 3u);
  for (const auto& row : rows.rows) {
    const bool old = std::get<double>(row[rows.Column("batch")]) == 1;
    const ResultStore::Value& step = row[rows.Column("step_p50_ms")];
    EXPECT_EQ(std::holds_alternative<std::monostate>(step), old);
    if (std::get<std::string>(row[rows.Column("point")]) == wanted[0].key) {
      EXPECT_EQ(std::get<double>(step),
                Seconds(predictor.Predict(wanted[0].request).metrics.step_p50) * 1e3);
    }
    EXPECT_GT(std::get<double>(row[rows.Column("step_p95_ms")]), 0);
  }
}

// What releases before the view wrote: a table of that name.
TEST_F(SweepTest, AFileOfBeforeTheViewIsReadAndNotWritten) {
  Execute("CREATE TABLE points (point TEXT, trace TEXT, finished TEXT, step_mean_ms REAL)");
  Execute("INSERT INTO points VALUES ('b', 't', 'f', 2.5), ('a', 't', 'f', NULL)");
  Execute("PRAGMA user_version = 2");
  EXPECT_THROW(ResultStore(results(), true), Error);
  const ResultStore::Rows rows = ResultStore(results(), false).Read();
  ASSERT_EQ(rows.rows.size(), 2u);
  EXPECT_EQ(rows.At(0, "point"), ResultStore::Value(std::string("a")));
  EXPECT_EQ(rows.At(1, "step_mean_ms"), ResultStore::Value(2.5));
}

// Other programs read the view, this one the tables below it.
TEST_F(SweepTest, TheViewShowsWhatIsRead) {
  Predictor predictor(trace());
  ResultStore store(results(), true);
  Sweep(predictor, Grid(Of2K(), Axes({"64", "1280"})), store, false);
  const ResultStore::Rows rows = store.Read();
  ASSERT_EQ(rows.rows.size(), 8u);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(results().c_str(), &database), SQLITE_OK);
  sqlite3_stmt* view = nullptr;
  ASSERT_EQ(sqlite3_prepare_v2(database, "SELECT * FROM points ORDER BY id", -1, &view, nullptr),
            SQLITE_OK);
  for (size_t row = 0; row < rows.rows.size(); ++row) {
    ASSERT_EQ(sqlite3_step(view), SQLITE_ROW);
    for (int i = 0; i < sqlite3_column_count(view); ++i) {
      const std::string name = sqlite3_column_name(view, i);
      if (name == "id") continue;
      const ResultStore::Value& read = rows.At(row, name);
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(view, i));
      if (const auto* expected = std::get_if<std::string>(&read)) {
        EXPECT_EQ(text ? text : "NULL", *expected) << name;
      } else if (const auto* number = std::get_if<double>(&read)) {
        EXPECT_EQ(sqlite3_column_double(view, i), *number) << name;
      } else {
        EXPECT_EQ(sqlite3_column_type(view, i), SQLITE_NULL) << name;
      }
    }
  }
  sqlite3_finalize(view);
  // Readers with types, such as DuckDB, take them from here; what the view computes has none.
  ASSERT_EQ(
      sqlite3_prepare_v2(database,
                         "SELECT name FROM pragma_table_info('points') WHERE type = '' "
                         "AND name NOT IN ('point', 'finished', 'params', 'overrides', 'notes')",
                         -1, &view, nullptr),
      SQLITE_OK);
  EXPECT_EQ(sqlite3_step(view), SQLITE_DONE);
  sqlite3_finalize(view);
  sqlite3_close(database);
}

TEST_F(SweepTest, RowsComeInTheOrderOfTheirGrid) {
  Predictor predictor(trace());
  ResultStore store(results(), true);
  const Grid part(Of2K(), Axes({"1536"})), all(Of2K(), Axes());
  Sweep(predictor, part, store, false);
  Sweep(predictor, all, store, false);
  Sweep(predictor, part, store, true);
  std::vector<std::string> expected;
  for (const size_t i : {4, 5, 6, 7, 0, 1, 2, 3}) expected.push_back(all[i].key);
  const ResultStore::Rows rows = store.Read();
  ASSERT_EQ(rows.rows.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(rows.At(i, "point"), ResultStore::Value(expected[i])) << i;
  }
}

TEST_F(SweepTest, AFailedPointIsStoredAndStopsNothing) {
  Predictor predictor(trace());
  PredictRequest base = Base();
  base.context = 2048;
  // FreeKV's budget has to hold sink and window, 512 tokens each.
  const Grid points(base, {{"budget", {"64", "1536"}}});
  ResultStore store(results(), true);
  const SweepCounts counts = Sweep(predictor, points, store, false);
  EXPECT_EQ(counts.done, 1);
  EXPECT_EQ(counts.failed, 1);
  const ResultStore::Rows rows = store.Read();
  int failed = 0;
  for (const auto& row : rows.rows) {
    if (std::get<std::string>(row[rows.Column("status")]) != "failed") continue;
    ++failed;
    EXPECT_FALSE(std::get<std::string>(row[rows.Column("message")]).empty());
    EXPECT_TRUE(std::holds_alternative<std::monostate>(row[rows.Column("step_p50_ms")]));
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(SweepTest, AFailedPointIsTriedAgain) {
  Predictor predictor(trace());
  const Grid points(Of2K(), Axes());
  ResultStore store(results(), true);
  Sweep(predictor, points, store, false);
  store.Put(1, StoredFailure(points[3], {predictor.key(), "t.kvt"}, "out of memory"));
  store.Flush();
  const SweepCounts counts = Sweep(predictor, points, store, false);
  EXPECT_EQ(counts.present, 7);
  EXPECT_EQ(counts.done, 1);
  EXPECT_TRUE(counts.problems.empty());
}

TEST_F(SweepTest, ATraceOfAnotherScaleIsAnother) {
  const Grid points(Of2K(), Axes());
  ResultStore store(results(), true);
  Predictor predictor(trace());
  Sweep(predictor, points, store, false);
  traces::Trace other = traces::ReadTrace(trace());
  other.info.mutable_model()->set_softmax_scale(0.02);
  traces::TraceWriter writer(folder_ / "other.kvt", other.info);
  for (const traces::Tensor& tensor : other.tensors) writer.Write(tensor.spec, tensor.data);
  writer.Finish();
  Predictor of_other(folder_ / "other.kvt");
  EXPECT_EQ(of_other.report().content_hash, predictor.report().content_hash);
  EXPECT_EQ(Sweep(of_other, points, store, false).done, 8);
  // Nor does one read the access logs of the other.
  PredictorOptions fresh;
  fresh.cache = false;
  EXPECT_EQ(
      of_other.Predict(points[0].request).selection.attention_mass,
      Predictor(folder_ / "other.kvt", fresh).Predict(points[0].request).selection.attention_mass);
}

TEST_F(SweepTest, LeavesOtherProgramsDatabasesAlone) {
  for (const char* table : {"CREATE TABLE points (x INT)", "CREATE TABLE runs (point TEXT)"}) {
    fs::remove(results());
    Execute(table);
    const auto content = [&] {
      std::ifstream file(results(), std::ios::binary);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const std::string before = content();
    EXPECT_THROW(ResultStore(results(), true), Error);
    EXPECT_THROW(ResultStore(results(), false), Error);
    EXPECT_EQ(content(), before);
  }
}

TEST_F(SweepTest, ReadsAFileOfAnotherFolderWithoutARightToWrite) {
  {
    Predictor predictor(trace());
    ResultStore store(results(), true);
    Sweep(predictor, Grid(Of2K(), Axes()), store, false);
  }
  fs::permissions(results(), fs::perms::owner_read);
  fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(ResultStore(results(), false).Read().rows.size(), 8u);
  fs::permissions(folder_.path(), fs::perms::owner_all);
}

TEST_F(SweepTest, RefusesADamagedFile) {
  {
    Predictor predictor(trace());
    ResultStore store(results(), true);
    Sweep(predictor, Grid(Of2K(), Axes()), store, false);
  }
  std::fstream file(results(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(results()) / 2));
  file << std::string(32768, 'x');
  file.close();
  EXPECT_THROW(ResultStore(results(), true), Error);
  EXPECT_THROW(ResultStore(results(), false), Error);
}

TEST_F(SweepTest, TwoProcessesShareOneFile) {
  const auto points = Points();
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        ResultStore store(results(), true);
        Prediction prediction;
        for (int round = 0; round < 20; ++round) {
          for (size_t p = 0; p < points.size(); ++p) {
            const StoredTrace of{"trace", "t.kvt"};
            store.Put(static_cast<int64_t>(p), Stored(points[p], of, prediction));
            store.Flush();
          }
        }
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  ResultStore store(results(), false);
  EXPECT_EQ(store.Read().rows.size(), points.size());
}

TEST_F(SweepTest, RefusesFilesThatHoldNoSweep) {
  EXPECT_THROW(ResultStore(folder_ / "missing.sqlite", false), Error);
  EXPECT_THROW(ResultStore(folder_ / "no" / "folder.sqlite", true), Error);
  EXPECT_THROW(ResultStore(trace(), false), Error);
  EXPECT_THROW(ResultStore(trace(), true), Error);
  EXPECT_THROW(ResultStore(folder_.path(), true), Error);
  std::ofstream(folder_ / "empty.sqlite").close();
  EXPECT_THROW(ResultStore(folder_ / "empty.sqlite", false), Error);
}

}  // namespace
}  // namespace stallcast::sim
