// What tests of kernels share: skipping without a device, copies there and back, bf16.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/runtime/buffer.h"
#include "kernels/runtime/cuda_error.h"
#include "kernels/runtime/upload.h"
#include "tests/kernels/has_device.h"

namespace stallcast::kernels {

/// A fixture whose tests are skipped, visibly, on a machine without a device.
class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) GTEST_SKIP() << "no CUDA device";
  }
  std::mt19937 random_{20261120};
};

template <class T>
std::vector<T> ToHost(const Buffer<T>& buffer) {
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::vector<T> values(static_cast<size_t>(buffer.size()));
  Check(cudaMemcpy(values.data(), buffer.get(), buffer.bytes(), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return values;
}

/// Uninitialised device memory with every byte 0xFF: NaN in bf16 and float, -1 in integers.
template <class T>
Buffer<T> Poisoned(int64_t count) {
  Buffer<T> buffer(count);
  Check(cudaMemset(buffer.get(), 0xFF, static_cast<size_t>(buffer.bytes())), "cudaMemset");
  return buffer;
}

inline std::vector<__nv_bfloat16> RandomBf16(std::mt19937& random, int64_t count,
                                             float deviation = 1) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<__nv_bfloat16> values(static_cast<size_t>(count));
  for (__nv_bfloat16& value : values) value = __float2bfloat16(normal(random));
  return values;
}

inline uint16_t Bits(__nv_bfloat16 value) {
  uint16_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// Within one rounding to bf16 (8 bits of significand) and a float's worth of arithmetic.
inline void ExpectRounded(double expected, __nv_bfloat16 actual, double scale, int64_t index) {
  const double tolerance = std::abs(expected) / 256 + scale * 1e-6;
  ASSERT_NEAR(__bfloat162float(actual), expected, tolerance) << "at " << index;
}

}  // namespace stallcast::kernels
