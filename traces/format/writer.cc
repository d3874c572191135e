#include <fcntl.h>
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "traces/common/error.h"
#include "traces/common/parallel.h"
#include "traces/format/chunk.h"
#include "traces/format/log_codec.h"
#include "traces/format/tensor_codec.h"
#include "traces/format/timeline_codec.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

using format::ChunkKind;
using format::ChunkPacker;

// Long tensors are split into pieces of at most this size: damage then costs few tokens, a piece
// stays in the cache between splitting into planes and compressing, and all cores have work.
constexpr int64_t kTensorPieceBytes = int64_t{1} << 20;

// Maps in a fixed order: the same content gives the same bytes.
std::string Serialize(const google::protobuf::MessageLite& message) {
  std::string raw;
  {
    google::protobuf::io::StringOutputStream stream(&raw);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return raw;
}

// Where chunks go: a file or a buffer.
class Sink {
 public:
  explicit Sink(const std::filesystem::path& path) : name_(path.string()) {
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) {
      throw Error(std::strerror(errno), name_, "choose another path or fix its permissions");
    }
  }
  explicit Sink(std::vector<std::byte>* buffer) : name_("memory"), buffer_(buffer) {}
  ~Sink() {
    if (file_ >= 0) close(file_);
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  const std::string& name() const { return name_; }

  // A chunk that does not fit is taken back, so that the file ends with a whole one.
  void Write(std::span<const std::byte> bytes) {
    if (buffer_ != nullptr) {
      buffer_->insert(buffer_->end(), bytes.begin(), bytes.end());
      return;
    }
    if (failed_) throw Error("an earlier write failed", name_, "start again");
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = write(file_, bytes.data() + done, bytes.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) {
        const int error = put < 0 ? errno : EIO;
        failed_ = true;
        // Not possible on a pipe or device, where there is nothing to take back either.
        if (ftruncate(file_, size_) != 0) errno = 0;
        throw Error(std::strerror(error), name_,
                    error == ENOSPC ? "free some space or choose another disk" : "check the disk");
      }
      done += static_cast<size_t>(put);
    }
    size_ += static_cast<int64_t>(bytes.size());
  }

  void Close() {
    if (file_ >= 0 && close(std::exchange(file_, -1)) != 0) {
      throw Error(std::strerror(errno), name_, "check the disk");
    }
  }

 private:
  std::string name_;
  int file_ = -1;
  std::vector<std::byte>* buffer_ = nullptr;
  int64_t size_ = 0;
  bool failed_ = false;
};

std::string Where(const TensorSpec& spec) {
  return fmt::format("{} tensor of layer {}", Name(spec.kind), spec.layer);
}

// The token ranges that a tensor is stored in, at least one.
std::vector<TensorSpec> Pieces(const TensorSpec& spec) {
  const int64_t token_bytes = int64_t{spec.heads} * spec.head_dim * ElementBytes(spec.dtype);
  if (token_bytes > format::kMaxTensorRaw) {
    throw Error(fmt::format("one token takes {} bytes, more than a chunk holds", token_bytes),
                Where(spec), "write fewer heads at once");
  }
  const int64_t piece_tokens = std::max<int64_t>(1, kTensorPieceBytes / token_bytes);
  std::vector<TensorSpec> pieces;
  int64_t token = spec.first_token;
  do {
    TensorSpec piece = spec;
    piece.first_token = token;
    piece.tokens = std::min(piece_tokens, spec.end_token() - token);
    token += piece.tokens;
    pieces.push_back(piece);
  } while (token < spec.end_token());
  return pieces;
}

}  // namespace

struct TraceWriter::Impl {
  template <typename Target>
  explicit Impl(const Target& target) : sink(target) {
    sink.Write(format::EncodeFileHeader());
  }

  void CheckOpen() const {
    if (finished) throw Error("written to after Finish()", sink.name(), "open another writer");
  }

  void WriteMessage(ChunkKind kind, const google::protobuf::MessageLite& message) {
    CheckOpen();
    const size_t size = message.ByteSizeLong();
    if (size > static_cast<size_t>(format::kMaxMessageRaw)) {
      throw Error(fmt::format("one {} takes {} bytes, more than a chunk holds", Name(kind), size),
                  sink.name(), "split it");
    }
    const std::string raw = Serialize(message);
    sink.Write(packers[0].Pack(kind, sequence, "", std::as_bytes(std::span(raw))));
    ++sequence;
  }

