// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/appearance.h"

#include <QApplication>
#include <QPainter>
#include <QProxyStyle>
#include <QStyleFactory>
#include <QStyleOption>

#include "gui/timeline/theme.h"

namespace stallcast::gui {
namespace {

const Theme& ThemeOf(Appearance appearance) {
  return appearance == Appearance::kDark ? Theme::Dark() : Theme::Light();
}

QPalette PaletteOf(const Theme& theme) {
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
  palette.setColor(QPalette::Highlight, theme.highlight);
  palette.setColor(QPalette::HighlightedText, Qt::white);
  palette.setColor(QPalette::Link, theme.link);
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
    palette.setColor(QPalette::Disabled, role, Mix(theme.text, theme.panel, 0.55));
  }
  return palette;
}

// Fusion darkens the window's color for borders, which a dark window leaves unseen; and the focus
// is seen on every control.
class Bordered : public QProxyStyle {
 public:
  explicit Bordered(const Theme& theme)
      : QProxyStyle(QStyleFactory::create(QStringLiteral("Fusion"))), theme_(theme) {}

  void drawPrimitive(PrimitiveElement element, const QStyleOption* option, QPainter* painter,
                     const QWidget* widget) const override {
    if (element == PE_FrameFocusRect) return Outline(option->rect, theme_.highlight, 2, painter);
    QProxyStyle::drawPrimitive(element, option, painter, widget);
    switch (element) {
      case PE_IndicatorCheckBox:
      case PE_IndicatorRadioButton:
      case PE_FrameLineEdit:
      case PE_PanelButtonCommand:
        Outline(option->rect, (option->state & State_HasFocus) ? theme_.highlight : theme_.border,
                1, painter);
        break;
      default:
        break;
    }
  }

 private:
  static void Outline(const QRect& rect, const QColor& color, int width, QPainter* painter) {
    painter->save();
    painter->setPen(QPen(color, width));
    painter->setBrush(Qt::NoBrush);
    painter->drawRoundedRect(QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2);
    painter->restore();
  }

  const Theme& theme_;
};

}  // namespace

QString Name(Appearance appearance) {
  return appearance == Appearance::kDark ? QStringLiteral("dark") : QStringLiteral("light");
}

void Apply(Appearance appearance) {
  const Theme& theme = ThemeOf(appearance);
  const Theme::Signs& signs = theme.signs;
  QApplication::setStyle(new Bordered(theme));
  QApplication::setPalette(PaletteOf(theme));
  qApp->setStyleSheet(
      QStringLiteral(
          "QToolButton[weight] { color: %4; border: 0; padding: 2px 8px; border-radius: 3px; }"
          "QToolButton[weight=\"loss\"] { background: %1; font-weight: bold; }"
          "QToolButton[weight=\"limit\"] { background: %2; }"
          "QToolButton[weight=\"choice\"] { background: %3; }"
          "QWidget[role=\"message\"] { background: %5; }"
          "QWidget[role=\"message\"] QLabel { color: %6; }"
          "QLabel[role=\"error\"] { color: %7; }"
          "QLabel[role=\"muted\"] { color: %8; }"
          "QLabel[role=\"heading\"] { border-bottom: 1px solid %9; padding: 3px 0; "
          "font-weight: bold; }"
          "QToolButton[role=\"heading\"] { border: 0; border-bottom: 1px solid %9; padding: 4px; "
          "font-weight: bold; background: transparent; }"
          "QToolButton[role=\"heading\"]:focus { border: 1px solid %10; }"
          "QToolBar { border: 0; padding: 2px 4px; spacing: 2px; }")
          .arg(signs.loss.name(), signs.limit.name(), signs.choice.name(), signs.on_sign.name(),
               signs.message.name(), signs.on_message.name(), signs.error.name(),
               theme.muted.name(), theme.grid.name(), theme.highlight.name()));
}

bool IsDark(const QPalette& palette) { return palette.color(QPalette::Window).lightness() < 128; }

}  // namespace stallcast::gui
