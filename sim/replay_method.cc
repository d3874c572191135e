#include "sim/replay_method.h"

#include <fmt/format.h>

#include <optional>
#include <sstream>

#include "sim/predict.h"
#include "traces/common/count.h"
#include "traces/common/error.h"
#include "traces/convert/names.h"
#include "traces/samples.h"

namespace stallcast::sim {
namespace {

// The role that the filter names as kind=.
traces::Role RoleOf(const ReplayChange& change, const std::string& where) {
  std::istringstream terms(change.filter);
  for (std::string term; std::getline(terms, term, ',');) {
    if (!term.starts_with("kind=")) continue;
    const std::optional<traces::Role> role = traces::convert::RoleNamed(term.substr(5));
    if (role && *role != traces::Role::kHost && *role != traces::Role::kOther) return *role;
  }
  throw UsageError(fmt::format("'{}' names no role of a method", change.filter), where,
                   "give kind=recall, kind=offload or kind=attention");
}

int64_t CountOf(const std::string& name, const std::string& value, const std::string& where) {
  const std::optional<int64_t> count = ParseCount(value);
  if (count && *count > 0 && *count < (int64_t{1} << 31)) return *count;
  throw UsageError(fmt::format("'{}' is no number of {}", value, name), where,
                   fmt::format("give {}=32K, for example", name));
}

}  // namespace

void PredictReplacement(ReplayChange* change, const std::string& machine,
                        const std::stop_token& stop) {
  if (change->verb != ReplayVerb::kReplace) return;
  const std::string where = fmt::format("--change '{}'", change->text);
  PredictRequest request;
  request.machine = machine;
  request.prefill = false;
  std::string trace = "sample:8k";
  std::istringstream words(change->argument);
  words >> request.method;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals + 1 == word.size()) {
      throw UsageError(fmt::format("'{}' is no NAME=VALUE", word), where,
                       "give model=, context=, batch=, trace= or parameters of the method");
    }
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "trace") {
      trace = value;
    } else if (name == "model") {
      request.model = value;
    } else if (name == "context") {
      request.context = CountOf(name, value, where);
    } else if (name == "batch") {
      request.batch = static_cast<int32_t>(CountOf(name, value, where));
    } else {
      request.params[name] = value;
    }
  }
  if (request.model.empty() || request.context == 0) {
    throw UsageError("the recording does not say which model it runs, and at which context", where,
                     "add model=NAME and context=TOKENS");
  }
  const traces::Role role = RoleOf(*change, where);
  Predictor predictor(traces::TracePath(trace));
  const Prediction made = predictor.Predict(request, nullptr, stop);
  const RoleTime& of = made.metrics.roles[static_cast<size_t>(role)];
  change->value = Seconds(of.busy);
  change->note = fmt::format(
      "{} of {}: {:.3f} ms and {:.1f} MB a step, predicted for {}, {} tokens, batch {}, {}; "
      "its other work, its calls and when it begins are not replaced",
      Name(role), request.method, Milliseconds(of.busy), static_cast<double>(of.bytes) / 1e6,
      made.model.name, request.context, request.batch, trace);
}

}  // namespace stallcast::sim
