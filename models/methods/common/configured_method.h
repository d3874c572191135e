// What every method's class shares: its parameters and their table.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "models/methods/method.h"

namespace stallcast::methods {

template <class P>
class ConfiguredMethod : public Method {
 public:
  /// `table` must outlive the method.
  ConfiguredMethod(const ParamTable<P>& table, P params)
      : table_(table), params_(std::move(params)) {}

  std::map<std::string, std::string> Params(bool only_selection) const override {
    return table_.Write(params_, only_selection);
  }

  const P& params() const { return params_; }

 private:
  const ParamTable<P>& table_;
  P params_;
};

/// Usage Error unless `tokens` is a whole number of pages.
inline void CheckWholePages(const char* method, const char* name, int64_t tokens, int64_t page) {
  if (tokens % page == 0) return;
  throw UsageError(
      fmt::format("{} of {} tokens is not a whole number of {}-token pages", name, tokens, page),
      method, fmt::format("give a multiple of {}", page));
}

/// Usage Error unless `need` tokens, of which `parts` says what they are, fit the budget.
inline void CheckBudget(const char* method, int64_t budget, int64_t need, const char* parts) {
  if (need <= budget) return;
  throw UsageError(
      fmt::format("a budget of {} tokens is less than {} ({} tokens)", budget, parts, need), method,
      "raise budget or lower the others");
}

/// The method `kMethod` with the parameter `dense_layers`: so many first layers attend everything.
/// A usage Error if those are all layers of the model.
template <class P, const char* kMethod>
class DenseFirstMethod : public ConfiguredMethod<P> {
 public:
  using ConfiguredMethod<P>::ConfiguredMethod;

  int DenseLayers() const override { return static_cast<int>(this->params().dense_layers); }
  void Check(const llm::Model& model, int64_t /*context*/) const override {
    const int64_t dense = this->params().dense_layers;
    if (dense < model.layers) return;
    throw UsageError(fmt::format("{} dense layers, but {} has {}: none is left to select in", dense,
                                 model.title, model.layers),
                     kMethod, fmt::format("give dense_layers of 0 to {}", model.layers - 1));
  }
};

}  // namespace stallcast::methods
