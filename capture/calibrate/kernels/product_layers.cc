#include "capture/calibrate/kernels/product_layers.h"

#include <algorithm>
#include <array>

#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/fill.h"

namespace stallcast::capture {
namespace {

using Bf16 = __nv_bfloat16;

struct Product {
  int64_t n, k;
};
constexpr std::array<Product, ProductLayers::kProducts> kOfLayer = {
    {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}};
constexpr Product kLast = {128256, 4096};
constexpr int64_t kLayerElements = [] {
  int64_t sum = 0;
  for (const Product& product : kOfLayer) sum += product.n * product.k;
  return sum;
}();
constexpr int64_t kMostLayers = 32, kFewestLayers = 6;  // which exceed any cache, and hold kLast
static_assert(kFewestLayers * kLayerElements > kLast.n * kLast.k);

}  // namespace

ProductLayers::ProductLayers(cudaStream_t stream) {
  size_t free = 0, all = 0;
  kernels::Check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  const int64_t fit =
      static_cast<int64_t>(free) / 2 / (kLayerElements * static_cast<int64_t>(sizeof(Bf16)));
  if (fit < kFewestLayers) return;
  layers_ = std::min(fit, kMostLayers);
  weights_ = kernels::Buffer<Bf16>(layers_ * kLayerElements);
  input_ = kernels::Buffer<Bf16>(kOfLayer[3].k);
  output_ = kernels::Buffer<Bf16>(kLast.n);
  kernels::FillRandom(weights_.get(), weights_.size(), 1, 2, stream);
  kernels::FillRandom(input_.get(), input_.size(), 1, 3, stream);
  kernels::Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

void ProductLayers::Run(int i, cudaStream_t stream) {
  const Bf16* weights = weights_.get() + i % layers_ * kLayerElements;
  for (const Product& product : kOfLayer) {
    gemm_.Run(input_.get(), weights, output_.get(), 1, product.n, product.k, stream);
    weights += product.n * product.k;
  }
}

void ProductLayers::RunLast(cudaStream_t stream) {
  // Over the weights of the last layers: those of the first ones are not left in the cache.
  gemm_.Run(input_.get(), weights_.get() + layers_ * kLayerElements - kLast.n * kLast.k,
            output_.get(), 1, kLast.n, kLast.k, stream);
}

}  // namespace stallcast::capture
