#include "sim/result_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>
#include <xxhash.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "sim/cache_folder.h"
#include "sim/prediction_fields.h"
#include "traces/common/error.h"

namespace stallcast::sim {

const std::string& ProgramHash() {
  static const std::string hash = [] {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    return content.empty() ? "" : HashOf(content);
  }();
  return hash;
}

namespace {

constexpr int kFormat = 3;      // PRAGMA user_version
constexpr int kViewFormat = 3;  // the first with a view
constexpr std::chrono::milliseconds kBusyTime{60'000};
constexpr std::chrono::milliseconds kMostWait{100};
constexpr size_t kMostWaiting = 1000;
constexpr size_t kMostIds = 100'000;
// Checking a larger file would take longer than most reads of it; SQLite notices damage there too.
constexpr uintmax_t kMostChecked = uintmax_t{1} << 28;

// How a column of `rows` holds what the view shows.
enum class Kind {
  kText,    // the id of a text
  kWords,   // a JSON array of ids of texts, which make one text with spaces between them
  kObject,  // the same of texts "name=value", which make a JSON object
  kArray,   // the same of texts, which make a JSON array
  kTime,    // seconds since 1970, shown as ISO 8601
  kNumber
};
struct Column {
  const char* name;
  Kind kind;
};
constexpr bool IsText(Kind kind) { return kind != Kind::kTime && kind != Kind::kNumber; }

// What comes before the prediction's fields.
constexpr size_t kPointText = 0, kTraceText = 1, kMessageText = 3;
constexpr Column kColumns[] = {{"point", Kind::kWords},
                               {"trace", Kind::kText},
                               {"status", Kind::kText},
                               {"message", Kind::kText},
                               {"finished", Kind::kTime},
                               {"method", Kind::kText},
                               {"params", Kind::kObject},
                               {"model", Kind::kText},
                               {"tensor_parallel", Kind::kNumber},
                               {"machine", Kind::kText},
                               {"machine_status", Kind::kText},
                               {"overrides", Kind::kObject},
                               {"context", Kind::kNumber},
                               {"batch", Kind::kNumber},
                               {"steps", Kind::kNumber},
                               {"samples", Kind::kNumber},
                               {"host", Kind::kText},
                               {"as_run", Kind::kNumber},
                               {"most_exposed_role", Kind::kText},
                               {"notes", Kind::kArray},
                               {"trace_file", Kind::kText},
                               {"program", Kind::kText}};

const std::vector<Column>& Columns() {
  static const std::vector<Column> all = [] {
    std::vector<Column> columns(std::begin(kColumns), std::end(kColumns));
    for (const PredictionField& field : PredictionFields()) {
      columns.push_back({field.name.c_str(), Kind::kNumber});
    }
    return columns;
  }();
  return all;
}

const char* TypeOf(Kind kind) {
  switch (kind) {
    case Kind::kText:
    case Kind::kTime:
      return "INTEGER";
    case Kind::kNumber:
      return "REAL";
    default:
      return "TEXT";
  }
}

// What the view shows of a column.
std::string Shown(const Column& column) {
  const auto of_texts = [&](const char* made) {
    return fmt::format(
        "(SELECT {} FROM (SELECT texts.text FROM json_each(rows.{}) AS word "
        "JOIN texts ON texts.id = word.value ORDER BY word.key))",
        made, column.name);
  };
  switch (column.kind) {
    case Kind::kText:
      return fmt::format("(SELECT text FROM texts WHERE texts.id = rows.{})", column.name);
    case Kind::kWords:
      return of_texts("group_concat(text, ' ')");
    case Kind::kObject:
      return of_texts(
          "json_group_object(substr(text, 1, instr(text, '=') - 1), "
          "substr(text, instr(text, '=') + 1))");
    case Kind::kArray:
      return of_texts("json_group_array(text)");
    case Kind::kTime:
      return fmt::format("strftime('%Y-%m-%dT%H:%M:%SZ', rows.{}, 'unixepoch')", column.name);
    case Kind::kNumber:
      return fmt::format("rows.{}", column.name);
  }
  return "";
}

// Paths may hold bytes that are no UTF-8: these are replaced.
std::string ValidUtf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::vector<std::string> Assignments(const auto& pairs) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : pairs) texts.push_back(fmt::format("{}={}", name, value));
  return texts;
}

// Of a point of a trace, as its row is found by.
using RowHash = XXH128_canonical_t;
RowHash HashOfRow(const std::string& key, const std::string& trace_hash) {
  const std::string text = fmt::format("{}\n{}", trace_hash, key);
  RowHash hash;
  XXH128_canonicalFromHash(&hash, XXH3_128bits(text.data(), text.size()));
  return hash;
}

StoredPoint Store(const GridPoint& point, const StoredTrace& trace, const Prediction* prediction,
                  const std::string& message) {
  const PredictRequest& r = prediction ? prediction->request : point.request;
  StoredPoint stored{.failed = !prediction, .texts = {}, .numbers = {}};
  const std::pair<std::string_view, std::vector<std::string>> texts[] = {
      {"point", WordsOf(point.key)},
      {"trace", {trace.hash}},
      {"trace_file", {trace.file}},
      {"status", {prediction ? "ok" : "failed"}},
      {"message", {message}},
      {"method", {r.method}},
      {"params", prediction ? Assignments(prediction->params) : Assignments(r.params)},
      {"model", {prediction ? prediction->model.name : r.model}},
      {"machine", {r.machine}},
      {"machine_status", {prediction ? prediction->machine_status : ""}},
      {"overrides", Assignments(r.machine_overrides)},
      {"host", {std::string(plan::Name(r.host.value_or(plan::Host::kCpp)))}},
      {"most_exposed_role", {prediction ? MostExposedRole(prediction->metrics) : ""}},
      {"notes", prediction ? prediction->notes : std::vector<std::string>()},
      {"program", {ProgramHash()}}};
  const std::pair<std::string_view, double> numbers[] = {
      {"finished", static_cast<double>(std::time(nullptr))},
      {"tensor_parallel", r.tensor_parallel},
      {"context", static_cast<double>(r.context)},
      {"batch", r.batch},
      {"steps", r.steps},
      {"samples", r.samples},
      {"as_run", r.as_run ? 1.0 : 0.0}};
  const auto named = [](const auto& values, const char* name) {
    return std::ranges::find_if(values, [&](const auto& each) { return each.first == name; });
  };
  for (const Column& column : kColumns) {
    if (IsText(column.kind)) {
      stored.texts.push_back(named(texts, column.name)->second);
    } else {
      stored.numbers.push_back(named(numbers, column.name)->second);
    }
  }
  for (const PredictionField& field : PredictionFields()) {
    stored.numbers.push_back(prediction ? field.Of(*prediction)
                                        : std::numeric_limits<double>::quiet_NaN());
  }
  return stored;
}

[[noreturn]] void Fail(sqlite3* database, const std::string& name) {
  const std::string problem = database ? sqlite3_errmsg(database) : "out of memory";
  throw Error(problem, name, "give a results file of stallcast sweep in a folder with room");
}

}  // namespace

