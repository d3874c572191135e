#include "capture/tensor_recorder.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "capture/chunk_queue.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::capture {
namespace {

using traces::TensorKind;
using traces::TensorSpec;

constexpr int64_t kMaxChunkBytes = int64_t{16} << 20;  // enough for several cores to compress
constexpr int64_t kMaxTokens = int64_t{1} << 31;
constexpr int32_t kMaxHeadDim = 1 << 16;
constexpr int32_t kMaxHeads = 1 << 16;

/// Copies `count` tokens of all heads, from the source's token `from` on, to [head][token][dim]
/// with `capacity` tokens a head, from token `to` on.
void Gather(const SourceRows& rows, int64_t from, int64_t count, std::byte* out, int64_t capacity,
            int64_t to) {
  const int64_t element = traces::ElementBytes(rows.spec.dtype);
  const int64_t row = rows.spec.head_dim * element;
  for (int64_t head = 0; head < rows.spec.heads; ++head) {
    const std::byte* source =
        rows.data + (head * rows.head_stride + from * rows.token_stride) * element;
    std::byte* target = out + (head * capacity + to) * row;
    if (rows.token_stride == rows.spec.head_dim) {
      std::memcpy(target, source, static_cast<size_t>(count * row));
      continue;
    }
    for (int64_t token = 0; token < count; ++token) {
      std::memcpy(target + token * row, source + token * rows.token_stride * element,
                  static_cast<size_t>(row));
    }
  }
}

/// Rows of one tensor that are not yet a chunk: [head][token][dim] with room for `capacity` tokens.
struct Pending {
  std::vector<std::byte> data;
  int64_t capacity = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
};

struct TensorState {
  TensorSpec spec;  // of the rows that came first
  int64_t next_token = 0;
  Pending pending;
};

std::string Place(const TensorSpec& spec) {
  return fmt::format("{} of layer {}, tokens {} to {}", traces::Name(spec.kind), spec.layer,
                     spec.first_token, spec.first_token + spec.tokens);
}

void CheckModel(const traces::proto::Model& model) {
  const bool good = model.layers() > 0 && model.query_heads() > 0 && model.kv_heads() > 0 &&
                    model.head_dim() > 0 && model.head_dim() <= kMaxHeadDim &&
                    model.query_heads() <= kMaxHeads && model.query_heads() % model.kv_heads() == 0;
  if (!good) {
    throw UsageError(
        fmt::format("the model has {} layers, {} query heads, {} KV heads of dimension {}",
                    model.layers(), model.query_heads(), model.kv_heads(), model.head_dim()),
        "model description",
        "give positive numbers, query heads a multiple of KV heads, as in the model's config.json");
  }
}

void CheckOptions(const RecorderOptions& options) {
  if (options.query_window < 0 || options.query_window > (1 << 20)) {
    throw UsageError(fmt::format("query window {}", options.query_window), "recorder options",
                     "give 0 to 1048576 tokens");
  }
  if (options.chunk_tokens < 1 || options.chunk_tokens > (1 << 16)) {
    throw UsageError(fmt::format("{} tokens a chunk", options.chunk_tokens), "recorder options",
                     "give 1 to 65536 tokens");
  }
  if (options.queue_bytes < 1) {
    throw UsageError(fmt::format("a queue of {} bytes", options.queue_bytes), "recorder options",
                     "give at least 1 byte; 268435456 is usual");
  }
}

/// Throws for text that protobuf could not read back.
const traces::proto::TraceInfo& Readable(const traces::proto::TraceInfo& info) {
  const google::protobuf::LogSilencer silence;
  if (!traces::proto::TraceInfo().ParseFromString(info.SerializeAsString())) {
    throw UsageError("a text is not UTF-8", "trace description", "encode names and notes as UTF-8");
  }
  return info;
}

}  // namespace

class TensorRecorder::Impl {
 public:
  Impl(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
       const RecorderOptions& options)
      : options_(options), info_(Readable(info)) {
    CheckModel(info_.model());
    CheckOptions(options_);
    writer_.emplace(path, info_);
    queue_.emplace(&*writer_, options_.queue_bytes);
  }

