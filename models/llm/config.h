// The fields of a config.json, read one by one with errors that name them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::llm {

/// One JSON object of the file. Fields that are missing and fields that are null are the same.
class Config {
 public:
  using Json = nlohmann::json;
  Config(Json json, std::string where) : json_(std::move(json)), where_(std::move(where)) {}

  bool Has(const char* name) const { return Find(name) != nullptr; }
  /// A whole number from 0 to a thousand million. Anything else: Error.
  std::optional<int64_t> Count(const char* name) const;
  int64_t Need(const char* name) const;
  bool Flag(const char* name, bool fallback) const;
  /// Empty where there is no such text.
  std::string Text(const char* name) const;
  std::vector<std::string> Texts(const char* name) const;
  std::vector<int64_t> Counts(const char* name) const;
  /// An object inside this one; none: an empty one.
  Config Inside(const char* name) const;
  bool empty() const { return json_.empty(); }
  const Json& json() const { return json_; }
  Error Fail(std::string problem) const;

 private:
  const Json* Find(const char* name) const;
  Json json_;
  std::string where_;
};

/// The text of a file as an object. Infinity and NaN, which Python writes, count as null.
Config ParseConfig(std::string_view text, const std::string& where);

}  // namespace stallcast::llm
