#include "traces/format/chunk.h"

// For ZSTD_c_literalCompressionMode, see SetTensorParameters().
#define ZSTD_STATIC_LINKING_ONLY
#include <fmt/format.h>
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "traces/common/error.h"

namespace stallcast::traces::format {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's integers are little-endian");

constexpr std::array<unsigned char, 8> kFileMagic = {0x89, 'K', 'V', 'T', '\r', '\n', 0x1a, '\n'};
constexpr std::array<unsigned char, 8> kChunkMagic = {0x8b, 'K', 'V', 'T', 'c', 'h', 'k', '\n'};

template <typename Integer>
void Put(Integer value, std::byte* at) {
  std::memcpy(at, &value, sizeof value);
}

template <typename Integer>
Integer Get(const std::byte* at) {
  Integer value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool StartsWith(std::span<const std::byte> bytes, const std::array<unsigned char, 8>& magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

uint32_t HeaderCheck(std::span<const std::byte> header) {
  return static_cast<uint32_t>(Checksum(header.first(12)));
}

void EncodeHead(const ChunkHead& head, std::byte* at) {
  std::memcpy(at, kChunkMagic.data(), kChunkMagic.size());
  Put(static_cast<uint32_t>(head.kind), at + 8);
  Put(head.sequence, at + 12);
  Put(head.stored_size, at + 16);
  Put(head.raw_size, at + 24);
  Put(head.checksum, at + 32);
  Put(static_cast<uint32_t>(head.codec), at + 40);
  Put(static_cast<uint32_t>(head.meta.size()), at + 44);
  std::memcpy(at + kHeadFixedBytes, head.meta.data(), head.meta.size());
  const size_t checked = kHeadFixedBytes + head.meta.size();
  Put(Checksum({at, checked}), at + checked);
}

// How much of a payload is read and unpacked at a time: zstd's largest block.
constexpr int64_t kPieceBytes = int64_t{128} << 10;

constexpr const char* kWrongFrame = "the compressed frame is not of the size stated";

// A tensor's planes hold no repeats worth finding, only skewed bytes: almost no search, but always
// entropy coding (which zstd leaves out at such levels unless told otherwise). Four times as fast
// as level 1 on such data, and as small.
void SetTensorParameters(ZSTD_CCtx* context) {
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, -100);
  ZSTD_CCtx_setParameter(context, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
}

void SetMessageParameters(ZSTD_CCtx* context) {
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 3);
}

// What a C library makes and frees.
template <class T, auto kCreate, auto kFree>
struct Owned {
  Owned() : get(kCreate()) {
    if (get == nullptr) throw std::bad_alloc();
  }
  ~Owned() { kFree(get); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T* get;
};

}  // namespace

std::string_view Name(ChunkKind kind) {
  switch (kind) {
    case ChunkKind::kInfo:
      return "info";
    case ChunkKind::kTensor:
      return "tensor";
    case ChunkKind::kTimeline:
      return "timeline";
    case ChunkKind::kAccessLog:
      return "access log";
    case ChunkKind::kEnd:
      return "end";
  }
  return "unknown kind";
}

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct RunningChecksum::State : Owned<XXH3_state_t, XXH3_createState, XXH3_freeState> {
  State() { XXH3_64bits_reset(get); }
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {}
RunningChecksum::~RunningChecksum() = default;
RunningChecksum::RunningChecksum(RunningChecksum&&) noexcept = default;
RunningChecksum& RunningChecksum::operator=(RunningChecksum&&) noexcept = default;

void RunningChecksum::Add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->get, bytes.data(), bytes.size());
}

uint64_t RunningChecksum::value() const { return XXH3_64bits_digest(state_->get); }

std::array<std::byte, kFileHeaderBytes> EncodeFileHeader() {
  std::array<std::byte, kFileHeaderBytes> header;
  std::memcpy(header.data(), kFileMagic.data(), kFileMagic.size());
  Put(kFormatVersion, header.data() + 8);
  Put(HeaderCheck(header), header.data() + 12);
  return header;
}

std::optional<uint32_t> ParseFileHeader(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) < kFileHeaderBytes || !HasFileMagic(bytes)) return std::nullopt;
  if (Get<uint32_t>(bytes.data() + 12) != HeaderCheck(bytes)) return std::nullopt;
  return Get<uint32_t>(bytes.data() + 8);
}