StoredPoint Stored(const GridPoint& point, const StoredTrace& trace, const Prediction& prediction) {
  return Store(point, trace, &prediction, "");
}

StoredPoint StoredFailure(const GridPoint& point, const StoredTrace& trace,
                          const std::string& message) {
  return Store(point, trace, nullptr, message);
}

const std::string& StoredPoint::Problem() const { return texts[kMessageText].front(); }

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

  /// Begins anew.
  void Reset() {
    sqlite3_reset(statement_);
    bound_ = 0;
  }
  void Bind(const std::string& text) {
    sqlite3_bind_text(statement_, ++bound_, text.data(), static_cast<int>(text.size()),
                      SQLITE_TRANSIENT);
  }
  void Bind(const RowHash& hash) {
    sqlite3_bind_blob(statement_, ++bound_, hash.digest, sizeof hash.digest, SQLITE_TRANSIENT);
  }
  /// SQLite turns NaN into NULL.
  void Bind(double number) { sqlite3_bind_double(statement_, ++bound_, number); }
  void Bind(int64_t number) { sqlite3_bind_int64(statement_, ++bound_, number); }

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
      default: {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
        return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
      }
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
  const bool results = HasColumn("points", "point") && HasColumn("points", "trace") &&
                       HasColumn("points", "finished");
  if (results) return;
  throw Error("is a database of another program", name_, "choose another file for the results");
}

