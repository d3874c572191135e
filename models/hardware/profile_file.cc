// Profiles as TOML: one table a field, { value = "52.8 GB/s", source = "..." }, in sections named
// by the first part of its path; curves and surfaces as arrays with units in key names.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "models/hardware/profile.h"
#include "models/hardware/profile_check.h"
#include "models/toml_file.h"
#include "traces/common/error.h"
#include "traces/common/nearest.h"
#include "traces/common/shipped.h"

namespace stallcast::hardware {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostSamples = 1024;  // of a curve
// What a machine needs changes as more of it is known.
constexpr std::string_view kOfAnotherVersion =
    "calibrate again where another version of stallcast made the file, or start from a shipped one";

struct CurveField {
  std::string_view path, x_key, y_key;
  double y_per_unit;  // units of y_key in a base unit
  Curve Profile::*member;
  bool optional = false;
};
constexpr CurveField kCurves[] = {
    {"copy.h2d_piece", "piece_bytes", "time_us", 1e6, &Profile::copy_h2d_piece, true},
    {"copy.d2h_piece", "piece_bytes", "time_us", 1e6, &Profile::copy_d2h_piece, true},
    {"copy.h2d_turns", "piece_bytes", "time_us", 1e6, &Profile::copy_h2d_turns, true},
    {"copy.translation", "pool_bytes", "time_us", 1e6, &Profile::copy_translation, true},
    {"batch.host_piece", "piece_bytes", "time_us", 1e6, &Profile::batch_host_piece},
    {"batch.engine_piece", "piece_bytes", "time_us", 1e6, &Profile::batch_engine_piece},
    {"copy.h2d_inline_call", "piece_bytes", "time_us", 1e6, &Profile::copy_h2d_inline_call, true},
    {"copy.h2d_inline_time", "piece_bytes", "time_us", 1e6, &Profile::copy_h2d_inline_time, true},
    {"host.woken", "asleep_s", "time_us", 1e6, &Profile::host_woken, true},
    {"host.waited", "waited_s", "time_us", 1e6, &Profile::host_waited, true},
    {"host.gathered", "bytes", "time_us", 1e6, &Profile::host_gathered, true},
    {"host.handoff_asleep", "asleep_s", "time_us", 1e6, &Profile::host_handoff_asleep, true},
    {"load.kernel", "memory_share", "time_us", 1e6, &Profile::load_kernel, true},
    {"load.h2d_piece", "memory_share", "time_us", 1e6, &Profile::load_h2d_piece, true},
    {"load.d2h_piece", "memory_share", "time_us", 1e6, &Profile::load_d2h_piece, true},
    {"host.gather_rate", "threads", "rate_gb_per_s", 1e-9, &Profile::host_gather_rate, true},
    {"host.gather_first_rate", "threads", "rate_gb_per_s", 1e-9, &Profile::host_gather_first_rate,
     true},
    {"host.gather_start", "threads", "time_us", 1e6, &Profile::host_gather_start, true},
    {"host.gather_woken", "asleep_s", "time_us", 1e6, &Profile::host_gather_woken, true},
    {"host.gather_row", "threads", "time_us", 1e6, &Profile::host_gather_row, true},
    {"zero_copy.memory_loss", "blocks", "loss_gb_per_s", 1e-9, &Profile::zero_copy_memory_loss},
    {"zero_copy.drag", "bytes", "time_us", 1e6, &Profile::zero_copy_drag, true},
    {"zero_copy.translation", "pool_bytes", "time_us", 1e6, &Profile::zero_copy_translation, true},
    {"zero_copy.translation_wait", "pool_bytes", "time_us", 1e6,
     &Profile::zero_copy_translation_wait, true},
    {"zero_copy.kept", "regions", "share", 1, &Profile::zero_copy_kept, true},
    {"zero_copy.link_share", "blocks", "of_a_copy", 1, &Profile::zero_copy_link_share, true},
    {"zero_copy.holds_kernel", "blocks", "time_us", 1e6, &Profile::zero_copy_holds_kernel, true},
    {"zero_copy.holds_h2d_piece", "blocks", "time_us", 1e6, &Profile::zero_copy_holds_h2d_piece,
     true},
    {"zero_copy.holds_d2h_piece", "blocks", "time_us", 1e6, &Profile::zero_copy_holds_d2h_piece,
     true},
    {"zero_copy.scattered", "pool_bytes", "pieces_per_us", 1e-6, &Profile::zero_copy_scattered,
     true},
};
struct SurfaceField {
  std::string_view path, row_key, column_key, value_key;
  double value_per_unit;  // units of value_key in a base unit
  Surface Profile::*member;
};
constexpr SurfaceField kSurfaces[] = {
    {"zero_copy.rate", "piece_bytes", "blocks", "rate_gb_per_s", 1e-9, &Profile::zero_copy},
};
constexpr double kPointTimePerUnit = 1e6;

struct TextField {
  std::string_view key;
  std::string Profile::*member;
};
constexpr TextField kTexts[] = {{"name", &Profile::name},
                                {"title", &Profile::title},
                                {"status", &Profile::status},
                                {"provenance", &Profile::provenance}};

// Base units from the file's: dividing by an exact power of ten rounds once.
double ToBase(double value, double per_unit) {
  return per_unit >= 1 ? value / per_unit : value * std::round(1 / per_unit);
}
// The shortest decimal that ToBase() turns back, free of the noise of the conversion.
double FromBase(double value, double per_unit) {
  const double exact = value * per_unit;
  const std::string text = fmt::format("{:.15g}", exact);
  double decimal = 0;  // std::strtod would read it as the locale writes numbers
  std::from_chars(text.data(), text.data() + text.size(), decimal);
  if (ToBase(decimal, per_unit) == value) return decimal;
  for (const double near : {std::nextafter(exact, 0), std::nextafter(exact, 2 * exact)}) {
    if (ToBase(near, per_unit) == value) return near;
  }
  return exact;
}

class Reader {
 public:
  Reader(const fs::path& path, std::string_view text)
      : path_(path.string()), root_(ParseToml(text, path)) {}

