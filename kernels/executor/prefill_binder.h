// Prefill: the decoder's own ops on whole prompts, and the trace's keys and values for the method.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/decoder_layers.h"
#include "kernels/executor/executor.h"
#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

/// Throws a usage Error where the prefill of such a model cannot be run.
void CheckPrefill(const llm::Model& model);

/// Binds the ops of a prefill plan. Every sequence reads the trace's prompt. Keys and values are
/// the trace's; so are the prompt's last queries, as many as were captured, and those before them
/// are random with the same mean norm. RoPE and append read them in place of the projection's
/// output, turned by an angle of zero, as they have been turned already.
class PrefillBinder : public Binder {
 public:
  /// All arguments must outlive the binder. What does not fit the device: Error.
  PrefillBinder(const DecodeRun& run, const DecoderWeights& weights, CacheBinder& cache);

  OpWork Bind(const plan::Op& op) override;

 private:
  /// A layer of the trace as RopeAppend() reads it, [sequence][token][query heads, keys,
  /// values][head_dim], and the last token's queries, [sequence][query heads][head_dim].
  struct Injected {
    Buffer<__nv_bfloat16> qkv, last_query;
  };
  /// Slot and place of every token.
  struct Places {
    Buffer<int32_t> slot, place;
  };
  Injected Inject(int trace_layer) const;
  const Places& PlacesIn(const PromptKv& prompt);
  OpWork BindRopeAppend(const plan::Op& op);
  OpWork BindAttention(const plan::Op& op, const plan::PrefillAttention& work);
  const Injected& InjectedOf(int layer) const {
    return injected_[static_cast<size_t>(run_.source_of[static_cast<size_t>(layer)])];
  }

  const DecodeRun& run_;
  CacheBinder& cache_;
  DecoderLayers layers_;
  std::vector<Injected> injected_;  // by layer of the trace
  Buffer<__nv_bfloat16> query_;
  Buffer<int32_t> position_;
  Buffer<float> frequencies_;
  std::map<std::tuple<const int32_t*, int32_t, int32_t>, Places> places_;
};

}  // namespace stallcast::kernels
