// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/timeline/words.h"

#include <QLocale>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "traces/common/quantity.h"
#include "traces/convert/kernel_kinds.h"

namespace stallcast::gui {

QString Text(const std::string& text) { return QString::fromStdString(text); }

QString ShortName(const std::string& name) { return Text(traces::ShortName(name)); }

QString TimeText(Picoseconds time) {
  const QString size = Text(FormatQuantity(std::abs(Seconds(time)), Dimension::kTime));
  QString text = size;
  text.replace(QLatin1String(" us"), QStringLiteral(" µs"));
  return time.count() < 0 ? QStringLiteral("−") + text : text;
}

QString SignedTimeText(Picoseconds time) {
  return time.count() > 0 ? QStringLiteral("+") + TimeText(time) : TimeText(time);
}

QString BytesText(int64_t bytes) {
  return Text(FormatQuantity(static_cast<double>(bytes), Dimension::kBytes));
}

QString RateText(double rate) { return Text(FormatQuantity(rate, Dimension::kRate)); }

QString SignedShareText(double share) {
  if (!std::isfinite(share)) return QStringLiteral("no measured time");
  const double percent = share * 100;
  const double size = std::abs(percent);
  const int digits = size >= 100 ? 0 : size >= 1 ? 1 : 2;
  const QString text = QLocale::c().toString(size, 'f', digits);
  if (text.toDouble() == 0) return QStringLiteral("0 %");
  return (percent < 0 ? QStringLiteral("−") : QStringLiteral("+")) + text + QStringLiteral(" %");
}

QString CountText(int64_t count) {
  static const QLocale english(QLocale::English, QLocale::UnitedStates);
  return english.toString(static_cast<qlonglong>(count));
}

Picoseconds RoundStep(Picoseconds least) {
  int64_t power = 1;
  while (true) {
    for (int64_t digit : {1, 2, 5}) {
      if (digit * power >= least.count()) return Picoseconds(digit * power);
    }
    if (power > std::numeric_limits<int64_t>::max() / 100) return least;
    power *= 10;
  }
}

QString TickText(Picoseconds time, Picoseconds step) {
  struct Unit {
    int64_t picoseconds;
    const char* name;
  };
  static constexpr std::array<Unit, 5> kUnits = {{{1'000'000'000'000, "s"},
                                                  {1'000'000'000, "ms"},
                                                  {1'000'000, "µs"},
                                                  {1'000, "ns"},
                                                  {1, "ps"}}};
  if (time.count() == 0) return QStringLiteral("0");
  const int64_t size = std::abs(time.count());
  const auto unit = std::find_if(kUnits.begin(), kUnits.end() - 1,
                                 [&](const Unit& u) { return size >= u.picoseconds; });
  int digits = 0;
  for (int64_t fine = step.count(); fine < unit->picoseconds && digits < 6; fine *= 10) ++digits;
  return QLocale::c().toString(
             static_cast<double>(time.count()) / static_cast<double>(unit->picoseconds), 'f',
             digits) +
         QStringLiteral(" ") + QString::fromUtf8(unit->name);
}

}  // namespace stallcast::gui