  Profile Read() {
    Profile profile;
    for (const TextField& text : kTexts) profile.*text.member = Text(root_, text.key, path_);
    used_.insert("notes");
    if (const toml::node* notes = root_.get("notes"); notes != nullptr) {
      for (const toml::node& note : Array(*notes, "notes")) {
        if (!note.is_string()) Fail(note, "a note is a string", "quote it");
        profile.notes.push_back(note.as_string()->get());
      }
    }
    for (const ProfileField& field : ProfileFields()) {
      if (!field.in_file) {
        profile.sources.emplace(field.path, "a what-if: no value of the machine");
        continue;
      }
      if (field.optional && !root_.at_path(field.path)) {
        profile.sources.emplace(field.path, "none: it was not measured");
        continue;
      }
      const toml::table& table = Table(field.path);
      CheckKeys(table, field.path, {"value", "source"});
      profile.*field.member = Value(table, "value", field.path, field.dimension);
      profile.sources.emplace(field.path, Text(table, "source", field.path));
    }
    for (const CurveField& curve : kCurves) {
      if (curve.optional && !root_.at_path(curve.path)) continue;
      const toml::table& table = Table(curve.path);
      CheckKeys(table, curve.path, {curve.x_key, curve.y_key, "source"});
      std::vector<double> y = Numbers(Get(table, curve.y_key, curve.path), curve.y_key);
      for (double& value : y) value = ToBase(value, curve.y_per_unit);
      profile.*curve.member = Built(table, curve.path, [&] {
        return Curve(Numbers(Get(table, curve.x_key, curve.path), curve.x_key), std::move(y));
      });
      profile.sources.emplace(curve.path, Text(table, "source", curve.path));
    }
    for (const SurfaceField& surface : kSurfaces) {
      ReadSurface(surface, profile);
    }
    for (const std::string_view kind : KernelKinds()) ReadKernel(profile, kind);
    RefuseUnknown();
    Check(profile, path_);
    return profile;
  }

