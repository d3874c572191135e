// Streams and events that destroy themselves.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/runtime/cuda_error.h"

namespace stallcast::kernels {

/// A stream; by default one that does not wait for the device's default stream.
class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    Check(cudaStreamCreateWithFlags(&stream_, flags), "cudaStreamCreate");
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// An event, or none.
class Event {
 public:
  Event() = default;
  explicit Event(unsigned flags) {
    Check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }
  explicit operator bool() const { return event_ != nullptr; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Seconds between two events with times, which have passed.
inline double ElapsedSeconds(cudaEvent_t begin, cudaEvent_t end) {
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

}  // namespace stallcast::kernels
