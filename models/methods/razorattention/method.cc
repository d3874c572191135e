// RazorAttention: retrieval heads keep everything, the others a sink, a window and a token for what
// they drop.
#include "models/methods/common/head_kinds.h"

namespace stallcast::methods {
namespace {

constexpr char kName[] = "razorattention";

struct RazorAttentionParams : HeadKinds {
  RazorAttentionParams() {
    share = 0.15;
    sink = 4;
    window = 4000;
    window_share = 0.2;
    compensation = true;
  }
};

const ParamTable<RazorAttentionParams>& Table() {
  using P = RazorAttentionParams;
  constexpr Affects kSelection = Affects::kSelection;
  static const auto table =
      ParamTable<P>(kName)
          .Real("share", &P::share, 0, 1, kSelection,
                "KV heads of a layer that keep everything, rounded up",
                "RazorAttention 4: 0.15; FreeKV ran 0.15")
          .Integer("sink", &P::sink, "tokens", 0, 1 << 20, kSelection,
                   "first tokens that the other heads keep", "RazorAttention 4: 4")
          .Integer("window", &P::window, "tokens", 1, 1 << 30, kSelection,
                   "last tokens that the other heads keep, at least", "RazorAttention 4: 4,000")
          .Real("window_share", &P::window_share, 0, 1, kSelection,
                "the same as a share of the prompt, where that is more",
                "RazorAttention 4: a fifth")
          .Integer("observe", &P::observe, "queries", 1, 1 << 20, kSelection,
                   "last prompt queries by which the heads are told apart",
                   "assumed: 64, as traces have; RazorAttention repeats random tokens")
          .Flag("compensation", &P::compensation, Affects::kPlan,
                "a mean key and value for what the other heads drop", "RazorAttention 3.3: on");
  return table;
}

}  // namespace

MethodInfo RazorAttention() {
  return {.name = kName,
          .title = "RazorAttention",
          .summary = "as DuoAttention, with a fifth of the context and a token for the rest",
          .source = "RazorAttention, paper; no public code",
          .params = Table().specs(),
          .presets = {},
          .make = [](const ParamValues& values) -> std::unique_ptr<Method> {
            return std::make_unique<HeadKindsMethod<RazorAttentionParams>>(Table(),
                                                                           Table().Parse(values));
          }};
}

}  // namespace stallcast::methods
