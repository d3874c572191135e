// Methods that leave their first layers dense: those attend the whole cache on the GPU, as the full
// method does, and the method's own binder serves the others.
#include <utility>

#include "kernels/executor/methods/binders.h"

namespace stallcast::kernels {
namespace {

class DenseFirstBinder : public CacheBinder {
 public:
  DenseFirstBinder(const DecodeRun& run, int layers, std::unique_ptr<CacheBinder> others)
      : layers_(layers), dense_(BindFull(run, layers)), others_(std::move(others)) {}

  Append AppendAt(int step, int layer) override { return Of(layer).AppendAt(step, layer); }
  OpWork Bind(const plan::Op& op, const LayerIo& io) override { return Of(op.layer).Bind(op, io); }
  void Reset(std::span<const LayerIo> last) override {
    dense_->Reset(last);
    others_->Reset(last);
  }
  PromptKv PromptAt(int layer) override { return Of(layer).PromptAt(layer); }
  OpWork BindPrefill(const plan::Op& op, const PrefillIo& io) override {
    return Of(op.layer).BindPrefill(op, io);
  }
  void Clear() override {
    dense_->Clear();
    others_->Clear();
  }
  void CheckStep(int step, SelectionCheck& check) override { others_->CheckStep(step, check); }

 private:
  CacheBinder& Of(int layer) { return layer >= 0 && layer < layers_ ? *dense_ : *others_; }

  int layers_;
  std::unique_ptr<CacheBinder> dense_, others_;
};

}  // namespace

std::unique_ptr<CacheBinder> BindDenseFirst(const DecodeRun& run, int64_t layers,
                                            std::unique_ptr<CacheBinder> others) {
  if (layers == 0) return others;
  return std::make_unique<DenseFirstBinder>(run, static_cast<int>(layers), std::move(others));
}

}  // namespace stallcast::kernels
