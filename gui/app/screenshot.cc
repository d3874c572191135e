// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/screenshot.h"

#include <QApplication>
#include <QDeadlineTimer>
#include <QPixmap>
#include <QThread>

#include "gui/app/main_window.h"
#include "traces/common/error.h"

namespace stallcast::gui {

void WaitUntilIdle(MainWindow& window, int most_seconds) {
  const QDeadlineTimer end(qint64{most_seconds} * 1000);
  do {
    QApplication::processEvents(QEventLoop::AllEvents, 20);
    QThread::msleep(2);
  } while (!window.idle() && !end.hasExpired());
  if (!window.idle()) {
    throw Error("is still busy", "the window", "open fewer or smaller files");
  }
}

void TakeScreenshot(MainWindow& window, const QString& path, int most_seconds) {
  WaitUntilIdle(window, most_seconds);
  if (window.charts().wants_sweep()) {
    window.charts().RunSweep();
    WaitUntilIdle(window, most_seconds);
  }
  // What was scheduled on the way: layouts, repaints.
  for (int i = 0; i < 10; ++i) QApplication::processEvents(QEventLoop::AllEvents, 10);
  if (!window.grab().save(path, "PNG")) {
    throw Error("cannot write the picture", path.toStdString(), "choose another place");
  }
}

}  // namespace stallcast::gui
