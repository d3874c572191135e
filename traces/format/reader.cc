#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "traces/common/error.h"
#include "traces/common/parallel.h"
#include "traces/format/assembly.h"
#include "traces/format/chunk.h"
#include "traces/format/log_codec.h"
#include "traces/format/scan.h"
#include "traces/format/source.h"
#include "traces/format/tensor_codec.h"
#include "traces/format/timeline_codec.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

using format::ChunkKind;
using format::FoundChunk;
using format::TensorMeta;

// Sizes a large buffer. Huge pages save most of the page faults, which otherwise cost more than
// decompression does.
void Allocate(int64_t bytes, std::vector<std::byte>* data) {
  constexpr int64_t kPage = 4096;
  data->reserve(static_cast<size_t>(bytes));
  const auto into_page = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data->data()) % kPage);
  const int64_t begin = (kPage - into_page) % kPage, end = bytes - (into_page + bytes) % kPage;
  if (end > begin) {
    madvise(data->data() + begin, static_cast<size_t>(end - begin), MADV_HUGEPAGE);
  }
  data->resize(static_cast<size_t>(bytes));
}

class Reader {
 public:
  Reader(const format::Source& source, const std::string& name, const ReadOptions& options)
      : source_(source), options_(options), scan_(format::ScanChunks(source, name)) {}

  Trace Read(ReadReport* report) {
    faults_.resize(scan_.chunks.size());
    for (size_t i = 0; i < scan_.chunks.size(); ++i) ReadChunk(i);
    ReadTensors();
    FinishLogs();
    for (Timeline& timeline : trace_.timelines) RestoreOrder(&timeline);
    *report = Report();
    return std::move(trace_);
  }

 private:
  // Reads everything but tensor elements.
  void ReadChunk(size_t index) {
    const FoundChunk& chunk = scan_.chunks[index];
    faults_[index] = chunk.fault;
    if (!chunk.fault.empty()) return;
    faults_[index] = chunk.head.kind == ChunkKind::kTensor ? NoteTensor(index) : ReadMessage(chunk);
  }

  std::string NoteTensor(size_t index) {
    const format::ChunkHead& head = scan_.chunks[index].head;
    TensorMeta meta;
    if (std::string fault = format::ParseTensorMeta(head.meta, head.raw_size, &meta);
        !fault.empty()) {
      return fault;
    }
    records_ += meta.spec.tokens;
    tensor_chunks_.push_back(index);
    metas_.push_back(meta);
    return "";
  }

  bool Wanted(const TensorSpec& spec) const {
    const std::vector<int>& layers = options_.layers;
    return options_.tensors &&
           (layers.empty() || std::ranges::find(layers, spec.layer) != layers.end());
  }

  bool Checked() const { return options_.check && !options_.tensors; }

  std::string ReadMessage(const FoundChunk& chunk) {
    std::vector<std::byte> raw;
    format::ChunkUnpacker& unpacker = unpackers_[0];
    std::string fault = unpacker.Check(chunk.head, source_, chunk.payload_offset);
    if (fault.empty()) {
      raw.reserve(chunk.head.raw_size);
      fault = unpacker.Unpack(chunk.head, source_, chunk.payload_offset, [&](auto piece) {
        raw.insert(raw.end(), piece.begin(), piece.end());
      });
    }
    if (!fault.empty()) return fault;
    switch (chunk.head.kind) {
      case ChunkKind::kInfo:
        return Parse(raw, &trace_.info);
      case ChunkKind::kTimeline:
        return ReadTimeline(raw);
      case ChunkKind::kAccessLog:
        return ReadLog(raw);
      case ChunkKind::kEnd: {
        fault = Parse(raw, &end_);
        ended_ = fault.empty();
        return fault;
      }
      case ChunkKind::kTensor:
        break;
    }
    return fmt::format("unknown kind {}", static_cast<uint32_t>(chunk.head.kind));
  }

  // Leaves `*message` as it was where it cannot be parsed.
  template <typename Message>
  static std::string Parse(std::span<const std::byte> raw, Message* message) {
    const google::protobuf::LogSilencer silence;  // the fault is reported by us
    Message parsed;
    if (!parsed.ParseFromArray(raw.data(), static_cast<int>(raw.size()))) {
      return "its message cannot be parsed";
    }
    message->Swap(&parsed);
    return "";
  }

