// SPDX-License-Identifier: GPL-3.0-or-later
// Icons of the main commands, drawn in the color of text.
#pragma once

#include <QColor>
#include <QIcon>
#include <QString>

namespace stallcast::gui {

/// Of a command by its object name; a null icon: it has none.
QIcon IconOf(const QString& command, const QColor& color);

}  // namespace stallcast::gui
