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

  /// What is wrong with the file as such, or empty: it is cut, its schema cannot be read, or rows
  /// that are not in it yet stand in a log beside it.
  const std::string& fault() const { return fault_; }
  /// The names of its ordinary tables, and of its views, which are never read.
  const std::vector<std::string>& tables() const { return tables_; }
  const std::vector<std::string>& views() const { return views_; }

  /// The columns of an ordinary table; empty where there is no such table.
  std::vector<std::string> Columns(const std::string& table);
  bool Has(const std::string& table, std::string_view column);

  /// Calls `take` with each row of a table; a column that it does not have is null. Gives what went
  /// wrong, or an empty text.
  std::string ForEach(const std::string& table, const std::vector<std::string>& columns,
                      const std::function<void(const DatabaseRow&)>& take);

 private:
  void Guard(int status, const std::string& name);
  void ReadSchema(std::span<const std::byte> header, uint64_t size);
  std::string Run(const std::string& query, const std::function<void(const DatabaseRow&)>& take);

  struct Close {
    void operator()(sqlite3* database) const;
  };
  std::unique_ptr<sqlite3, Close> database_;
  std::string fault_;
  std::vector<std::string> tables_, views_;
};

}  // namespace stallcast::traces::convert
