#include "traces/convert/input.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace stallcast::traces::convert {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

class Plain : public Input {
 public:
  explicit Plain(const format::Source& source) : source_(source) {}

  size_t Read(std::span<char> buffer) override {
    const std::span<const std::byte> bytes = source_.Read(offset_, std::ssize(buffer), &scratch_);
    if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
    offset_ += std::ssize(bytes);
    return bytes.size();
  }
  double share() const override {
    return source_.size() == 0 ? 1
                               : static_cast<double>(offset_) / static_cast<double>(source_.size());
  }
  std::string fault() const override { return ""; }

 private:
  const format::Source& source_;
  std::vector<std::byte> scratch_;
  int64_t offset_ = 0;
};

// One or more gzip members, one after another.
class Gzip : public Input {
 public:
  explicit Gzip(const format::Source& source) : file_(source), block_(kBlock) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  size_t Read(std::span<char> buffer) override {
    stream_.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream_.avail_out = static_cast<uInt>(buffer.size());
    while (stream_.avail_out > 0 && !ended_) Step();
    const size_t given = buffer.size() - stream_.avail_out;
    written_ += given;
    // A profiler's JSON shrinks some ten-fold; what shrinks more was made to fill the memory.
    constexpr uint64_t kMostRatio = 200, kAlwaysFine = uint64_t{256} << 20;
    if (written_ > kAlwaysFine && written_ / kMostRatio > read_) {
      End("the gzip data expands more than 200-fold");
    }
    return given;
  }
  double share() const override { return file_.share(); }
  std::string fault() const override { return fault_; }

 private:
  void End(std::string fault) {
    ended_ = true;
    fault_ = std::move(fault);
  }

  void Step() {
    if (stream_.avail_in == 0) {
      const size_t got = file_.Read(block_);
      read_ += got;
      stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
      stream_.avail_in = static_cast<uInt>(got);
      if (got == 0) return End(between_members_ ? "" : "the gzip data is cut off");
    }
    if (between_members_) {
      // Padding or signatures may follow the last member.
      if (*stream_.next_in != 0x1f) return End("");
      inflateReset(&stream_);
      between_members_ = false;
    }
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      between_members_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      End("the gzip data is damaged");
    }
  }

  Plain file_;
  std::vector<char> block_;
  z_stream stream_{};
  uint64_t read_ = 0, written_ = 0;
  bool between_members_ = false, ended_ = false;
  std::string fault_;
};

// Reads ahead of its user.
class Ahead : public Input {
 public:
  explicit Ahead(std::unique_ptr<Input> input) : input_(std::move(input)) {
    for (Block& block : blocks_) block.bytes.resize(kBlock);
    thread_ = std::thread([this] { Fill(); });
  }
  ~Ahead() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  size_t Read(std::span<char> buffer) override {
    size_t given = 0;
    while (given < buffer.size()) {
      Block& block = blocks_[taken_ % kBlocks];
      if (used_ == 0) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return filled_ > taken_; });
      }
      const size_t part = std::min(buffer.size() - given, block.size - used_);
      if (part > 0) std::memcpy(buffer.data() + given, block.bytes.data() + used_, part);
      given += part;
      used_ += part;
      if (used_ < block.size) continue;
      if (block.last) {
        if (error_) std::rethrow_exception(error_);
        break;
      }
      used_ = 0;
      {
        const std::lock_guard lock(mutex_);
        ++taken_;
      }
      changed_.notify_all();
    }
    return given;
  }
  double share() const override { return share_.load(std::memory_order_relaxed); }
  std::string fault() const override { return input_->fault(); }  // after the last block

 private:
  static constexpr uint64_t kBlocks = 4;
  struct Block {
    std::vector<char> bytes;
    size_t size = 0;
    bool last = false;
  };

  void Fill() {
    for (uint64_t index = 0;; ++index) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || index - taken_ < kBlocks; });
        if (stop_) return;
      }
      Block& block = blocks_[index % kBlocks];
      try {
        block.size = input_->Read(block.bytes);
      } catch (...) {
        error_ = std::current_exception();
        block.size = 0;
      }
      block.last = block.size < block.bytes.size();
      share_.store(input_->share(), std::memory_order_relaxed);
      const bool last = block.last;
      {
        const std::lock_guard lock(mutex_);
        filled_ = index + 1;
      }
      changed_.notify_all();
      if (last) return;
    }
  }

  std::unique_ptr<Input> input_;
  Block blocks_[kBlocks];
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0, taken_ = 0;  // blocks
  size_t used_ = 0;                  // of the block that is being taken
  bool stop_ = false;
  std::exception_ptr error_;
  std::atomic<double> share_ = 0;
  std::thread thread_;
};

}  // namespace

bool IsGzip(std::span<const std::byte> begin) {
  return begin.size() >= 2 && begin[0] == std::byte{0x1f} && begin[1] == std::byte{0x8b};
}

std::unique_ptr<Input> OpenInput(const format::Source& source) {
  std::vector<std::byte> scratch;
  std::unique_ptr<Input> input;
  if (IsGzip(source.Read(0, 2, &scratch))) {
    input = std::make_unique<Gzip>(source);
  } else {
    input = std::make_unique<Plain>(source);
  }
  // Not worth a thread.
  if (source.size() < static_cast<int64_t>(kBlock)) return input;
  return std::make_unique<Ahead>(std::move(input));
}

}  // namespace stallcast::traces::convert
