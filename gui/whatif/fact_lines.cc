// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/fact_lines.h"

#include <QEvent>

namespace stallcast::gui {
namespace {

const QString kDot = QStringLiteral(" · ");

}  // namespace

FactLines::FactLines(QWidget* parent) : QLabel(parent) {
  setWordWrap(true);
  setTextFormat(Qt::PlainText);
  setTextInteractionFlags(Qt::TextSelectableByMouse);
}

void FactLines::SetFacts(const QStringList& facts) {
  facts_ = facts;
  Fill();
  updateGeometry();
}

QString FactLines::Lines(int width) const {
  QStringList lines;
  QString line;
  for (const QString& fact : facts_) {
    const QString longer = line.isEmpty() ? fact : line + kDot + fact;
    if (!line.isEmpty() && fontMetrics().horizontalAdvance(longer) > width) {
      lines << line;
      line = fact;
    } else {
      line = longer;
    }
  }
  if (!line.isEmpty()) lines << line;
  return lines.join('\n');
}

int FactLines::heightForWidth(int width) const {
  const QRect room(0, 0, width, 1 << 20);
  return fontMetrics().boundingRect(room, Qt::TextWordWrap, Lines(width)).height();
}

QSize FactLines::sizeHint() const {
  const int width = fontMetrics().averageCharWidth() * 40;
  return {width, heightForWidth(width)};
}

QSize FactLines::minimumSizeHint() const { return {fontMetrics().averageCharWidth() * 10, 0}; }

void FactLines::Fill() {
  const QString lines = Lines(width());
  if (lines != text()) setText(lines);
}

void FactLines::resizeEvent(QResizeEvent* event) {
  QLabel::resizeEvent(event);
  Fill();
}

void FactLines::changeEvent(QEvent* event) {
  QLabel::changeEvent(event);
  if (event->type() == QEvent::FontChange) Fill();
}

}  // namespace stallcast::gui