void ResultStore::CheckWhole() {
  std::error_code unknown;
  const uintmax_t size = std::filesystem::file_size(name_, unknown);
  if (!unknown && size > kMostChecked) return;
  Statement check(*this, "PRAGMA quick_check(1)");
  const Value found = check.Step() ? check.At(0) : Value();
  if (found != Value(std::string("ok"))) {
    throw Error("is damaged", name_, "sweep into a new file");
  }
}

// A file of an earlier version lacks the columns that came later.
void ResultStore::MakeTables() {
  Execute("BEGIN IMMEDIATE");
  Execute("CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)");
  Execute("CREATE TABLE IF NOT EXISTS sweeps (id TEXT PRIMARY KEY, first INTEGER, points INTEGER)");
  Execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE)");
  bool same = HasColumn("points", "id");
  std::string view = "CREATE VIEW points AS SELECT rows.id AS id";
  for (const Column& column : Columns()) {
    if (!HasColumn("rows", column.name)) {
      same = false;
      Execute(fmt::format("ALTER TABLE rows ADD COLUMN {} {}", column.name, TypeOf(column.kind)));
    }
    view += fmt::format(", {} AS {}", Shown(column), column.name);
  }
  if (!same) {
    Execute("DROP VIEW IF EXISTS points");
    Execute(view + " FROM rows");
  }
  Execute(fmt::format("PRAGMA user_version = {}", kFormat));
  Execute("COMMIT");
  format_ = kFormat;
}

void ResultStore::PrepareToWrite() {
  std::string names = "id, hash", values = "?, ?";
  for (const Column& column : Columns()) {
    names += fmt::format(", {}", column.name);
    values += ", ?";
  }
  const auto prepare = [&](const std::string& sql) {
    return std::make_unique<Statement>(*this, sql);
  };
  insert_row_ = prepare("INSERT OR REPLACE INTO rows (" + names + ") VALUES (" + values + ")");
  find_row_ = prepare("SELECT id FROM rows WHERE hash = ?");
  find_held_ = prepare(
      "SELECT (SELECT text FROM texts WHERE id = message), "
      "(SELECT text FROM texts WHERE id = program) FROM rows WHERE hash = ?");
  find_text_ = prepare("SELECT id FROM texts WHERE text = ?");
  insert_text_ = prepare("INSERT INTO texts (text) VALUES (?) RETURNING id");
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
    {
      Statement version(*this, "PRAGMA user_version");
      if (version.Step()) format_ = std::get<double>(version.At(0));
    }
    if (format_ > kFormat) {
      throw Error("written by a newer stallcast", name_, "update stallcast or choose another file");
    }
    if (!create && format_ == 0) {
      throw Error("holds no sweep", name_, "give the file that stallcast sweep --out wrote");
    }
    if (create && format_ > 0 && format_ < kViewFormat) {
      throw Error("an earlier version of stallcast wrote it", name_,
                  "sweep into a new file; `stallcast sweep --show` still reads this one");
    }
    CheckWhole();
    if (!create) {
      Execute("BEGIN");  // one state for all that is read
      return;
    }
    Execute("PRAGMA page_size = 16384");  // of a new file: a row wastes less of a larger page
    Execute("PRAGMA journal_mode = WAL");
    Execute("PRAGMA synchronous = NORMAL");
    MakeTables();
    PrepareToWrite();
  } catch (...) {
    sqlite3_close_v2(database_);
    throw;
  }
}

ResultStore::~ResultStore() {
  try {
    Flush();
  } catch (const std::exception&) {
    // A sweep flushes itself, and reports what goes wrong.
  }
  sqlite3_close_v2(database_);  // in full with the last statement
}

