// Pinned host memory for the KV pool of one run after the other: pinning is slow, so it is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace stallcast::kernels {

/// One range of pinned memory that grows to the largest request. Not thread safe.
class HostPool {
 public:
  HostPool() = default;
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;
  ~HostPool();

  /// At least `bytes` pinned bytes, with what was there before or, if it had to grow, zeros. Ends
  /// what earlier calls gave. Error: the host cannot pin as much.
  std::byte* Get(int64_t bytes);
  /// What it has.
  std::span<const std::byte> memory() const { return {data_, static_cast<size_t>(bytes_)}; }

 private:
  void Release() noexcept;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace stallcast::kernels
