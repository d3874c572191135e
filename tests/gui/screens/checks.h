// SPDX-License-Identifier: GPL-3.0-or-later
// What is wrong with a window as it stands on the screen: cut texts, overlaps, pale texts.
#pragma once

#include <QStringList>
#include <QWidget>

namespace stallcast::gui {

/// Texts of controls that do not fit, and widgets that reach out of their parent.
QStringList CutTexts(const QWidget& window);
/// Visible widgets of one parent that lie over each other.
QStringList Overlaps(const QWidget& window);
/// Texts whose color on the screen has a contrast below 4.5 to what is behind them.
QStringList PaleTexts(QWidget& window);

}  // namespace stallcast::gui
