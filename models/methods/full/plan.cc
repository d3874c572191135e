#include "models/methods/full/plan.h"

namespace stallcast::methods {
namespace {

class FullPlan : public PlanWriter {
 public:
  explicit FullPlan(DecoderPlan& plan) : plan_(plan) {}
  void Attention(int step, int layer) override { plan_.AttendAll(step, layer); }

 private:
  DecoderPlan& plan_;
};

}  // namespace

std::unique_ptr<PlanWriter> NewFullPlan(DecoderPlan& plan, const FullParams&) {
  return std::make_unique<FullPlan>(plan);
}

}  // namespace stallcast::methods