 private:
  [[noreturn]] void Fail(const toml::node& node, std::string problem, std::string remedy) const {
    throw Error(std::move(problem), fmt::format("{}:{}", path_, node.source().begin.line),
                std::move(remedy));
  }

  const toml::node& Get(const toml::table& table, std::string_view key, std::string_view in) const {
    const toml::node* node = table.get(key);
    if (node == nullptr) Fail(table, fmt::format("'{}' is missing in {}", key, in), "add it");
    return *node;
  }

  const toml::array& Array(const toml::node& node, std::string_view key) const {
    const toml::array* array = node.as_array();
    if (array == nullptr || array->size() > kMostSamples) {
      Fail(node, fmt::format("{} is not an array of at most {}", key, kMostSamples), "correct it");
    }
    return *array;
  }

  std::string Text(const toml::table& table, std::string_view key, std::string_view in) {
    if (&table == &root_) used_.insert(std::string(key));
    const toml::node& node = Get(table, key, in);
    if (!node.is_string() || node.as_string()->get().empty()) {
      Fail(node, fmt::format("'{}' of {} is not text", key, in), "quote it");
    }
    return node.as_string()->get();
  }

  // The table at "section.key", which is marked as known.
  const toml::table& Table(std::string_view path) {
    used_.insert(std::string(path));
    const size_t dot = path.find('.');
    const toml::node* section = root_.get(path.substr(0, dot));
    const toml::table* outer = section != nullptr ? section->as_table() : nullptr;
    const toml::node* node = outer != nullptr ? outer->get(path.substr(dot + 1)) : nullptr;
    if (node == nullptr) {
      throw Error(fmt::format("'{}' is missing", path), path_,
                  fmt::format("every value needs a line; {}", kOfAnotherVersion));
    }
    if (!node->is_table()) {
      Fail(*node, fmt::format("'{}' is not a table", path),
           "write { value = \"...\", source = \"...\" }");
    }
    return *node->as_table();
  }

  void CheckKeys(const toml::table& table, std::string_view path,
                 const std::vector<std::string_view>& known) const {
    for (const auto& [key, node] : table) {
      if (std::ranges::find(known, key.str()) == known.end()) {
        Fail(node, fmt::format("unknown key '{}' in {}", key.str(), path),
             fmt::format("{}; {}", Suggestion(key.str(), known), kOfAnotherVersion));
      }
    }
  }

  double Quantity(const toml::node& node, std::string_view path, Dimension dimension) const {
    std::string text;
    if (node.is_string()) {
      text = node.as_string()->get();
    } else if (dimension == Dimension::kNumber && node.is_number()) {
      text = fmt::format("{}", *node.value<double>());
    } else {
      Fail(node, fmt::format("'{}' is not a quantity", path), "write it as \"52.8 GB/s\"");
    }
    const std::string where = fmt::format("{}:{}: {}", path_, node.source().begin.line, path);
    try {
      return ParseQuantity(text, dimension, where);
    } catch (const Error& error) {
      throw Error(error.problem(), error.where(), error.remedy());
    }
  }

  double Value(const toml::table& table, std::string_view key, std::string_view path,
               Dimension dimension) const {
    const toml::node& node = Get(table, key, path);
    const double value = Quantity(node, path, dimension);
    const std::string problem = OutOfRange(path, dimension, value);
    if (!problem.empty()) Fail(node, problem, "give a value inside the range");
    return value;
  }

  std::vector<double> Numbers(const toml::node& node, std::string_view key) const {
    std::vector<double> numbers;
    for (const toml::node& each : Array(node, key)) {
      const std::optional<double> number = each.value<double>();
      if (!number || !std::isfinite(*number) || *number <= 0) {
        Fail(each, fmt::format("{} holds something that is not a positive number", key),
             "correct it");
      }
      numbers.push_back(*number);
    }
    return numbers;
  }

  template <typename Build>
  std::invoke_result_t<Build> Built(const toml::table& table, std::string_view path,
                                    Build build) const {
    try {
      return build();
    } catch (const Error& error) {
      if (error.where() != "curve") throw;
      Fail(table, fmt::format("{}: {}", path, error.problem()), error.remedy());
    }
  }

