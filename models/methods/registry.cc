#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/methods/method.h"
#include "models/policies_hash.h"

namespace stallcast::methods {

// One line a method; each is declared here and defined in its folder's method.cc.
#define STALLCAST_METHODS(METHOD) \
  METHOD(Full)                    \
  METHOD(Offload)                 \
  METHOD(CpuAttention)            \
  METHOD(Streaming)               \
  METHOD(SnapKv)                  \
  METHOD(H2o)                     \
  METHOD(Raas)                    \
  METHOD(Rkv)                     \
  METHOD(DuoAttention)            \
  METHOD(RazorAttention)          \
  METHOD(Quest)                   \
  METHOD(Twilight)                \
  METHOD(SparQ)                   \
  METHOD(HiSparse)                \
  METHOD(ArkVale)                 \
  METHOD(ShadowKv)                \
  METHOD(FreeKv)                  \
  METHOD(LouisKv)                 \
  METHOD(ClusterKv)               \
  METHOD(Prkv)                    \
  METHOD(ParisKv)                 \
  METHOD(RetroInfer)              \
  METHOD(PqCache)                 \
  METHOD(MagicPig)                \
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

TraceKind KindOf(const traces::proto::TraceInfo& info) {
  return info.decode_steps() > info.prompt_tokens() ? TraceKind::kLongGeneration
                                                    : TraceKind::kLongInput;
}

std::string_view Name(TraceKind kind) {
  return kind == TraceKind::kLongInput ? "long input" : "long generation";
}

std::vector<std::string> AddKindDefaults(const MethodInfo& method, TraceKind kind,
                                         ParamValues& values) {
  std::vector<std::string> notes;
  for (const KindDefault& by_kind : method.by_kind) {
    const std::string& value =
        kind == TraceKind::kLongInput ? by_kind.long_input : by_kind.long_generation;
    if (!values.emplace(by_kind.name, value).second) continue;
    notes.push_back(fmt::format("{} = {}: the trace is of a {}, for which {}'s paper takes that",
                                by_kind.name, value, Name(kind), method.title));
  }
  return notes;
}

std::string_view PoliciesHash() { return STALLCAST_POLICIES_HASH; }

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
