// Memory that frees itself: on the device, and on the host where the GPU reaches it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace stallcast::kernels {

enum class Memory {
  kDevice,
  kPinned,  ///< on the host
};

/// `count` elements of T, uninitialised. Out of memory: Error saying how much was asked for and
/// free.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count, Memory memory = Memory::kDevice);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  T* get() const { return data_; }
  int64_t size() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    std::swap(memory_, other.memory_);
  }
  T* data_ = nullptr;
  int64_t count_ = 0;
  Memory memory_ = Memory::kDevice;
};

void* Allocate(int64_t bytes, Memory memory);
void Free(void* data, Memory memory) noexcept;

template <class T>
Buffer<T>::Buffer(int64_t count, Memory memory)
    : data_(static_cast<T*>(Allocate(count * static_cast<int64_t>(sizeof(T)), memory))),
      count_(count),
      memory_(memory) {}

template <class T>
Buffer<T>::~Buffer() {
  Free(data_, memory_);
}

/// Fills device or pinned memory with zero bytes.
void ZeroBytes(void* data, int64_t bytes);
template <class T>
void Zero(const Buffer<T>& buffer) {
  ZeroBytes(buffer.get(), buffer.bytes());
}

}  // namespace stallcast::kernels
