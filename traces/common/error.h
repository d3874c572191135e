// The one exception type of the project.
#pragma once

#include <stdexcept>
#include <string>

namespace stallcast {

/// Something that the user can act on: what went wrong, where (file, option, record), and the
/// remedy. A command prints it as one line and exits 1, or 2 when `usage` says that the command
/// line itself was wrong.
class Error : public std::runtime_error {
 public:
  enum class Kind { kFailure, kUsage };

  Error(std::string what, std::string where, std::string remedy, Kind kind = Kind::kFailure);

  const std::string& problem() const { return problem_; }
  const std::string& where() const { return where_; }
  const std::string& remedy() const { return remedy_; }
  bool usage() const { return kind_ == Kind::kUsage; }

 private:
  std::string problem_;
  std::string where_;
  std::string remedy_;
  Kind kind_;
};

/// Wrong usage: an unknown name, a value out of range, a unit mistake.
Error UsageError(std::string what, std::string where, std::string remedy);

}  // namespace stallcast