bool HasFileMagic(std::span<const std::byte> bytes) { return StartsWith(bytes, kFileMagic); }

std::optional<ChunkHead> ParseHead(std::span<const std::byte> bytes) {
  if (std::ssize(bytes) < kHeadFixedBytes + 8 || !StartsWith(bytes, kChunkMagic)) {
    return std::nullopt;
  }
  const std::byte* at = bytes.data();
  const int64_t meta_size = Get<uint32_t>(at + 44);
  const int64_t checked = kHeadFixedBytes + meta_size;
  if (meta_size > kMaxMeta || std::ssize(bytes) < checked + 8) return std::nullopt;
  if (Get<uint64_t>(at + checked) != Checksum({at, static_cast<size_t>(checked)})) {
    return std::nullopt;
  }
  ChunkHead head;
  head.kind = static_cast<ChunkKind>(Get<uint32_t>(at + 8));
  head.sequence = Get<uint32_t>(at + 12);
  head.stored_size = Get<uint64_t>(at + 16);
  head.raw_size = Get<uint64_t>(at + 24);
  head.checksum = Get<uint64_t>(at + 32);
  head.codec = static_cast<Codec>(Get<uint32_t>(at + 40));
  head.meta.assign(reinterpret_cast<const char*>(at + kHeadFixedBytes),
                   static_cast<size_t>(meta_size));
  return head;
}

int64_t FindHead(std::span<const std::byte> bytes) {
  const void* found = memmem(bytes.data(), bytes.size(), kChunkMagic.data(), kChunkMagic.size());
  if (found == nullptr) return std::ssize(bytes);
  return static_cast<const std::byte*>(found) - bytes.data();
}

std::string HeadFault(const ChunkHead& head) {
  const int64_t most = head.kind == ChunkKind::kTensor ? kMaxTensorRaw : kMaxMessageRaw;
  if (head.raw_size > static_cast<uint64_t>(most) ||
      head.raw_size / static_cast<uint64_t>(kMaxRatio) > head.stored_size) {
    return fmt::format("claims {} bytes from {} stored", head.raw_size, head.stored_size);
  }
  if (head.codec != Codec::kStored && head.codec != Codec::kZstd) {
    return fmt::format("unknown codec {}", static_cast<uint32_t>(head.codec));
  }
  if (head.codec == Codec::kStored && head.raw_size != head.stored_size) {
    return fmt::format("claims {} bytes from {} stored without compression", head.raw_size,
                       head.stored_size);
  }
  return "";
}

struct ChunkPacker::Context : Owned<ZSTD_CCtx, ZSTD_createCCtx, ZSTD_freeCCtx> {};

ChunkPacker::ChunkPacker() : context_(std::make_unique<Context>()) {}
ChunkPacker::~ChunkPacker() = default;
ChunkPacker::ChunkPacker(ChunkPacker&&) noexcept = default;
ChunkPacker& ChunkPacker::operator=(ChunkPacker&&) noexcept = default;

std::span<const std::byte> ChunkPacker::Pack(ChunkKind kind, uint32_t sequence,
                                             std::string_view meta,
                                             std::span<const std::byte> raw) {
  ChunkHead head;
  head.kind = kind;
  head.sequence = sequence;
  head.raw_size = raw.size();
  head.meta = meta;

  const auto head_bytes = static_cast<size_t>(head.head_bytes());
  const size_t bound = ZSTD_compressBound(raw.size());
  if (chunk_.size() < head_bytes + bound) chunk_.resize(head_bytes + bound);
  std::byte* body = chunk_.data() + head_bytes;

  ZSTD_CCtx_reset(context_->get, ZSTD_reset_session_and_parameters);
  if (kind == ChunkKind::kTensor) {
    SetTensorParameters(context_->get);
  } else {
    SetMessageParameters(context_->get);
  }
  const size_t packed = ZSTD_compress2(context_->get, body, bound, raw.data(), raw.size());
  if (ZSTD_isError(packed)) {
    throw Error(fmt::format("compression failed: {}", ZSTD_getErrorName(packed)), "",
                "report this as a bug");
  }
  if (packed < raw.size() && raw.size() / static_cast<size_t>(kMaxRatio) <= packed) {
    head.codec = Codec::kZstd;
    head.stored_size = packed;
  } else {
    head.codec = Codec::kStored;
    head.stored_size = raw.size();
    std::copy(raw.begin(), raw.end(), body);
  }
  head.checksum = Checksum({body, head.stored_size});
  EncodeHead(head, chunk_.data());
  return std::span(chunk_).first(head_bytes + head.stored_size);
}

