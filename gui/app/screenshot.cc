// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/screenshot.h"

#include <QApplication>
#include <QPixmap>
#include <QThread>

#include "gui/app/main_window.h"
#include "traces/common/error.h"

namespace stallcast::gui {

void WaitUntilIdle(MainWindow& window, QDeadlineTimer until) {
  do {
    QApplication::processEvents(QEventLoop::AllEvents, 20);
    QThread::msleep(2);
  } while (!window.idle() && !until.hasExpired());
  if (!window.idle()) {
    throw Error("is still busy", "the window", "open fewer or smaller files");
  }
}

void TakeScreenshot(MainWindow& window, const QString& path, QDeadlineTimer until) {
  WaitUntilIdle(window, until);
  if (window.charts().wants_sweep()) {
    window.charts().RunSweep();
    WaitUntilIdle(window, until);
  }
  // What was scheduled on the way: layouts, repaints.
  for (int i = 0; i < 10; ++i) QApplication::processEvents(QEventLoop::AllEvents, 10);
  if (!window.grab().save(path, "PNG")) {
    throw Error("cannot write the picture", path.toStdString(), "choose another place");
  }
}

}  // namespace stallcast::gui
