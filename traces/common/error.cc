#include "traces/common/error.h"

#include <algorithm>
#include <utility>

namespace stallcast {
namespace {

// Names and messages come from files and command lines: keep the report on one line whatever
// they hold.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string Join(const std::string& what, const std::string& where, const std::string& remedy) {
  std::string line = where.empty() ? what : where + ": " + what;
  if (!remedy.empty()) line += "; " + remedy;
  return OneLine(std::move(line));
}

}  // namespace

Error::Error(std::string what, std::string where, std::string remedy, Kind kind)
    : std::runtime_error(Join(what, where, remedy)),
      problem_(std::move(what)),
      where_(std::move(where)),
      remedy_(std::move(remedy)),
      kind_(kind) {}

Error UsageError(std::string what, std::string where, std::string remedy) {
  return Error(std::move(what), std::move(where), std::move(remedy), Error::Kind::kUsage);
}

}  // namespace stallcast