  std::string ReadTimeline(std::span<const std::byte> raw) {
    proto::Timeline message;
    if (std::string fault = Parse(raw, &message); !fault.empty()) return fault;
    const auto [place, fresh] = timeline_of_.emplace(message.id(), trace_.timelines.size());
    if (fresh) trace_.timelines.emplace_back();
    std::string fault = format::AppendTimeline(message, &trace_.timelines[place->second]);
    if (fault.empty()) {
      records_ += message.lane_size();
    } else if (fresh) {
      trace_.timelines.pop_back();
      timeline_of_.erase(place);
    }
    return fault;
  }

  std::string ReadLog(std::span<const std::byte> raw) {
    proto::AccessLog message;
    if (std::string fault = Parse(raw, &message); !fault.empty()) return fault;
    const auto [place, fresh] = log_of_.emplace(message.id(), logs_.size());
    if (fresh) logs_.emplace_back(message);
    std::string fault = logs_[place->second].Add(message);
    if (fault.empty()) {
      records_ += format::CellsIn(message);
    } else if (fresh) {
      logs_.pop_back();
      log_of_.erase(place);
    }
    return fault;
  }

  // Every chunk is decoded straight into its place in its tensor, by all cores.
  void ReadTensors() {
    const std::vector<format::TensorPlan> plans = format::PlanTensors(metas_, &problems_);
    struct Job {
      size_t plan;
      size_t part;  // index into metas_
    };
    std::vector<Job> jobs;
    for (size_t i = 0; i < plans.size(); ++i) {
      shapes_.push_back(plans[i].spec);
      if (!Wanted(plans[i].spec) && !Checked()) continue;
      for (const size_t part : plans[i].parts) jobs.push_back({i, part});
    }
    std::vector<Tensor> tensors(plans.size());
    for (size_t i = 0; i < plans.size(); ++i) tensors[i].spec = plans[i].spec;
    std::vector<std::once_flag> allocated(plans.size());
    std::vector<std::string> faults(metas_.size());
    const int64_t count = std::ssize(jobs);
    unpackers_.resize(static_cast<size_t>(WorkersFor(count)));
    ParallelFor(count, [&](int worker, int64_t item) {
      const Job& job = jobs[static_cast<size_t>(item)];
      const FoundChunk& chunk = scan_.chunks[tensor_chunks_[job.part]];
      format::ChunkUnpacker& unpacker = unpackers_[static_cast<size_t>(worker)];
      std::string& fault = faults[job.part];
      fault = unpacker.Check(chunk.head, source_, chunk.payload_offset);
      if (!fault.empty() || Checked()) return;
      // Not before a part has proved true: a damaged file may claim any size.
      Tensor& tensor = tensors[job.plan];
      std::call_once(allocated[job.plan], [&] { Allocate(tensor.spec.bytes(), &tensor.data); });
      format::TensorDecoder decoder(metas_[job.part], tensor.spec, tensor.data);
      fault = unpacker.Unpack(chunk.head, source_, chunk.payload_offset,
                              [&](auto piece) { decoder.Take(piece); });
      if (fault.empty() && !decoder.Intact()) fault = "checksum of elements";
    });
    unpackers_.resize(1);

    std::vector<bool> lost(metas_.size());
    for (size_t part = 0; part < metas_.size(); ++part) {
      lost[part] = !faults[part].empty();
      if (!lost[part]) continue;
      faults_[tensor_chunks_[part]] = faults[part];
      records_ -= metas_[part].spec.tokens;
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      if (!Wanted(plans[i].spec) && !Checked()) continue;
      const bool whole = std::ranges::none_of(plans[i].parts, [&](size_t p) { return lost[p]; });
      if (whole) {
        trace_.tensors.push_back(std::move(tensors[i]));
        continue;
      }
      for (Tensor& left : format::WithoutParts(std::move(tensors[i]), plans[i], metas_, lost)) {
        trace_.tensors.push_back(std::move(left));
      }
    }
  }

  void FinishLogs() {
    for (format::AccessLogBuilder& log : logs_) {
      trace_.access_logs.push_back(log.Finish(&problems_));
    }
  }

