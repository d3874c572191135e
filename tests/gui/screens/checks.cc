// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gui/screens/checks.h"

#include <QAbstractButton>
#include <QAbstractItemView>
#include <QAbstractScrollArea>
#include <QComboBox>
#include <QDockWidget>
#include <QGroupBox>
#include <QHash>
#include <QHeaderView>
#include <QImage>
#include <QLabel>
#include <QLineEdit>
#include <QMenuBar>
#include <QRubberBand>
#include <QStyleOptionComboBox>
#include <QStyleOptionSlider>
#include <QTabBar>
#include <QTextDocument>

#include "tests/gui/color_sight.h"

namespace stallcast::gui {
namespace {

constexpr double kLeastContrast = 4.5;  // WCAG 2, AA

QString Named(const QWidget& widget, const QString& text = {}) {
  QString name = QLatin1String(widget.metaObject()->className());
  if (!widget.objectName().isEmpty()) name += ' ' + widget.objectName();
  return text.isEmpty() ? name : QStringLiteral("%1 '%2'").arg(name, text);
}

// Of what a person sees: nothing that scrolling hides.
QRect Seen(const QWidget& widget) { return widget.visibleRegion().boundingRect(); }

std::vector<QWidget*> Shown(const QWidget& window) {
  std::vector<QWidget*> shown;
  for (QWidget* widget : window.findChildren<QWidget*>()) {
    if (widget->isVisible() && widget->window() == &window && !Seen(*widget).isEmpty()) {
      shown.push_back(widget);
    }
  }
  return shown;
}

int TextWidth(const QWidget& widget, const QString& text) {
  return widget.fontMetrics().size(Qt::TextShowMnemonic, text).width();
}

bool Scrolls(const QWidget& parent) {
  const auto* area = qobject_cast<const QAbstractScrollArea*>(parent.parentWidget());
  return area != nullptr && area->viewport() == &parent;
}

void CheckText(const QWidget& widget, QStringList& wrong) {
  const auto too_narrow = [&](const QString& text, int room) {
    const int need = TextWidth(widget, text);
    if (need > room) {
      wrong << QStringLiteral("%1: %2 px of %3").arg(Named(widget, text)).arg(room).arg(need);
    }
  };
  if (const auto* label = qobject_cast<const QLabel*>(&widget)) {
    if (label->wordWrap()) {
      if (label->heightForWidth(label->width()) > label->height()) {
        wrong << Named(widget, label->text().left(60)) + QStringLiteral(": too low");
      }
    } else if (label->textFormat() != Qt::RichText && !Qt::mightBeRichText(label->text())) {
      too_narrow(label->text(), label->contentsRect().width());
    }
  } else if (const auto* button = qobject_cast<const QAbstractButton*>(&widget)) {
    if (button->text().isEmpty()) return;
    if (button->width() < button->sizeHint().width()) {
      wrong << QStringLiteral("%1: %2 px of %3")
                   .arg(Named(widget, button->text()))
                   .arg(button->width())
                   .arg(button->sizeHint().width());
    }
  } else if (const auto* box = qobject_cast<const QComboBox*>(&widget)) {
    QStyleOptionComboBox option;
    option.initFrom(box);
    const QRect field = box->style()->subControlRect(QStyle::CC_ComboBox, &option,
                                                     QStyle::SC_ComboBoxEditField, box);
    too_narrow(box->currentText(), field.width());
  } else if (const auto* line = qobject_cast<const QLineEdit*>(&widget)) {
    // What is typed scrolls; what stands there to be read must fit.
    const bool empty = line->text().isEmpty();
    if (empty || !line->hasFocus()) {
      const bool number =
          qobject_cast<const QLineEdit*>(&widget)->parentWidget()->inherits("QAbstractSpinBox");
      if (empty || number)
        too_narrow(empty ? line->placeholderText() : line->text(), line->width());
    }
  } else if (const auto* tabs = qobject_cast<const QTabBar*>(&widget)) {
    for (int i = 0; i < tabs->count(); ++i) {
      if (tabs->isTabVisible(i)) too_narrow(tabs->tabText(i), tabs->tabRect(i).width());
    }
  } else if (const auto* dock = qobject_cast<const QDockWidget*>(&widget)) {
    too_narrow(dock->windowTitle(), dock->width() - 3 * dock->fontMetrics().height());
  } else if (const auto* header = qobject_cast<const QHeaderView*>(&widget)) {
    for (int i = 0; i < header->count(); ++i) {
      const QString text =
          header->model()->headerData(i, header->orientation(), Qt::DisplayRole).toString();
      const int room =
          header->orientation() == Qt::Horizontal ? header->sectionSize(i) : header->width();
      too_narrow(text, room);
    }
  } else if (const auto* items = qobject_cast<const QAbstractItemView*>(&widget)) {
    const QAbstractItemModel* model = items->model();
    if (model == nullptr || items->inherits("QHeaderView")) return;
    const std::function<void(const QModelIndex&)> visit = [&](const QModelIndex& parent) {
      for (int row = 0; row < model->rowCount(parent); ++row) {
        for (int column = 0; column < model->columnCount(parent); ++column) {
          const QModelIndex index = model->index(row, column, parent);
          const QRect rect = items->visualRect(index);
          if (!rect.isEmpty() && rect.top() < items->viewport()->height() &&
              items->sizeHintForIndex(index).height() > rect.height()) {
            wrong << Named(widget, index.data().toString()) + QStringLiteral(": too low");
          }
          if (column == 0) visit(index);
        }
      }
    };
    visit({});
  }
}

// The texts that a widget draws itself, and where: empty for what draws none.
std::vector<QRect> TextRects(const QWidget& widget) {
  if (!widget.isEnabled()) return {};  // pale on purpose
  if (const auto* label = qobject_cast<const QLabel*>(&widget)) {
    if (label->text().isEmpty()) return {};
    return {label->contentsRect()};
  }
  if (const auto* button = qobject_cast<const QAbstractButton*>(&widget)) {
    if (button->text().isEmpty()) return {};
    return {button->rect().adjusted(3, 3, -3, -3)};
  }
  if (const auto* line = qobject_cast<const QLineEdit*>(&widget)) {
    if (line->displayText().isEmpty() && line->placeholderText().isEmpty()) return {};
    return {line->rect().adjusted(3, 3, -3, -3)};
  }
  if (const auto* tabs = qobject_cast<const QTabBar*>(&widget)) {
    std::vector<QRect> rects;
    for (int i = 0; i < tabs->count(); ++i) {
      if (tabs->isTabVisible(i)) rects.push_back(tabs->tabRect(i).adjusted(5, 5, -5, -5));
    }
    return rects;
  }
  if (const auto* bar = qobject_cast<const QMenuBar*>(&widget)) {
    std::vector<QRect> rects;
    for (QAction* action : bar->actions()) rects.push_back(bar->actionGeometry(action));
    return rects;
  }
  if (const auto* box = qobject_cast<const QComboBox*>(&widget)) {
    if (box->currentText().isEmpty()) return {};
    return {box->rect().adjusted(4, 4, -box->height(), -4)};
  }
  return {};
}

}  // namespace

QStringList CutTexts(const QWidget& window) {
  QStringList wrong;
  for (const QWidget* widget : Shown(window)) {
    CheckText(*widget, wrong);
    const QWidget* parent = widget->parentWidget();
    if (Scrolls(*parent) || widget->isWindow()) continue;
    const bool inside = widget->x() >= 0 && widget->geometry().right() <= parent->rect().right();
    if (!inside && !parent->inherits("QTabBar")) {
      wrong << Named(*widget) + QStringLiteral(" reaches out of ") + Named(*parent);
    }
  }
  return wrong;
}

QStringList Overlaps(const QWidget& window) {
  QStringList wrong;
  QHash<const QWidget*, std::vector<const QWidget*>> siblings;
  for (const QWidget* widget : Shown(window)) {
    // A search line lies over its view on purpose; a rubber band over all.
    if (qobject_cast<const QRubberBand*>(widget)) continue;
    std::vector<const QWidget*>& others = siblings[widget->parentWidget()];
    for (const QWidget* other : others) {
      if (widget->geometry().intersects(other->geometry())) {
        wrong << Named(*widget) + QStringLiteral(" over ") + Named(*other);
      }
    }
    others.push_back(widget);
  }
  return wrong;
}

QStringList PaleTexts(QWidget& window) {
  QStringList wrong;
  const QImage image = window.grab().toImage().convertToFormat(QImage::Format_RGB32);
  const double scale = image.devicePixelRatio();
  for (const QWidget* widget : Shown(window)) {
    for (const QRect& text : TextRects(*widget)) {
      const QRect seen = text & Seen(*widget);
      if (seen.height() < widget->fontMetrics().height() || seen.width() < text.width()) continue;
      const QPoint at = widget->mapTo(&window, seen.topLeft());
      const QRect pixels = QRect(at * scale, seen.size() * scale) & image.rect();
      QHash<QRgb, int> count;
      for (int y = pixels.top(); y <= pixels.bottom(); ++y) {
        for (int x = pixels.left(); x <= pixels.right(); ++x) ++count[image.pixel(x, y)];
      }
      // Most of it is background; the strokes of letters reach the text's own color.
      QRgb behind = 0;
      int most = 0;
      for (auto it = count.cbegin(); it != count.cend(); ++it) {
        if (it.value() > most) {
          most = it.value();
          behind = it.key();
        }
      }
      double contrast = 1;
      for (auto it = count.cbegin(); it != count.cend(); ++it) {
        contrast = std::max(contrast, Contrast(QColor(it.key()), QColor(behind)));
      }
      if (contrast < kLeastContrast) {
        wrong << QStringLiteral("%1: contrast %2").arg(Named(*widget)).arg(contrast, 0, 'f', 1);
      }
    }
  }
  return wrong;
}

}  // namespace stallcast::gui
