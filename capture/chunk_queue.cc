#include "capture/chunk_queue.h"

#include <utility>

namespace stallcast::capture {

ChunkQueue::ChunkQueue(traces::TraceWriter* writer, int64_t max_bytes)
    : writer_(writer), max_bytes_(max_bytes), thread_([this] { Run(); }) {}

ChunkQueue::~ChunkQueue() { Stop(); }

void ChunkQueue::Push(const traces::TensorSpec& spec, std::vector<std::byte> elements) {
  Push({spec, std::move(elements), {}});
}

void ChunkQueue::Push(const traces::proto::TraceInfo& info) { Push({{}, {}, info}); }

void ChunkQueue::Push(Item item) {
  const auto bytes = static_cast<int64_t>(item.elements.size());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || items_.empty() || bytes_ + bytes <= max_bytes_; });
  ThrowIfFailed();
  bytes_ += bytes;
  items_.push_back(std::move(item));
  changed_.notify_all();
}

void ChunkQueue::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || items_.empty(); });
  ThrowIfFailed();
}

void ChunkQueue::Check() {
  const std::scoped_lock lock(mutex_);
  ThrowIfFailed();
}

void ChunkQueue::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void ChunkQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !items_.empty(); });
    if (items_.empty()) return;
    const Item& item = items_.front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (item.info) {
        writer_->Write(*item.info);
      } else {
        writer_->Write(item.spec, item.elements);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    bytes_ -= static_cast<int64_t>(item.elements.size());
    items_.pop_front();
    if (failure) {
      // A gap in a file is worse than an early end: nothing is written after a failure.
      failure_ = failure;
      items_.clear();
      bytes_ = 0;
      changed_.notify_all();
      return;
    }
    changed_.notify_all();
  }
}

void ChunkQueue::ThrowIfFailed() const {
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace stallcast::capture
