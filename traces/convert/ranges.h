// Ranges that are named like steps or layers, and which of them a time lies in.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "traces/common/units.h"

namespace stallcast::traces::convert {

struct NumberedName {
  std::string_view family;  ///< what stands before the number
  int32_t number = 0;
};

/// "ProfilerStep#12", "step 12", "decode/iter_12", "sample_0 step=12 rank=0": the first whole word
/// `step`, `iteration` or `iter` with a number behind it.
std::optional<NumberedName> StepName(std::string_view name);
/// "layer 3", "model.layers.3.mlp", "block_3".
std::optional<NumberedName> LayerName(std::string_view name);
/// A step of a server that numbers none, by the fixed part of its name, which is the family; the
/// number is -1: "execute_context_0(0)_generation_8(8)" (vLLM), "step[DECODE bs=32]" (SGLang).
std::optional<NumberedName> ServerStepName(std::string_view name);
/// A name that is `family`, or goes on behind it with no letter; -1 where no number follows.
std::optional<NumberedName> FamilyName(std::string_view name, std::string_view family);
/// What stands before the first number, without separators: what --step-range takes.
std::string_view WithoutNumber(std::string_view name);

/// Ranges on one axis, nested or apart; where they overlap, the one that began last counts.
class NumberedRanges {
 public:
  void Add(Picoseconds begin, Picoseconds end, int32_t number) {
    ranges_.push_back({begin, end, number});
  }
  bool empty() const { return ranges_.empty(); }
  /// Call once, after the last Add() and before At().
  void Arrange();
  /// -1 outside of all.
  int32_t At(Picoseconds time) const;

 private:
  struct Range {
    Picoseconds begin, end;
    int32_t number;
  };
  struct Change {
    Picoseconds from;
    int32_t number;
  };
  std::vector<Range> ranges_;
  std::vector<Change> changes_;
};

}  // namespace stallcast::traces::convert
