// Feeds the reader with damaged and lying files. Checksums would stop random changes at the door,
// so the mutator changes what is inside chunks and seals them again.
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "traces/common/error.h"
#include "traces/format/chunk.h"
#include "traces/format/trace_file.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using stallcast::traces::ReadReport;
using stallcast::traces::ReadTrace;
using stallcast::traces::Trace;
using stallcast::traces::TraceWriter;
namespace format = stallcast::traces::format;

using Bytes = std::vector<std::byte>;

struct Chunk {
  format::ChunkHead head;
  Bytes payload;
};

std::vector<Chunk> Split(std::span<const std::byte> file) {
  std::vector<Chunk> chunks;
  while (true) {
    file = file.subspan(static_cast<size_t>(format::FindHead(file)));
    if (file.empty()) return chunks;
    const auto head = format::ParseHead(file);
    if (!head) {
      file = file.subspan(1);
      continue;
    }
    const auto payload = file.subspan(static_cast<size_t>(head->head_bytes()));
    const size_t stored = std::min<size_t>(payload.size(), head->stored_size);
    chunks.push_back({*head, Bytes(payload.begin(), payload.begin() + static_cast<long>(stored))});
    file = payload.subspan(stored);
  }
}

void Append(const void* data, size_t size, Bytes* file) {
  const auto* bytes = static_cast<const std::byte*>(data);
  file->insert(file->end(), bytes, bytes + size);
}

// The layout in traces/format/chunk.h with true checksums around whatever the head says.
void AppendSealed(const Chunk& chunk, Bytes* file) {
  const size_t begin = file->size();
  const uint32_t kind = static_cast<uint32_t>(chunk.head.kind);
  const uint32_t codec = static_cast<uint32_t>(chunk.head.codec);
  const uint32_t meta_size = static_cast<uint32_t>(chunk.head.meta.size());
  const uint64_t payload_check = format::Checksum(chunk.payload);
  Append("\x8bKVTchk\n", 8, file);
  Append(&kind, 4, file);
  Append(&chunk.head.sequence, 4, file);
  Append(&chunk.head.stored_size, 8, file);
  Append(&chunk.head.raw_size, 8, file);
  Append(&payload_check, 8, file);
  Append(&codec, 4, file);
  Append(&meta_size, 4, file);
  Append(chunk.head.meta.data(), meta_size, file);
  const uint64_t head_check = format::Checksum(std::span(*file).subspan(begin));
  Append(&head_check, 8, file);
  Append(chunk.payload.data(), chunk.payload.size(), file);
}

template <typename Text>
void MutateText(Text* text, size_t room) {
  const size_t size = text->size();
  text->resize(size + room);
  text->resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text->data()), size, size + room));
}

// Stores a payload uncompressed, so that changes reach what is in it.
void Decompress(Chunk* chunk) {
  if (chunk->head.codec != format::Codec::kZstd || chunk->head.raw_size > 1 << 16) return;
  Bytes raw(chunk->head.raw_size);
  const size_t size =
      ZSTD_decompress(raw.data(), raw.size(), chunk->payload.data(), chunk->payload.size());
  if (ZSTD_isError(size)) return;
  raw.resize(size);
  chunk->payload = std::move(raw);
  chunk->head.codec = format::Codec::kStored;
  chunk->head.stored_size = chunk->head.raw_size = size;
}

void MutateChunks(std::minstd_rand* random, std::vector<Chunk>* chunks) {
  const size_t at = (*random)() % chunks->size();
  Chunk& chunk = (*chunks)[at];
  switch ((*random)() % 8) {
    case 0:
    case 1:
    case 2:
      Decompress(&chunk);
      MutateText(&chunk.payload, 64);
      chunk.head.stored_size = chunk.payload.size();
      if (chunk.head.codec == format::Codec::kStored) chunk.head.raw_size = chunk.payload.size();
      break;
    case 3:
    case 4:
      MutateText(&chunk.head.meta, 16);
      break;
    case 5: {
      uint8_t sizes[16];
      std::memcpy(sizes, &chunk.head.stored_size, 8);
      std::memcpy(sizes + 8, &chunk.head.raw_size, 8);
      LLVMFuzzerMutate(sizes, 16, 16);
      std::memcpy(&chunk.head.stored_size, sizes, 8);
      std::memcpy(&chunk.head.raw_size, sizes + 8, 8);
      break;
    }
    case 6:
      chunks->push_back(Chunk(chunk));
      chunks->back().head.sequence = static_cast<uint32_t>(chunks->size());
      break;
    case 7:
      std::swap(chunk, (*chunks)[(*random)() % chunks->size()]);
      break;
  }
}

void Require(bool condition) {
  if (!condition) std::abort();
}

// What was read without a problem must survive being written.
void CheckRoundTrip(const Trace& trace) {
  Bytes file;
  TraceWriter writer(&file, trace.info);
  for (const auto& tensor : trace.tensors) writer.Write(tensor.spec, tensor.data);
  for (const auto& timeline : trace.timelines) writer.Write(timeline);
  for (const auto& log : trace.access_logs) writer.Write(log);
  writer.Finish();
  ReadReport report;
  const Trace again = ReadTrace(file, "again", {}, &report);
  Require(report.problems.empty());
  Require(again.timelines == trace.timelines);
  Require(again.access_logs.size() == trace.access_logs.size());
  Require(again.tensors.size() == trace.tensors.size());
  for (size_t i = 0; i < trace.tensors.size(); ++i) {
    Require(again.tensors[i].spec == trace.tensors[i].spec);
    Require(again.tensors[i].data == trace.tensors[i].data);
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::minstd_rand random(seed);
  std::vector<Chunk> chunks = Split(std::as_bytes(std::span(data, size)));
  if (chunks.empty() || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  MutateChunks(&random, &chunks);
  const auto header = format::EncodeFileHeader();
  Bytes file(header.begin(), header.end());
  for (const Chunk& chunk : chunks) AppendSealed(chunk, &file);
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ReadReport report;
    const Trace trace = ReadTrace(std::as_bytes(std::span(data, size)), "fuzz", {}, &report);
    for (const int layer : trace.Layers()) {
      Require(trace.Find(stallcast::traces::TensorKind::kQuery, layer) != nullptr);
    }
    for (const auto& tensor : trace.tensors) {
      Require(std::ssize(tensor.data) == tensor.spec.bytes());
    }
    for (const auto& timeline : trace.timelines) Require(FirstFault(timeline).empty());
    for (const auto& log : trace.access_logs) Require(FirstFault(log).empty());
    if (report.problems.empty()) CheckRoundTrip(trace);
  } catch (const stallcast::Error&) {
    // No trace, or a newer version.
  }
  return 0;
}
