// What a run may set in a model: one table, from which the command line, files and the GUI take
// names, help and parsers.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "models/llm/model.h"

namespace stallcast::llm {

struct ModelOption {
  std::string_view name;    ///< "kv-dtype"
  std::string_view values;  ///< what it takes: "NAME", "N"
  std::string help;         ///< with its default
  /// Sets it. A value that makes no sense, alone or in this model: usage Error naming the option.
  void (*apply)(std::string_view value, Model& model);
};
std::span<const ModelOption> ModelOptions();

/// By option name.
using ModelValues = std::map<std::string, std::string>;
/// The model with these values, in the order of the table. Unknown name: usage Error.
Model WithOptions(Model model, const ModelValues& values);

}  // namespace stallcast::llm
