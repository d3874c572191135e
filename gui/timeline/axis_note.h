// SPDX-License-Identifier: GPL-3.0-or-later
// A note that somebody put on the axis.
#pragma once

#include <QString>
#include <optional>

#include "gui/timeline/axis.h"

namespace stallcast::gui {

/// Keeps its place in its step when sides are laid out anew.
struct AxisNote {
  int32_t step = -1;      ///< of a stretch of the axis; -1: the axis has none
  Picoseconds offset{0};  ///< from the begin of the step; from that of the axis without steps
  QString text;
  bool operator==(const AxisNote&) const = default;
};

inline AxisNote NoteAt(const Alignment& alignment, Picoseconds axis, const QString& text) {
  const Alignment::Stretch* stretch = alignment.At(axis);
  if (stretch == nullptr) return {-1, axis - alignment.whole.begin, text};
  return {stretch->step, axis - stretch->axis.begin, text};
}

/// Nothing where the axis does not have its step.
inline std::optional<Picoseconds> PlaceOf(const Alignment& alignment, const AxisNote& note) {
  if (note.step < 0) return alignment.whole.begin + note.offset;
  for (const Alignment::Stretch& stretch : alignment.stretches) {
    if (stretch.step == note.step) return stretch.axis.begin + note.offset;
  }
  return std::nullopt;
}

}  // namespace stallcast::gui
