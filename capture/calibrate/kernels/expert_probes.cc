// Probes of a mixture of experts.
#include <memory>
#include <vector>

#include "capture/calibrate/kernels/cold_memory.h"
#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/decoder/experts.h"
#include "kernels/executor/expert_choices.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"

namespace stallcast::capture {
namespace {

using kernels::Buffer;
using Bf16 = __nv_bfloat16;

// Who takes what in one launch after the other.
class Routings {
 public:
  Routings(const llm::Model& model, int64_t tokens) {
    const llm::Experts& e = *model.experts;
    const auto rows = static_cast<int32_t>(tokens);
    const kernels::ExpertChoices choices(rows, e.active, e.count, model.DistinctExperts(tokens));
    const Buffer<Bf16> logits(tokens * e.count);
    kernels::FillRandom(logits.get(), logits.size(), 1, 9, nullptr);
    for (int i = 0; i < kRoutings; ++i) {
      each_.emplace_back(rows, e.count, e.active);
      kernels::Route(logits.get(), choices.At(0, i), each_.back().routing(), nullptr);
    }
    kernels::Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  const kernels::Routing& At(int i) const {
    return each_[static_cast<size_t>(i % kRoutings)].routing();
  }

 private:
  static constexpr int kRoutings = 16;
  std::vector<kernels::RoutingMemory> each_;
};

}  // namespace

KernelProbe GroupedGemmProbe(const llm::Model& model, int64_t tokens, bool sums) {
  const llm::LayerWeights weights = llm::WeightsOf(model, {.experts = true});
  const llm::Matrix of = sums ? weights.expert_down : weights.expert_gate_up;
  const int64_t pairs = tokens * model.experts->active;
  const plan::GroupedGemm work{
      pairs, of.n, of.k, model.DistinctExperts(tokens), of.width, sums ? tokens : pairs};
  return {work, [=] {
            // Several layers' experts: no launch finds weights of an earlier one in the cache.
            constexpr int64_t kPlaces = int64_t{4} << 30;
            auto experts = std::make_shared<ColdMemory>(of.count * of.n * of.k, 1.0F, kPlaces);
            auto routings = std::make_shared<Routings>(model, tokens);
            auto a = std::make_shared<Buffer<Bf16>>((sums ? pairs : tokens) * of.k);
            auto c = Zeroed<Bf16>((sums ? tokens : pairs) * of.n);
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(a->get(), a->size(), 1, 2, stream);
            };
            const Launch product = [=](int i, cudaStream_t stream) {
              if (sums) {
                kernels::GroupedGemmSum(a->get(), experts->At(i), c->get(), routings->At(i), of.n,
                                        of.k, /*adds=*/false, stream);
              } else {
                kernels::GroupedGemm(a->get(), experts->At(i), c->get(), routings->At(i), of.n,
                                     of.k, stream);
              }
            };
            written(0, nullptr);
            return Prepared(product, written);
          }};
}

KernelProbe RouteProbe(int64_t tokens, const llm::Experts& experts) {
  const plan::Route work{tokens, experts.count, experts.active};
  return {work,
          [=] {
            auto logits = std::make_shared<Buffer<Bf16>>(tokens * work.experts);
            auto memory = std::make_shared<kernels::RoutingMemory>(static_cast<int32_t>(tokens),
                                                                   work.experts, work.active);
            const Launch written = [=](int, cudaStream_t stream) {
              kernels::FillRandom(logits->get(), logits->size(), 1, 9, stream);
            };
            const Launch route = [=](int, cudaStream_t stream) {
              kernels::Route(logits->get(), nullptr, memory->routing(), stream);
            };
            written(0, nullptr);
            return Prepared(route, written);
          },
          /*after_stream=*/true};
}

std::vector<KernelProbe> ExpertProbes() {
  std::vector<KernelProbe> probes;
  for (const llm::Model& model : ModelsToRun()) {
    if (!model.experts) continue;
    for (const int64_t tokens : {1, 2, 4, 8, 16, 32}) {
      for (const bool sums : {false, true}) {
        probes.push_back(GroupedGemmProbe(model, tokens, sums));
      }
      probes.push_back(RouteProbe(tokens, *model.experts));
    }
  }
  return probes;
}

}  // namespace stallcast::capture
