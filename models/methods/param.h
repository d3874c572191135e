// Parameters, declared once a method: the command line, the sweep, the file format and the GUI's
// controls are all made from the declaration.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::methods {

/// What a parameter changes. Only kSelection parameters shape the access log (and its cache key).
enum class Affects : uint8_t { kSelection, kPlan };

/// A parameter for anything that has to show, parse or sweep it.
struct ParamSpec {
  enum class Type : uint8_t { kInteger, kReal, kFlag, kChoice, kText };
  std::string name;
  Type type = Type::kInteger;
  std::string unit;           ///< "tokens", "pages", ...; empty for all but numbers
  std::string default_value;  ///< as written on the command line
  double min = 0, max = 0;    ///< inclusive, for kInteger and kReal
  std::vector<std::string> choices;
  Affects affects = Affects::kPlan;
  std::string help;    ///< one line
  std::string source;  ///< paper section or code
};

/// Values by name as given by a user; names left out take their defaults.
using ParamValues = std::map<std::string, std::string, std::less<>>;

/// Parses one value and checks it against its spec; errors name method, parameter and range.
double ParseNumber(const ParamSpec& spec, std::string_view method, std::string_view text);
bool ParseFlag(const ParamSpec& spec, std::string_view method, std::string_view text);
/// Any text but none.
std::string ParseText(const ParamSpec& spec, std::string_view method, std::string_view text);
int ParseChoice(const ParamSpec& spec, std::string_view method, std::string_view text);
std::string WriteNumber(const ParamSpec& spec, double value);
/// Unknown names among `values` are usage Errors that list the known ones.
void CheckNames(const std::vector<ParamSpec>& specs, std::string_view method,
                const ParamValues& values);

/// Binds the members of a plain struct P, whose member initialisers are the defaults, to specs.
template <class P>
class ParamTable {
 public:
  explicit ParamTable(std::string method) : method_(std::move(method)) {}

  ParamTable& Integer(std::string name, int64_t P::*member, std::string unit, double min,
                      double max, Affects affects, std::string help, std::string source) {
    Number(
        {std::move(name),
         ParamSpec::Type::kInteger,
         std::move(unit),
         {},
         min,
         max,
         {},
         affects,
         std::move(help),
         std::move(source)},
        [member](P& p, double v) { p.*member = static_cast<int64_t>(v); },
        [member](const P& p) { return static_cast<double>(p.*member); });
    return *this;
  }

  ParamTable& Real(std::string name, double P::*member, double min, double max, Affects affects,
                   std::string help, std::string source) {
    Number(
        {std::move(name),
         ParamSpec::Type::kReal,
         {},
         {},
         min,
         max,
         {},
         affects,
         std::move(help),
         std::move(source)},
        [member](P& p, double v) { p.*member = v; }, [member](const P& p) { return p.*member; });
    return *this;
  }

  ParamTable& Flag(std::string name, bool P::*member, Affects affects, std::string help,
                   std::string source) {
    ParamSpec spec{std::move(name), ParamSpec::Type::kFlag, {}, {}, 0, 1, {"on", "off"}, affects,
                   std::move(help), std::move(source)};
    Add(
        std::move(spec),
        [method = method_, member](P& p, const ParamSpec& s, std::string_view t) {
          p.*member = ParseFlag(s, method, t);
        },
        [member](const P& p, const ParamSpec&) { return std::string(p.*member ? "on" : "off"); });
    return *this;
  }

  ParamTable& Text(std::string name, std::string P::*member, Affects affects, std::string help,
                   std::string source) {
    ParamSpec spec{std::move(name), ParamSpec::Type::kText, {}, {}, 0, 0, {}, affects,
                   std::move(help), std::move(source)};
    Add(
        std::move(spec),
        [method = method_, member](P& p, const ParamSpec& s, std::string_view t) {
          p.*member = ParseText(s, method, t);
        },
        [member](const P& p, const ParamSpec&) { return p.*member; });
    return *this;
  }

  /// `E` is an enum whose values 0, 1, ... are named by `choices` in order.
  template <class E>
  ParamTable& Choice(std::string name, E P::*member, std::vector<std::string> choices,
                     Affects affects, std::string help, std::string source) {
    ParamSpec spec{
        std::move(name), ParamSpec::Type::kChoice, {}, {}, 0, 0, std::move(choices), affects,
        std::move(help), std::move(source)};
    Add(
        std::move(spec),
        [method = method_, member](P& p, const ParamSpec& s, std::string_view t) {
          p.*member = static_cast<E>(ParseChoice(s, method, t));
        },
        [member](const P& p, const ParamSpec& s) {
          return s.choices[static_cast<size_t>(p.*member)];
        });
    return *this;
  }

  std::vector<ParamSpec> specs() const {
    std::vector<ParamSpec> specs;
    for (const Entry& e : entries_) specs.push_back(e.spec);
    return specs;
  }

  P Parse(const ParamValues& values) const {
    CheckNames(specs(), method_, values);
    P p;
    for (const Entry& e : entries_) {
      if (auto it = values.find(e.spec.name); it != values.end()) e.set(p, e.spec, it->second);
    }
    return p;
  }

  /// All values in canonical form; with `only_selection`, those that shape the access log.
  std::map<std::string, std::string> Write(const P& p, bool only_selection) const {
    std::map<std::string, std::string> out;
    for (const Entry& e : entries_) {
      if (only_selection && e.spec.affects != Affects::kSelection) continue;
      out[e.spec.name] = e.get(p, e.spec);
    }
    return out;
  }

 private:
  struct Entry {
    ParamSpec spec;
    std::function<void(P&, const ParamSpec&, std::string_view)> set;
    std::function<std::string(const P&, const ParamSpec&)> get;
  };

  void Number(ParamSpec spec, std::function<void(P&, double)> set,
              std::function<double(const P&)> get) {
    Add(
        std::move(spec),
        [method = method_, set = std::move(set)](P& p, const ParamSpec& s, std::string_view t) {
          set(p, ParseNumber(s, method, t));
        },
        [get = std::move(get)](const P& p, const ParamSpec& s) { return WriteNumber(s, get(p)); });
  }

  void Add(ParamSpec spec, std::function<void(P&, const ParamSpec&, std::string_view)> set,
           std::function<std::string(const P&, const ParamSpec&)> get) {
    spec.default_value = get(P{}, spec);
    entries_.push_back({std::move(spec), std::move(set), std::move(get)});
  }

  std::string method_;
  std::vector<Entry> entries_;
};

}  // namespace stallcast::methods
