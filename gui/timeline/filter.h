// SPDX-License-Identifier: GPL-3.0-or-later
// Words that choose ops: for search, and to dim all others.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gui/timeline/timeline_pair.h"

namespace stallcast::gui {

/// Words, all of which must fit. A plain word fits names that contain it, whatever its case;
/// "several words" in quotes are one. Others: role:recall,offload  lane:copy  step:3  step:3-5
/// layer:0-3  op:17  dur>10us  dur<1ms  bytes>1MB  residual>5% (either way). A - before a word
/// chooses what it does not fit.
class Filter {
 public:
  Filter() = default;
  /// Throws UsageError on a word that makes no sense.
  explicit Filter(std::string_view words);

  bool empty() const { return terms_.empty(); }

  struct Term {
    enum class Kind : uint8_t {
      kName,
      kRole,
      kLane,
      kStep,
      kLayer,
      kOp,
      kDuration,
      kBytes,
      kResidual
    };
    Kind kind = Kind::kName;
    bool negate = false;
    std::string text;    // kName, kLane: in lower case
    uint32_t roles = 0;  // kRole: a bit each
    double least = -std::numeric_limits<double>::infinity();
    double most = std::numeric_limits<double>::infinity();
  };
  const std::vector<Term>& terms() const { return terms_; }  ///< all must fit

 private:
  friend class FilterMask;
  static Term Parse(std::string_view word);
  std::vector<Term> terms_;
};

/// Which rows of one side a filter chooses. One bit a row, counted so that any stretch is asked in
/// constant time.
class FilterMask {
 public:
  FilterMask() = default;  ///< chooses all
  FilterMask(const Filter& filter, const TimelinePair& pair, Side side);

  bool all() const { return words_.empty(); }
  bool Matches(int64_t row) const { return all() || Count(row, row + 1) > 0; }
  /// Chosen rows among [first, last).
  int64_t Count(int64_t first, int64_t last) const;
  /// Chosen rows in all; meaningless when all() are.
  int64_t total() const { return before_.empty() ? 0 : before_.back(); }

 private:
  int64_t Before(int64_t row) const;
  std::vector<uint64_t> words_;
  std::vector<uint32_t> before_;  // chosen before every 64th row, and in all
};

}  // namespace stallcast::gui
