// SPDX-License-Identifier: GPL-3.0-or-later
// Pictures of the window without anybody at the screen.
#pragma once

#include <QString>

namespace stallcast::gui {

class MainWindow;

/// Waits until the window is idle and saves it as PNG. Throws Error when it is still busy after
/// `most_seconds`, or when the file cannot be written.
void TakeScreenshot(MainWindow& window, const QString& path, int most_seconds = 120);

}  // namespace stallcast::gui
