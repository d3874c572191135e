#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/methods/method.h"

namespace stallcast::methods {

// One line a method; each is declared here and defined in its folder's method.cc.
#define STALLCAST_METHODS(METHOD) \
  METHOD(Full)                    \
  METHOD(Offload)                 \
  METHOD(Streaming)               \
  METHOD(Quest)                   \
  METHOD(ArkVale)                 \
  METHOD(ShadowKv)                \
  METHOD(FreeKv)                  \
  METHOD(LouisKv)                 \
  METHOD(Prkv)                    \
  METHOD(ParisKv)                 \
  METHOD(WgKv)

#define STALLCAST_DECLARE(name) MethodInfo name();
STALLCAST_METHODS(STALLCAST_DECLARE)
#undef STALLCAST_DECLARE

const std::vector<MethodInfo>& Methods() {
#define STALLCAST_LIST(name) name(),
  static const std::vector<MethodInfo> methods{STALLCAST_METHODS(STALLCAST_LIST)};
#undef STALLCAST_LIST
  return methods;
}

NamedMethod MakeMethod(std::string_view name, const ParamValues& values) {
  std::vector<std::string> names;
  for (const MethodInfo& info : Methods()) {
    if (info.name == name) return {info.name, &info, info.make(values)};
    names.push_back(info.name);
    for (const auto& [preset, preset_values] : info.presets) {
      if (preset == name) {
        ParamValues all = values;
        all.insert(preset_values.begin(), preset_values.end());
        return {preset, &info, info.make(all)};
      }
      names.push_back(preset);
    }
  }
  throw UsageError(fmt::format("there is no method `{}`", name), "method",
                   fmt::format("choose one of {}", fmt::join(names, ", ")));
}

}  // namespace stallcast::methods
