// What qualifies the rows of a table, each kind said once.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "sim/cli/screen.h"

namespace stallcast::cli {

class NoteList {
 public:
  /// `whose` names the row, or the rows of a kind: a method.
  void Add(const std::string& note, const std::string& whose);

  /// A line a kind. Notes that differ in numbers alone are of a kind, which gives the least and the
  /// most of each number. A kind that not all of `everyone` have says whose it is.
  std::string Render(const std::set<std::string>& everyone, const Screen& screen) const;

 private:
  struct Kind {
    std::vector<std::string> words;        ///< between the numbers
    std::vector<std::string> least, most;  ///< of each number
    std::set<std::string> whose;
  };
  std::vector<Kind> kinds_;
};

}  // namespace stallcast::cli
