// SPDX-License-Identifier: GPL-3.0-or-later
// Every screen as it stands: light and dark, large and small, at 100 % and (a run of its own) 200
// %.
#include <gtest/gtest.h>

#include <QDialog>
#include <QGuiApplication>
#include <QHash>
#include <QLineEdit>
#include <QMenu>
#include <QMenuBar>
#include <QScreen>
#include <QSettings>
#include <QTemporaryDir>
#include <QTest>
#include <functional>

#include "gui/app/caveat_banner.h"
#include "gui/app/command_palette.h"
#include "gui/app/commands.h"
#include "gui/app/details_panel.h"
#include "gui/app/main_window.h"
#include "gui/timeline/theme.h"
#include "gui/timeline/timeline_view.h"
#include "gui/whatif/control_row.h"
#include "gui/whatif/replay_panel.h"
#include "gui/whatif/whatif_panel.h"
#include "tests/gui/color_sight.h"
#include "tests/gui/screens/checks.h"

namespace stallcast::gui {
namespace {

QString Source(const char* path) {
  return QStringLiteral(STALLCAST_SOURCE_DIR "/") + QLatin1String(path);
}

struct Look {
  Appearance appearance;
  QSize size;
};

std::string Name(const Look& look) {
  return std::string(look.appearance == Appearance::kDark ? "Dark" : "Light") +
         (look.size.width() < 1200 ? "Small" : "");
}

void PrintTo(const Look& look, std::ostream* out) { *out << Name(look); }

class Screens : public testing::TestWithParam<Look> {
 protected:
  void SetUp() override {
    if (QGuiApplication::platformName() != QStringLiteral("xcb")) {
      GTEST_SKIP() << "Xvfb is not installed (package xvfb): no screen to draw on";
    }
    ASSERT_TRUE(folder_.isValid());
    QSettings::setPath(QSettings::NativeFormat, QSettings::UserScope, folder_.path());
    Apply(GetParam().appearance);
    window_ = std::make_unique<MainWindow>();
    window_->SetAppearance(GetParam().appearance);
    window_->resize(GetParam().size);
    window_->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
    EXPECT_EQ(window_->size(), GetParam().size) << "the window is smaller than what is in it";
  }

