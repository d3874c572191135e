// Records query, key and value tensors of one sequence, as the model makes them, into a .kvt file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "traces/format/schema.pb.h"
#include "traces/tensor.h"

namespace stallcast::capture {

/// Consecutive tokens of one tensor in the source's memory order: the element (head, token, dim) is
/// at data + head * head_stride + (token - spec.first_token) * token_stride + dim. Strides count
/// elements; the dims of a row are adjacent. A source tensor [1][heads][tokens][dim] or
/// [tokens][heads][dim] or a slice of either fits.
struct SourceRows {
  traces::TensorSpec spec;
  const std::byte* data = nullptr;
  int64_t head_stride = 0;
  int64_t token_stride = 0;
};

struct RecorderOptions {
  /// Queries are kept for this many last tokens of the prompt, and for every decoded token.
  int32_t query_window = 64;
  /// Rows are gathered until a tensor has this many tokens, and then written as one chunk.
  int32_t chunk_tokens = 64;
  /// Rows handed over but not yet written: Record waits while there are more.
  int64_t queue_bytes = int64_t{256} << 20;
};

/// Writes one sequence. Rows are copied before Record returns; compression and writing run on a
/// worker thread.
///
/// What is lost when the process is killed: of each tensor at most `chunk_tokens` - 1 gathered
/// tokens, and what is in the queue. Every chunk written before that stays readable.
///
/// A failure of the worker (disk full) is thrown by the next call, and by every call after that.
/// All errors are stallcast::Error. Calls must not overlap.
class TensorRecorder {
 public:
  /// Creates the file. `info.model` must give layers, query_heads, kv_heads and head_dim; its
  /// prompt_tokens and decode_steps are filled in by this class.
  TensorRecorder(const std::filesystem::path& path, const traces::proto::TraceInfo& info,
                 const RecorderOptions& options);
  /// Without Finish: writes what was recorded, but the file reads as truncated.
  ~TensorRecorder();
  TensorRecorder(const TensorRecorder&) = delete;
  TensorRecorder& operator=(const TensorRecorder&) = delete;

  /// Takes the next rows of a tensor. Keys and values start at token 0 and leave no gap. Queries of
  /// the prompt may leave out tokens before the last `query_window`; of decoded tokens, none.
  void Record(const SourceRows& rows);
  /// Says that tokens from `prompt_tokens` on are decoded ones. Every tensor recorded so far must
  /// end there. Without this call the whole sequence is prompt. Called again, after another prompt
  /// in the same sequence: all before it is prompt then, what was decoded too. The file's
  /// description is written, so that it predicts even if the process is killed later.
  void BeginDecode(int64_t prompt_tokens);
  /// Adds to the file's list of parameters (TraceInfo::parameters).
  void SetParameter(const std::string& name, const std::string& value);
  /// Changes what the file says of the model and the run; it is written by BeginDecode() and
  /// Finish().
  void Describe(const std::function<void(traces::proto::TraceInfo&)>& change);
  /// Writes all that was gathered and waits until it is in the file. The query window of a prompt
  /// that is still growing stays back.
  void Flush();
  /// Flushes, writes the final TraceInfo and the End chunk, and closes. Only the destructor may
  /// follow.
  void Finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::capture
