// The points of a sweep's file, held in little memory: what a table or a plot of them needs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/requirements.h"
#include "sim/result_store.h"

namespace stallcast::cli {

/// A text a point, each different one held once.
class TextColumn {
 public:
  explicit TextColumn(size_t points = 0) : texts_(points, Id("")) {}
  const std::string& operator[](size_t point) const { return *texts_[point]; }
  void Set(size_t point, const std::string& text) { texts_[point] = Id(text); }
  void Add(const std::string& text) { texts_.push_back(Id(text)); }
  size_t size() const { return texts_.size(); }

  TextColumn(const TextColumn& other) : texts_(other.size()) {
    for (size_t i = 0; i < size(); ++i) Set(i, other[i]);
  }
  TextColumn(TextColumn&&) = default;
  TextColumn& operator=(TextColumn other) {
    known_.swap(other.known_);
    texts_.swap(other.texts_);
    return *this;
  }

 private:
  const std::string* Id(const std::string& text) { return &*known_.insert(text).first; }

  std::set<std::string> known_;  // its texts stay where they are
  std::vector<const std::string*> texts_;
};

class Points {
 public:
  /// Reads the texts that say what was asked for, and the numbers of these names beside those of
  /// FiguresOf().
  Points(sim::ResultStore& store, const std::vector<std::string>& numbers);

  size_t size() const { return workload_.size(); }
  double Number(size_t point, const std::string& name) const { return numbers_.at(name)[point]; }
  const std::string& Text(size_t point, const std::string& name) const {
    return texts_.at(name)[point];
  }
  /// Of a point's trace, model, context, batch and GPUs.
  const std::string& Workload(size_t point) const { return workload_[point]; }
  /// A hash of what came of a point, as exactly as it is stored.
  uint64_t Outcome(size_t point) const { return outcomes_[point]; }

 private:
  std::map<std::string, std::vector<double>> numbers_;
  std::map<std::string, TextColumn> texts_;
  TextColumn workload_;
  std::vector<uint64_t> outcomes_;
};

bool Failed(const Points& points, size_t point);
sim::Figures FiguresOf(const Points& points, size_t point);

/// The same of a point as ResultStore::ForEach() gives it.
bool Failed(const sim::ResultStore::Rows& point);
sim::Figures FiguresOf(const sim::ResultStore::Rows& point);
std::string WorkloadOf(const sim::ResultStore::Rows& point);
/// The file of a point's trace, or its hash where the file is not known.
std::string TraceOf(const std::string& file, const std::string& hash);

}  // namespace stallcast::cli
