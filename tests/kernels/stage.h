// What benchmarks of a method's stages share: a line of their table, and data.
#pragma once

#include <cuda_bf16.h>
#include <fmt/core.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/measure.h"

namespace stallcast::kernels {

/// Prints the device's name and the rate at which its memory is read, in bytes a second, which it
/// gives.
inline double PrintDevice(Stopwatch& watch) {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const Buffer<char> large(int64_t{4} << 30);
  Zero(large);
  const double rate = watch.ReadRate(large);
  fmt::print("{}; medians; memory reads {:.0f} GB/s\n", device.name, rate * 1e-9);
  return rate;
}

/// A stage, its time, and its rate as a share of `limit`, both in `unit`s a second.
inline void Print(const std::string& what, double seconds, double rate, const char* unit,
                  double limit, const char* of) {
  fmt::print("{:<52} {:>10.2f} us {:>9.1f} {:<6} {:>5.1f} % of {}\n", what, seconds * 1e6, rate,
             unit, 100 * rate / limit, of);
}

/// Normal numbers of a long period, others at each call.
inline std::vector<__nv_bfloat16> Random(int64_t count) {
  static std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::vector<__nv_bfloat16> period(1048573);
  for (__nv_bfloat16& value : period) value = __float2bfloat16(normal(random));
  std::vector<__nv_bfloat16> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = period[i % period.size()];
  return values;
}

}  // namespace stallcast::kernels
