// Layers that attend a window: their keys and values stay on the GPU, whatever the method does.
#pragma once

#include <map>
#include <vector>

#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/cache_binder.h"
#include "kernels/executor/ring_cache.h"

namespace stallcast::kernels {

/// Serves the window layers of a run's model, numbered from 0 among themselves. A sequence has a
/// ring of the window's tokens in each.
class WindowLayers : public CacheBinder {
 public:
  explicit WindowLayers(const DecodeRun& run);
  WindowLayers(const WindowLayers&) = delete;
  WindowLayers& operator=(const WindowLayers&) = delete;

  /// The traced layer that stands for one of them, by depth in the whole model.
  int Source(int layer) const { return windows_.source_of[static_cast<size_t>(layer)]; }

  Append AppendAt(int step, int layer) override { return Ring(layer).AppendAt(step, layer); }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override;
  void Reset(std::span<const LayerIo> last) override;

 private:
  RingCache& Ring(int layer) const { return *ring_of_[static_cast<size_t>(layer)]; }

  DecodeRun windows_;                   // the run, of these layers alone
  std::map<int64_t, RingCache> rings_;  // by window
  std::vector<RingCache*> ring_of_;     // by layer
  AttentionLauncher attention_;
};

}  // namespace stallcast::kernels
