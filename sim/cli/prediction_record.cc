#include "sim/cli/prediction_record.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "models/methods/method.h"
#include "sim/names.h"
#include "sim/prediction_fields.h"
#include "traces/common/error.h"

namespace stallcast::cli {
namespace {

using sim::FieldKind;

Json NumberJson(double value, FieldKind kind) {
  if (std::isnan(value)) return nullptr;
  switch (kind) {
    case FieldKind::kFlag:
      return value != 0;
    case FieldKind::kCount:
      return static_cast<int64_t>(value);
    case FieldKind::kReal:
      return value;
  }
  return nullptr;
}

Json ObjectOf(const auto& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

// Values of a method's parameters as what they are: numbers, true or false, texts. One that is not
// what it was declared to be stays the text that it is.
Json TypedParams(const std::string& method, const auto& pairs) {
  using Type = methods::ParamSpec::Type;
  Json object = Json::object();
  const std::vector<std::string> known = sim::MethodNames();
  const bool is_known = std::find(known.begin(), known.end(), method) != known.end();
  const methods::MethodInfo* info = is_known ? methods::MakeMethod(method, {}).info : nullptr;
  for (const auto& [name, value] : pairs) {
    object[name] = value;
    if (!info) continue;
    const auto spec =
        std::find_if(info->params.begin(), info->params.end(),
                     [&, name = name](const auto& each) { return each.name == name; });
    if (spec == info->params.end()) continue;
    try {
      if (spec->type == Type::kInteger) {
        object[name] = static_cast<int64_t>(methods::ParseNumber(*spec, method, value));
      } else if (spec->type == Type::kReal) {
        object[name] = methods::ParseNumber(*spec, method, value);
      } else if (spec->type == Type::kFlag) {
        object[name] = methods::ParseFlag(*spec, method, value);
      }
    } catch (const Error&) {
      // A failed point, or one of an earlier version.
    }
  }
  return object;
}

// What comes before and behind the numbers of PredictionFields().
struct Asked {
  sim::ResultStore::Trace trace;
  std::string method, machine, machine_status, model;
  double tensor_parallel = 0, context = 0, batch = 0, steps = 0, samples = 0;
  std::string host;
  double as_run = 0;
  Json params, overrides;
  std::string most_exposed_role;
  Json notes;
};

Json Record(const Asked& asked, const std::function<double(const sim::PredictionField&)>& value) {
  const auto count = [](double number) { return NumberJson(number, FieldKind::kCount); };
  Json record;
  record["trace"] = asked.trace.file;
  record["trace_hash"] = asked.trace.hash;
  record["method"] = asked.method;
  record["machine"] = asked.machine;
  record["machine_status"] = asked.machine_status;
  record["model"] = asked.model;
  record["tensor_parallel"] = count(asked.tensor_parallel);
  record["context_tokens"] = count(asked.context);
  record["batch"] = count(asked.batch);
  record["steps"] = count(asked.steps);
  record["samples"] = count(asked.samples);
  record["host"] = asked.host;
  record["as_run"] = NumberJson(asked.as_run, FieldKind::kFlag);
  record["params"] = asked.params;
  record["overrides"] = asked.overrides;
  record["most_exposed_role"] = asked.most_exposed_role;
  for (const sim::PredictionField& field : sim::PredictionFields()) {
    record[field.name] = NumberJson(value(field), field.kind);
  }
  record["notes"] = asked.notes;
  return record;
}

}  // namespace

double NumberOf(const sim::ResultStore::Value& value) {
  const double* number = std::get_if<double>(&value);
  return number ? *number : std::numeric_limits<double>::quiet_NaN();
}

std::string TextOf(const sim::ResultStore::Value& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text ? *text : std::string();
}

Json RecordOf(const sim::Prediction& p, const sim::ResultStore::Trace& trace) {
  const sim::PredictRequest& r = p.request;
  return Record({.trace = trace,
                 .method = r.method,
                 .machine = r.machine,
                 .machine_status = p.machine_status,
                 .model = p.model.name,
                 .tensor_parallel = static_cast<double>(r.tensor_parallel),
                 .context = static_cast<double>(r.context),
                 .batch = static_cast<double>(r.batch),
                 .steps = static_cast<double>(r.steps),
                 .samples = static_cast<double>(r.samples),
                 .host = std::string(plan::Name(r.host.value_or(plan::Host::kCpp))),
                 .as_run = r.as_run ? 1.0 : 0.0,
                 .params = TypedParams(r.method, p.params),
                 .overrides = ObjectOf(r.machine_overrides),
                 .most_exposed_role = sim::MostExposedRole(p.metrics),
                 .notes = p.notes},
                [&](const sim::PredictionField& field) { return field.Of(p); });
}

Json RecordOf(const sim::ResultStore::Rows& points, size_t row) {
  const auto number = [&](std::string_view name) { return NumberOf(points.At(row, name)); };
  const auto text = [&](std::string_view name) { return TextOf(points.At(row, name)); };
  // A failed point stands for what was asked for, where 0 is the trace's own.
  const auto known = [&](std::string_view name) {
    const double value = number(name);
    return value > 0 ? value : std::nan("");
  };
  return Record({.trace = {text("trace"), text("trace_file")},
                 .method = text("method"),
                 .machine = text("machine"),
                 .machine_status = text("machine_status"),
                 .model = text("model"),
                 .tensor_parallel = number("tensor_parallel"),
                 .context = known("context"),
                 .batch = number("batch"),
                 .steps = known("steps"),
                 .samples = number("samples"),
                 .host = text("host"),
                 .as_run = number("as_run"),
                 .params = TypedParams(text("method"), sim::StoredPairs(points.At(row, "params"))),
                 .overrides = ObjectOf(sim::StoredPairs(points.At(row, "overrides"))),
                 .most_exposed_role = text("most_exposed_role"),
                 .notes = sim::StoredTexts(points.At(row, "notes"))},
                [&](const sim::PredictionField& field) { return number(field.name); });
}

}  // namespace stallcast::cli
