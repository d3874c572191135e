// Profiles as TOML: hand-offs as three tables of from and to; one table a field, { value = "52.8
// GB/s", source = "..." }, in sections named by the first part of its path; curves and surfaces as
// arrays with units in key names.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
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

constexpr double kPointTimePerUnit = 1e6;
constexpr std::string_view kHandoffColumns = "give a time in us to each of kernel, h2d, d2h, host";

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
// Sources of values that no file has.
constexpr std::string_view kWhatIf = "a what-if: no value of the machine";
constexpr std::string_view kNotMeasured = "none: it was not measured";

class Reader {
 public:
  Reader(const fs::path& path, std::string_view text)
      : path_(path.string()), root_(ParseToml(text, path)) {}

  bool has_base() const { return has_base_; }

  Profile Read() {
    Profile profile;
    if (const toml::node* base = root_.get("base"); base != nullptr) {
      used_.insert("base");
      if (!base->is_string()) Fail(*base, "base is not the name of a profile", "quote it");
      profile = Base(*base, base->as_string()->get());
      profile.base = base->as_string()->get();
      profile.pytorch = {};  // of the host that was measured
      std::erase_if(profile.sources,
                    [](const auto& each) { return each.first.starts_with("pytorch."); });
    }
    for (const TextField& text : kTexts) profile.*text.member = Text(root_, text.key, path_);
    used_.insert("notes");
    if (const toml::node* notes = root_.get("notes"); notes != nullptr) {
      for (const toml::node& note : Array(*notes, "notes")) {
        if (!note.is_string()) Fail(note, "a note is a string", "quote it");
        profile.notes.push_back(note.as_string()->get());
      }
    }
    for (const ProfileField& field : ProfileFields()) {
      if (!field.in_file()) {
        profile.sources.emplace(field.path, kWhatIf);
        continue;
      }
      if (field.kind == ProfileField::Kind::kHandoff) continue;
      const toml::table* table = Table(field.path, field.optional());
      if (table == nullptr) {
        profile.sources.emplace(field.path, kNotMeasured);
        continue;
      }
      CheckKeys(*table, field.path, {"value", "source"});
      const double value = Value(*table, "value", field.path, field.dimension);
      // Those of the base that go with it are scaled.
      if (has_base_) {
        SetField(profile, field, value);
      } else {
        field.In(profile) = value;
      }
      profile.sources.insert_or_assign(std::string(field.path), Text(*table, "source", field.path));
    }
    ReadHandoffs(profile);
    for (const CurveField& curve : CurveFields()) {
      const toml::table* table = Table(curve.path, curve.optional);
      if (table == nullptr) continue;
      CheckKeys(*table, curve.path, {curve.x_key, curve.y_key, "source"});
      std::vector<double> y = Numbers(Get(*table, curve.y_key, curve.path), curve.y_key);
      for (double& value : y) value = ToBase(value, curve.y_per_unit);
      curve.In(profile) = Built(*table, curve.path, [&] {
        return Curve(Numbers(Get(*table, curve.x_key, curve.path), curve.x_key), std::move(y));
      });
      profile.sources.insert_or_assign(std::string(curve.path), Text(*table, "source", curve.path));
    }
    for (const SurfaceField& surface : SurfaceFields()) ReadSurface(surface, profile);
    for (const std::string_view kind : KernelKinds()) ReadKernel(profile, kind);
    for (const std::string_view kind : OptionalKernelKinds()) {
      ReadKernel(profile, kind, /*optional=*/true);
    }
    RefuseMissing();
    RefuseUnknown();
    Check(profile, path_);
    return profile;
  }

