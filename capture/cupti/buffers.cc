#include "capture/cupti/buffers.h"

#include <cstdlib>

namespace stallcast::capture {

BufferPool::~BufferPool() {
  for (uint8_t* buffer : free_) std::free(buffer);
}

uint8_t* BufferPool::Take() {
  const std::scoped_lock lock(mutex_);
  // One is always allowed, so that even a tiny bound records something.
  if (out_ > 0 && out_ >= max_buffers_) return nullptr;
  uint8_t* buffer = nullptr;
  if (!free_.empty()) {
    buffer = free_.back();
    free_.pop_back();
  } else {
    buffer = static_cast<uint8_t*>(std::malloc(kBytes));  // aligned as CUPTI wants: 8 bytes
  }
  if (buffer != nullptr) ++out_;
  return buffer;
}

void BufferPool::GiveBack(uint8_t* buffer) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(buffer);
  --out_;
}

std::shared_ptr<uint8_t> BufferPool::Own(uint8_t* buffer) {
  return {buffer, [pool = shared_from_this()](uint8_t* own) { pool->GiveBack(own); }};
}

}  // namespace stallcast::capture
