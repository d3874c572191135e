#include "sim/cli/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace stallcast::cli {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Numbers that stand alone, so that the ones in "h200" and "8b" are words.
struct Parts {
  std::vector<std::string> words{""}, numbers;
};

Parts Cut(std::string_view note) {
  Parts parts;
  for (size_t at = 0; at < note.size();) {
    size_t end = at;
    const bool begins = at == 0 || note[at - 1] == ' ' || note[at - 1] == '(';
    while (begins && end < note.size() &&
           (IsDigit(note[end]) || (end > at && (note[end] == '.' || note[end] == ','))))
      ++end;
    while (end > at && !IsDigit(note[end - 1])) --end;  // a full stop or comma behind it
    const bool alone =
        end > at && (end == note.size() || !std::isalnum(static_cast<unsigned char>(note[end]))) &&
        (end == note.size() || (note[end] != '-' && note[end] != '_' && note[end] != '/'));
    if (!alone) {
      parts.words.back() += note[at++];
      continue;
    }
    parts.numbers.emplace_back(note.substr(at, end - at));
    parts.words.emplace_back();
    at = end;
  }
  return parts;
}

double Value(std::string text) {
  std::erase(text, ',');
  return std::strtod(text.c_str(), nullptr);
}

}  // namespace

void NoteList::Add(const std::string& note, const std::string& whose) {
  Parts parts = Cut(note);
  auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                           [&](const Kind& k) { return k.words == parts.words; });
  if (kind == kinds_.end()) {
    kind = kinds_.insert(kind, {parts.words, parts.numbers, parts.numbers, {}});
  }
  kind->whose.insert(whose);
  for (size_t n = 0; n < parts.numbers.size(); ++n) {
    const double value = Value(parts.numbers[n]);
    if (value < Value(kind->least[n])) kind->least[n] = parts.numbers[n];
    if (value > Value(kind->most[n])) kind->most[n] = parts.numbers[n];
  }
}

std::string NoteList::Render(const std::set<std::string>& everyone, const Screen& screen) const {
  std::string text;
  for (const Kind& kind : kinds_) {
    std::string line = kind.words.front();
    for (size_t n = 0; n + 1 < kind.words.size(); ++n) {
      line += kind.least[n];
      if (kind.least[n] != kind.most[n]) line += " to " + kind.most[n];
      line += kind.words[n + 1];
    }
    std::vector<std::string> without;
    std::set_difference(everyone.begin(), everyone.end(), kind.whose.begin(), kind.whose.end(),
                        std::back_inserter(without));
    if (!without.empty() && without.size() < kind.whose.size()) {
      line += fmt::format(" (all but {})", fmt::join(without, ", "));
    } else if (!without.empty()) {
      line += fmt::format(" ({})", fmt::join(kind.whose, ", "));
    }
    text += Aside("- " + line, screen);
  }
  return text;
}

}  // namespace stallcast::cli
