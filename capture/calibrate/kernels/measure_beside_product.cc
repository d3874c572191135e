#include "capture/calibrate/kernels/measure_beside_product.h"

#include <algorithm>
#include <cmath>

#include "capture/calibrate/kernels/kernel_probe.h"
#include "kernels/decoder/decoder.h"

namespace stallcast::capture {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int64_t kInner = 4096;
// So many that a product runs for 0.2 ms: what others find between two of them hardly counts.
constexpr int64_t kWeights = int64_t{448} << 20;
constexpr int kTrain = 24, kTrials = 5;

// Products of one row that stream weights for longer than a train of what is timed beside them, 20
// us an item, and the calls for it.
class Products {
 public:
  explicit Products(Stopwatch& watch) {
    for (const kernels::Buffer<Bf16>* buffer : {&weights_, &input_}) {
      kernels::Check(cudaMemset(buffer->get(), 0, static_cast<size_t>(buffer->bytes())),
                     "cudaMemset");
    }
    Run(1, watch.other());  // chooses how
    watch.Finish();
  }
  void operator()(cudaStream_t stream) {
    constexpr int kOutlast = 12;
    Run(kOutlast, stream);
  }

 private:
  void Run(int count, cudaStream_t stream) {
    for (int i = 0; i < count; ++i) {
      gemm_.Run(input_.get(), weights_.get(), output_.get(), 1, kWeights / kInner, kInner, stream);
    }
  }

  const kernels::Buffer<Bf16> weights_{kWeights}, input_{kInner};
  kernels::Buffer<Bf16> output_{kWeights / kInner};
  kernels::Gemm gemm_;
};

// What an item of a train takes longer beside them.
template <class Work>
double LongerBeside(Stopwatch& watch, Products& products, const Work& work) {
  const double alone = watch.Period(kTrain, work, kTrials);
  const double longer = watch.LongerBeside([&](cudaStream_t stream) { products(stream); }, alone,
                                           kTrain, work, kTrials);
  return std::isfinite(longer) ? std::max(longer, 0.0) : 0;
}

}  // namespace

void MeasureBesideProduct(Stopwatch& watch, hardware::Profile& profile) {
  Products products(watch);
  // Two pages of 32 tokens, to their slots.
  const Prepared scatter = LayoutProbe(2, /*page_tokens=*/32, 128).prepare();
  profile.gemm.delays_kernel =
      LongerBeside(watch, products, [&](int i) { scatter.launch(i, watch.stream()); });
}

}  // namespace stallcast::capture
