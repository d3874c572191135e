#include "models/llm/config.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace stallcast::llm {
namespace {

constexpr const char* kRemedy =
    "give the config.json of a decoder that is published beside its weights";

// JSON has no infinities; Python's writer has. Texts are left as they are.
std::string WithoutInfinities(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};
  std::string plain;
  plain.reserve(text.size());
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\' && i + 1 < text.size()) {
      plain += c;
      plain += text[++i];
      continue;
    }
    if (c == '"') quoted = !quoted;
    const std::string_view* word = nullptr;
    for (const std::string_view& each : kWords) {
      if (!quoted && text.substr(i).starts_with(each)) word = &each;
      if (word != nullptr) break;
    }
    if (word == nullptr) {
      plain += c;
      continue;
    }
    plain += "null";
    i += word->size() - 1;
  }
  return plain;
}

}  // namespace

const Config::Json* Config::Find(const char* name) const {
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> Config::Count(const char* name) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  // More than any model has; less than what 32 bits hold.
  constexpr int64_t kMost = 1'000'000'000;
  if (!found->is_number_integer() || *found < 0 || *found > kMost) {
    throw Fail(fmt::format("{} is no count", name));
  }
  return found->get<int64_t>();
}

int64_t Config::Need(const char* name) const {
  if (const std::optional<int64_t> count = Count(name)) return *count;
  throw Fail(fmt::format("there is no {}", name));
}

bool Config::Flag(const char* name, bool fallback) const {
  const Json* found = Find(name);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

std::string Config::Text(const char* name) const {
  const Json* found = Find(name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

std::vector<std::string> Config::Texts(const char* name) const {
  std::vector<std::string> texts;
  const Json* found = Find(name);
  if (found == nullptr) return texts;
  if (!found->is_array()) throw Fail(fmt::format("{} is no list", name));
  for (const Json& each : *found) {
    if (!each.is_string()) throw Fail(fmt::format("{} is no list of texts", name));
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

std::vector<int64_t> Config::Counts(const char* name) const {
  std::vector<int64_t> counts;
  const Json* found = Find(name);
  if (found == nullptr) return counts;
  if (!found->is_array()) throw Fail(fmt::format("{} is no list", name));
  for (const Json& each : *found) {
    if (!each.is_number_integer() || each < 0) {
      throw Fail(fmt::format("{} is no list of counts", name));
    }
    counts.push_back(each.get<int64_t>());
  }
  return counts;
}

Config Config::Inside(const char* name) const {
  const Json* found = Find(name);
  if (found == nullptr) return {Json::object(), where_};
  if (!found->is_object()) throw Fail(fmt::format("{} is no object", name));
  return {*found, where_};
}

Error Config::Fail(std::string problem) const { return {std::move(problem), where_, kRemedy}; }

Config ParseConfig(std::string_view text, const std::string& where) {
  Config::Json json =
      Config::Json::parse(WithoutInfinities(text), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Error("is no JSON object", where, kRemedy);
  return {std::move(json), where};
}

}  // namespace stallcast::llm
