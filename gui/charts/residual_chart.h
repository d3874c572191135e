// SPDX-License-Identifier: GPL-3.0-or-later
// How far predicted ops are from measured ones.
#pragma once

#include <QString>
#include <QStringList>

#include "gui/charts/chart.h"
#include "gui/charts/chart_colors.h"
#include "sim/compare.h"

namespace stallcast::gui {

/// Kinds of the matched ops' runs (no host calls), the largest measured total first.
QStringList MatchedKinds(const sim::Comparison& comparison);

/// The relative residual (predicted over measured, less 1) of each op kind, as boxes.
Chart ResidualChart(const sim::Comparison& comparison, const ChartColors& colors);

/// The same of one kind as a histogram.
Chart ResidualHistogram(const sim::Comparison& comparison, const QString& kind,
                        const ChartColors& colors);

}  // namespace stallcast::gui
