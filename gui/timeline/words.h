// SPDX-License-Identifier: GPL-3.0-or-later
// Quantities as the timeline writes them.
#pragma once

#include <QString>
#include <string>

#include "traces/common/units.h"

namespace stallcast::gui {

QString Text(const std::string& text);
/// Of a C++ function's signature (as recorders name kernels) the function's name; others as they
/// are.
QString ShortName(const std::string& name);
QString TimeText(Picoseconds time);         ///< "4.9 µs", "-1.2 ms"
QString SignedTimeText(Picoseconds time);   ///< "+4.9 µs"
QString BytesText(int64_t bytes);           ///< "16 KiB"
QString RateText(double bytes_per_second);  ///< "52.8 GB/s"
QString SignedShareText(double share);      ///< "+4.1 %", "-0.03 %", "no measured time"
QString CountText(int64_t count);           ///< "1,234,567"

/// The first of 1, 2, 5, 10, ... picoseconds that is no less than `least`.
Picoseconds RoundStep(Picoseconds least);
/// A tick at `time`, written with the digits that ticks `step` apart need: "1.20 ms".
QString TickText(Picoseconds time, Picoseconds step);

}  // namespace stallcast::gui
