#include "traces/convert/ranges.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>

namespace stallcast::traces::convert {
namespace {

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// A word begins at the start, after anything but a letter, and with a capital after a small letter.
bool BeginsWord(std::string_view name, size_t at) {
  return at == 0 || !IsLetter(name[at - 1]) || (IsUpper(name[at]) && !IsUpper(name[at - 1]));
}

// The number that `rest` begins with, behind separators or "at token".
std::optional<int32_t> NumberBehind(std::string_view rest, size_t* begin) {
  constexpr std::string_view kSeparators = " #:=_./-[(";
  *begin = std::min(rest.find_first_not_of(kSeparators), rest.size());
  constexpr std::string_view kAtToken = "at token ";
  if (rest.substr(*begin).starts_with(kAtToken)) *begin += kAtToken.size();
  int32_t number = 0;
  const char* const end = rest.data() + rest.size();
  const auto [stop, error] = std::from_chars(rest.data() + *begin, end, number);
  const bool whole = error == std::errc() && number >= 0 && (stop == end || !IsLetter(*stop));
  return whole && IsDigit(rest[*begin]) ? std::optional(number) : std::nullopt;
}

std::optional<NumberedName> Find(std::string_view name,
                                 std::initializer_list<std::string_view> words) {
  for (size_t at = 0; at < name.size(); ++at) {
    if (!IsLetter(name[at]) || !BeginsWord(name, at)) continue;
    for (const std::string_view word : words) {
      if (!EqualIgnoringCase(name.substr(at, word.size()), word)) continue;
      const size_t behind = at + word.size();
      size_t begin = 0;
      if (const std::optional<int32_t> number = NumberBehind(name.substr(behind), &begin)) {
        return NumberedName{name.substr(0, behind + begin), *number};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<NumberedName> StepName(std::string_view name) {
  return Find(name, {"step", "iteration", "iter"});
}

std::optional<NumberedName> LayerName(std::string_view name) {
  return Find(name, {"layer", "layers", "block"});
}

std::optional<NumberedName> ServerStepName(std::string_view name) {
  constexpr std::string_view kExecute = "execute_";
  if (name.starts_with(kExecute)) {
    for (const std::string_view what : {"context", "generation", "new", "model"}) {
      if (name.find(what) == std::string_view::npos) continue;
      return NumberedName{name.substr(0, kExecute.size()), -1};
    }
  }
  for (const std::string_view begin : {"step[", "step(", "generate_step", "decode_step"}) {
    if (name.starts_with(begin)) return NumberedName{name.substr(0, begin.size()), -1};
  }
  return name == "step" ? std::optional(NumberedName{name, -1}) : std::nullopt;
}

std::optional<NumberedName> FamilyName(std::string_view name, std::string_view family) {
  if (!name.starts_with(family)) return std::nullopt;
  if (name.size() == family.size()) return NumberedName{family, -1};
  if (IsLetter(name[family.size()]) && IsLetter(family.back())) return std::nullopt;
  size_t begin = 0;
  return NumberedName{family, NumberBehind(name.substr(family.size()), &begin).value_or(-1)};
}

std::string_view WithoutNumber(std::string_view name) {
  const std::string_view front = name.substr(0, name.find_first_of("0123456789"));
  const size_t last = front.find_last_not_of(" #:=_./-[(");
  return last == std::string_view::npos ? name : front.substr(0, last + 1);
}

void NumberedRanges::Arrange() {
  std::ranges::stable_sort(ranges_, [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<Range> open;
  const auto close_until = [&](Picoseconds time) {
    while (!open.empty() && open.back().end <= time) {
      const Picoseconds end = open.back().end;
      while (!open.empty() && open.back().end <= end) open.pop_back();
      changes_.push_back({end, open.empty() ? -1 : open.back().number});
    }
  };
  for (const Range& range : ranges_) {
    close_until(range.begin);
    open.push_back(range);
    changes_.push_back({range.begin, range.number});
  }
  close_until(Picoseconds::max());
}

int32_t NumberedRanges::At(Picoseconds time) const {
  const auto after = std::ranges::upper_bound(changes_, time, {}, &Change::from);
  return after == changes_.begin() ? -1 : std::prev(after)->number;
}

}  // namespace stallcast::traces::convert