 private:
  [[noreturn]] void Fail(const toml::node& node, std::string problem, std::string remedy) const {
    throw Error(std::move(problem), fmt::format("{}:{}", path_, node.source().begin.line),
                std::move(remedy));
  }
  [[noreturn]] void Fail(const toml::node& node, std::string problem,
                         std::string_view remedy) const {
    Fail(node, std::move(problem), std::string(remedy));
  }
  [[noreturn]] void Fail(const toml::node& node, std::string problem, const char* remedy) const {
    Fail(node, std::move(problem), std::string(remedy));
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

  // A profile may have a base that has a base, but not for ever.
  Profile Base(const toml::node& node, const std::string& name) {
    static thread_local int depth = 0;
    constexpr int kMostBases = 8;
    has_base_ = true;
    if (depth == kMostBases) Fail(node, "profiles are each other's base", "name another base");
    ++depth;
    try {
      // A file is sought from this one's folder.
      const fs::path file = ProfilePath(name);
      Profile profile =
          LoadProfile(name.ends_with(".toml") ? fs::path(path_).parent_path() / file : file);
      --depth;
      for (auto& [path, source] : profile.sources) {
        if (source != kWhatIf && source != kNotMeasured)
          source = fmt::format("{}: {}", name, source);
      }
      for (auto& [kind, fit] : profile.kernels)
        fit.source = fmt::format("{}: {}", name, fit.source);
      return profile;
    } catch (...) {
      --depth;
      throw;
    }
  }

  // The table at "section.key", which is marked as known; null where there is none. It is then
  // missing, unless it is optional or the base has it.
  const toml::table* Table(std::string_view path, bool optional = false) {
    used_.insert(std::string(path));
    const size_t dot = path.find('.');
    const toml::node* section = root_.get(path.substr(0, dot));
    const toml::table* outer = section != nullptr ? section->as_table() : nullptr;
    const toml::node* node = outer != nullptr ? outer->get(path.substr(dot + 1)) : nullptr;
    if (node == nullptr) {
      if (!optional && !has_base_) missing_.emplace_back(path);
      return nullptr;
    }
    if (!node->is_table()) {
      Fail(*node, fmt::format("'{}' is not a table", path),
           "write { value = \"...\", source = \"...\" }");
    }
    return node->as_table();
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

  // A table for each how: from the site of a row to kernel, h2d, d2h and host, in us; 0: no such
  // hand-off.
  void ReadHandoffs(Profile& profile) {
    for (size_t how = 0; how < kHowNames.size(); ++how) {
      const std::string path = fmt::format("handoff.{}_us", kHowNames[how]);
      const toml::table* table = Table(path);
      if (table == nullptr) continue;
      std::vector<std::string_view> known(kSiteNames.begin(), kSiteNames.end());
      known.insert(known.end(), {"to", "source"});
      CheckKeys(*table, path, known);
      const toml::node& columns = Get(*table, "to", path);
      bool in_order = Array(columns, "to").size() == kSiteNames.size();
      for (size_t i = 0; in_order && i < kSiteNames.size(); ++i) {
        const toml::node& column = *Array(columns, "to").get(i);
        in_order = column.is_string() && column.as_string()->get() == kSiteNames[i];
      }
      if (!in_order)
        Fail(columns, fmt::format("the columns of {} are others", path), kHandoffColumns);
      for (size_t from = 0; from < kSiteNames.size(); ++from) {
        const std::string_view row = kSiteNames[from];
        const toml::node& cells = Get(*table, row, path);
        const toml::array& times = Array(cells, row);
        if (times.size() != kSiteNames.size()) {
          Fail(cells, fmt::format("{}.{} has {} numbers", path, row, times.size()),
               kHandoffColumns);
        }
        for (size_t to = 0; to < kSiteNames.size(); ++to) {
          const std::optional<double> us = times.get(to)->value<double>();
          const auto a = static_cast<Site>(from), b = static_cast<Site>(to);
          const auto follows = static_cast<How>(how);
          if (!us || !(*us >= 0 && *us < 1e6)) {
            Fail(*times.get(to), fmt::format("a time of {}.{} is not 0 to 1e6", path, row),
                 "give microseconds");
          }
          if (HandoffTable<double>::Has(a, b, follows)) {
            profile.handoff(a, b, follows) = ToBase(*us, 1e6);
          } else if (*us != 0) {
            Fail(*times.get(to),
                 fmt::format("{}.{} has a time to {}: there is no such hand-off", path, row,
                             kSiteNames[to]),
                 "give 0");
          }
        }
      }
      const std::string source = Text(*table, "source", path);
      for (const ProfileField& field : ProfileFields()) {
        if (field.kind == ProfileField::Kind::kHandoff && field.path.ends_with(kHowNames[how])) {
          profile.sources.insert_or_assign(std::string(field.path), source);
        }
      }
    }
  }

  void ReadSurface(const SurfaceField& field, Profile& profile) {
    const toml::table* found = Table(field.path);
    if (found == nullptr) return;
    const toml::table& table = *found;
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
    field.In(profile) = Built(table, field.path, [&] {
      return Surface(std::move(rows), std::move(columns), std::move(values));
    });
    profile.sources.insert_or_assign(std::string(field.path), Text(table, "source", field.path));
  }

  void ReadKernel(Profile& profile, std::string_view kind, bool optional_kind = false) {
    const std::string path = fmt::format("kernel.{}", kind);
    const toml::table* found = Table(path, optional_kind);
    if (found == nullptr) return;
    const toml::table& table = *found;
    std::vector<std::string_view> known = {"range", "points", "source"};
    for (const KernelField& field : KernelFields()) known.push_back(field.path);
    CheckKeys(table, path, known);
    // Of a base's fit any part may be replaced; points are factors of the law.
    KernelFit& fit = profile.kernels[std::string(kind)];
    for (const KernelField& field : KernelFields()) {
      const bool optional = has_base_ || field.optional;
      if (optional && table.get(field.path) == nullptr) continue;
      fit.*field.member =
          Value(table, field.path, fmt::format("{}.{}", path, field.path), field.dimension);
    }
    if (!has_base_ || table.get("range") != nullptr) {
      const toml::node& range = Get(table, "range", path);
      const toml::array& ends = Array(range, "range");
      if (ends.size() != 2) Fail(range, "range is not [least, most]", "give two sizes");
      fit.min_bytes = Quantity(*ends.get(0), path + ".range", Dimension::kBytes);
      fit.max_bytes = Quantity(*ends.get(1), path + ".range", Dimension::kBytes);
    }
    if (const toml::node* points = table.get("points"); points != nullptr) {
      fit.points.clear();
      for (const toml::node& point : Array(*points, "points")) {
        const std::vector<double> numbers = Numbers(point, "points");
        KernelPoint read;
        const size_t least = read.shape.size() + 3;
        if (numbers.size() != least && numbers.size() != least + 1) {
          Fail(point,
               fmt::format("a point needs 7 or 8 numbers: four sizes, a time in us, the factors of "
                           "the law and of the call, and the write-back in us; it has {}",
                           numbers.size()),
               "add or remove some");
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
  }

  void RefuseMissing() const {
    if (missing_.empty()) return;
    throw Error(
        fmt::format("{} values are missing: {}", missing_.size(), fmt::join(missing_, ", ")), path_,
        fmt::format("add them, or base = \"h200\"; {}", kOfAnotherVersion));
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
  std::vector<std::string> missing_;
  bool has_base_ = false;
};

// Five significant digits: more than is measured.
double Rounded(double value) {
  const std::string text = fmt::format("{:.5g}", value);
  double rounded = 0;  // std::strtod would read it as the locale writes numbers
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

std::string Quantity(double value, Dimension dimension) {
  switch (dimension) {
    case Dimension::kNumber:
      return fmt::format("{}", Rounded(value));
    case Dimension::kTime:
      return fmt::format("{} us", Rounded(value * 1e6));
    case Dimension::kBytes:
      return fmt::format("{} MB", Rounded(value * 1e-6));
    case Dimension::kRate:
      return fmt::format("{} GB/s", Rounded(value * 1e-9));
    case Dimension::kFlops:
      return fmt::format("{} TFLOPS", Rounded(value * 1e-12));
  }
  return {};
}

toml::array ToArray(const std::vector<double>& values, double per_unit) {
  toml::array array;
  for (const double value : values) array.push_back(Rounded(value * per_unit));
  return array;
}
// Sizes are exact.
toml::array Sizes(std::span<const double> values) {
  toml::array array;
  for (const double value : values) {
    if (value == std::floor(value) && value < 1e15) {
      array.push_back(static_cast<int64_t>(value));
    } else {
      array.push_back(Rounded(value));
    }
  }
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

void InsertHandoffs(toml::table& root, const Profile& profile) {
  for (size_t how = 0; how < kHowNames.size(); ++how) {
    toml::array columns;
    for (const std::string_view to : kSiteNames) columns.push_back(to);
    toml::table table{{"to", std::move(columns)}};
    std::string source;
    for (size_t from = 0; from < kSiteNames.size(); ++from) {
      std::vector<double> row;
      for (size_t to = 0; to < kSiteNames.size(); ++to) {
        const auto a = static_cast<Site>(from), b = static_cast<Site>(to);
        const auto follows = static_cast<How>(how);
        const bool has = HandoffTable<double>::Has(a, b, follows);
        row.push_back(has ? profile.handoff(a, b, follows) : 0);
        if (!has || !source.empty()) continue;
        source = SourceOf(profile, fmt::format("handoff.{}.{}.{}", kSiteNames[from], kSiteNames[to],
                                               kHowNames[how]));
      }
      table.insert(kSiteNames[from], ToArray(row, 1e6));
    }
    table.insert("source", source);
    Insert(root, fmt::format("handoff.{}_us", kHowNames[how]), std::move(table));
  }
}

toml::table ToToml(const Profile& profile) {
  toml::table root;
  for (const TextField& text : kTexts) root.insert(text.key, profile.*text.member);
  toml::array notes;
  for (const std::string& note : profile.notes) notes.push_back(note);
  if (!notes.empty()) root.insert("notes", std::move(notes));
  for (const ProfileField& field : ProfileFields()) {
    const bool of_table = field.kind == ProfileField::Kind::kHandoff;
    if (!field.in_file() || of_table || (field.optional() && field.In(profile) == 0)) continue;
    toml::table table{{"value", Quantity(field.In(profile), field.dimension)},
                      {"source", SourceOf(profile, field.path)}};
    table.is_inline(true);
    Insert(root, field.path, std::move(table));
  }
  InsertHandoffs(root, profile);
  for (const CurveField& curve : CurveFields()) {
    const Curve& values = curve.In(profile);
    if (curve.optional && values.empty()) continue;
    Insert(root, curve.path,
           toml::table{{curve.x_key, Sizes(values.x())},
                       {curve.y_key, ToArray(values.y(), curve.y_per_unit)},
                       {"source", SourceOf(profile, curve.path)}});
  }
  for (const SurfaceField& field : SurfaceFields()) {
    const Surface& surface = field.In(profile);
    toml::array rows;
    const size_t columns = surface.columns().size();
    for (size_t i = 0; i < surface.values().size(); i += columns) {
      const auto row = surface.values().begin() + static_cast<std::ptrdiff_t>(i);
      rows.push_back(
          ToArray({row, row + static_cast<std::ptrdiff_t>(columns)}, field.value_per_unit));
    }
    Insert(root, field.path,
           toml::table{{field.row_key, Sizes(surface.rows())},
                       {field.column_key, Sizes(surface.columns())},
                       {field.value_key, std::move(rows)},
                       {"source", SourceOf(profile, field.path)}});
  }
  for (const auto& [kind, fit] : profile.kernels) {
    toml::table table;
    for (const KernelField& field : KernelFields()) {
      table.insert(field.path, Quantity(fit.*field.member, field.dimension));
    }
    table.insert("range", toml::array{Quantity(fit.min_bytes, Dimension::kBytes),
                                      Quantity(fit.max_bytes, Dimension::kBytes)});
    toml::array points;
    for (const KernelPoint& point : fit.points) {
      toml::array numbers = Sizes(point.shape);
      numbers.push_back(Rounded(point.seconds * kPointTimePerUnit));
      numbers.push_back(Rounded(point.factor));
      numbers.push_back(Rounded(point.host_factor));
      if (point.drag > 0) numbers.push_back(Rounded(point.drag * kPointTimePerUnit));
      points.push_back(std::move(numbers));
    }
    if (!points.empty()) table.insert("points", std::move(points));
    table.insert("source", fit.source);
    Insert(root, "kernel." + kind, std::move(table));
  }
  return root;
}

// toml++ writes 1.2 as 1.2000000000000002: the text of a file with all its fractions in five
// digits. What is in quotes stays.
std::string Shortened(std::string_view text) {
  constexpr std::string_view kNumber = "0123456789.eE+-";
  std::string out;
  while (!text.empty()) {
    size_t length = 1;
    if (const char c = text.front(); c == '"' || c == '\'') {
      while (length < text.size() && text[length] != c) {
        length += c == '"' && text[length] == '\\' ? 2 : 1;
      }
      ++length;
    } else if (c >= '0' && c <= '9') {
      length = std::min(text.find_first_not_of(kNumber), text.size());
      const std::string_view number = text.substr(0, length);
      double value = 0;
      if (number.find('.') != number.npos &&
          std::from_chars(number.data(), number.data() + number.size(), value).ptr ==
              number.data() + number.size()) {
        out += fmt::format("{:.5g}", value);
        text.remove_prefix(length);
        continue;
      }
    }
    out += text.substr(0, length);
    text.remove_prefix(std::min(length, text.size()));
  }
  return out;
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
  {
    const std::lock_guard lock(mutex);
    const auto known = files.find(path);
    if (known != files.end() && known->second.text == text) return known->second.profile;
  }
  Reader reader(path, text);
  Profile profile = reader.Read();
  if (reader.has_base()) return profile;  // which may change
  const std::lock_guard lock(mutex);
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
  std::ostringstream text;
  text << toml::toml_formatter(ToToml(profile)) << '\n';
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << Shortened(text.str());
  file.close();
  if (!file) {
    throw Error("cannot write the profile", path.string(), "check the folder and the free space");
  }
}

}  // namespace stallcast::hardware
