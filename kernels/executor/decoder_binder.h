// Decode steps: the decoder's own ops, and the trace's queries, keys and values for the method.
#pragma once

#include <optional>
#include <vector>

#include "kernels/executor/cache_binder.h"
#include "kernels/executor/decoder_layers.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/window_layers.h"
#include "kernels/runtime/buffer.h"

namespace stallcast::kernels {

/// Binds the ops of a decode plan. Queries, keys and values of each step are the trace's: RoPE and
/// append read them in place of the projection's output, turned by an angle of zero, as they have
/// been turned already. `cache` gets the layers that attend everything, by the method's numbers.
class DecoderBinder : public Binder {
 public:
  /// All arguments must outlive the binder.
  DecoderBinder(const DecodeRun& run, const DecoderWeights& weights, CacheBinder& cache);

  OpWork Bind(const plan::Op& op) override;
  /// Brings everything to where prefill leaves it: before each run of the plan.
  void Reset();
  /// The same where a prefill has just left the method's memory so.
  void Begin();

 private:
  /// Who serves a layer's attention, and how it is called there.
  struct Server {
    CacheBinder* cache = nullptr;
    int layer = 0;
    int source = 0;  ///< layer of the trace
  };
  const Server& ServerOf(int layer) const { return servers_[static_cast<size_t>(layer)]; }
  OpWork BindRopeAppend(const plan::Op& op);
  LayerIo Io(const plan::Op& op) const;
  /// Injected [sequence][query heads, keys, values][head_dim] of a step, -1 being the last prompt
  /// token's.
  __nv_bfloat16* Injected(int step, int layer) const;
  __nv_bfloat16* Queries(int step, int layer) const;
  void LoadInjected();

  const DecodeRun& run_;
  CacheBinder& cache_;
  std::optional<WindowLayers> windows_;
  std::vector<Server> servers_;  // by layer of the whole model
  DecoderLayers layers_;
  Buffer<__nv_bfloat16> injected_, queries_;
  Buffer<int32_t> position_;
  Buffer<float> frequencies_;
};

}  // namespace stallcast::kernels
