// SPDX-License-Identifier: GPL-3.0-or-later
// What is predicted, as sessions keep it.
#pragma once

#include <QJsonObject>

#include "sim/predict.h"

namespace stallcast::gui {

/// Only what differs from the defaults is written.
QJsonObject ToJson(const sim::PredictRequest& request);
/// Takes names and texts as they are: whether they make sense shows when it is predicted. Throws
/// Error for a value of the wrong type.
sim::PredictRequest RequestFromJson(const QJsonObject& json);

}  // namespace stallcast::gui
