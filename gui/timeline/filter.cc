// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>

#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::gui {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

bool Contains(const std::string& text, const std::string& word) {
  return Lower(text).find(word) != std::string::npos;
}

// Splits at blanks outside quotes, and drops the quotes.
std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false, any = false;
  for (char c : text) {
    if (c == '"') {
      quoted = !quoted;
      any = true;
    } else if (!quoted && std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (any) words.push_back(word);
      word.clear();
      any = false;
    } else {
      word += c;
      any = true;
    }
  }
  if (any) words.push_back(word);
  std::erase(words, "");
  return words;
}

double Whole(std::string_view text, std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw UsageError(fmt::format("'{}' is no number", text), std::string(word),
                     "write step:3 or step:3-5");
  }
  return static_cast<double>(value);
}

uint32_t Roles(std::string_view names, std::string_view word) {
  uint32_t roles = 0;
  while (!names.empty()) {
    const std::string name = Lower(names.substr(0, names.find(',')));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    std::string known;
    bool found = false;
    for (int r = 0; r < traces::kRoles; ++r) {
      const std::string_view role = Name(static_cast<traces::Role>(r));
      known += fmt::format("{}{}", r == 0 ? "" : ", ", role);
      if (name.empty() || !role.starts_with(name)) continue;
      roles |= 1U << r;
      found = true;
    }
    if (!found) {
      throw UsageError(fmt::format("there is no role '{}'", name), std::string(word),
                       "choose of " + known);
    }
  }
  return roles;
}

}  // namespace

Filter::Filter(std::string_view words) {
  for (const std::string& word : Words(words)) terms_.push_back(Parse(word));
}

Filter::Term Filter::Parse(std::string_view word) {
  const std::string_view whole = word;
  Term term;
  if (word.size() > 1 && word.front() == '-') {
    term.negate = true;
    word.remove_prefix(1);
  }
  using Kind = Term::Kind;
  struct Key {
    std::string_view name;
    Kind kind;
    Dimension dimension = Dimension::kNumber;
  };
  static constexpr Key kListed[] = {{"role", Kind::kRole}, {"lane", Kind::kLane},
                                    {"step", Kind::kStep}, {"layer", Kind::kLayer},
                                    {"op", Kind::kOp},     {"name", Kind::kName}};
  static constexpr Key kCompared[] = {{"dur", Kind::kDuration, Dimension::kTime},
                                      {"bytes", Kind::kBytes, Dimension::kBytes},
                                      {"residual", Kind::kResidual, Dimension::kNumber}};
  for (const Key& key : kListed) {
    if (!word.starts_with(key.name) || word.substr(key.name.size(), 1) != ":") continue;
    term.kind = key.kind;
    const std::string_view value = word.substr(key.name.size() + 1);
    if (value.empty()) {
      throw UsageError(fmt::format("nothing follows '{}'", word), std::string(whole),
                       fmt::format("write {}:3, say", key.name));
    }
    if (key.kind == Kind::kRole) {
      term.roles = Roles(value, whole);
    } else if (key.kind == Kind::kLane || key.kind == Kind::kName) {
      term.text = Lower(value);
    } else {
      const size_t dash = value.find('-');
      term.least = Whole(value.substr(0, dash), whole);
      term.most = dash == value.npos ? term.least : Whole(value.substr(dash + 1), whole);
    }
    return term;
  }
  for (const Key& key : kCompared) {
    if (!word.starts_with(key.name) || word.size() <= key.name.size()) continue;
    const char compare = word[key.name.size()];
    if (compare != '<' && compare != '>') continue;
    term.kind = key.kind;
    const double value =
        ParseQuantity(word.substr(key.name.size() + 1), key.dimension, std::string(whole));
    (compare == '<' ? term.most : term.least) = value;
    return term;
  }
  term.text = Lower(word);
  return term;
}

FilterMask::FilterMask(const Filter& filter, const TimelinePair& pair, Side side) {
  if (filter.empty() || !pair.model(side)) return;
  using Kind = Filter::Term::Kind;
  const TimelineModel& model = *pair.model(side);
  const traces::Timeline& t = model.timeline();

  // Names and lanes are few: each is asked once.
  std::vector<std::vector<bool>> known(filter.terms_.size());
  for (size_t i = 0; i < known.size(); ++i) {
    const Filter::Term& term = filter.terms_[i];
    if (term.kind == Kind::kName) {
      for (const std::string& name : t.names) known[i].push_back(Contains(name, term.text));
    } else if (term.kind == Kind::kLane) {
      for (const auto& lane : t.lanes) {
        known[i].push_back(Contains(lane.name, term.text) ||
                           Contains(std::string(Name(lane.kind)), term.text));
      }
    }
  }
  const auto fits = [&](size_t i, size_t row) {
    const Filter::Term& term = filter.terms_[i];
    const auto within = [&](double value) { return value >= term.least && value <= term.most; };
    switch (term.kind) {
      case Kind::kName:
        return static_cast<bool>(known[i][t.name[row]]);
      case Kind::kLane:
        return static_cast<bool>(known[i][t.lane[row]]);
      case Kind::kRole:
        return (term.roles >> static_cast<int>(t.role[row]) & 1) != 0;
      case Kind::kStep:
        return within(t.step[row]);
      case Kind::kLayer:
        return within(t.layer[row]);
      case Kind::kOp:
        return within(static_cast<double>(t.op[row]));
      case Kind::kDuration:
        return within(Seconds(t.duration[row]));
      case Kind::kBytes:
        return within(static_cast<double>(t.bytes[row]));
      case Kind::kResidual: {
        const double residual = pair.Residual({side, static_cast<int64_t>(row)});
        return !std::isnan(residual) && within(std::abs(residual));
      }
    }
    return false;
  };
  const auto rows = static_cast<size_t>(model.rows());
  words_.assign((rows + 63) / 64 + 1, 0);
  for (size_t row = 0; row < rows; ++row) {
    bool chosen = true;
    for (size_t i = 0; i < filter.terms_.size() && chosen; ++i) {
      chosen = fits(i, row) != filter.terms_[i].negate;
    }
    if (chosen) words_[row / 64] |= uint64_t{1} << (row % 64);
  }
  uint32_t count = 0;
  for (uint64_t word : words_) {
    before_.push_back(count);
    count += static_cast<uint32_t>(std::popcount(word));
  }
  before_.push_back(count);
}

int64_t FilterMask::Before(int64_t row) const {
  const auto word = static_cast<size_t>(row / 64);
  const uint64_t part = words_[word] & ((uint64_t{1} << (row % 64)) - 1);
  return before_[word] + std::popcount(part);
}

int64_t FilterMask::Count(int64_t first, int64_t last) const {
  return all() ? last - first : Before(last) - Before(first);
}

}  // namespace stallcast::gui