bool ResultStore::HasColumn(const std::string& table, const std::string& name) {
  Statement column(*this, "SELECT 1 FROM pragma_table_info(?) WHERE name = ?");
  column.Bind(table);
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
  Statement& find = *find_held_;
  find.Reset();
  find.Bind(HashOfRow(key, trace_hash));
  if (!find.Step()) return std::nullopt;
  const auto text = [&](int column) {
    const Value value = find.At(column);
    const auto* known = std::get_if<std::string>(&value);
    return known ? *known : "";
  };
  Held held{text(0), text(1) != ProgramHash()};
  find.Reset();  // nothing is read any more
  return held;
}

int64_t ResultStore::PlaceOf(const std::string& sweep, size_t points) {
  const std::lock_guard lock(mutex_);
  Execute("BEGIN IMMEDIATE");
  int64_t first = 1;
  {
    Statement known(*this, "SELECT first FROM sweeps WHERE id = ?");
    known.Bind(sweep);
    Statement next(*this, "SELECT max(first + points) FROM sweeps");
    Statement add(*this, "INSERT INTO sweeps (id, first, points) VALUES (?, ?, ?)");
    if (known.Step()) {
      first = static_cast<int64_t>(std::get<double>(known.At(0)));
    } else {
      const Value after = next.Step() ? next.At(0) : Value();
      if (const auto* place = std::get_if<double>(&after)) first = static_cast<int64_t>(*place);
      add.Bind(sweep);
      add.Bind(first);
      add.Bind(static_cast<int64_t>(points));
      add.Step();
    }
  }
  Execute("COMMIT");
  return first;
}

void ResultStore::Put(int64_t place, StoredPoint point) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({place, std::move(point)});
  const bool late = std::chrono::steady_clock::now() - written_ > kMostWait;
  if (late || waiting_.size() >= kMostWaiting) WriteWaiting();
}

void ResultStore::Flush() {
  const std::lock_guard lock(mutex_);
  WriteWaiting();
}

