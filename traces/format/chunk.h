// The byte layout of a .kvt file. All integers are little-endian.
//
//   file    = file header, chunk, chunk, ...; the last chunk is of kind End
//
//   file header, 16 bytes
//      0  8  89 'K' 'V' 'T' 0d 0a 1a 0a
//      8  4  format version
//     12  4  low half of xxh3-64 over bytes 0 to 11
//
//   chunk
//      0  8  8b 'K' 'V' 'T' 'c' 'h' 'k' 0a
//      8  4  kind
//     12  4  sequence number: 0 for the first chunk, then one more each
//     16  8  stored size of the payload
//     24  8  raw size of the payload, once decompressed
//     32  8  xxh3-64 over the stored payload
//     40  4  codec of the payload
//     44  4  size of the meta message, at most kMaxMeta
//     48  m  meta message: proto::Tensor in a tensor chunk, else nothing
//   48+m  8  xxh3-64 over bytes 0 to 47+m
//   56+m     payload: a proto message, or a tensor's elements as its meta message says
//
// The head (all before the payload) can be trusted by its own checksum, so a reader can list a file
// and skip payloads without reading them. A reader that loses its place searches for the next head.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/format/source.h"

namespace stallcast::traces::format {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr int64_t kFileHeaderBytes = 16;
inline constexpr int64_t kHeadFixedBytes = 48;
inline constexpr int64_t kMaxMeta = 256;
/// The longest head.
inline constexpr int64_t kMaxHeadBytes = kHeadFixedBytes + kMaxMeta + 8;

/// Bounds on what a chunk may claim, so that a few stored bytes cannot ask for much memory. A
/// writer splits what is longer and stores uncompressed what would shrink by more than kMaxRatio.
inline constexpr int64_t kMaxTensorRaw = int64_t{256} << 20;
inline constexpr int64_t kMaxMessageRaw = int64_t{32} << 20;
inline constexpr int64_t kMaxRatio = 1024;

enum class ChunkKind : uint32_t { kInfo = 1, kTensor, kTimeline, kAccessLog, kEnd };
enum class Codec : uint32_t { kStored = 0, kZstd = 1 };

std::string_view Name(ChunkKind kind);

struct ChunkHead {
  ChunkKind kind = ChunkKind::kInfo;
  uint32_t sequence = 0;
  uint64_t stored_size = 0;
  uint64_t raw_size = 0;
  uint64_t checksum = 0;  ///< of the stored payload
  Codec codec = Codec::kStored;
  std::string meta;

  int64_t head_bytes() const { return kHeadFixedBytes + std::ssize(meta) + 8; }
};

std::array<std::byte, kFileHeaderBytes> EncodeFileHeader();
/// The format version, or nothing where the bytes are no intact file header.
std::optional<uint32_t> ParseFileHeader(std::span<const std::byte> bytes);
/// Whether the bytes begin as a .kvt file does, intact or not.
bool HasFileMagic(std::span<const std::byte> bytes);

/// Parses the head at the beginning of `bytes`; nothing where there is no intact one.
std::optional<ChunkHead> ParseHead(std::span<const std::byte> bytes);
/// The first position in `bytes` where a head may begin, or bytes.size().
int64_t FindHead(std::span<const std::byte> bytes);
/// Why this reader cannot or will not unpack such a chunk (a lying size, an unknown codec), or
/// empty.
std::string HeadFault(const ChunkHead& head);

uint64_t Checksum(std::span<const std::byte> bytes);

/// The Checksum of bytes that come piece by piece.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  RunningChecksum(RunningChecksum&&) noexcept;
  RunningChecksum& operator=(RunningChecksum&&) noexcept;

  void Add(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes whole chunks. One a thread.
class ChunkPacker {
 public:
  ChunkPacker();
  ~ChunkPacker();
  ChunkPacker(ChunkPacker&&) noexcept;
  ChunkPacker& operator=(ChunkPacker&&) noexcept;

  /// Head and payload; the span is valid until the next call.
  std::span<const std::byte> Pack(ChunkKind kind, uint32_t sequence, std::string_view meta,
                                  std::span<const std::byte> raw);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> chunk_;
};

/// Checks and decompresses payloads. One a thread.
class ChunkUnpacker {
 public:
  ChunkUnpacker();
  ~ChunkUnpacker();
  ChunkUnpacker(ChunkUnpacker&&) noexcept;
  ChunkUnpacker& operator=(ChunkUnpacker&&) noexcept;

  /// What is wrong with the stored bytes of a payload, which begin at `offset`, or empty.
  std::string Check(const ChunkHead& head, const Source& source, int64_t offset);
  /// Unpacks a payload whose head has no HeadFault piece by piece, so that it takes little memory:
  /// calls `take` with one after another, head.raw_size bytes in all. Returns why it is damaged, or
  /// empty; what was taken before is then worth nothing.
  std::string Unpack(const ChunkHead& head, const Source& source, int64_t offset,
                     const std::function<void(std::span<const std::byte>)>& take);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> stored_, raw_;  // a piece of each
};

}  // namespace stallcast::traces::format
