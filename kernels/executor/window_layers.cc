#include "kernels/executor/window_layers.h"

#include "kernels/executor/bind_by_kind.h"
#include "models/methods/projection.h"

namespace stallcast::kernels {
namespace {

bool IsWindow(const llm::Layer& layer) { return layer.attention == llm::Layer::Attention::kWindow; }

DecodeRun OfWindows(DecodeRun run) {
  const std::vector<int> sources = methods::LayersByDepth(run.whole.layers, run.recorded_layers,
                                                          run.recording->info.model().layers());
  run.source_of.clear();
  for (int layer = 0; layer < run.whole.layers; ++layer) {
    if (IsWindow(run.whole.KindOf(layer))) {
      run.source_of.push_back(sources[static_cast<size_t>(layer)]);
    }
  }
  llm::Model& model = run.input.model = run.whole;
  std::erase_if(model.kinds, [](const llm::Layer& layer) { return !IsWindow(layer); });
  model.layers = static_cast<int32_t>(model.kinds.size());
  run.input.log = nullptr;
  run.log = nullptr;
  return run;
}

}  // namespace

WindowLayers::WindowLayers(const DecodeRun& run) : windows_(OfWindows(run)), attention_(windows_) {
  const llm::Model& model = windows_.input.model;
  std::map<int64_t, std::vector<int>> layers;
  for (int layer = 0; layer < model.layers; ++layer) {
    layers[model.KindOf(layer).window].push_back(layer);
  }
  for (const auto& [window, of] : layers) {
    rings_.try_emplace(window, windows_, of, /*sink=*/0, window);
  }
  for (const llm::Layer& layer : model.kinds) ring_of_.push_back(&rings_.at(layer.window));
}

OpWork WindowLayers::Bind(const plan::Op& op, const LayerIo& io) {
  return BindByKind("window layers", op, [&](const plan::DecodeAttention&) {
    const RingCache& ring = Ring(op.layer);
    return attention_.Over(ring.Layer(op.layer), ring.Pages(op.step), io);
  });
}

void WindowLayers::Reset(std::span<const LayerIo> /*last*/) {
  for (auto& [window, ring] : rings_) ring.Reset();
}

}  // namespace stallcast::kernels
