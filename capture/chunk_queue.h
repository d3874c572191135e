// A worker thread that compresses and writes tensor chunks, fed by a queue bounded in bytes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "traces/format/trace_file.h"
#include "traces/tensor.h"

namespace stallcast::capture {

/// Owns the writer's thread, not the writer: between construction and Stop() only the worker uses
/// `*writer`.
class ChunkQueue {
 public:
  ChunkQueue(traces::TraceWriter* writer, int64_t max_bytes);
  /// Writes what is queued, then ends.
  ~ChunkQueue();
  ChunkQueue(const ChunkQueue&) = delete;
  ChunkQueue& operator=(const ChunkQueue&) = delete;

  /// Queues a chunk; waits while more than max_bytes are queued (one chunk always fits). Throws the
  /// worker's failure.
  void Push(const traces::TensorSpec& spec, std::vector<std::byte> elements);
  /// Queues the file's description as it is now.
  void Push(const traces::proto::TraceInfo& info);
  /// Waits until nothing is queued or being written. Throws the worker's failure.
  void Drain();
  /// Throws the worker's failure, if it had one.
  void Check();
  /// Writes what is queued and ends the thread. The writer is free for others then.
  void Stop();

 private:
  struct Item {
    traces::TensorSpec spec;
    std::vector<std::byte> elements;
    std::optional<traces::proto::TraceInfo> info;  // in place of a chunk
  };

  void Push(Item item);
  void Run();
  void ThrowIfFailed() const;  // with mutex_ held

  traces::TraceWriter* writer_;
  const int64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // the one being written stays in front
  int64_t bytes_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace stallcast::capture