  bool Idle() {
    return QTest::qWaitFor([&] { return window_->idle(); }, 120'000);
  }
  void Open(const QStringList& files) {
    window_->Open(files);
    ASSERT_TRUE(Idle());
  }
  // A run on a GPU beside its prediction.
  void OpenTwins() {
    sim::PredictRequest request;
    request.model = "llama-3.1-8b";
    request.steps = 4;
    request.params = {{"recall", "zero-copy"}};
    request.repeat_heads = true;  // as the run's were
    request.params["tau"] = "0.9";
    window_->SetRequest(request);
    Open({Source("capture/results/traces/code-8k.kvt"),
          Source("traces/measured/freekv-zero-copy.kvt")});
    ASSERT_NE(window_->timeline().pair(), nullptr);
    ASSERT_TRUE(window_->timeline().pair()->both());
    EXPECT_EQ(window_->timeline().pair()->unlike(), 0)
        << "the recordings in traces/measured are of an older plan: record them again";
    EXPECT_TRUE(window_->timeline().pair()->lent_waits());
  }
  void OpenSample() {
    window_->OpenSample();
    ASSERT_TRUE(Idle());
    ASSERT_NE(window_->result(), nullptr);
  }

  void ExpectGood(QWidget* of = nullptr) {
    QWidget& widget = of != nullptr ? *of : *window_;
    // Layouts and repaints may be under way.
    QStringList found;
    (void)QTest::qWaitFor(
        [&] {
          found = CutTexts(widget) + Overlaps(widget) + PaleTexts(widget);
          return found.isEmpty();
        },
        1000);
    for (const QString& wrong : found) ADD_FAILURE() << wrong.toStdString();
    if (HasFailure()) {
      const auto* test = testing::UnitTest::GetInstance()->current_test_info();
      const QString name = QString::fromLatin1(test->name()).replace('/', '-');
      widget.grab().save(QStringLiteral(STALLCAST_BINARY_DIR "/%1.png").arg(name));
    }
  }

  QTemporaryDir folder_;
  std::unique_ptr<MainWindow> window_;
};

TEST_P(Screens, Empty) { ExpectGood(); }

TEST_P(Screens, SampleWithEveryChart) {
  OpenSample();
  window_->timeline().ShowStep(5);
  for (const ChartsPanel::Kind kind : ChartsPanel::Kinds()) {
    SCOPED_TRACE(ChartsPanel::Name(kind).toStdString());
    window_->ShowChart(kind);
    ExpectGood();
  }
  window_->caveats().SetUnfolded(true);
  ExpectGood();
}

TEST_P(Screens, PredictedBesideMeasured) {
  OpenTwins();
  window_->timeline().ShowStep(2);
  const TimelineModel& measured = *window_->timeline().pair()->model(Side::kMeasured);
  for (int64_t row = 0; row < measured.rows(); ++row) {
    if (measured.timeline().role[static_cast<size_t>(row)] == traces::Role::kRecall) {
      window_->timeline().Select(OpRef{Side::kMeasured, row});
      break;
    }
  }
  window_->commands().Find(QStringLiteral("dock_details"))->trigger();
  window_->commands().Find(QStringLiteral("dock_details"))->trigger();
  const QString details = window_->findChild<DetailsPanel*>()->text();
  for (const char* fact : {"predicted", "measured", "duration", "start in step", "wait before",
                           "bytes", "rate", "residual"}) {
    EXPECT_TRUE(details.contains(QLatin1String(fact))) << fact;
  }
  ExpectGood();
  window_->caveats().SetUnfolded(true);
  ExpectGood();
}

TEST_P(Screens, RecordingWithAChange) {
  Open({Source("tests/sim/recordings/offloaded-32768.kvt")});
  ASSERT_NE(window_->replayed(), nullptr);
  ExpectGood();
  window_->replay().AddChange("scale kind=offload 0.001");
  ASSERT_TRUE(Idle());
  ASSERT_TRUE(window_->timeline().pair()->both());
  ExpectGood();
  window_->replay().AddChange("remove layer=77");
  ASSERT_TRUE(Idle());
  ExpectGood();
}

TEST_P(Screens, PinsCompared) {
  OpenSample();
  window_->commands().Find(QStringLiteral("pin_A"))->trigger();
  sim::PredictRequest request = window_->whatif().request();
  request.method = "quest";
  request.machine_overrides = {{"kernel.gemm.fixed", "3us"}};
  window_->SetRequest(request);
  ASSERT_TRUE(Idle());
  window_->findChild<QWidget*>(QStringLiteral("comparison"))->raise();
  ExpectGood();
}

TEST_P(Screens, KernelValuesFound) {
  OpenSample();
  QLineEdit* search = window_->whatif().findChild<QLineEdit*>(QStringLiteral("search"));
  search->setText(QStringLiteral("attention"));
  ASSERT_TRUE(window_->whatif().row("machine.kernel.decode_attention.fixed")->isVisible());
  ExpectGood();
}

TEST_P(Screens, ErrorsAndMessages) {
  OpenSample();
  window_->Open({Source("README.md"), Source("gui"), QStringLiteral("/absent.kvt")});
  ASSERT_TRUE(Idle());
  sim::PredictRequest request = window_->whatif().request();
  request.params["budget"] = "1000";
  window_->SetRequest(request);
  ASSERT_TRUE(Idle());
  EXPECT_FALSE(window_->whatif().row("param.budget")->error().isEmpty());
  ExpectGood();
}

TEST_P(Screens, EveryMenuAndDialog) {
  for (QAction* title : window_->menuBar()->actions()) {
    SCOPED_TRACE(title->text().toStdString());
    QMenu* menu = title->menu();
    menu->popup(window_->mapToGlobal(window_->menuBar()->actionGeometry(title).bottomLeft()));
    ASSERT_TRUE(QTest::qWaitForWindowExposed(menu));
    EXPECT_TRUE(window_->screen()->geometry().contains(menu->geometry()));
    EXPECT_LE(menu->height(), window_->height()) << "a menu is as high as a small window at most";
    menu->close();
  }
  window_->commands().Find(QStringLiteral("keys"))->trigger();
  auto* keys = window_->findChild<QDialog*>(QStringLiteral("keys"));
  ASSERT_NE(keys, nullptr);
  ASSERT_TRUE(QTest::qWaitForWindowExposed(keys));
  ExpectGood(keys);
  keys->close();
  window_->commands().Find(QStringLiteral("commands"))->trigger();
  auto* palette = window_->findChild<CommandPalette*>();
  ASSERT_NE(palette, nullptr);
  ASSERT_TRUE(QTest::qWaitForWindowExposed(palette));
  ExpectGood(palette);
  palette->close();
}

// The colors of roles reach the screen as the theme has them, so that its differences for every
// kind of sight are those that people see.
TEST_P(Screens, RolesAreToldApartOnTheScreen) {
  OpenTwins();
  window_->timeline().ShowStep(1);
  QTest::qWait(60);
  const QImage image = window_->timeline().grab().toImage().convertToFormat(QImage::Format_RGB32);
  QHash<QRgb, int> pixels;
  for (int y = 0; y < image.height(); ++y) {
    for (int x = 0; x < image.width(); ++x) ++pixels[image.pixel(x, y)];
  }
  const Theme& theme = GetParam().appearance == Appearance::kDark ? Theme::Dark() : Theme::Light();
  std::vector<QColor> seen;
  for (const traces::Role role :
       {traces::Role::kProjection, traces::Role::kAttention, traces::Role::kMlp,
        traces::Role::kSelection, traces::Role::kRecall, traces::Role::kSync}) {
    const QColor color = theme.roles[static_cast<size_t>(role)];
    EXPECT_GE(pixels.value(color.rgb()), 60) << traces::Name(role);
    for (const QColor& other : seen) {
      for (const Matrix& sight : kSight) EXPECT_GT(Distance(color, other, sight), 20);
    }
    seen.push_back(color);
  }
}

INSTANTIATE_TEST_SUITE_P(Looks, Screens,
                         testing::Values(Look{Appearance::kLight, {1440, 900}},
                                         Look{Appearance::kDark, {1440, 900}},
                                         Look{Appearance::kLight, {1024, 640}},
                                         Look{Appearance::kDark, {1024, 640}}),
                         [](const auto& look) { return Name(look.param); });

}  // namespace
}  // namespace stallcast::gui
