// What every model's shape must keep.
#pragma once

#include <string>

#include "models/llm/model.h"

namespace stallcast::llm {

/// Throws Error unless every field lies inside limits that keep products of fields inside 64 bits,
/// and the query heads are a multiple of the KV heads. `where` holds the model's description.
void CheckShape(const Model& model, const std::string& where, const std::string& remedy);
/// The same of the number of layers alone, before anything is read for each of them.
void CheckLayers(const Model& model, const std::string& where);

}  // namespace stallcast::llm
