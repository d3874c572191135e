// SPDX-License-Identifier: GPL-3.0-or-later
// Pictures of the window without anybody at the screen.
#pragma once

#include <QString>

namespace stallcast::gui {

class MainWindow;

/// Until it has read, predicted and swept all that was asked. Throws Error when it is still busy
/// after `most_seconds`.
void WaitUntilIdle(MainWindow& window, int most_seconds = 120);

/// Waits, runs a sweep that the chart wants, and saves the window as PNG. Throws Error when it is
/// still busy after `most_seconds`, or when the file cannot be written.
void TakeScreenshot(MainWindow& window, const QString& path, int most_seconds = 120);

}  // namespace stallcast::gui