  void ReadSurface(const SurfaceField& field, Profile& profile) {
    const toml::table& table = Table(field.path);
    CheckKeys(table, field.path, {field.row_key, field.column_key, field.value_key, "source"});
    std::vector<double> rows = Numbers(Get(table, field.row_key, field.path), field.row_key);
    std::vector<double> columns =
        Numbers(Get(table, field.column_key, field.path), field.column_key);
    std::vector<double> values;
    for (const toml::node& row : Array(Get(table, field.value_key, field.path), field.value_key)) {
      const std::vector<double> line = Numbers(row, field.value_key);
      if (line.size() != columns.size()) {
        Fail(row,
             fmt::format("a row of {} is not as long as {}", field.value_key, field.column_key),
             fmt::format("give a number for each of {}", field.column_key));
      }
      for (const double value : line) values.push_back(ToBase(value, field.value_per_unit));
    }
    profile.*field.member = Built(table, field.path, [&] {
      return Surface(std::move(rows), std::move(columns), std::move(values));
    });
    profile.sources.emplace(field.path, Text(table, "source", field.path));
  }

  void ReadKernel(Profile& profile, std::string_view kind) {
    const std::string path = fmt::format("kernel.{}", kind);
    const toml::table& table = Table(path);
    std::vector<std::string_view> known = {"range", "points", "source"};
    for (const KernelField& field : KernelFields()) known.push_back(field.path);
    CheckKeys(table, path, known);
    KernelFit fit;
    for (const KernelField& field : KernelFields()) {
      const bool optional =
          field.member == &KernelFit::flops_rate || field.member == &KernelFit::cache_rate ||
          field.member == &KernelFit::serial_s || field.member == &KernelFit::host_s;
      if (optional && table.get(field.path) == nullptr) continue;
      fit.*field.member =
          Value(table, field.path, fmt::format("{}.{}", path, field.path), field.dimension);
    }
    const toml::node& range = Get(table, "range", path);
    const toml::array& ends = Array(range, "range");
    if (ends.size() != 2) Fail(range, "range is not [least, most]", "give two sizes");
    fit.min_bytes = Quantity(*ends.get(0), path + ".range", Dimension::kBytes);
    fit.max_bytes = Quantity(*ends.get(1), path + ".range", Dimension::kBytes);
    if (const toml::node* points = table.get("points"); points != nullptr) {
      for (const toml::node& point : Array(*points, "points")) {
        const std::vector<double> numbers = Numbers(point, "points");
        KernelPoint read;
        const size_t least = read.shape.size() + 3;
        if (numbers.size() != least && numbers.size() != least + 1) {
          Fail(point,
               "a point is not four sizes, a time in us, two factors and, where it drags, "
               "how many us it does",
               "give seven or eight numbers");
        }
        std::copy_n(numbers.begin(), read.shape.size(), read.shape.begin());
        read.seconds = ToBase(numbers[read.shape.size()], kPointTimePerUnit);
        read.factor = numbers[read.shape.size() + 1];
        read.host_factor = numbers[read.shape.size() + 2];
        if (numbers.size() > least) read.drag = ToBase(numbers.back(), kPointTimePerUnit);
        fit.points.push_back(read);
      }
    }
    fit.source = Text(table, "source", path);
    profile.kernels.emplace(kind, std::move(fit));
  }

  // Known ones are over a hundred.
  static std::string RemedyForUnknown(std::string_view name,
                                      const std::vector<std::string_view>& known) {
    const std::string_view nearest = Nearest(name, known);
    return nearest.empty() ? std::string(kOfAnotherVersion)
                           : fmt::format("did you mean '{}'? {}", nearest, kOfAnotherVersion);
  }

  void RefuseUnknown() const {
    const std::vector<std::string_view> known(used_.begin(), used_.end());
    for (const auto& [key, node] : root_) {
      if (used_.contains(std::string(key.str()))) continue;
      if (!node.is_table()) {
        Fail(node, fmt::format("unknown key '{}'", key.str()), RemedyForUnknown(key.str(), known));
      }
      for (const auto& [inner, value] : *node.as_table()) {
        const std::string path = fmt::format("{}.{}", key.str(), inner.str());
        if (!used_.contains(path)) {
          Fail(value, fmt::format("unknown value '{}'", path), RemedyForUnknown(path, known));
        }
      }
    }
  }

