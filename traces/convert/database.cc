#include "traces/convert/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <new>

#include "traces/common/error.h"

namespace stallcast::traces::convert {
namespace {

constexpr size_t kHeader = 100;

std::string Quoted(std::string_view name) {
  std::string quoted = "\"";
  for (const char c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

// "immutable": no locks, no journal, nothing is written even beside the file.
std::string ReadOnlyUri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (const char c : std::filesystem::absolute(path).string()) {
    const bool special = c == '%' || c == '?' || c == '#';
    uri += special ? fmt::format("%{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return uri + "?mode=ro&immutable=1";
}

}  // namespace

bool DatabaseRow::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

bool DatabaseRow::IsText(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_TEXT;
}

int64_t DatabaseRow::Integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view DatabaseRow::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

void Database::Close::operator()(sqlite3* database) const { sqlite3_close(database); }

Database::Database(const std::filesystem::path& path) {
  sqlite3* database = nullptr;
  const int status = sqlite3_open_v2(ReadOnlyUri(path).c_str(), &database,
                                     SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  database_.reset(database);
  Guard(status, path.string());
  std::array<char, kHeader> header{};
  std::ifstream(path, std::ios::binary).read(header.data(), header.size());
  std::error_code ignored;
  ReadSchema(std::as_bytes(std::span(header)), std::filesystem::file_size(path, ignored));
  std::filesystem::path log = path;
  log += "-wal";
  const uintmax_t waiting = std::filesystem::file_size(log, ignored);
  if (!ignored && waiting > 0 && fault_.empty()) {
    fault_ = fmt::format(
        "rows that stand in {} alone are left out; open and close the file with "
        "sqlite3 to take them in",
        log.filename().string());
  }
}

Database::Database(std::span<const std::byte> file, const std::string& name) {
  sqlite3* database = nullptr;
  const int status = sqlite3_open_v2(":memory:", &database, SQLITE_OPEN_READWRITE, nullptr);
  database_.reset(database);
  Guard(status, name);
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(file.size()));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, file.data(), file.size());
  const auto size = static_cast<sqlite3_int64>(file.size());
  Guard(sqlite3_deserialize(database, "main", copy, size, size,
                            SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY),
        name);
  ReadSchema(file.first(std::min(file.size(), kHeader)), file.size());
}

// The header tells how many pages there should be (https://sqlite.org/fileformat.html, 1.3).
void Database::ReadSchema(std::span<const std::byte> header, uint64_t size) {
  if (header.size() >= kHeader) {
    const auto big_endian = [&](size_t at, size_t bytes) {
      uint64_t value = 0;
      for (size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<uint64_t>(header[at + i]);
      return value;
    };
    const uint64_t page = big_endian(16, 2) == 1 ? 65'536 : big_endian(16, 2);
    const uint64_t whole = page * big_endian(28, 4);
    if (size < whole) {
      fault_ = fmt::format("cut off: {} of {} bytes are there", size, whole);
    }
  }
  const std::string fault =
      Run("SELECT name, sql, type FROM sqlite_master", [&](const DatabaseRow& row) {
        if (row.Text(2) == "view") views_.emplace_back(row.Text(0));
        if (row.Text(2) == "table" && row.Text(1).starts_with("CREATE TABLE")) {
          tables_.emplace_back(row.Text(0));
        }
      });
  if (fault_.empty() && !fault.empty()) fault_ = "damaged: " + fault;
}

void Database::Guard(int status, const std::string& name) {
  if (status != SQLITE_OK) {
    throw Error(database_ ? sqlite3_errmsg(database_.get()) : "out of memory", name,
                "check the file and its permissions");
  }
  // The file's schema may hold anything; only plain tables are read.
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(database_.get(), SQLITE_LIMIT_LENGTH, 64 << 20);
  sqlite3_exec(database_.get(), "PRAGMA cell_size_check = ON", nullptr, nullptr, nullptr);
}

std::string Database::Run(const std::string& query,
                          const std::function<void(const DatabaseRow&)>& take) {
  sqlite3_stmt* statement = nullptr;
  int status = sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &statement, nullptr);
  const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> owner(statement,
                                                                         sqlite3_finalize);
  while (status == SQLITE_OK || status == SQLITE_ROW) {
    status = sqlite3_step(statement);
    if (status == SQLITE_ROW) take(DatabaseRow(statement));
  }
  return status == SQLITE_DONE ? "" : sqlite3_errmsg(database_.get());
}

std::vector<std::string> Database::Columns(const std::string& table) {
  std::vector<std::string> columns;
  if (std::ranges::count(tables_, table) == 0) return columns;
  Run(fmt::format("PRAGMA table_info({})", Quoted(table)),
      [&](const DatabaseRow& row) { columns.emplace_back(row.Text(1)); });
  return columns;
}

bool Database::Has(const std::string& table, std::string_view column) {
  return std::ranges::count(Columns(table), column) > 0;
}

std::string Database::ForEach(const std::string& table, const std::vector<std::string>& columns,
                              const std::function<void(const DatabaseRow&)>& take) {
  const std::vector<std::string> known = Columns(table);
  if (known.empty()) return "";
  std::string wanted;
  for (const std::string& column : columns) {
    const bool has = std::ranges::count(known, column) > 0;
    wanted += (wanted.empty() ? "" : ", ") + (has ? Quoted(column) : std::string("NULL"));
  }
  return Run(fmt::format("SELECT {} FROM {}", wanted, Quoted(table)), take);
}

}  // namespace stallcast::traces::convert
