// What a GPU has received and sent over PCIe, by NVML's counters. NVML comes with the driver.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

struct LinkBytes {
  uint32_t received = 0, sent = 0;  ///< the counters have 32 bits, and wrap
  LinkBytes operator-(const LinkBytes& before) const {
    return {received - before.received, sent - before.sent};
  }
};

class LinkCounters {
 public:
  LinkCounters() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) return;
    const auto init = Function<int()>("nvmlInit_v2");
    const auto find = Function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    values_ = Function<int(void*, int, Field*)>("nvmlDeviceGetFieldValues");
    if (init == nullptr || find == nullptr || values_ == nullptr || init() != 0) return;
    int device = 0;
    std::array<char, 32> bus;
    Check(cudaGetDevice(&device), "cudaGetDevice");
    Check(cudaDeviceGetPCIBusId(bus.data(), bus.size(), device), "cudaDeviceGetPCIBusId");
    if (find(bus.data(), &device_) != 0) device_ = nullptr;
  }
  LinkCounters(const LinkCounters&) = delete;
  LinkCounters& operator=(const LinkCounters&) = delete;

  bool Available() {
    bool all = device_ != nullptr;
    if (all) Read(&all);
    return all;
  }
  LinkBytes Read(bool* all = nullptr) {
    std::array<Field, 2> fields{Field{kReceived}, Field{kSent}};
    const bool read = values_(device_, static_cast<int>(fields.size()), fields.data()) == 0;
    if (all != nullptr) *all = read && fields[0].status == 0 && fields[1].status == 0;
    return {static_cast<uint32_t>(fields[0].value), static_cast<uint32_t>(fields[1].value)};
  }

 private:
  static constexpr unsigned kSent = 197, kReceived = 198;  // NVML_FI_DEV_PCIE_COUNT_..X_BYTES

  struct Field {  // nvmlFieldValue_t
    unsigned id = 0, scope = 0;
    long long timestamp = 0, latency = 0;
    int type = 0, status = 0;
    unsigned long long value = 0;
  };

  template <class Signature>
  Signature* Function(const char* name) {
    return reinterpret_cast<Signature*>(dlsym(library_, name));
  }

  void* library_;
  void* device_ = nullptr;
  int (*values_)(void*, int, Field*) = nullptr;
};

}  // namespace stallcast::kernels
