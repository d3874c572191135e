// SPDX-License-Identifier: GPL-3.0-or-later
// Light and dark.
#pragma once

#include <QPalette>
#include <QString>

namespace stallcast::gui {

enum class Appearance : uint8_t { kLight, kDark };
QString Name(Appearance appearance);

/// Style, palette and style sheet of the whole program.
void Apply(Appearance appearance);
bool IsDark(const QPalette& palette);

}  // namespace stallcast::gui
