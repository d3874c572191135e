// What a KV-cache method keeps in memory during a run, and what its ops do to it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/decoder/decoder.h"
#include "kernels/executor/executor.h"
#include "kernels/executor/host_pool.h"
#include "kernels/executor/selection_check.h"
#include "kernels/executor/trace_tensors.h"
#include "models/methods/layer_tensors.h"
#include "models/methods/method.h"
#include "models/methods/projected_log.h"

namespace stallcast::kernels {

/// A decode run: its shape, and how the trace stands for the model.
///
/// Sequence b of the batch replays the trace from step b * stagger on, with the context that the
/// trace has there, so its context is longer by as much than the plan says.
struct DecodeRun {
  methods::PlanInput input;  ///< as the method sees it: its model's layers attend everything
  llm::Model whole;          ///< the model with all of its layers
  const TraceTensors* trace = nullptr;
  std::vector<int> source_of;  ///< by layer of input.model: layer of `trace`
  /// What `trace` was loaded from, and its number of each layer of `trace`.
  const traces::Trace* recording = nullptr;
  std::vector<int> recorded_layers;
  const methods::ProjectedLog* log = nullptr;
  int32_t stagger = 0;
  HostPool* pool = nullptr;  ///< pinned memory for what lies on the host

  int32_t batch() const { return input.batch; }
  int32_t kv_heads() const { return input.model.kv_heads; }
  int32_t rows() const { return batch() * kv_heads(); }
  int32_t group() const { return input.model.group(); }
  int32_t head_dim() const { return input.model.head_dim; }
  int64_t TraceStep(int step, int sequence) const { return step + int64_t{sequence} * stagger; }
  /// Tokens cached when step `step` attends, its own included.
  int64_t Context(int step, int sequence) const {
    return input.prompt_tokens + TraceStep(step, sequence) + 1;
  }
  /// The longest context of any sequence after the last step.
  int64_t LongestContext() const { return Context(input.steps - 1, batch() - 1); }
  /// A layer of `trace` as a policy sees it: with the heads of `trace`, and the model's groups.
  methods::LayerTensors Recorded(int source, int64_t prompt_queries = 1) const {
    return {*recording, recorded_layers[static_cast<size_t>(source)], prompt_queries, group(),
            trace->kv_heads()};
  }
  SequenceKv Source(int layer) const { return trace->Kv(source_of[static_cast<size_t>(layer)]); }
};

/// Fills in `whole`, and the method's view of it as `input.model`.
void SetModel(llm::Model whole, DecodeRun& run);

/// Queries and attention output of a layer in a step, on the device.
struct LayerIo {
  const __nv_bfloat16* query = nullptr;     ///< [batch][query_heads][head_dim]
  const __nv_bfloat16* previous = nullptr;  ///< those of the step before
  __nv_bfloat16* output = nullptr;          ///< like query
};

/// Where prefill puts a layer's prompt, on the device: token t of sequence s in place
/// t % page_tokens of the sequence's page t / page_tokens, for RopeAppend() to write and attention
/// to read. Prompts of all layers are kept until prefill ends, as no op waits for one to be free.
struct PromptKv {
  PagedKv cache;
  /// [sequences][max_pages], the slot of a sequence's page. Null: page i of sequence s lies in slot
  /// s * max_pages + i.
  const int32_t* slots = nullptr;
  int32_t max_pages = 0;
};

/// Queries and attention output of a layer in prefill, on the device; its keys and values are in
/// PromptAt(layer).
struct PrefillIo {
  const __nv_bfloat16* query = nullptr;  ///< [batch][prompt_tokens][query_heads][head_dim]
  /// Those of each prompt's last token: [batch][query_heads][head_dim].
  const __nv_bfloat16* last_query = nullptr;
  __nv_bfloat16* output = nullptr;  ///< like query
};

class CacheBinder {
 public:
  virtual ~CacheBinder() = default;

  /// Where RopeAppend() puts a step's keys and values: slot and place of each sequence's new token,
  /// on the device.
  struct Append {
    PagedKv cache;
    const int32_t* slot = nullptr;
    const int32_t* place = nullptr;
    PageBounds bounds;
  };
  virtual Append AppendAt(int step, int layer) = 0;

  /// An op that is not one of the decoder's own; plan order.
  virtual OpWork Bind(const plan::Op& op, const LayerIo& io) = 0;

  /// Brings caches, pool and index to where prefill leaves them. `last` has, by layer, the queries
  /// of the token before the first step, whose selection a cache starts from.
  virtual void Reset(std::span<const LayerIo> last) = 0;

  /// Prefill: where a layer's prompt goes, called before the layer's ops are bound. A method whose
  /// prefill cannot be executed: usage Error.
  virtual PromptKv PromptAt(int layer);
  /// Prefill: an op that is neither one of the decoder's own nor dense attention; plan order.
  virtual OpWork BindPrefill(const plan::Op& op, const PrefillIo& io);
  /// Empties caches, pool and index, before each run of a prefill plan, which leaves what Reset()
  /// gives, but for sequences that begin later in the trace.
  virtual void Clear() {}

  /// After a step with the device idle: compares what was selected with the log. Methods that
  /// select nothing have nothing to compare.
  virtual void CheckStep(int /*step*/, SelectionCheck& /*check*/) {}
};

/// The binder of a method. One that cannot be executed: usage Error.
std::unique_ptr<CacheBinder> MakeCacheBinder(const DecodeRun& run,
                                             const methods::NamedMethod& method);

/// The model's heads must have the trace's channels: usage Error.
void CheckHeads(const DecodeRun& run);

/// The Error of a binder for an op kind that it does not know.
[[noreturn]] void CannotBind(std::string_view method, const plan::Op& op);

}  // namespace stallcast::kernels
