// CUPTI's activity buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace stallcast::capture {

/// Buffers of one size, a bounded number of them at a time, used again and again.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  static constexpr size_t kBytes = size_t{2} << 20;

  explicit BufferPool(int64_t max_bytes) : max_buffers_(max_bytes / static_cast<int64_t>(kBytes)) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// Null while as many are out as there may be, or where memory is short.
  uint8_t* Take();
  /// Takes back what Take() gave.
  void GiveBack(uint8_t* buffer);
  /// A buffer that gives itself back to this pool.
  std::shared_ptr<uint8_t> Own(uint8_t* buffer);

 private:
  const int64_t max_buffers_;
  std::mutex mutex_;
  int64_t out_ = 0;
  std::vector<uint8_t*> free_;
};

}  // namespace stallcast::capture
