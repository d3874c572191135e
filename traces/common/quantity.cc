#include "traces/common/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <system_error>

#include "traces/common/error.h"

namespace stallcast {
namespace {

struct Unit {
  std::string_view text;
  double scale;
};

constexpr double kKibi = 1024;
constexpr double kMebi = kKibi * 1024;
constexpr double kGibi = kMebi * 1024;
constexpr double kTebi = kGibi * 1024;
constexpr double kPebi = kTebi * 1024;

constexpr std::array kTimes = {Unit{"ps", 1e-12}, Unit{"ns", 1e-9}, Unit{"us", 1e-6},
                               Unit{"ms", 1e-3}, Unit{"s", 1}};
constexpr std::array kDecimal = {Unit{"", 1},    Unit{"k", 1e3},  Unit{"M", 1e6},
                                 Unit{"G", 1e9}, Unit{"T", 1e12}, Unit{"P", 1e15}};
constexpr std::array kBinary = {Unit{"", 1},       Unit{"Ki", kKibi}, Unit{"Mi", kMebi},
                                Unit{"Gi", kGibi}, Unit{"Ti", kTebi}, Unit{"Pi", kPebi}};

// What is wanted, in words, with an example of the right form.
std::string_view Wanted(Dimension dimension) {
  switch (dimension) {
    case Dimension::kNumber:
      return "a plain number such as 0.8 or 80%";
    case Dimension::kTime:
      return "a time such as 4.9us (ps, ns, us, ms, s)";
    case Dimension::kBytes:
      return "a size such as 16KiB or 40GB";
    case Dimension::kRate:
      return "a rate such as 52.8GB/s";
    case Dimension::kFlops:
      return "a compute rate such as 989TFLOPS";
  }
  return "a quantity";
}

// The scale of `unit` where it measures `dimension`; 0 where it does not.
double ScaleOf(std::string_view unit, Dimension dimension) {
  switch (dimension) {
    case Dimension::kNumber:
      return unit.empty() ? 1 : unit == "%" ? 0.01 : 0;
    case Dimension::kTime:
      for (const Unit& known : kTimes) {
        if (unit == known.text) return known.scale;
      }
      return 0;
    case Dimension::kBytes:
    case Dimension::kRate:
    case Dimension::kFlops:
      break;
  }
  constexpr std::string_view kBytesEnding[] = {"B"};
  constexpr std::string_view kRateEnding[] = {"B/s"};
  constexpr std::string_view kFlopsEnding[] = {"FLOPS", "FLOP/s"};
  const std::span<const std::string_view> endings =
      dimension == Dimension::kBytes  ? std::span<const std::string_view>(kBytesEnding)
      : dimension == Dimension::kRate ? std::span<const std::string_view>(kRateEnding)
                                      : std::span<const std::string_view>(kFlopsEnding);
  for (std::string_view ending : endings) {
    if (!unit.ends_with(ending)) continue;
    const std::string_view prefix = unit.substr(0, unit.size() - ending.size());
    for (const Unit& known : kDecimal) {
      if (prefix == known.text) return known.scale;
    }
    if (dimension == Dimension::kFlops) continue;
    for (const Unit& known : kBinary) {
      if (prefix == known.text) return known.scale;
    }
  }
  return 0;
}

// "128GB is a size", so that a unit mistake is seen at once; empty where nothing fits.
std::string_view Measures(std::string_view unit) {
  if (ScaleOf(unit, Dimension::kTime) > 0) return " is a time";
  if (ScaleOf(unit, Dimension::kBytes) > 0) return " is a size";
  if (ScaleOf(unit, Dimension::kRate) > 0) return " is a rate";
  if (ScaleOf(unit, Dimension::kFlops) > 0) return " is a compute rate";
  return "";
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Four significant digits without an exponent where the value allows it.
std::string Digits(double value) {
  return std::abs(value) >= 1e4 && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                          : fmt::format("{:.4g}", value);
}

// Writes `value` with the largest unit that leaves at least one before the point.
std::string WithUnit(double value, std::span<const Unit> units, std::string_view ending) {
  const double carry = 1 - 5e-5;  // 999.96 rounds to 1000, which belongs to the next unit
  size_t index = 0;
  while (index + 1 < units.size() && std::abs(value) >= units[index + 1].scale * carry) ++index;
  return fmt::format("{} {}{}", Digits(value / units[index].scale), units[index].text, ending);
}

}  // namespace

double ParseQuantity(std::string_view text, Dimension want, std::string_view where) {
  const std::string_view trimmed = Trim(text);
  const auto fail = [&](std::string_view problem) {
    return UsageError(fmt::format("'{}'{}", text, problem), std::string(where),
                      fmt::format("give {}", Wanted(want)));
  };
  double number = 0;
  const char* end = trimmed.data() + trimmed.size();
  const auto [rest, error] = std::from_chars(trimmed.data(), end, number);
  if (error == std::errc::result_out_of_range) throw fail(" is out of range");
  if (error != std::errc() || std::isnan(number)) throw fail(" is not a number");
  if (std::isinf(number)) throw fail(" is not finite");
  if (std::signbit(number) && number != 0) throw fail(" is negative");

  const std::string_view unit = Trim(std::string_view(rest, static_cast<size_t>(end - rest)));
  const double scale = ScaleOf(unit, want);
  if (scale == 0) {
    if (unit.empty()) throw fail(" has no unit");
    const std::string_view measures = Measures(unit);
    if (!measures.empty()) throw fail(measures);
    if (unit.starts_with('K') && !unit.starts_with("Ki")) {
      throw fail(" is ambiguous: write k for 1000 or Ki for 1024");
    }
    throw fail(fmt::format(" has the unknown unit '{}'", unit));
  }
  const double value = number * scale;
  if (!std::isfinite(value)) throw fail(" is out of range");
  return value;
}

std::string FormatQuantity(double value, Dimension dimension) {
  switch (dimension) {
    case Dimension::kNumber:
      break;
    case Dimension::kTime:
      return value == 0 ? "0 s" : WithUnit(value, kTimes, "");
    case Dimension::kBytes:
      return WithUnit(value, kBinary, "B");
    case Dimension::kRate:
      return WithUnit(value, kDecimal, "B/s");
    case Dimension::kFlops:
      return WithUnit(value, kDecimal, "FLOPS");
  }
  return Digits(value);
}

}  // namespace stallcast
