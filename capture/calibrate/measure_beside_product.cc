#include "capture/calibrate/measure_beside_product.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "capture/calibrate/kernel_probe.h"
#include "kernels/decoder.h"

namespace stallcast::capture {
namespace {

using Bf16 = __nv_bfloat16;

struct Product {
  int64_t rows, inner;
  int64_t input_bytes() const { return rows * inner * int64_t{sizeof(Bf16)}; }
};
// By ascending input: from a layer's first products at batch 1 to its last one at batch 4.
constexpr Product kProducts[] = {{1, 4096}, {4, 4096}, {8, 4096}, {4, 14336}};
// So many that a product runs for 0.2 ms: what others find between two of them hardly counts.
constexpr int64_t kWeights = int64_t{448} << 20;

}  // namespace

void MeasureBesideProduct(Stopwatch& watch, hardware::Profile& profile) {
  constexpr int kTrain = 24, kTrials = 5;
  constexpr int kOutlast = 12;  // a train of them, 20 us an item, and the calls for it
  const kernels::Buffer<Bf16> weights(kWeights), input(int64_t{1} << 16),
      output(8 * kWeights / 4096);
  for (const kernels::Buffer<Bf16>* buffer : {&weights, &input}) {
    kernels::Check(cudaMemset(buffer->get(), 0, static_cast<size_t>(buffer->bytes())),
                   "cudaMemset");
  }
  kernels::Gemm gemm;
  const auto product = [&](const Product& of, cudaStream_t stream) {
    gemm.Run(input.get(), weights.get(), output.get(), of.rows, kWeights / of.inner, of.inner,
             stream);
  };
  for (const Product& of : kProducts) product(of, watch.other());  // chooses how
  watch.Finish();
  // Two pages of 32 tokens, to their slots.
  const Prepared scatter = LayoutProbe(2, 32, 128).prepare();
  const auto item = [&](int i) { scatter.launch(i, watch.stream()); };
  const double alone = watch.Period(kTrain, item, kTrials);
  std::vector<double> inputs, longer;
  for (const Product& of : kProducts) {
    const auto products = [&](cudaStream_t stream) {
      for (int i = 0; i < kOutlast; ++i) product(of, stream);
    };
    const double beside = watch.LongerBeside(products, alone, kTrain, item, kTrials);
    if (!std::isfinite(beside)) continue;
    inputs.push_back(static_cast<double>(of.input_bytes()));
    longer.push_back(beside);
  }
  profile.product_holds_kernel = {};
  if (!inputs.empty()) profile.product_holds_kernel = hardware::Curve(inputs, longer);
}

}  // namespace stallcast::capture
