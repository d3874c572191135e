// SPDX-License-Identifier: GPL-3.0-or-later
// Charts as files.
#pragma once

#include <QFont>
#include <QString>

#include "gui/charts/chart.h"
#include "gui/charts/chart_painter.h"

namespace stallcast::gui {

/// What the name of a file may end in, for a file dialog.
QString ChartFileFilter();

/// Writes the chart, laid out in `size` (higher where its subject needs it), as the file's name
/// ends: .png (at twice the size in pixels), .svg, .pdf, or .csv (the data). Throws
/// stallcast::Error for another ending and where the file cannot be written.
void SaveChart(const Chart& chart, const QString& path, QSizeF size, const ChartTheme& theme,
               const QFont& font);

}  // namespace stallcast::gui