struct ChunkUnpacker::Context : Owned<ZSTD_DCtx, ZSTD_createDCtx, ZSTD_freeDCtx> {};

ChunkUnpacker::ChunkUnpacker() : context_(std::make_unique<Context>()) {}
ChunkUnpacker::~ChunkUnpacker() = default;
ChunkUnpacker::ChunkUnpacker(ChunkUnpacker&&) noexcept = default;
ChunkUnpacker& ChunkUnpacker::operator=(ChunkUnpacker&&) noexcept = default;

namespace {

// Calls `take` with one piece of the stored bytes after another until it returns false. Returns
// whether the source has them all.
template <typename Take>
bool ReadPieces(const ChunkHead& head, const Source& source, int64_t offset,
                std::vector<std::byte>* scratch, Take take) {
  const auto size = static_cast<int64_t>(head.stored_size);
  for (int64_t done = 0; done < size;) {
    const int64_t wanted = std::min(kPieceBytes, size - done);
    const std::span<const std::byte> piece = source.Read(offset + done, wanted, scratch);
    if (std::ssize(piece) < wanted) return false;
    if (!take(piece)) break;
    done += wanted;
  }
  return true;
}

}  // namespace

std::string ChunkUnpacker::Check(const ChunkHead& head, const Source& source, int64_t offset) {
  RunningChecksum checksum;
  const bool whole = ReadPieces(head, source, offset, &stored_, [&](auto piece) {
    checksum.Add(piece);
    return true;
  });
  if (!whole) return "cut off";
  return checksum.value() == head.checksum ? "" : "checksum";
}

std::string ChunkUnpacker::Unpack(const ChunkHead& head, const Source& source, int64_t offset,
                                  const std::function<void(std::span<const std::byte>)>& take) {
  if (head.codec == Codec::kStored) {
    const bool whole = ReadPieces(head, source, offset, &stored_, [&](auto piece) {
      take(piece);
      return true;
    });
    return whole ? "" : "cut off";
  }
  ZSTD_DCtx* const zstd = context_->get;
  ZSTD_DCtx_reset(zstd, ZSTD_reset_session_only);
  raw_.resize(kPieceBytes);
  std::string fault;
  uint64_t stored_taken = 0, unpacked = 0;
  bool ended = false;
  const bool whole = ReadPieces(head, source, offset, &stored_, [&](auto piece) {
    // Before it makes room for what the frame claims to hold.
    if (stored_taken == 0 &&
        ZSTD_getFrameContentSize(piece.data(), piece.size()) != head.raw_size) {
      fault = kWrongFrame;
      return false;
    }
    stored_taken += piece.size();
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    ZSTD_outBuffer out{raw_.data(), raw_.size(), 0};
    do {
      out.pos = 0;
      const size_t left = ZSTD_decompressStream(zstd, &out, &in);
      unpacked += out.pos;
      if (ZSTD_isError(left) || unpacked > head.raw_size) {
        fault = "does not decompress";
        return false;
      }
      take(std::span(raw_).first(out.pos));
      ended = left == 0;
    } while (!ended && (in.pos < in.size || out.pos == out.size));
    if (ended && (in.pos < in.size || stored_taken < head.stored_size)) fault = kWrongFrame;
    return fault.empty() && !ended;
  });
  if (!whole) return "cut off";
  if (!fault.empty()) return fault;
  return ended && unpacked == head.raw_size ? "" : kWrongFrame;
}

}  // namespace stallcast::traces::format
