// SQLite files that nobody vouches for, read only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace stallcast::traces::convert {

/// A row of a query. Views hold until the next row.
class DatabaseRow {
 public:
  explicit DatabaseRow(sqlite3_stmt* statement) : statement_(statement) {}

  bool IsNull(int column) const;
  bool IsText(int column) const;
  /// 0 where there is none.
  int64_t Integer(int column) const;
  std::string_view Text(int column) const;

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  /// Throws Error. Neither writes to the file nor beside it.
  explicit Database(const std::filesystem::path& path);
  /// Copies the file.
  Database(std::span<const std::byte> file, const std::string& name);

  /// The columns of an ordinary table; empty where there is no such table.
  std::vector<std::string> Columns(const std::string& table);
  bool Has(const std::string& table, std::string_view column);

  /// Calls `take` with each row of a table; a column that it does not have is null. Gives what went
  /// wrong, or an empty text.
  std::string ForEach(const std::string& table, const std::vector<std::string>& columns,
                      const std::function<void(const DatabaseRow&)>& take);

 private:
  void Guard(int status, const std::string& name);
  std::string Run(const std::string& query, const std::function<void(const DatabaseRow&)>& take);

  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace stallcast::traces::convert
