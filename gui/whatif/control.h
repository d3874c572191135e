// SPDX-License-Identifier: GPL-3.0-or-later
// What can be changed about a prediction, as declared by methods, machines and models: nothing
// about widgets.
#pragma once

#include <QString>
#include <QStringList>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/predict.h"

namespace stallcast::gui {

/// One value of a request. All texts are as on the command line.
struct Control {
  enum class Kind : uint8_t { kNumber, kChoice, kFlag, kText };
  std::string path = {};  ///< "method", "batch", "param.budget", "machine.kernel.gemm.fixed"
  QString group = {};     ///< heading that it stands under
  QString section = {};   ///< heading that this heading stands under; empty: none
  QString label = {};
  QString unit = {};  ///< empty where the value carries its own
  QString help = {}, source = {};
  Kind kind = Kind::kNumber;
  QStringList choices = {};       ///< of kChoice, as written
  QStringList choice_names = {};  ///< the same for people; empty: as written
  QString files = {};             ///< of kChoice: names of files that may be given instead
  QString default_value = {};

  // Of kNumber.
  std::function<double(const std::string&)> parse = {};  ///< throws Error
  std::function<std::string(double)> format = {};
  bool integer = false;
  double low = 0, high = 0;  ///< that a slider reaches; more may be typed
  bool logarithmic = false;

  /// What the request says; nothing where it leaves the default.
  std::function<std::optional<std::string>(const sim::PredictRequest&)> read = {};
  /// Checks the text and writes it; nothing: back to the default. Throws Error, and then the
  /// request is as before.
  std::function<void(sim::PredictRequest&, const std::optional<std::string>&)> write = {};

  /// The value in force, as text.
  QString Value(const sim::PredictRequest& request) const;
  /// The value in force of a kNumber; the default where a request says what cannot be parsed.
  double Number(const sim::PredictRequest& request) const;
  /// The value that a slider at `share` of its way stands for, rounded to what people choose: few
  /// digits, and for counts few binary digits (whole pages); and the way back.
  double AtShare(double share) const;
  double ShareOf(double value) const;
};

/// All controls for a request's method and machine, in the order in which they are shown. Throws
/// Error where the request names an unknown method or machine.
std::vector<Control> Controls(const sim::PredictRequest& request,
                              const traces::proto::TraceInfo& trace);

/// Makes `request` one of another method: keeps the parameters that the new one has, where it takes
/// their values.
void ChangeMethod(sim::PredictRequest& request, const std::string& method);

/// Which control an error speaks of: the one that it names, or else `last_changed`. Empty: none.
std::string Culprit(const Error& error, const std::vector<Control>& controls,
                    const std::string& last_changed);

}  // namespace stallcast::gui