  std::string path_;
  toml::table root_;
  std::set<std::string> used_;
};

// A way to write a quantity: short first, exact last.
struct Spelling {
  Dimension dimension;
  std::string_view unit;
  double per_unit;
};
constexpr Spelling kSpellings[] = {
    {Dimension::kNumber, "", 1},      {Dimension::kTime, " us", 1e6},
    {Dimension::kTime, " s", 1},      {Dimension::kBytes, " GB", 1e-9},
    {Dimension::kBytes, " B", 1},     {Dimension::kRate, " GB/s", 1e-9},
    {Dimension::kRate, " B/s", 1},    {Dimension::kFlops, " TFLOPS", 1e-12},
    {Dimension::kFlops, " FLOPS", 1},
};

// Text that ParseQuantity() turns back into exactly `value`.
std::string Exact(double value, Dimension dimension) {
  std::string text;
  for (const Spelling& spelling : kSpellings) {
    if (spelling.dimension != dimension) continue;
    const double number = spelling.per_unit == 1 ? value : FromBase(value, spelling.per_unit);
    text = fmt::format("{}{}", number, spelling.unit);
    if (ParseQuantity(text, dimension, "profile") == value) break;
  }
  return text;
}

toml::array ToArray(const std::vector<double>& values, double per_unit) {
  toml::array array;
  for (const double value : values) array.push_back(FromBase(value, per_unit));
  return array;
}

std::string SourceOf(const Profile& profile, std::string_view path) {
  const auto source = profile.sources.find(path);
  return source == profile.sources.end() ? "unknown" : source->second;
}

void Insert(toml::table& root, std::string_view path, toml::table value) {
  const size_t dot = path.find('.');
  const std::string_view section = path.substr(0, dot);
  if (!root.contains(section)) root.insert(section, toml::table{});
  root.get(section)->as_table()->insert(path.substr(dot + 1), std::move(value));
}

toml::table ToToml(const Profile& profile) {
  toml::table root;
  for (const TextField& text : kTexts) root.insert(text.key, profile.*text.member);
  toml::array notes;
  for (const std::string& note : profile.notes) notes.push_back(note);
  if (!notes.empty()) root.insert("notes", std::move(notes));
  for (const ProfileField& field : ProfileFields()) {
    if (!field.in_file || (field.optional && profile.*field.member == 0)) continue;
    toml::table table{{"value", Exact(profile.*field.member, field.dimension)},
                      {"source", SourceOf(profile, field.path)}};
    table.is_inline(true);
    Insert(root, field.path, std::move(table));
  }
  for (const CurveField& curve : kCurves) {
    const Curve& values = profile.*curve.member;
    if (curve.optional && values.empty()) continue;
    Insert(root, curve.path,
           toml::table{{curve.x_key, ToArray(values.x(), 1)},
                       {curve.y_key, ToArray(values.y(), curve.y_per_unit)},
                       {"source", SourceOf(profile, curve.path)}});
  }
  for (const SurfaceField& field : kSurfaces) {
    const Surface& surface = profile.*field.member;
    toml::array rows;
    const size_t columns = surface.columns().size();
    for (size_t i = 0; i < surface.values().size(); i += columns) {
      const auto row = surface.values().begin() + static_cast<std::ptrdiff_t>(i);
      rows.push_back(
          ToArray({row, row + static_cast<std::ptrdiff_t>(columns)}, field.value_per_unit));
    }
    Insert(root, field.path,
           toml::table{{field.row_key, ToArray(surface.rows(), 1)},
                       {field.column_key, ToArray(surface.columns(), 1)},
                       {field.value_key, std::move(rows)},
                       {"source", SourceOf(profile, field.path)}});
  }
  for (const auto& [kind, fit] : profile.kernels) {
    toml::table table;
    for (const KernelField& field : KernelFields()) {
      table.insert(field.path, Exact(fit.*field.member, field.dimension));
    }
    table.insert("range", toml::array{Exact(fit.min_bytes, Dimension::kBytes),
                                      Exact(fit.max_bytes, Dimension::kBytes)});
    toml::array points;
    for (const KernelPoint& point : fit.points) {
      toml::array numbers = ToArray({point.shape.begin(), point.shape.end()}, 1);
      numbers.push_back(FromBase(point.seconds, kPointTimePerUnit));
      numbers.push_back(FromBase(point.factor, 1));
      numbers.push_back(FromBase(point.host_factor, 1));
      if (point.drag > 0) numbers.push_back(FromBase(point.drag, kPointTimePerUnit));
      points.push_back(std::move(numbers));
    }
    if (!points.empty()) table.insert("points", std::move(points));
    table.insert("source", fit.source);
    Insert(root, "kernel." + kind, std::move(table));
  }
  return root;
}

std::vector<fs::path> Folders() {
  std::vector<fs::path> folders;
  if (const char* listed = std::getenv("STALLCAST_PROFILES"); listed != nullptr) {
    std::string_view rest = listed;
    while (!rest.empty()) {
      const size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) folders.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  folders.push_back(Shipped("models/hardware"));
  return folders;
}

// Files by profile name; earlier folders win.
std::map<std::string, fs::path> Files() {
  std::map<std::string, fs::path> files;
  for (const fs::path& folder : Folders()) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".toml") {
        files.emplace(entry.path().stem().string(), entry.path());
      }
    }
  }
  return files;
}

}  // namespace

