#include "sim/grid.h"

#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "models/llm/config_json.h"
#include "sim/names.h"
#include "traces/common/count.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

constexpr int64_t kMostValues = 10'000;
constexpr int64_t kMostPoints = 10'000'000;

struct NumberWithUnit {
  double number;
  std::string_view unit;
};

std::optional<NumberWithUnit> ParseNumberWithUnit(std::string_view text) {
  NumberWithUnit parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed.number);
  if (error != std::errc() || !std::isfinite(parsed.number)) return std::nullopt;
  parsed.unit = text.substr(static_cast<size_t>(end - text.data()));
  return parsed;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string> Range(std::string_view name, const std::vector<std::string_view>& parts) {
  const auto fail = [&](std::string_view problem) {
    return UsageError(fmt::format("{}: {}", problem, fmt::join(parts, ":")), std::string(name),
                      "write low:high:step, or low:high:xfactor as in 1:64:x2");
  };
  if (parts.size() != 3) throw fail("not a range");
  const auto low = ParseNumberWithUnit(parts[0]);
  const auto high = ParseNumberWithUnit(parts[1]);
  const bool factor = parts[2].starts_with('x');
  const auto by = ParseNumberWithUnit(parts[2].substr(factor ? 1 : 0));
  if (!low || !high || !by) throw fail("not a range of numbers");
  if (low->unit != high->unit || (!by->unit.empty() && (factor || by->unit != low->unit))) {
    throw fail("a range needs one unit");
  }
  if (low->number > high->number) throw fail("the range ends below its start");
  if (factor ? by->number <= 1 || low->number <= 0 : by->number <= 0) {
    throw fail("the range never ends");
  }
  std::vector<std::string> values;
  for (int64_t i = 0;; ++i) {
    const double value = factor ? low->number * std::pow(by->number, static_cast<double>(i))
                                : low->number + by->number * static_cast<double>(i);
    if (value > high->number * (1 + 1e-12)) return values;
    if (i == kMostValues) throw fail("more than 10,000 values");
    values.push_back(fmt::format("{:.12g}{}", value, low->unit));
  }
}

int32_t CountAbove0(std::string_view text, const std::string& where) {
  const std::optional<int64_t> value = ParseCount(text);
  if (!value || *value < 1 || *value > std::numeric_limits<int32_t>::max()) {
    throw UsageError(fmt::format("`{}` is not a whole number above 0", text), where,
                     "write it as in 8 or 2K");
  }
  return static_cast<int32_t>(*value);
}

