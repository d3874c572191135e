// DuoAttention: retrieval heads keep everything, streaming heads a sink and a window.
#include "models/methods/common/head_kinds.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "duoattention";

struct DuoAttentionParams : HeadKinds {
  DuoAttentionParams() {
    share = 0.5;
    sink = 128;
    window = 256;
    two_calls = true;
  }
};

const ParamTable<DuoAttentionParams>& Table() {
  using P = DuoAttentionParams;
  constexpr Affects kSelection = Affects::kSelection;
  static const auto table =
      ParamTable<P>(kName)
          .Real("share", &P::share, 0, 1, kSelection,
                "KV heads of a layer that keep everything, rounded up",
                "DuoAttention 4: 0.25 without groups, 0.5 with")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection,
                   "first tokens that the other heads keep", "DuoAttention code: 128; paper: 64")
          .Integer("window", &P::window, "tokens", 1, 1 << 30, kSelection,
                   "last tokens that the other heads keep", "DuoAttention code: 256")
          .Integer("observe", &P::observe, "queries", 1, 1 << 20, kSelection,
                   "last prompt queries by which the heads are told apart",
                   "assumed: 64, as traces have; DuoAttention trains a number a head")
          .Flag("two_calls", &P::two_calls, Affects::kPlan,
                "an attention call for each kind of heads, and their outputs put side by side",
                "DuoAttention code: on");
  return table;
}

}  // namespace

MethodInfo DuoAttention() {
  return {.name = kName,
          .title = "DuoAttention",
          .summary = "heads that need everything keep it, the others a sink and a window",
          .source = "DuoAttention, paper and public code",
          .params = Table().specs(),
          .presets = {},
          .make = [](const ParamValues& values) -> std::unique_ptr<Method> {
            return std::make_unique<HeadKindsMethod<DuoAttentionParams>>(Table(),
                                                                         Table().Parse(values));
          }};
}

}  // namespace stallcast::methods