std::vector<const Curve*> Curves(const Profile& profile) {
  std::vector<const Curve*> curves;
  for (const CurveField& curve : kCurves) curves.push_back(&(profile.*curve.member));
  return curves;
}

std::vector<const Surface*> Surfaces(const Profile& profile) {
  std::vector<const Surface*> surfaces;
  for (const SurfaceField& surface : kSurfaces) surfaces.push_back(&(profile.*surface.member));
  return surfaces;
}

std::vector<std::string_view> CurvePaths() {
  std::vector<std::string_view> paths;
  for (const SurfaceField& surface : kSurfaces) paths.push_back(surface.path);
  for (const CurveField& curve : kCurves) paths.push_back(curve.path);
  return paths;
}

// A command asks for the same machine several times, a sweep for each of its points, and reading
// numbers is most of what a short prediction takes.
Profile LoadProfile(const fs::path& path) {
  struct Known {
    std::string text;
    Profile profile;
  };
  static std::mutex mutex;
  static std::map<fs::path, Known> files;
  std::string text = ReadTomlText(path, "hardware profile");
  const std::lock_guard lock(mutex);
  const auto known = files.find(path);
  if (known != files.end() && known->second.text == text) return known->second.profile;
  Profile profile = Reader(path, text).Read();
  files.insert_or_assign(path, Known{std::move(text), profile});
  return profile;
}

fs::path ProfilePath(std::string_view name) {
  if (name.ends_with(".toml")) return fs::path(name);
  const std::map<std::string, fs::path> files = Files();
  if (const auto file = files.find(std::string(name)); file != files.end()) {
    return file->second;
  }
  std::vector<std::string_view> known;
  known.reserve(files.size());
  for (const auto& [each, path] : files) known.push_back(each);
  throw UsageError(fmt::format("there is no hardware profile '{}'", name), "",
                   Suggestion(name, known) + ", or give a path that ends in .toml");
}

Profile FindProfile(std::string_view name) { return LoadProfile(ProfilePath(name)); }

std::vector<std::string> ProfileNames() {
  const std::map<std::string, fs::path> files = Files();
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const auto& [name, path] : files) names.push_back(name);
  return names;
}

void SaveProfile(const Profile& profile, const fs::path& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << toml::toml_formatter(ToToml(profile)) << '\n';
  file.close();
  if (!file) {
    throw Error("cannot write the profile", path.string(), "check the folder and the free space");
  }
}

}  // namespace stallcast::hardware