uint64_t Fnv(std::string_view text, uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Of every value that the cost model reads, so that an edited profile gives another key.
uint64_t Fingerprint(const hardware::Profile& p) {
  std::string text;
  const auto add = [&](const std::vector<double>& values) {
    for (double v : values) text += fmt::format("{:a},", v);
    text += ';';
  };
  for (const hardware::ProfileField& field : hardware::ProfileFields()) add({field.In(p)});
  for (const hardware::CurveField& field : hardware::CurveFields()) {
    add(field.In(p).x());
    add(field.In(p).y());
  }
  for (const hardware::SurfaceField& field : hardware::SurfaceFields()) {
    add(field.In(p).rows());
    add(field.In(p).columns());
    add(field.In(p).values());
  }
  for (const auto& [name, fit] : p.kernels) {
    text += name;
    add({fit.fixed_s, fit.bandwidth, fit.flops_rate, fit.cache_rate, fit.serial_s, fit.spread,
         fit.min_bytes, fit.max_bytes, fit.host_s});
    for (const hardware::KernelPoint& point : fit.points) {
      add({point.shape.begin(), point.shape.end()});
      add({point.factor, point.host_factor, point.drag});
    }
  }
  return Fnv(text);
}

// The values that an axis sets besides method parameters.
enum class Target {
  kMethod,
  kMachine,
  kModel,
  kModelOption,
  kContext,
  kBatch,
  kTensorParallel,
  kHost,
  kAsRun,
  kParameter,
  kProfile
};

Target TargetOf(const Axis& axis, const std::vector<std::string>& methods) {
  const std::pair<std::string_view, Target> fixed[] = {
      {"method", Target::kMethod},   {"machine", Target::kMachine}, {"model", Target::kModel},
      {"context", Target::kContext}, {"batch", Target::kBatch},     {"tp", Target::kTensorParallel},
      {"host", Target::kHost},       {"as_run", Target::kAsRun}};
  std::vector<std::string> known;
  for (const auto& [name, target] : fixed) {
    if (axis.name == name) return target;
    known.emplace_back(name);
  }
  for (const llm::ModelOption& option : llm::ModelOptions()) {
    if (axis.name == option.name) return Target::kModelOption;
    known.emplace_back(option.name);
  }
  for (const std::string& method : methods) {
    for (const methods::ParamSpec& spec : methods::MakeMethod(method, {}).info->params) {
      if (axis.name == spec.name) return Target::kParameter;
      if (std::find(known.begin(), known.end(), spec.name) == known.end())
        known.push_back(spec.name);
    }
  }
  if (axis.name.find('.') == std::string::npos) CheckName("axis", axis.name, known, "--grid");
  return Target::kProfile;
}

// Sets one coordinate, unless it is a parameter that the point's method does not have.
void Apply(PredictRequest& request, const Axis& axis, Target target, const std::string& value) {
  const std::string where = "--grid " + axis.name;
  switch (target) {
    case Target::kMethod:
      request.method = value;
      return;
    case Target::kMachine:
      request.machine = value;
      return;
    case Target::kModel:
      request.model = value;
      return;
    case Target::kContext:
      request.context = ParseTokens(value, where);
      return;
    case Target::kBatch:
      request.batch = CountAbove0(value, where);
      return;
    case Target::kTensorParallel:
      request.tensor_parallel = CountAbove0(value, where);
      return;
    case Target::kHost:
      request.host = plan::HostNamed(value, where);
      return;
    case Target::kAsRun:
      if (value != "on" && value != "off") {
        throw UsageError(fmt::format("`{}` is neither on nor off", value), where, "write on,off");
      }
      request.as_run = value == "on";
      return;
    case Target::kModelOption:
      request.model_options[axis.name] = value;
      return;
    case Target::kProfile:
      request.machine_overrides.emplace_back(axis.name, value);
      return;
    case Target::kParameter:
      if (!HasParameter(request.method, axis.name)) return;
      CheckParameter(request.method, axis.name, value);
      request.params[axis.name] = value;
      return;
  }
}

// A name, with what stands in the file where it is one.
std::string ModelKey(const std::string& name) {
  if (name.empty()) return "trace";
  if (!llm::IsConfigJson(name)) return name;
  return fmt::format("{}#{:016x}", name, Fnv(llm::Describe(llm::ReadConfigJson(name))));
}

// Of the machines of a grid, each as often overridden as points ask for it: a profile is large.
// Thread safe.
class Machines {
 public:
  uint64_t FingerprintOf(const PredictRequest& r) {
    const std::pair key(r.machine, r.machine_overrides);
    {
      const std::lock_guard lock(mutex_);
      const auto at = known_.find(key);
      if (at != known_.end()) return at->second;
    }
    const uint64_t fingerprint = Fingerprint(MachineOf(r));
    const std::lock_guard lock(mutex_);
    known_.emplace(key, fingerprint);
    return fingerprint;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, decltype(PredictRequest::machine_overrides)>, uint64_t> known_;
};

std::string KeyOf(const PredictRequest& r, Machines& machines) {
  std::string key = fmt::format(
      "method={} machine={}#{:016x} model={} tp={} context={} batch={} steps={} samples={} "
      "host={} as_run={} "
      "prefill={}",
      r.method, r.machine, machines.FingerprintOf(r), ModelKey(r.model), r.tensor_parallel,
      r.context, r.batch, r.steps, r.samples, r.host ? plan::Name(*r.host) : "", r.as_run,
      r.prefill);
  std::map<std::string, std::string> params(r.params.begin(), r.params.end());
  try {
    const methods::NamedMethod method = methods::MakeMethod(r.method, r.params);
    params = method.method->Params(/*only_selection=*/false);
    for (const methods::KindDefault& by_kind : method.info->by_kind) {
      if (!r.params.contains(by_kind.name)) params[by_kind.name] = "by-trace";
    }
  } catch (const Error&) {
    // Values that do not go together: the point will fail, and is known by what was asked for.
  }
  for (const auto& [name, value] : r.model_options) key += fmt::format(" {}={}", name, value);
  for (const auto& [name, value] : params) key += fmt::format(" {}={}", name, value);
  if (r.repeat_heads) key += " repeat_heads";
  return key;
}

}  // namespace

Axis ParseAxis(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    throw UsageError(fmt::format("`{}` is not an axis", text), "--grid",
                     "write name=value,value,... or name=low:high:step");
  }
  Axis axis{std::string(text.substr(0, equals)), {}};
  const std::string_view values = text.substr(equals + 1);
  if (values.find(':') != std::string_view::npos) {
    axis.values = Range(axis.name, Split(values, ':'));
    return axis;
  }
  for (std::string_view value : Split(values, ',')) {
    if (value.empty()) {
      throw UsageError(fmt::format("an empty value in `{}`", text), "--grid",
                       "separate values by single commas");
    }
    axis.values.emplace_back(value);
  }
  return axis;
}

