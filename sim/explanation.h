// Why a reproduced row is off, with the predicted times that the text names.
#pragma once

#include <string>

#include "sim/reproduce.h"

namespace stallcast::sim {

/// The row's explanation. In the file, `{0.step}` is the step in ms of the first run that decides
/// the row, and `{1.recall}` the exposed time a step in ms of a role in the second. Throws Error
/// for another name, or a run that the row does not have.
std::string Explanation(const Reproduction& row);

}  // namespace stallcast::sim
