// The models that are known by name: what their publishers' config.json says of the shape.
#pragma once

#include <span>
#include <string_view>

#include "models/llm/model.h"

namespace stallcast::llm {

struct Shape {
  std::string_view name;    ///< "llama-3.1-8b"
  std::string_view title;   ///< "Llama-3.1-8B"
  std::string_view source;  ///< whose config.json it is
  std::string_view config;  ///< the fields that make the shape, as JSON
};

std::span<const Shape> Shapes();
/// The model that a config describes, under the shape's name.
Model ModelOf(const Shape& shape);

}  // namespace stallcast::llm
