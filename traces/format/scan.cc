#include "traces/format/scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "traces/common/error.h"

namespace stallcast::traces::format {
namespace {

constexpr int64_t kFirstWindow = int64_t{4} << 10;
constexpr int64_t kSearchWindow = int64_t{1} << 20;
// Chunks that lost bytes claim those of the next ones, together hardly more than the file has. More
// are nested lies, each of which would have all behind it read.
constexpr int64_t kMostClaims = 2;  // of the file's size

class Scanner {
 public:
  Scanner(const Source& source, const std::string& name) : source_(source), name_(name) {}

  ScanResult Run() {
    int64_t position = ReadFileHeader();
    int64_t expected = 0;
    while (position < source_.size()) {
      const int64_t found = NextHead(position, source_.size());
      if (found == source_.size()) {
        result_.lost_after = fmt::format("bytes {} to {} hold no chunk", position, found);
        break;
      }
      FoundChunk chunk = ChunkAt(found);
      chunk.lost_before = LostBefore(position, found, expected, chunk.head.sequence);
      expected = std::max<int64_t>(expected, chunk.head.sequence + int64_t{1});
      position = NextPosition(found, chunk);
      if (chunk.fault.empty()) RefuseNested(chunk, position);
      result_.chunks.push_back(std::move(chunk));
      if (EndedAt() >= 0) break;
    }
    if (EndedAt() >= 0 && EndedAt() < source_.size()) {
      result_.lost_after =
          fmt::format("{} bytes after the End chunk are ignored", source_.size() - EndedAt());
    }
    return std::move(result_);
  }

 private:
  // Where the first chunk is due.
  int64_t ReadFileHeader() {
    const std::span<const std::byte> bytes = source_.Read(0, kFileHeaderBytes, &scratch_);
    if (const std::optional<uint32_t> version = ParseFileHeader(bytes)) {
      if (*version == 0)
        throw Error("is of format version 0, which there is none of", name_,
                    "write the trace again");
      if (*version > kFormatVersion) {
        throw Error(fmt::format("is of format version {}, newer than version {} of this program",
                                *version, kFormatVersion),
                    name_, "update stallcast");
      }
      return kFileHeaderBytes;
    }
    const std::string problem = bytes.empty() ? "is empty" : "is not a .kvt trace";
    const bool began_as_trace = HasFileMagic(bytes);
    if (!began_as_trace && !HeadAt(kFileHeaderBytes)) {
      throw Error(problem, name_, "give a trace that stallcast wrote");
    }
    result_.header_fault = "the file header is damaged";
    return kFileHeaderBytes;
  }

  std::optional<ChunkHead> HeadAt(int64_t offset) {
    return ParseHead(source_.Read(offset, kMaxHeadBytes, &scratch_));
  }

  // The first head at or after `position` that begins before `limit` or little behind it, or the
  // source's size.
  int64_t NextHead(int64_t position, int64_t limit) {
    if (HeadAt(position)) return position;
    for (int64_t size = kFirstWindow; position < limit; size = std::min(2 * size, kSearchWindow)) {
      const std::span<const std::byte> window = source_.Read(position, size, &scratch_);
      const bool last = std::ssize(window) < size;
      size_t at = 0;
      while (at += static_cast<size_t>(FindHead(window.subspan(at))), at < window.size()) {
        const bool whole = last || window.size() - at >= static_cast<size_t>(kMaxHeadBytes);
        if (!whole) break;
        if (ParseHead(window.subspan(at))) return position + static_cast<int64_t>(at);
        ++at;
      }
      if (last) break;
      // A head, or the magic that begins one, may straddle two windows.
      position += std::min(static_cast<int64_t>(at), size - 7);
    }
    return source_.size();
  }

  FoundChunk ChunkAt(int64_t offset) {
    FoundChunk chunk;
    chunk.head = *HeadAt(offset);
    chunk.payload_offset = offset + chunk.head.head_bytes();
    chunk.fault = HeadFault(chunk.head);
    if (chunk.fault.empty() && chunk.head.stored_size > Remaining(chunk)) {
      chunk.fault = "cut off";
      chunk.cut = true;
    }
    return chunk;
  }

  uint64_t Remaining(const FoundChunk& chunk) const {
    return static_cast<uint64_t>(std::max<int64_t>(0, source_.size() - chunk.payload_offset));
  }

  // Behind the payload where a chunk (or the end) stands there. Otherwise bytes were lost or added
  // inside the payload, or its size lies, and the next chunk may stand anywhere after the head.
  int64_t NextPosition(int64_t offset, const FoundChunk& chunk) {
    if (chunk.head.stored_size <= Remaining(chunk)) {
      const int64_t end = chunk.payload_offset + static_cast<int64_t>(chunk.head.stored_size);
      if (end == source_.size() || HeadAt(end)) return end;
      const int64_t inside = NextHead(chunk.payload_offset, end);
      return inside < end ? inside : end;
    }
    return NextHead(std::max(offset + 1, chunk.payload_offset), source_.size());
  }

  // Where the next chunk begins inside this one's payload.
  void RefuseNested(FoundChunk& chunk, int64_t next) {
    const auto stored = static_cast<int64_t>(chunk.head.stored_size);
    if (next >= chunk.payload_offset + stored) return;
    claimed_ += stored;
    if (claimed_ / kMostClaims > source_.size())
      chunk.fault = "it claims the bytes of other chunks";
  }

  static std::string LostBefore(int64_t due, int64_t found, int64_t expected, int64_t sequence) {
    const std::string bytes =
        found > due ? fmt::format(" (bytes {} to {} are damaged)", due, found) : "";
    if (sequence == expected + 1) return fmt::format("chunk {} is missing{}", expected, bytes);
    if (sequence > expected) {
      return fmt::format("chunks {} to {} are missing{}", expected, sequence - 1, bytes);
    }
    if (sequence < expected) return fmt::format("chunk {} is out of order{}", sequence, bytes);
    return found > due ? fmt::format("bytes {} to {} between chunks are damaged", due, found) : "";
  }

  // Behind the End chunk where that is the last one found, or -1.
  int64_t EndedAt() const {
    if (result_.chunks.empty() || result_.chunks.back().head.kind != ChunkKind::kEnd) return -1;
    const FoundChunk& end = result_.chunks.back();
    return end.fault.empty() ? end.payload_offset + static_cast<int64_t>(end.head.stored_size) : -1;
  }

  const Source& source_;
  const std::string& name_;
  std::vector<std::byte> scratch_;
  int64_t claimed_ = 0;  // by chunks inside which others begin
  ScanResult result_;
};

}  // namespace

ScanResult ScanChunks(const Source& source, const std::string& name) {
  return Scanner(source, name).Run();
}

}  // namespace stallcast::traces::format