  ~Impl() {
    if (finished_) return;
    try {
      EmitAll(/*windows=*/true);
    } catch (const std::exception&) {
      // The failure was, or would have been, thrown by a call; the file reads as truncated.
    }
  }

  void Record(const SourceRows& rows) {
    CheckOpen();
    queue_->Check();
    CheckRows(rows);
    TensorState& tensor = StateOf(rows.spec);
    if (IsPromptQuery(rows.spec)) {
      KeepWindow(rows, tensor);
    } else {
      Append(rows, tensor);
    }
    tensor.next_token = rows.spec.end_token();
  }

  void BeginDecode(int64_t prompt_tokens) {
    CheckOpen();
    queue_->Check();
    if (prompt_tokens_ && prompt_tokens <= *prompt_tokens_) {
      throw UsageError(fmt::format("decoding has begun at token {} already", *prompt_tokens_),
                       "recorder", "call this again only after another prompt");
    }
    for (const auto& [key, tensor] : tensors_) {
      if (tensor.next_token != prompt_tokens) {
        throw UsageError(
            fmt::format("decoding is to begin at token {}, but rows were recorded up to token {}",
                        prompt_tokens, tensor.next_token),
            Place(tensor.spec), "record every layer's whole prompt first");
      }
    }
    EmitAll(/*windows=*/true);
    prompt_tokens_ = prompt_tokens;
    info_.set_prompt_tokens(prompt_tokens);
    queue_->Push(info_);
  }

  void SetParameter(const std::string& name, const std::string& value) {
    Describe([&](traces::proto::TraceInfo& info) { (*info.mutable_parameters())[name] = value; });
  }

  void Describe(const std::function<void(traces::proto::TraceInfo&)>& change) {
    CheckOpen();
    traces::proto::TraceInfo changed = info_;
    change(changed);
    info_ = Readable(changed);
  }

  void Flush() { Flush(/*windows=*/prompt_tokens_.has_value()); }

  void Finish() {
    Flush(/*windows=*/true);
    queue_->Stop();
    finished_ = true;
    int64_t end = tensors_.empty() ? 0 : tensors_.begin()->second.next_token;
    for (const auto& [key, tensor] : tensors_) end = std::min(end, tensor.next_token);
    const int64_t prompt = prompt_tokens_.value_or(end);
    info_.set_prompt_tokens(prompt);
    info_.set_decode_steps(std::max<int64_t>(end - prompt, 0));
    writer_->Write(info_);
    writer_->Finish();
  }

 private:
  void Flush(bool windows) {
    CheckOpen();
    queue_->Check();
    EmitAll(windows);
    queue_->Drain();
  }

  void CheckOpen() const {
    if (finished_) {
      throw UsageError("the recorder is closed", "recorder", "open a new one for a new file");
    }
  }

