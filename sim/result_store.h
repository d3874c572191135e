// A sweep's results in an SQLite file, one row a point.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sim/grid.h"

struct sqlite3;

namespace stallcast::sim {

/// The table `points`: point (its key) and trace (TraceKey()) are the primary key; then status
/// ("ok" or "failed"), message, what was asked for, and every PredictionField by name (NULL where
/// not known). `program` is a hash of the build that predicted the point. `params` and `overrides`
/// are JSON objects of texts, `notes` is an array of them. Each Put is a transaction in write-ahead
/// mode: what returned is there after a crash, and any number of threads and processes may write
/// one file. A file of an earlier version gets the columns that it lacks. Errors name the file.
class ResultStore {
 public:
  /// Opens the file to read it, or to write it, made where missing, where `create`. Errors: a
  /// database of another program, one of a newer stallcast, a damaged one.
  ResultStore(const std::filesystem::path& path, bool create);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  struct Trace {
    std::string hash;  ///< TraceKey()
    std::string file;
  };

  struct Held {
    std::string problem;     ///< why the point has no result; empty where it has one
    bool by_others = false;  ///< another build of the program predicted it, perhaps differently
  };
  /// None where the file does not hold the point.
  std::optional<Held> Find(const std::string& key, const std::string& trace_hash);
  void Put(const GridPoint& point, const Trace& trace, const Prediction& prediction);
  /// A point that has no result, and why.
  void PutFailure(const GridPoint& point, const Trace& trace, const std::string& message);

  using Value = std::variant<std::monostate, double, std::string>;
  struct Rows {
    std::map<std::string, size_t, std::less<>> columns;  ///< name to place in a row
    std::vector<std::vector<Value>> rows;
    /// Index of a column; Error where there is none.
    size_t Column(std::string_view name) const;
    /// Nothing where there is no such column: the file is of an earlier version.
    const Value& At(size_t row, std::string_view name) const;
  };
  /// All points, by key.
  Rows Read();
  /// The same one after the other: a Rows of one row each. A store opened to read gives the same
  /// points each time, whatever others write meanwhile.
  void ForEach(const std::function<void(const Rows& point)>& use);

 private:
  class Statement;
  void OpenToRead();
  void RefuseOthers();
  bool HasColumn(const std::string& name);
  void Execute(const std::string& sql);
  void Write(const GridPoint& point, const Trace& trace, const Prediction* prediction,
             const std::string& message);

  std::string name_;
  std::mutex mutex_;
  sqlite3* database_ = nullptr;
};

/// The names and values, or the texts, that a column of Rows holds; also as an earlier version
/// wrote them: "a=1 b=2", and notes as one.
std::vector<std::pair<std::string, std::string>> StoredPairs(const ResultStore::Value& column);
std::vector<std::string> StoredTexts(const ResultStore::Value& column);

}  // namespace stallcast::sim