void ResultStore::WriteWaiting() {
  if (waiting_.empty()) return;
  Execute("BEGIN IMMEDIATE");
  try {
    for (const Waiting& waiting : waiting_) Write(waiting);
    Execute("COMMIT");
  } catch (...) {
    ids_.clear();
    sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
  waiting_.clear();
  written_ = std::chrono::steady_clock::now();
}

int64_t ResultStore::IdOf(const std::string& text) {
  if (ids_.size() > kMostIds) ids_.clear();
  const auto [at, fresh] = ids_.try_emplace(text);
  if (!fresh) return at->second;
  const auto id = [&](Statement& statement) -> std::optional<int64_t> {
    statement.Reset();
    statement.Bind(ValidUtf8(text));
    std::optional<int64_t> found;
    if (statement.Step()) found = static_cast<int64_t>(std::get<double>(statement.At(0)));
    statement.Reset();
    return found;
  };
  std::optional<int64_t> found = id(*find_text_);
  if (!found) found = id(*insert_text_);
  return at->second = found.value();
}

void ResultStore::Write(const Waiting& waiting) {
  const StoredPoint& point = waiting.point;
  const RowHash hash = HashOfRow(fmt::format("{}", fmt::join(point.texts[kPointText], " ")),
                                 point.texts[kTraceText].front());
  int64_t place = waiting.place;
  find_row_->Reset();
  find_row_->Bind(hash);
  if (find_row_->Step()) place = static_cast<int64_t>(std::get<double>(find_row_->At(0)));
  find_row_->Reset();
  Statement& insert = *insert_row_;
  insert.Reset();
  insert.Bind(place);
  insert.Bind(hash);
  auto texts = point.texts.begin();
  auto number = point.numbers.begin();
  for (const Column& column : Columns()) {
    if (!IsText(column.kind)) {
      insert.Bind(*number++);
      continue;
    }
    const std::vector<std::string>& of_column = *texts++;
    if (column.kind == Kind::kText) {
      insert.Bind(IdOf(of_column.front()));
      continue;
    }
    std::string ids;
    for (const std::string& text : of_column) {
      ids += fmt::format("{}{}", ids.empty() ? "[" : ",", IdOf(text));
    }
    insert.Bind(ids.empty() ? "[]" : ids + "]");
  }
  insert.Step();
  insert.Reset();
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

// What the view shows, by id or ids: the view itself takes ten times as long.
class ResultStore::Texts {
 public:
  explicit Texts(ResultStore& store) : find_(store, "SELECT text FROM texts WHERE id = ?") {}

  Value Of(const Column& column, Value held) {
    if (column.kind == Kind::kNumber || std::holds_alternative<std::monostate>(held)) return held;
    if (column.kind == Kind::kTime) {
      const auto seconds = static_cast<std::time_t>(std::get<double>(held));
      return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
    }
    if (column.kind == Kind::kText) return ById(static_cast<int64_t>(std::get<double>(held)));
    if (column.kind == Kind::kWords) return Joined(std::get<std::string>(held));
    if (made_.size() > kMostIds) made_.clear();
    const auto [at, fresh] = made_.try_emplace({column.kind, std::get<std::string>(held)});
    if (fresh) at->second = Made(column.kind, at->first.second);
    return at->second;
  }

 private:
  const std::string& ById(int64_t id) {
    if (texts_.size() > kMostIds) texts_.clear();
    const auto [at, fresh] = texts_.try_emplace(id);
    if (fresh) {
      find_.Reset();
      find_.Bind(id);
      if (find_.Step()) at->second = std::get<std::string>(find_.At(0));
      find_.Reset();
    }
    return at->second;
  }
  void ForIds(const std::string& list, const auto& use) {
    const char* const end = list.data() + list.size();
    for (const char* at = list.data(); at < end; ++at) {
      int64_t id = 0;
      const auto read = std::from_chars(at, end, id);
      if (read.ec != std::errc()) continue;  // a bracket or comma
      use(ById(id));
      at = read.ptr;
    }
  }
  std::string Joined(const std::string& list) {
    std::string joined;
    ForIds(list, [&](const std::string& text) { joined += (joined.empty() ? "" : " ") + text; });
    return joined;
  }
  std::string Made(Kind kind, const std::string& list) {
    using Json = nlohmann::ordered_json;
    Json json = kind == Kind::kObject ? Json::object() : Json::array();
    ForIds(list, [&](const std::string& text) {
      if (kind == Kind::kArray) {
        json.push_back(text);
      } else {
        const size_t equals = std::min(text.find('='), text.size());
        json[text.substr(0, equals)] = text.substr(std::min(equals + 1, text.size()));
      }
    });
    return json.dump();
  }

  Statement find_;
  std::unordered_map<int64_t, std::string> texts_;
  std::map<std::pair<Kind, std::string>, std::string> made_;
};

void ResultStore::ForEach(const std::function<void(const Rows&)>& use) {
  const std::lock_guard lock(mutex_);
  const bool view = format_ >= kViewFormat;
  // A file of another version may lack columns, or have more.
  std::vector<Column> columns;
  std::string names;
  if (view) {
    for (const Column& column : Columns()) {
      if (!HasColumn("rows", column.name)) continue;
      columns.push_back(column);
      names += fmt::format("{}{}", names.empty() ? "" : ", ", column.name);
    }
  }
  Statement select(*this, view ? "SELECT " + names + " FROM rows ORDER BY id"
                               : "SELECT * FROM points ORDER BY point, trace");
  std::optional<Texts> texts;
  if (view) texts.emplace(*this);
  Rows point;
  for (int i = 0; i < select.columns(); ++i) point.columns.emplace(select.Name(i), i);
  std::vector<Value>& row = point.rows.emplace_back();
  while (select.Step()) {
    row.clear();
    for (int i = 0; i < select.columns(); ++i) {
      row.push_back(view ? texts->Of(columns[static_cast<size_t>(i)], select.At(i)) : select.At(i));
    }
    use(point);
  }
}

int64_t ResultStore::Count() {
  const std::lock_guard lock(mutex_);
  Statement count(
      *this, format_ < kViewFormat ? "SELECT count(*) FROM points" : "SELECT count(*) FROM rows");
  return count.Step() ? static_cast<int64_t>(std::get<double>(count.At(0))) : 0;
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
