// SPDX-License-Identifier: GPL-3.0-or-later
// Keys and mouse, and what the program is.
#include <QCoreApplication>
#include <QDialog>
#include <QLabel>
#include <QMessageBox>
#include <QScrollArea>
#include <QVBoxLayout>

#include "gui/app/commands.h"
#include "gui/app/main_window.h"
#include "gui/timeline/theme.h"

namespace stallcast::gui {
namespace {

struct Gesture {
  const char *what, *does;
};
constexpr Gesture kGestures[] = {
    {"Ctrl+wheel", "zoom at the pointer"},
    {"Shift+wheel, Shift+drag", "pan"},
    {"wheel", "scroll lanes"},
    {"drag", "select an area: its sums by role"},
    {"right drag", "measure, snapping to ops"},
    {"right click", "commands for what is there"},
    {"click", "select an op; on a wait, its cause"},
    {"double click", "zoom to the op; on a lane's name, pin it; on the ruler, show the step"},
    {"click in the overview", "go there"},
    {"click on a role in the legend", "show its ops only"},
    {"click in a chart", "go to the step; take the point's values"},
    {"Shift+click in a chart", "pin the point"},
};

QString Table(const QString& title, const QString& rows) {
  return QStringLiteral("<h4>%1</h4><table cellpadding='2'>%2</table>").arg(title, rows);
}

QString Row(const QString& what, const QString& does) {
  return QStringLiteral("<tr><td><b>%1</b>&nbsp;&nbsp;</td><td>%2</td></tr>")
      .arg(what.toHtmlEscaped(), does.toHtmlEscaped());
}

}  // namespace

void MainWindow::ShowKeys() {
  QString mouse;
  for (const Gesture& g : kGestures) mouse += Row(QLatin1String(g.what), QLatin1String(g.does));
  QStringList tables{Table(QStringLiteral("Mouse"), mouse)};
  QStringList menus;
  for (const Commands::Entry& entry : commands_->entries()) {
    if (!menus.contains(entry.menu)) menus << entry.menu;
  }
  for (const QString& menu : menus) {
    QString rows;
    for (const Commands::Entry& entry : commands_->entries()) {
      if (entry.menu != menu || !entry.action) continue;
      rows += Row(entry.action->shortcut().toString(QKeySequence::NativeText),
                  entry.action->text().remove('&'));
    }
    tables << Table(menu, rows);
  }
  // Two columns of about the same length.
  qsizetype all = 0, left = 0;
  for (const QString& table : tables) all += table.count(QStringLiteral("<tr>"));
  QString columns[2];
  for (const QString& table : tables) {
    columns[2 * left >= all ? 1 : 0] += table;
    left += table.count(QStringLiteral("<tr>"));
  }
  auto* text =
      new QLabel(QStringLiteral("<table><tr><td valign='top'>%1</td><td width='24'></td><td "
                                "valign='top'>%2</td></tr></table>")
                     .arg(columns[0], columns[1]));
  text->setMargin(Spacing::kLarge);
  text->setTextInteractionFlags(Qt::TextSelectableByMouse);
  auto* scroll = new QScrollArea;
  scroll->setWidget(text);
  auto* dialog = new QDialog(this);
  dialog->setObjectName(QStringLiteral("keys"));
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setWindowTitle(QStringLiteral("Mouse and keys"));
  auto* column = new QVBoxLayout(dialog);
  column->setContentsMargins(0, 0, 0, 0);
  column->addWidget(scroll);
  dialog->resize(text->sizeHint().width() + 60, height() * 3 / 4);
  dialog->show();
}

void MainWindow::ShowAbout() {
  auto* box = new QMessageBox(this);
  box->setObjectName(QStringLiteral("about"));
  box->setAttribute(Qt::WA_DeleteOnClose);
  box->setWindowTitle(QStringLiteral("About Stallcast"));
  box->setTextFormat(Qt::RichText);
  box->setText(
      QStringLiteral(
          "<h3>Stallcast %1</h3><p>Predicts how long LLM decoding takes when the KV cache does not "
          "live on the GPU, and why.</p><p>This program is free software under the GNU General "
          "Public License, version 3 or later; it comes without any warranty. It uses Qt %2.</p>"
          "<p>README.md and gui/README.md of the sources describe it. Report a fault in the issue "
          "tracker of the project, with the session file (File, Save Session).</p>")
          .arg(QCoreApplication::applicationVersion(), QLatin1String(qVersion())));
  box->open();
}

}  // namespace stallcast::gui
