// SPDX-License-Identifier: GPL-3.0-or-later
// Pictures of the window without anybody at the screen.
#pragma once

#include <QDeadlineTimer>
#include <QString>

namespace stallcast::gui {

class MainWindow;

/// Lets it read, predict and sweep what was asked. Throws Error when it is still busy `until` then.
void WaitUntilIdle(MainWindow& window, QDeadlineTimer until = QDeadlineTimer(120'000));

/// Waits, runs a sweep that the chart wants, and saves the window as PNG. Throws Error when it is
/// still busy `until` then, or when the file cannot be written.
void TakeScreenshot(MainWindow& window, const QString& path,
                    QDeadlineTimer until = QDeadlineTimer(120'000));

}  // namespace stallcast::gui