  void CheckRows(const SourceRows& rows) const {
    const TensorSpec& spec = rows.spec;
    const auto fail = [&](const std::string& what, const std::string& remedy) {
      throw UsageError(what, "rows handed to the recorder", remedy);
    };
    if (spec.kind < TensorKind::kQuery || spec.kind > TensorKind::kGate) {
      fail(fmt::format("tensor kind {}", static_cast<int>(spec.kind)), "give 1 to 4");
    }
    if (spec.dtype < traces::DType::kBf16 || spec.dtype > traces::DType::kFp32) {
      fail(fmt::format("element type {}", static_cast<int>(spec.dtype)),
           "give 1 (bf16), 2 (fp16) or 3 (fp32)");
    }
    const auto& model = info_.model();
    if (spec.layer < 0 || spec.layer >= model.layers()) {
      fail(fmt::format("layer {} of a model of {} layers", spec.layer, model.layers()),
           fmt::format("give 0 to {}", model.layers() - 1));
    }
    traces::proto::Attention layer;  // zeros: as the model
    if (spec.layer < model.attention_size()) layer = model.attention(spec.layer);
    const auto or_model = [](int32_t of_layer, int32_t of_model) {
      return of_layer > 0 ? of_layer : of_model;
    };
    const int heads = spec.kind == TensorKind::kQuery
                          ? or_model(layer.query_heads(), model.query_heads())
                          : or_model(layer.kv_heads(), model.kv_heads());
    if (spec.heads != heads) {
      fail(fmt::format("{} has {} heads, the layer {}", traces::Name(spec.kind), spec.heads, heads),
           "hand over keys and values before they are repeated for the query heads");
    }
    const bool rotated = spec.kind == TensorKind::kQuery || spec.kind == TensorKind::kKey;
    const int head_dim = or_model(layer.head_dim(), model.head_dim());
    if (spec.head_dim < 1 || spec.head_dim > kMaxHeadDim ||
        (rotated && spec.head_dim != head_dim)) {
      fail(fmt::format("{} has head dimension {}, the layer {}", traces::Name(spec.kind),
                       spec.head_dim, head_dim),
           "describe the layer as it runs");
    }
    if (spec.tokens < 1 || spec.tokens > kMaxTokens || spec.first_token < 0 ||
        spec.first_token > kMaxTokens - spec.tokens) {
      fail(fmt::format("{} tokens from token {}", spec.tokens, spec.first_token),
           "give at least one token, below 2^31 in all");
    }
    if (!rows.data) fail("no data", "give the address of the first element");
    if (rows.head_stride < 0 || rows.token_stride < 0) {
      fail(fmt::format("strides {} and {}", rows.head_stride, rows.token_stride),
           "give strides in elements, not negative");
    }
  }

  TensorState& StateOf(const TensorSpec& spec) {
    const auto [entry, added] = tensors_.try_emplace({spec.kind, spec.layer});
    TensorState& tensor = entry->second;
    if (added) {
      tensor.spec = spec;
      if (prompt_tokens_ && spec.kind == TensorKind::kQuery) tensor.next_token = *prompt_tokens_;
    }
    const int64_t next = tensor.next_token;
    const bool may_skip = IsPromptQuery(spec);
    if (may_skip ? spec.first_token < next : spec.first_token != next) {
      if (added) tensors_.erase(entry);
      throw UsageError(fmt::format("the next token is {}", next), Place(spec),
                       "hand over the tokens of one sequence in order, each once");
    }
    if (spec.dtype != tensor.spec.dtype || spec.head_dim != tensor.spec.head_dim) {
      throw UsageError("the element type or head dimension has changed", Place(spec),
                       "keep both for the whole sequence");
    }
    return tensor;
  }

  bool IsPromptQuery(const TensorSpec& spec) const {
    return spec.kind == TensorKind::kQuery && !prompt_tokens_;
  }

  /// Keeps the last query_window tokens of the prompt in `pending`.
  void KeepWindow(const SourceRows& rows, TensorState& tensor) {
    const int64_t window = options_.query_window;
    if (window == 0) return;
    Pending& pending = tensor.pending;
    Reserve(rows.spec, window, pending);
    if (rows.spec.first_token != pending.first_token + pending.tokens) pending.tokens = 0;
    const int64_t taken = std::min(window, rows.spec.tokens);
    const int64_t kept = std::min(pending.tokens, window - taken);
    const int64_t row = rows.spec.head_dim * traces::ElementBytes(rows.spec.dtype);
    for (int64_t head = 0; head < rows.spec.heads; ++head) {
      std::byte* data = pending.data.data() + head * window * row;
      std::memmove(data, data + (pending.tokens - kept) * row, static_cast<size_t>(kept * row));
    }
    Gather(rows, rows.spec.tokens - taken, taken, pending.data.data(), window, kept);
    pending.tokens = kept + taken;
    pending.first_token = rows.spec.end_token() - pending.tokens;
  }

