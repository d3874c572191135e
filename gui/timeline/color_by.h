// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

namespace stallcast::gui {

/// What the ops' colors say.
enum class ColorBy : uint8_t { kRole, kResidual };

}  // namespace stallcast::gui
