// Models from the config.json that Hugging Face's libraries write beside the weights.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "models/llm/model.h"

namespace stallcast::llm {

/// Whether a model's name is the path of such a file: it ends in .json.
bool IsConfigJson(std::string_view name);

/// The decoder that the file describes: grouped queries or latents, gated MLPs or experts, layers
/// that attend everything, a window, by a linear state or nothing, in the widths that
/// `quantization_config` says. Its name is the last part of `_name_or_path`, or else of the file's
/// folder, or the file's own where that is not config.json. What was assumed or left out stands in
/// Model::notes. A shape that is none of these, and a missing, contradictory or senseless field:
/// Error with the field and the reason.
Model ReadConfigJson(const std::filesystem::path& file);
/// The same from a text; `where` stands in errors and becomes the source. The model has no name.
Model ParseConfigJson(std::string_view text, const std::string& where);

}  // namespace stallcast::llm
