#include "sim/result_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "sim/cache_folder.h"
#include "sim/prediction_fields.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

constexpr int kFormat = 2;  // PRAGMA user_version
constexpr std::chrono::milliseconds kBusyTime{60'000};

// What comes between the primary key and the prediction's fields.
constexpr std::array kColumns = {"status TEXT",
                                 "message TEXT",
                                 "finished TEXT",
                                 "method TEXT",
                                 "params TEXT",
                                 "model TEXT",
                                 "tensor_parallel REAL",
                                 "machine TEXT",
                                 "machine_status TEXT",
                                 "overrides TEXT",
                                 "context REAL",
                                 "batch REAL",
                                 "steps REAL",
                                 "samples REAL",
                                 "host TEXT",
                                 "as_run REAL",
                                 "most_exposed_role TEXT",
                                 "notes TEXT",
                                 "trace_file TEXT",
                                 "program TEXT"};

// Of the file that runs: what any part of it predicts differently comes with another one. Empty
// where it cannot be read.
const std::string& ProgramHash() {
  static const std::string hash = [] {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    return content.empty() ? "" : HashOf(content);
  }();
  return hash;
}

// Paths may hold bytes that are no UTF-8: these are replaced.
std::string TextOf(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

[[noreturn]] void Fail(sqlite3* database, const std::string& name) {
  const std::string problem = database ? sqlite3_errmsg(database) : "out of memory";
  throw Error(problem, name, "give a results file of stallcast sweep in a folder with room");
}

}  // namespace

class ResultStore::Statement {
 public:
  Statement(ResultStore& store, const std::string& sql) : store_(store) {
    if (sqlite3_prepare_v2(store.database_, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK) {
      Fail(store.database_, store.name_);
    }
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void Bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
  }
  /// SQLite turns NaN into NULL.
  void Bind(double number) { sqlite3_bind_double(statement_, ++bound_, number); }
  void BindNull() { sqlite3_bind_null(statement_, ++bound_); }

  /// SQLite's own waiting leaves some cases out (two processes that both switch to write-ahead
  /// mode, say), so a busy file is tried again here too.
  bool Step() {
    const auto give_up = std::chrono::steady_clock::now() + kBusyTime;
    int result = sqlite3_step(statement_);
    while (result == SQLITE_BUSY && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      sqlite3_reset(statement_);
      result = sqlite3_step(statement_);
    }
    if (result != SQLITE_ROW && result != SQLITE_DONE) Fail(store_.database_, store_.name_);
    return result == SQLITE_ROW;
  }
  int columns() const { return sqlite3_column_count(statement_); }
  std::string Name(int column) const { return sqlite3_column_name(statement_, column); }
  Value At(int column) const {
    switch (sqlite3_column_type(statement_, column)) {
      case SQLITE_NULL:
        return {};
      case SQLITE_INTEGER:
      case SQLITE_FLOAT:
        return sqlite3_column_double(statement_, column);
      default:
        return std::string(reinterpret_cast<const char*>(sqlite3_column_text(statement_, column)));
    }
  }

 private:
  ResultStore& store_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// Reading takes no right to write, not even beside the file: where SQLite wants to make its log
// there and cannot, a file that nobody is writing is read as it is.
void ResultStore::OpenToRead() {
  const auto opened = [&](const std::string& name, int more) {
    sqlite3_close(std::exchange(database_, nullptr));
    if (sqlite3_open_v2(name.c_str(), &database_,
                        SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_READONLY | more,
                        nullptr) != SQLITE_OK) {
      return false;
    }
    sqlite3_busy_timeout(database_, static_cast<int>(kBusyTime.count()));
    return sqlite3_exec(database_, "SELECT 1 FROM sqlite_master", nullptr, nullptr, nullptr) ==
           SQLITE_OK;
  };
  if (opened(name_, 0)) return;
  std::error_code absent;
  const auto log = std::filesystem::file_size(name_ + "-wal", absent);
  std::string escaped;
  for (const unsigned char c : std::filesystem::absolute(name_).string()) {
    escaped += std::isalnum(c) || c == '/' ? std::string(1, static_cast<char>(c))
                                           : fmt::format("%{:02x}", c);
  }
  const bool written = !absent && log > 0;
  if (written || !opened("file:" + escaped + "?immutable=1", SQLITE_OPEN_URI)) {
    Fail(database_, name_);
  }
}

// A database that holds something, but no results, is another program's.
void ResultStore::RefuseOthers() {
  Statement tables(*this, "SELECT name FROM sqlite_master WHERE type = 'table'");
  if (!tables.Step()) return;
  if (HasColumn("point") && HasColumn("trace") && HasColumn("finished")) return;
  throw Error("is a database of another program", name_, "choose another file for the results");
}

ResultStore::ResultStore(const std::filesystem::path& path, bool create) : name_(path.string()) {
  try {
    if (!create) {
      OpenToRead();
    } else if (sqlite3_open_v2(name_.c_str(), &database_,
                               SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                               nullptr) != SQLITE_OK) {
      Fail(database_, name_);
    }
    sqlite3_busy_timeout(database_, static_cast<int>(kBusyTime.count()));
    RefuseOthers();
    double format = 0;
    {
      Statement version(*this, "PRAGMA user_version");
      if (version.Step()) format = std::get<double>(version.At(0));
    }
    if (format > kFormat) {
      throw Error("written by a newer stallcast", name_, "update stallcast or choose another file");
    }
    if (!create && format == 0) {
      throw Error("holds no sweep", name_, "give the file that stallcast sweep --out wrote");
    }
    {
      Statement check(*this, "PRAGMA quick_check(1)");
      const Value found = check.Step() ? check.At(0) : Value();
      if (found != Value(std::string("ok"))) {
        throw Error("is damaged", name_, "sweep into a new file");
      }
    }
    if (!create) {
      Execute("BEGIN");  // one state for all that is read
      return;
    }
    Execute("PRAGMA journal_mode = WAL");
    Execute("PRAGMA synchronous = NORMAL");
    std::string columns = fmt::format("{}", fmt::join(kColumns, ", "));
    for (const PredictionField& field : PredictionFields()) columns += ", " + field.name + " REAL";
    Execute("BEGIN IMMEDIATE");
    Execute("CREATE TABLE IF NOT EXISTS points (point TEXT, trace TEXT, " + columns +
            ", PRIMARY KEY (point, trace)) WITHOUT ROWID");
    // A file of an earlier version lacks the columns that came later.
    const auto add = [&](const std::string& name, const std::string& column) {
      if (!HasColumn(name)) Execute("ALTER TABLE points ADD COLUMN " + column);
    };
    for (const std::string column : kColumns) add(column.substr(0, column.find(' ')), column);
    for (const PredictionField& field : PredictionFields()) add(field.name, field.name + " REAL");
    Execute(fmt::format("PRAGMA user_version = {}", kFormat));
    Execute("COMMIT");
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
}

ResultStore::~ResultStore() { sqlite3_close(database_); }

bool ResultStore::HasColumn(const std::string& name) {
  Statement column(*this, "SELECT 1 FROM pragma_table_info('points') WHERE name = ?");
  column.Bind(name);
  return column.Step();
}

void ResultStore::Execute(const std::string& sql) {
  Statement statement(*this, sql);
  while (statement.Step()) {
  }
}

std::optional<ResultStore::Held> ResultStore::Find(const std::string& key,
                                                   const std::string& trace_hash) {
  const std::lock_guard lock(mutex_);
  Statement find(*this, "SELECT message, program FROM points WHERE point = ? AND trace = ?");
  find.Bind(key);
  find.Bind(trace_hash);
  if (!find.Step()) return std::nullopt;
  const auto text = [&](int column) {
    const Value value = find.At(column);
    const auto* known = std::get_if<std::string>(&value);
    return known ? *known : "";
  };
  return Held{text(0), text(1) != ProgramHash()};
}

void ResultStore::Put(const GridPoint& point, const Trace& trace, const Prediction& prediction) {
  Write(point, trace, &prediction, "");
}

void ResultStore::PutFailure(const GridPoint& point, const Trace& trace,
                             const std::string& message) {
  Write(point, trace, nullptr, message);
}

void ResultStore::Write(const GridPoint& point, const Trace& trace, const Prediction* prediction,
                        const std::string& message) {
  const PredictRequest& r = prediction ? prediction->request : point.request;
  using Json = nlohmann::ordered_json;
  Json params = Json::object(), overrides = Json::object(), notes = Json::array();
  if (prediction) {
    for (const auto& [name, value] : prediction->params) params[name] = value;
    for (const std::string& note : prediction->notes) notes.push_back(note);
  } else {
    for (const auto& [name, value] : r.params) params[name] = value;
  }
  for (const auto& [path, value] : r.machine_overrides) overrides[path] = value;
  const std::string finished =
      fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  std::string columns = "point, trace", values = "?, ?";
  const auto column = [&](std::string_view name) {
    columns += fmt::format(", {}", name);
    values += ", ?";
  };
  for (const std::string_view declared : kColumns) column(declared.substr(0, declared.find(' ')));
  for (const PredictionField& field : PredictionFields()) column(field.name);

  const std::lock_guard lock(mutex_);
  Statement insert(*this,
                   "INSERT OR REPLACE INTO points (" + columns + ") VALUES (" + values + ")");
  insert.Bind(point.key);
  insert.Bind(trace.hash);
  insert.Bind(std::string(prediction ? "ok" : "failed"));
  insert.Bind(message);
  insert.Bind(finished);
  insert.Bind(r.method);
  insert.Bind(TextOf(params));
  insert.Bind(prediction ? prediction->model.name : r.model);
  insert.Bind(static_cast<double>(r.tensor_parallel));
  insert.Bind(r.machine);
  insert.Bind(prediction ? prediction->machine_status : "");
  insert.Bind(TextOf(overrides));
  insert.Bind(static_cast<double>(r.context));
  insert.Bind(static_cast<double>(r.batch));
  insert.Bind(static_cast<double>(r.steps));
  insert.Bind(static_cast<double>(r.samples));
  insert.Bind(std::string(plan::Name(r.host.value_or(plan::Host::kCpp))));
  insert.Bind(r.as_run ? 1.0 : 0.0);
  insert.Bind(prediction ? MostExposedRole(prediction->metrics) : "");
  insert.Bind(TextOf(notes));
  insert.Bind(trace.file);
  insert.Bind(ProgramHash());
  for (const PredictionField& field : PredictionFields()) {
    if (prediction) {
      insert.Bind(field.Of(*prediction));
    } else {
      insert.BindNull();
    }
  }
  insert.Step();
}

size_t ResultStore::Rows::Column(std::string_view name) const {
  const auto at = columns.find(name);
  if (at == columns.end()) {
    throw Error(fmt::format("no column {}", name), "results file",
                "it was written by another version of stallcast: sweep into a new file");
  }
  return at->second;
}

const ResultStore::Value& ResultStore::Rows::At(size_t row, std::string_view name) const {
  static const Value none;
  const auto at = columns.find(name);
  return at == columns.end() ? none : rows[row][at->second];
}

void ResultStore::ForEach(const std::function<void(const Rows&)>& use) {
  const std::lock_guard lock(mutex_);
  Statement select(*this, "SELECT * FROM points ORDER BY point, trace");
  Rows point;
  for (int i = 0; i < select.columns(); ++i) point.columns.emplace(select.Name(i), i);
  std::vector<Value>& row = point.rows.emplace_back();
  while (select.Step()) {
    row.clear();
    for (int i = 0; i < select.columns(); ++i) row.push_back(select.At(i));
    use(point);
  }
}

ResultStore::Rows ResultStore::Read() {
  Rows all;
  ForEach([&](const Rows& point) {
    all.columns = point.columns;
    all.rows.push_back(point.rows.front());
  });
  return all;
}

std::vector<std::pair<std::string, std::string>> StoredPairs(const ResultStore::Value& column) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto* text = std::get_if<std::string>(&column);
  if (!text) return pairs;
  const auto json = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      if (value.is_string()) pairs.emplace_back(name, value.get<std::string>());
    }
    return pairs;
  }
  std::istringstream words(*text);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals != std::string::npos)
      pairs.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return pairs;
}

std::vector<std::string> StoredTexts(const ResultStore::Value& column) {
  std::vector<std::string> texts;
  const auto* text = std::get_if<std::string>(&column);
  if (!text || text->empty()) return texts;
  const auto json = nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) return {*text};
  for (const auto& item : json) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace stallcast::sim
