// Numbers with units as people write them: "52.8GB/s", "16KiB", "4.9us", "0.8".
#pragma once

#include <string>
#include <string_view>

namespace stallcast {

/// What a number measures. Values are held in the base unit named beside each.
enum class Dimension {
  kNumber,  ///< a plain number or ratio
  kTime,    ///< seconds
  kBytes,   ///< bytes
  kRate,    ///< bytes per second
  kFlops,   ///< floating-point operations per second
};

/// Parses `text` as a quantity of dimension `want` and returns it in the base unit.
///
/// Decimal prefixes (k, M, G, T, P) are powers of 1000; binary ones (Ki, Mi, Gi, Ti) of 1024. Times
/// take ps, ns, us, ms, s. A missing unit, a unit of another dimension ("128GB" where a rate is
/// wanted), a negative or non-finite number, trailing text: a usage Error naming `where` and an
/// example of the right form. A kNumber takes no unit, except "%" (divided by 100).
double ParseQuantity(std::string_view text, Dimension want, std::string_view where);

/// Writes a quantity for people, three to four significant digits: "52.8 GB/s", "16 KiB", "4.9 us".
std::string FormatQuantity(double value, Dimension dimension);

}  // namespace stallcast
