// Models from the config.json that Hugging Face's libraries write beside the weights.
#pragma once

#include <filesystem>
#include <string_view>

#include "models/llm/model.h"

namespace stallcast::llm {

/// Whether a model's name is the path of such a file: it ends in .json.
bool IsConfigJson(std::string_view name);

/// The model that the file describes: a dense decoder of Llama's kind (grouped queries, SwiGLU,
/// layers that attend the whole context). Its name is the last part of `_name_or_path`, or else of
/// the file's folder, or the file's own where that is not config.json. Anything else, a mixture of
/// experts say, and a missing or senseless field: Error.
Model ReadConfigJson(const std::filesystem::path& file);

}  // namespace stallcast::llm
