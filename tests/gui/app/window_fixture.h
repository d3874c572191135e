// SPDX-License-Identifier: GPL-3.0-or-later
// A window to be driven by key and mouse, and a small trace for it.
#pragma once

#include <gtest/gtest.h>

#include <QSettings>
#include <QTemporaryDir>
#include <QTest>
#include <functional>
#include <memory>

#include "gui/app/caveat_banner.h"
#include "gui/app/main_window.h"
#include "gui/whatif/control_row.h"
#include "gui/whatif/whatif_panel.h"
#include "tests/sim/small_trace.h"
#include "traces/format/trace_file.h"

namespace stallcast::gui {

class WindowView : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_.isValid());
    QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, folder_.path());
    QCoreApplication::setOrganizationName(QStringLiteral("stallcast-test"));
    qputenv("XDG_CACHE_HOME", folder_.path().toUtf8());
    sim::WriteSmallTrace(Path("small.kvt").toStdString());
    Start();
  }

  void Start() {
    window_ = std::make_unique<MainWindow>();
    window_->SetAppearance(Appearance::kLight);
    window_->SetSamples(4);  // most of the time of a prediction
    window_->resize(1200, 800);
    window_->show();
    window_->activateWindow();
    ASSERT_TRUE(QTest::qWaitForWindowActive(window_.get()));
  }

  static void WriteTimeline(const QString& path, const traces::Timeline& timeline,
                            const traces::proto::TraceInfo& info = {}) {
    traces::TraceWriter writer(path.toStdString(), info);
    writer.Write(timeline);
    writer.Finish();
  }

  QString Path(const char* name) const { return folder_.filePath(QLatin1String(name)); }

  bool Idle() {
    return QTest::qWaitFor([&] { return window_->idle(); }, 60'000);
  }
  void OpenSmall() {
    window_->Open({Path("small.kvt")});
    ASSERT_TRUE(Idle());
    ASSERT_NE(window_->result(), nullptr);
  }
  // As a user would: by the control's own widget.
  template <class Widget>
  Widget* In(const char* row) {
    ControlRow* found = window_->whatif().row(row);
    return found ? found->findChild<Widget*>() : nullptr;
  }
  bool Predicted(const std::function<void()>& act) {
    const SharedResult before = window_->result();
    act();
    return QTest::qWaitFor([&] { return window_->result() != before && window_->idle(); }, 60'000);
  }
  double Step() const { return Seconds(window_->result()->prediction.metrics.step_mean); }
  QStringList CaveatNames() {
    QStringList names;
    for (const Caveat& caveat : window_->caveats().caveats()) names << caveat.name;
    return names;
  }

  QTemporaryDir folder_;
  std::unique_ptr<MainWindow> window_;
};

}  // namespace stallcast::gui