  void WriteTensor(const TensorSpec& spec, std::span<const std::byte> elements) {
    CheckOpen();
    const std::vector<TensorSpec> pieces = Pieces(spec);
    const int64_t count = std::ssize(pieces);
    const int64_t batch = WorkersFor(count);
    packers.resize(std::max(packers.size(), static_cast<size_t>(batch)));
    encoded.resize(packers.size());
    std::vector<std::span<const std::byte>> chunks(static_cast<size_t>(batch));
    for (int64_t first = 0; first < count; first += batch) {
      const int64_t now = std::min(batch, count - first);
      ParallelFor(now, [&](int /*worker*/, int64_t item) {
        const auto slot = static_cast<size_t>(item);
        const TensorSpec& piece = pieces[static_cast<size_t>(first + item)];
        const std::string meta = format::EncodeTensor(spec, elements, piece, &encoded[slot]);
        chunks[slot] = packers[slot].Pack(
            ChunkKind::kTensor, sequence + static_cast<uint32_t>(item), meta, encoded[slot]);
      });
      for (int64_t item = 0; item < now; ++item) {
        sink.Write(chunks[static_cast<size_t>(item)]);
        ++sequence;
        records += pieces[static_cast<size_t>(first + item)].tokens;
      }
    }
  }

  Sink sink;
  uint32_t sequence = 0;
  int64_t records = 0;
  uint32_t next_id = 0;
  bool finished = false;
  std::vector<ChunkPacker> packers = std::vector<ChunkPacker>(1);
  std::vector<std::vector<std::byte>> encoded;  // one a packer
};

TraceWriter::TraceWriter(const std::filesystem::path& path, const proto::TraceInfo& info)
    : impl_(std::make_unique<Impl>(path)) {
  Write(info);
}

TraceWriter::TraceWriter(std::vector<std::byte>* buffer, const proto::TraceInfo& info)
    : impl_(std::make_unique<Impl>(buffer)) {
  Write(info);
}

TraceWriter::TraceWriter(TraceWriter&&) noexcept = default;
TraceWriter& TraceWriter::operator=(TraceWriter&&) noexcept = default;
TraceWriter::~TraceWriter() = default;

void TraceWriter::Write(const TensorSpec& spec, std::span<const std::byte> elements) {
  if (std::string fault = format::FirstFault(spec); !fault.empty()) {
    throw Error(fmt::format("cannot be written: {}", fault), Where(spec), "correct its shape");
  }
  if (std::ssize(elements) != spec.bytes()) {
    throw Error(fmt::format("has {} bytes where its shape needs {}", elements.size(), spec.bytes()),
                Where(spec), "pass all of its elements");
  }
  impl_->WriteTensor(spec, elements);
}

uint32_t TraceWriter::Write(const Timeline& timeline) {
  const uint32_t id = impl_->next_id++;
  Append(id, timeline);
  return id;
}

void TraceWriter::Append(uint32_t id, const Timeline& part) {
  if (std::string fault = FirstFault(part); !fault.empty()) {
    throw Error(fault, fmt::format("timeline '{}'", part.title), "correct its columns");
  }
  format::EncodeTimeline(part, id, [&](const proto::Timeline& message, int64_t rows) {
    impl_->WriteMessage(ChunkKind::kTimeline, message);
    impl_->records += rows;
  });
}

void TraceWriter::Write(const AccessLog& log) {
  if (std::string fault = FirstFault(log); !fault.empty()) {
    throw Error(fault, fmt::format("access log '{}'", log.method), "correct its columns");
  }
  format::EncodeAccessLog(log, impl_->next_id++,
                          [&](const proto::AccessLog& message, int64_t cells) {
                            impl_->WriteMessage(ChunkKind::kAccessLog, message);
                            impl_->records += cells;
                          });
}

void TraceWriter::Write(const proto::TraceInfo& info) {
  // Text that is not UTF-8 would be written but not read.
  const google::protobuf::LogSilencer silence;
  if (!proto::TraceInfo().ParseFromString(info.SerializeAsString())) {
    throw Error("the trace information holds text that is not UTF-8", impl_->sink.name(),
                "remove it");
  }
  impl_->WriteMessage(ChunkKind::kInfo, info);
}

void TraceWriter::Finish(int64_t dropped, int64_t zero_stamps) {
  proto::End end;
  end.set_chunks(impl_->sequence);
  end.set_records(impl_->records);
  end.set_dropped(dropped);
  end.set_zero_stamps(zero_stamps);
  impl_->WriteMessage(ChunkKind::kEnd, end);
  impl_->finished = true;
  impl_->sink.Close();
}

}  // namespace stallcast::traces