  void Append(const SourceRows& rows, TensorState& tensor) {
    Pending& pending = tensor.pending;
    const int64_t row_bytes =
        int64_t{rows.spec.heads} * rows.spec.head_dim * traces::ElementBytes(rows.spec.dtype);
    const int64_t large = std::max<int64_t>(options_.chunk_tokens, kMaxChunkBytes / row_bytes);
    int64_t done = 0;
    while (done < rows.spec.tokens) {
      const int64_t left = rows.spec.tokens - done;
      if (pending.tokens == 0 && left >= options_.chunk_tokens) {
        TensorSpec chunk = rows.spec;
        chunk.first_token += done;
        chunk.tokens = std::min(left, large);
        std::vector<std::byte> elements(static_cast<size_t>(chunk.bytes()));
        Gather(rows, done, chunk.tokens, elements.data(), chunk.tokens, 0);
        queue_->Push(chunk, std::move(elements));
        done += chunk.tokens;
        continue;
      }
      if (pending.tokens == 0) {
        Reserve(rows.spec, options_.chunk_tokens, pending);
        pending.first_token = rows.spec.first_token + done;
      }
      const int64_t count = std::min(left, pending.capacity - pending.tokens);
      Gather(rows, done, count, pending.data.data(), pending.capacity, pending.tokens);
      pending.tokens += count;
      done += count;
      if (pending.tokens == pending.capacity) Emit(tensor);
    }
  }

  static void Reserve(const TensorSpec& spec, int64_t tokens, Pending& pending) {
    if (pending.capacity == tokens && !pending.data.empty()) return;
    pending.capacity = tokens;
    TensorSpec room = spec;
    room.tokens = tokens;
    pending.data.resize(static_cast<size_t>(room.bytes()));
  }

  /// Queues the gathered rows as one chunk.
  void Emit(TensorState& tensor) {
    Pending& pending = tensor.pending;
    if (pending.tokens == 0) return;
    TensorSpec chunk = tensor.spec;
    chunk.first_token = pending.first_token;
    chunk.tokens = pending.tokens;
    const size_t head = static_cast<size_t>(chunk.bytes() / chunk.heads);
    const size_t room = pending.data.size() / static_cast<size_t>(chunk.heads);
    std::vector<std::byte> elements(static_cast<size_t>(chunk.bytes()));
    for (size_t i = 0; i < static_cast<size_t>(chunk.heads); ++i) {
      std::memcpy(elements.data() + i * head, pending.data.data() + i * room, head);
    }
    pending.tokens = 0;
    queue_->Push(chunk, std::move(elements));
  }

  /// Queues everything gathered; without `windows`, not the queries of a prompt still growing.
  void EmitAll(bool windows) {
    for (auto& [key, tensor] : tensors_) {
      if (windows || !IsPromptQuery(tensor.spec)) Emit(tensor);
    }
  }

  const RecorderOptions options_;
  traces::proto::TraceInfo info_;
  std::map<std::pair<TensorKind, int32_t>, TensorState> tensors_;
  std::optional<int64_t> prompt_tokens_;
  bool finished_ = false;
  std::optional<traces::TraceWriter> writer_;
  std::optional<ChunkQueue> queue_;  // after writer_: it uses it
};

TensorRecorder::TensorRecorder(const std::filesystem::path& path,
                               const traces::proto::TraceInfo& info, const RecorderOptions& options)
    : impl_(std::make_unique<Impl>(path, info, options)) {}
TensorRecorder::~TensorRecorder() = default;

void TensorRecorder::Record(const SourceRows& rows) { impl_->Record(rows); }
void TensorRecorder::BeginDecode(int64_t prompt_tokens) { impl_->BeginDecode(prompt_tokens); }
void TensorRecorder::SetParameter(const std::string& name, const std::string& value) {
  impl_->SetParameter(name, value);
}
void TensorRecorder::Describe(const std::function<void(traces::proto::TraceInfo&)>& change) {
  impl_->Describe(change);
}
void TensorRecorder::Flush() { impl_->Flush(); }
void TensorRecorder::Finish() { impl_->Finish(); }

}  // namespace stallcast::capture