int64_t ParseTokens(std::string_view text, std::string_view where) {
  const std::optional<int64_t> value = ParseCount(text);
  if (!value || *value < 1 || *value > int64_t{1} << 30) {
    throw UsageError(fmt::format("`{}` is not a number of tokens", text), std::string(where),
                     "write 1 to 1073741824, as in 32768, 32K or 1M");
  }
  return *value;
}

struct Grid::Impl {
  PredictRequest base;
  std::vector<Axis> axes;
  std::vector<Target> targets;  // of the axes
  std::vector<uint32_t> cells;  // of the points
  std::string id;
  Machines machines;

  // The last axis changes fastest.
  GridPoint At(uint32_t cell) {
    std::vector<size_t> at(axes.size());
    for (size_t i = axes.size(); i > 0; --i) {
      at[i - 1] = cell % axes[i - 1].values.size();
      cell /= static_cast<uint32_t>(axes[i - 1].values.size());
    }
    GridPoint point{base, {}};
    for (size_t i = 0; i < axes.size(); ++i) {
      Apply(point.request, axes[i], targets[i], axes[i].values[at[i]]);
    }
    point.key = KeyOf(point.request, machines);
    return point;
  }
};

Grid::Grid(const PredictRequest& base, const std::vector<Axis>& given)
    : impl_(std::make_unique<Impl>()) {
  impl_->base = base;
  std::vector<Axis>& axes = impl_->axes = given;
  std::set<std::string> names;
  std::vector<std::string> methods = {base.method};
  int64_t size = 1;
  for (const Axis& axis : axes) {
    if (!names.insert(axis.name).second) {
      throw UsageError(fmt::format("axis {} is given twice", axis.name), "--grid",
                       "list all its values at once");
    }
    if (axis.name == "method") methods = axis.values;
    size *= std::ssize(axis.values);
    if (size > kMostPoints) {
      throw UsageError("the grid has more than 10 million points", "--grid", "use fewer values");
    }
  }
  for (const std::string& m : methods) CheckName("method", m, MethodNames(), "--grid method");
  // The method decides which parameters a point has, so it is set first.
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
    return (a.name == "method") > (b.name == "method");
  });
  for (const Axis& axis : axes) {
    impl_->targets.push_back(TargetOf(axis, methods));
    for (const std::string& value : axis.values) {
      if (impl_->targets.back() == Target::kModel) CheckModel(value, "--grid model");
    }
  }

  using Hash = std::pair<uint64_t, uint64_t>;
  std::vector<Hash> hashes(static_cast<size_t>(size));
  tbb::parallel_for(uint32_t{0}, static_cast<uint32_t>(size), [&](uint32_t cell) {
    const std::string key = impl_->At(cell).key;
    const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
    hashes[cell] = {hash.high64, hash.low64};
  });
  // Of cells that are one point, the first stands.
  std::vector<uint32_t>& cells = impl_->cells;
  cells.resize(hashes.size());
  std::iota(cells.begin(), cells.end(), uint32_t{0});
  std::ranges::sort(cells, {}, [&](uint32_t cell) { return std::pair(hashes[cell], cell); });
  const auto repeated =
      std::ranges::unique(cells, [&](uint32_t a, uint32_t b) { return hashes[a] == hashes[b]; });
  cells.erase(repeated.begin(), repeated.end());
  cells.shrink_to_fit();
  std::ranges::sort(cells);
  uint64_t id = 0;
  for (const uint32_t cell : cells) {
    const uint64_t words[] = {id, hashes[cell].first, hashes[cell].second};
    id = XXH3_64bits(words, sizeof words);
  }
  impl_->id = fmt::format("{:016x}", id);
}

Grid::~Grid() = default;

size_t Grid::size() const { return impl_->cells.size(); }
GridPoint Grid::operator[](size_t point) const { return impl_->At(impl_->cells[point]); }
const std::string& Grid::id() const { return impl_->id; }

std::vector<GridPoint> ExpandGrid(const PredictRequest& base, const std::vector<Axis>& axes) {
  const Grid grid(base, axes);
  std::vector<GridPoint> points;
  points.reserve(grid.size());
  for (size_t i = 0; i < grid.size(); ++i) points.push_back(grid[i]);
  return points;
}

}  // namespace stallcast::sim
