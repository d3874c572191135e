// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/appearance.h"

#include <QApplication>
#include <QStyleFactory>

#include "gui/timeline/theme.h"

namespace stallcast::gui {
namespace {

struct Signs {  // of weight and trouble; each reads on its own background
  QString loss, limit, choice, on_sign, message, on_message, error;
};

Signs SignsOf(Appearance appearance) {
  if (appearance == Appearance::kDark) {
    return {"#8c2f2b", "#6b5312", "#1f4e79", "#ffffff", "#5a2322", "#ffe9e7", "#ff9a8f"};
  }
  return {"#ffd9d4", "#ffecbf", "#d8e9fb", "#1b1f24", "#ffe1dd", "#4a0f0a", "#a3160a"};
}

QPalette PaletteOf(Appearance appearance) {
  const bool dark = appearance == Appearance::kDark;
  const Theme& theme = dark ? Theme::Dark() : Theme::Light();
  QPalette palette;
  palette.setColor(QPalette::Window, theme.panel);
  palette.setColor(QPalette::WindowText, theme.text);
  palette.setColor(QPalette::Base, theme.window);
  palette.setColor(QPalette::AlternateBase, theme.lane);
  palette.setColor(QPalette::Text, theme.text);
  palette.setColor(QPalette::Button, theme.panel);
  palette.setColor(QPalette::ButtonText, theme.text);
  palette.setColor(QPalette::BrightText, Qt::red);
  palette.setColor(QPalette::ToolTipBase, theme.lane);
  palette.setColor(QPalette::ToolTipText, theme.text);
  palette.setColor(QPalette::PlaceholderText, theme.muted);
  palette.setColor(QPalette::Highlight, dark ? QColor("#3574b8") : QColor("#2f6db3"));
  palette.setColor(QPalette::HighlightedText, Qt::white);
  palette.setColor(QPalette::Link, dark ? QColor("#8fc0ff") : QColor("#1f4e9e"));
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
    palette.setColor(QPalette::Disabled, role, Mix(theme.text, theme.panel, 0.55));
  }
  return palette;
}

}  // namespace

QString Name(Appearance appearance) {
  return appearance == Appearance::kDark ? QStringLiteral("dark") : QStringLiteral("light");
}

void Apply(Appearance appearance) {
  const Signs signs = SignsOf(appearance);
  QApplication::setStyle(QStyleFactory::create(QStringLiteral("Fusion")));
  QApplication::setPalette(PaletteOf(appearance));
  qApp->setStyleSheet(
      QStringLiteral(
          "QToolButton[weight=\"loss\"] { background: %1; color: %4; border: 0; padding: 2px 8px; "
          "border-radius: 3px; font-weight: bold; }"
          "QToolButton[weight=\"limit\"] { background: %2; color: %4; border: 0; padding: 2px 8px; "
          "border-radius: 3px; }"
          "QToolButton[weight=\"choice\"] { background: %3; color: %4; border: 0; padding: 2px "
          "8px; "
          "border-radius: 3px; }"
          "QWidget[role=\"message\"] { background: %5; }"
          "QWidget[role=\"message\"] QLabel { color: %6; }"
          "QLabel[role=\"error\"] { color: %7; }")
          .arg(signs.loss, signs.limit, signs.choice, signs.on_sign, signs.message,
               signs.on_message, signs.error));
}

bool IsDark(const QPalette& palette) { return palette.color(QPalette::Window).lightness() < 128; }

}  // namespace stallcast::gui
