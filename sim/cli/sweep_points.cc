#include "sim/cli/sweep_points.h"

#include <fmt/format.h>

#include "sim/cli/prediction_record.h"
#include "sim/prediction_fields.h"

namespace stallcast::cli {
namespace {

constexpr const char* kTexts[] = {"status",     "message",   "method",  "model",
                                  "machine",    "host",      "program", "trace",
                                  "trace_file", "overrides", "params"};
constexpr const char* kNumbers[] = {"tensor_parallel", "context",        "batch",
                                    "steps",           "as_run",         "fits",
                                    "step_mean_ms",    "attention_mass", "gpu_bytes"};

uint64_t OutcomeOf(const sim::ResultStore::Rows& point) {
  std::string text;
  if (Failed(point)) {
    text = "failed: " + TextOf(point.At(0, "message"));
  } else {
    for (const sim::PredictionField& field : sim::PredictionFields()) {
      text += fmt::format("{},", NumberOf(point.At(0, field.name)));
    }
  }
  return std::hash<std::string>()(text);
}

sim::Figures FiguresOf(bool failed, const auto& number) {
  return {!failed && number("fits") > 0, number("step_mean_ms"), number("attention_mass"),
          number("gpu_bytes")};
}

}  // namespace

Points::Points(sim::ResultStore& store, const std::vector<std::string>& numbers) {
  for (const char* name : kTexts) texts_.try_emplace(name);
  for (const char* name : kNumbers) numbers_.try_emplace(name);
  for (const std::string& name : numbers) numbers_.try_emplace(name);
  store.ForEach([&](const sim::ResultStore::Rows& point) {
    for (auto& [name, column] : texts_) column.Add(TextOf(point.At(0, name)));
    for (auto& [name, column] : numbers_) column.push_back(NumberOf(point.At(0, name)));
    workload_.Add(WorkloadOf(point));
    outcomes_.push_back(OutcomeOf(point));
  });
}

bool Failed(const Points& points, size_t point) { return points.Text(point, "status") == "failed"; }

bool Failed(const sim::ResultStore::Rows& point) {
  return TextOf(point.At(0, "status")) == "failed";
}

sim::Figures FiguresOf(const Points& points, size_t point) {
  return FiguresOf(Failed(points, point),
                   [&](const char* name) { return points.Number(point, name); });
}

sim::Figures FiguresOf(const sim::ResultStore::Rows& point) {
  return FiguresOf(Failed(point), [&](const char* name) { return NumberOf(point.At(0, name)); });
}

std::string WorkloadOf(const sim::ResultStore::Rows& point) {
  const auto number = [&](const char* name) { return NumberOf(point.At(0, name)); };
  return fmt::format("{}\n{}\n{}\n{}\n{}",
                     TraceOf(TextOf(point.At(0, "trace_file")), TextOf(point.At(0, "trace"))),
                     TextOf(point.At(0, "model")), number("context"), number("batch"),
                     number("tensor_parallel"));
}

std::string TraceOf(const std::string& file, const std::string& hash) {
  return file.empty() ? hash : file;
}

}  // namespace stallcast::cli
