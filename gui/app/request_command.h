// SPDX-License-Identifier: GPL-3.0-or-later
// A step back over what is predicted or replayed.
#pragma once

#include <QElapsedTimer>
#include <QUndoCommand>
#include <functional>
#include <utility>

namespace stallcast::gui {

/// A change of a request. Changes of one `kind` that follow each other within a second, as the
/// moves of a slider do, are one step back; of kNoKind each is one of its own.
template <class Request>
class RequestCommand : public QUndoCommand {
 public:
  using Apply = std::function<void(const Request&)>;
  static constexpr int kNoKind = -1;

  RequestCommand(const QString& text, int kind, Request before, Request after, Apply apply)
      : QUndoCommand(text),
        kind_(kind),
        before_(std::move(before)),
        after_(std::move(after)),
        apply_(std::move(apply)) {
    since_.start();
  }

  void undo() override { apply_(before_); }
  void redo() override {
    if (std::exchange(done_, true)) apply_(after_);
  }
  int id() const override { return kind_; }
  bool mergeWith(const QUndoCommand* next) override {
    constexpr int kOneMoveMilliseconds = 1000;
    const auto* command = dynamic_cast<const RequestCommand*>(next);
    if (!command || since_.elapsed() > kOneMoveMilliseconds) return false;
    after_ = command->after_;
    since_.restart();
    return true;
  }

 private:
  int kind_;
  Request before_, after_;
  Apply apply_;
  bool done_ = false;  // it was, when it was pushed
  QElapsedTimer since_;
};

}  // namespace stallcast::gui
