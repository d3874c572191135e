// The number formats that weights and KV caches are kept in.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/llm/config.h"
#include "models/llm/model.h"
#include "models/plan/width.h"

namespace stallcast::llm {

struct NamedWidth {
  std::string_view name;  ///< "fp8"
  plan::Width width;
  bool kv = false;  ///< used for KV caches too
  std::string_view help;
};
std::span<const NamedWidth> Widths();
/// Unknown, or not for KV caches where it must be: usage Error listing those there are.
plan::Width WidthNamed(std::string_view name, bool for_kv, std::string_view where);
/// The name of a width, or its bits.
std::string NameOf(const plan::Width& width);

/// Sets the widths of weights, experts and KV that a `quantization_config` says, and notes them.
/// One that is not known: Error.
void ApplyQuantization(const Config& quantization, Model& model);

}  // namespace stallcast::llm
