#include "traces/convert/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "traces/common/error.h"

namespace stallcast::traces::convert {
namespace {

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
  bool plain = false;
  std::string fault =
      Run("SELECT name, sql FROM sqlite_master WHERE type = 'table'", [&](const DatabaseRow& row) {
        const std::string_view sql = row.Text(1);
        if (row.Text(0) == table) plain = sql.starts_with("CREATE TABLE");
      });
  std::vector<std::string> columns;
  if (!plain) return columns;
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
