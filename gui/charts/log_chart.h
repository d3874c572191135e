// SPDX-License-Identifier: GPL-3.0-or-later
// What a method did with the units of one layer and head.
#pragma once

#include "gui/charts/chart.h"
#include "gui/charts/chart_colors.h"
#include "traces/access_log.h"

namespace stallcast::gui {

/// A map of units over steps: selected and on the GPU already (a hit), recalled before attention,
/// recalled a step ahead and used, recalled ahead in vain. `layer` counts log.layers; `head` its
/// selections. A layer that attends everything, or a number out of range, gives an empty chart that
/// says so.
Chart UnitMap(const traces::AccessLog& log, int layer, int head, const ChartColors& colors);

}  // namespace stallcast::gui