  ReadReport Report() const {
    ReadReport report;
    report.records = records_;
    report.truncated = !ended_;
    report.dropped = end_.dropped();
    report.zero_stamps = end_.zero_stamps();
    report.content_hash = ContentHash();
    report.tensors = shapes_;
    if (!scan_.header_fault.empty()) report.problems.push_back(scan_.header_fault);

    int64_t last_intact = -1;
    for (size_t i = 0; i < scan_.chunks.size(); ++i) {
      const FoundChunk& chunk = scan_.chunks[i];
      if (!chunk.lost_before.empty()) report.problems.push_back(chunk.lost_before);
      if (faults_[i].empty()) {
        ++report.chunks;
        last_intact = chunk.head.sequence;
        continue;
      }
      // The chunk in flight when the writer stopped is not damaged but cut.
      if (chunk.cut && i + 1 == scan_.chunks.size()) continue;
      ++report.damaged;
      report.problems.push_back(fmt::format("chunk {} ({}) damaged: {}; skipped",
                                            chunk.head.sequence, Name(chunk.head.kind),
                                            faults_[i]));
    }
    report.problems.insert(report.problems.end(), problems_.begin(), problems_.end());
    if (report.truncated) {
      report.problems.push_back(last_intact < 0
                                    ? "truncated: no chunk is intact, nothing recovered"
                                    : fmt::format("truncated after chunk {}, {} records recovered",
                                                  last_intact, records_));
    } else if (!scan_.lost_after.empty()) {
      report.problems.push_back(scan_.lost_after);
    }
    const int64_t chunks = std::ssize(scan_.chunks) - (ended_ ? 1 : 0);
    if (ended_ && end_.chunks() != chunks && report.problems.empty()) {
      report.problems.push_back(
          fmt::format("{} chunks are there, {} were written", chunks, end_.chunks()));
    }
    if (ended_ && end_.records() != records_) {
      report.problems.push_back(
          fmt::format("{} of {} records recovered", records_, end_.records()));
    }
    return report;
  }

  // Over what the tensors hold, whatever their compression.
  std::string ContentHash() const {
    std::vector<int64_t> identity;
    for (size_t part = 0; part < metas_.size(); ++part) {
      if (!faults_[tensor_chunks_[part]].empty()) continue;
      const TensorSpec& spec = metas_[part].spec;
      identity.insert(identity.end(),
                      {static_cast<int64_t>(spec.kind), static_cast<int64_t>(spec.dtype),
                       spec.layer, spec.heads, spec.head_dim, spec.first_token, spec.tokens,
                       static_cast<int64_t>(metas_[part].elements_checksum)});
    }
    const XXH128_hash_t hash = XXH3_128bits(identity.data(), identity.size() * sizeof(int64_t));
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

  const format::Source& source_;
  const ReadOptions& options_;
  format::ScanResult scan_;
  Trace trace_;
  std::vector<std::string> faults_;  // one a chunk, empty where it is intact
  std::vector<std::string> problems_;
  std::vector<format::ChunkUnpacker> unpackers_ =
      std::vector<format::ChunkUnpacker>(1);  // a thread
  int64_t records_ = 0;
  bool ended_ = false;
  proto::End end_;
  std::vector<size_t> tensor_chunks_;  // indices into scan_.chunks
  std::vector<TensorMeta> metas_;      // beside tensor_chunks_
  std::vector<TensorSpec> shapes_;
  std::map<uint32_t, size_t> timeline_of_;
  std::map<uint32_t, size_t> log_of_;
  std::vector<format::AccessLogBuilder> logs_;
};

Trace ReadFrom(const format::Source& source, const std::string& name, const ReadOptions& options,
               ReadReport* report) {
  ReadReport own;
  if (report == nullptr) report = &own;
  Trace trace;
  try {
    trace = Reader(source, name, options).Read(report);
  } catch (const std::bad_alloc&) {
    throw Error("needs more memory than there is", name, "read fewer of its layers");
  }
  if (options.strict && !report->problems.empty()) {
    const size_t others = report->problems.size() - 1;
    throw Error(
        report->problems.front() + (others > 0 ? fmt::format(" (and {} more)", others) : ""), name,
        "write the trace again, or read what is intact without --strict");
  }
  return trace;
}

}  // namespace

const Tensor* Trace::Find(TensorKind kind, int layer) const {
  const Tensor* longest = nullptr;
  for (const Tensor& tensor : tensors) {
    if (tensor.spec.kind != kind || tensor.spec.layer != layer) continue;
    if (longest == nullptr || tensor.spec.tokens > longest->spec.tokens) longest = &tensor;
  }
  return longest;
}

std::vector<int> Trace::Layers() const {
  std::vector<int> layers;
  for (const Tensor& tensor : tensors) {
    if (tensor.spec.kind == TensorKind::kQuery &&
        Find(TensorKind::kKey, tensor.spec.layer) != nullptr) {
      layers.push_back(tensor.spec.layer);
    }
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return layers;
}

Trace ReadTrace(const std::filesystem::path& path, const ReadOptions& options, ReadReport* report) {
  return ReadFrom(*format::OpenFile(path), path.string(), options, report);
}

Trace ReadTrace(std::span<const std::byte> file, const std::string& name,
                const ReadOptions& options, ReadReport* report) {
  return ReadFrom(*format::InMemory(file), name, options, report);
}

}  // namespace stallcast::traces
