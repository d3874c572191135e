// A sweep's results in an SQLite file, one row a point.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "sim/grid.h"

struct sqlite3;

namespace stallcast::sim {

/// What points are predicted of.
struct StoredTrace {
  std::string hash;  ///< TraceKey()
  std::string file;
};

/// A point as the file holds it: what was asked for and what came of it.
struct StoredPoint {
  bool failed = false;                          ///< it has no result
  std::vector<std::vector<std::string>> texts;  ///< by column of texts
  std::vector<double> numbers;                  ///< by column of numbers; NaN where not known

  const std::string& Problem() const;  ///< why; empty where it has a result
};
StoredPoint Stored(const GridPoint& point, const StoredTrace& trace, const Prediction& prediction);
/// One that has no result, and why.
StoredPoint StoredFailure(const GridPoint& point, const StoredTrace& trace,
                          const std::string& message);

/// Of the program that runs: what any part of it predicts differently comes with another one. Empty
/// where its file cannot be read.
const std::string& ProgramHash();

/// The view `points`: point (its key) and trace (TraceKey()), which together occur once; then
/// status
/// ("ok" or "failed"), message, what was asked for, and every PredictionField by name (NULL where
/// not known). `program` is a hash of the build that predicted the point. `params` and `overrides`
/// are JSON objects of texts, `notes` is an array of them.
///
/// Below the view, the table `rows` refers to the table `texts`, which holds each text once: keys
/// and parameters by the word, notes by the note. So a row takes below 1 KB.
///
/// What Put() was given is in the file a tenth of a second later at most, or by Flush(), in
/// write-ahead mode: it is there after a crash, and any number of threads and processes may write
/// one file. A file gets the columns that came later; one of before the view is only read. Errors
/// name the file.
class ResultStore {
 public:
  /// Opens the file to read it, or to write it, made where missing, where `create`. Errors: a
  /// database of another program, one of a newer stallcast, one of a much older, a damaged one.
  ResultStore(const std::filesystem::path& path, bool create);
  /// Flushes, as far as that can be done.
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  using Trace = StoredTrace;

  struct Held {
    std::string problem;     ///< why the point has no result; empty where it has one
    bool by_others = false;  ///< another build of the program predicted it, perhaps differently
  };
  /// None where the file does not hold the point.
  std::optional<Held> Find(const std::string& key, const std::string& trace_hash);
  /// The place of the first of so many points in the file's order. A sweep has the same place each
  /// time; sweeps do not overlap.
  int64_t PlaceOf(const std::string& sweep, size_t points);
  /// A point that the file holds already keeps its place.
  void Put(int64_t place, StoredPoint point);
  void Flush();

  using Value = std::variant<std::monostate, double, std::string>;
  struct Rows {
    std::map<std::string, size_t, std::less<>> columns;  ///< name to place in a row
    std::vector<std::vector<Value>> rows;
    /// Index of a column; Error where there is none.
    size_t Column(std::string_view name) const;
    /// Nothing where there is no such column: the file is of an earlier version.
    const Value& At(size_t row, std::string_view name) const;
  };
  int64_t Count();
  /// All points, by place.
  Rows Read();
  /// The same one after the other: a Rows of one row each. A store opened to read gives the same
  /// points each time, whatever others write meanwhile.
  void ForEach(const std::function<void(const Rows& point)>& use);

 private:
  class Statement;
  class Texts;
  struct Waiting {
    int64_t place;
    StoredPoint point;
  };
  void OpenToRead();
  void RefuseOthers();
  void CheckWhole();
  void MakeTables();
  void PrepareToWrite();
  bool HasColumn(const std::string& table, const std::string& name);
  void Execute(const std::string& sql);
  void WriteWaiting();
  void Write(const Waiting& waiting);
  int64_t IdOf(const std::string& text);

  std::string name_;
  std::mutex mutex_;
  sqlite3* database_ = nullptr;
  double format_ = 0;
  // Used for each point.
  std::unique_ptr<Statement> find_row_, find_held_, insert_row_, find_text_, insert_text_;
  std::unordered_map<std::string, int64_t> ids_;  // of texts, lately used
  std::vector<Waiting> waiting_;
  std::chrono::steady_clock::time_point written_;
};

/// The names and values, or the texts, that a column of Rows holds; also as an earlier version
/// wrote them: "a=1 b=2", and notes as one.
std::vector<std::pair<std::string, std::string>> StoredPairs(const ResultStore::Value& column);
std::vector<std::string> StoredTexts(const ResultStore::Value& column);

}  // namespace stallcast::sim
