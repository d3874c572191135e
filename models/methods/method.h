// What a KV-cache method is: parameters, a policy (what is selected and moved; nothing about time),
// a plan writer (in which order, on which lanes; nothing about scores), and a footprint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/llm/model.h"
#include "models/methods/layer_tensors.h"
#include "models/methods/param.h"
#include "models/plan/plan.h"
#include "traces/access_log.h"

namespace stallcast::methods {

/// Replays one layer; layers are independent. Deterministic: ties go to the smaller unit id.
class Policy {
 public:
  virtual ~Policy() = default;
  /// What AccessLog::unit and unit_tokens say.
  struct Unit {
    std::string name;
    int32_t tokens = 1;
  };
  virtual Unit unit() const = 0;
  virtual traces::SetsOf sets_of() const { return traces::SetsOf::kKvHead; }
  /// How many of the prompt's last queries Replay() wants to see; a trace may have fewer.
  virtual int64_t prompt_queries() const { return 1; }
  /// Fills `access` (all but layer, attention_mass and output_error) and `attended`, a cell a step
  /// and head.
  virtual void Replay(const LayerTensors& tensors, traces::LayerAccess& access,
                      AttendedRanges& attended) const = 0;
};

/// The run that a plan is written for.
struct PlanInput {
  llm::Model model;
  int32_t batch = 1;
  int64_t prompt_tokens = 0;  ///< context before step 0
  int32_t steps = 0;
  plan::Host host = plan::Host::kCpp;  ///< who issues it
  /// The method's log; null for methods without a policy.
  const traces::AccessLog* log = nullptr;
  bool as_run = false;  ///< the program of AsRun(), not our own
};

/// Bytes that a run needs at its longest context, weights apart.
struct Footprint {
  Bytes gpu_kv = 0;           ///< keys and values on the GPU
  Bytes gpu_index = 0;        ///< summaries, codes, maps
  Bytes gpu_buffers = 0;      ///< staging, double buffers
  Bytes gpu_activations = 0;  ///< of the largest pass: a prompt's chunk, and logits
  Bytes host = 0;             ///< pinned pool and host index
  Bytes gpu() const { return gpu_kv + gpu_index + gpu_buffers + gpu_activations; }
};

class DecoderPlan;

/// Writes what a method adds to a decoder's plan. One object a plan: it may remember, say, the last
/// recall of each layer. Lanes are added in the constructor.
class PlanWriter {
 public:
  virtual ~PlanWriter() = default;
  /// Before the first op of a step, after the token is known.
  virtual void BeginStep(int /*step*/) {}
  /// The layer's attention, from appended keys and values to its output: everything between
  /// RopeAppend and the output projection. Must add the attention op itself.
  virtual void Attention(int step, int layer) = 0;
  /// What stands around the layers' attention: our own few kernels; or transformers' decoder as it
  /// is written (transformers_decoder.h); with norms and RoPE as one kernel each; and that in
  /// streams that each part names anew.
  enum class Decoder : uint8_t {
    kOwn,
    kTransformers,
    kTransformersFused,
    kTransformersStreams,
  };
  virtual Decoder decoder() const { return Decoder::kOwn; }
  /// Whether the append kernel also keeps the bounds of the layer's pages.
  virtual bool KeepsBounds(int /*layer*/) const { return false; }
  /// Prefill: before and after the layer's causal attention, once its keys and values exist.
  virtual void BeforePrefillAttention(int /*layer*/) {}
  virtual void AfterPrefillAttention(int /*layer*/) {}
  /// Prefill: what the layer attends, where that is not everything before each token.
  virtual plan::Work PrefillAttention(int /*layer*/, const plan::PrefillAttention& dense) {
    return dense;
  }
  /// After the last prefill op: joins what must be done before decoding.
  virtual void EndPrefill() {}
};

/// A configured method.
class Method {
 public:
  virtual ~Method() = default;
  /// Null when nothing is selected from tensors (full cache, full offload).
  virtual std::unique_ptr<Policy> NewPolicy() const = 0;
  virtual std::unique_ptr<PlanWriter> NewPlanWriter(DecoderPlan& plan) const = 0;
  /// `context`: longest context, tokens a sequence.
  virtual Footprint Bytes(const llm::Model& model, int64_t context, int32_t batch) const = 0;
  /// First layers that attend everything.
  virtual int DenseLayers() const { return 0; }
  /// Shorter contexts are attended, and kept on the GPU, whole: the longest of them may need more
  /// than longer ones.
  virtual int64_t DenseUntil() const { return 0; }
  /// Whether its selection belongs to each traced layer's own heads (trained weights of a layer),
  /// so that no head of another layer can take part.
  virtual bool OwnHeadsOnly() const { return false; }
  /// Canonical values; with `only_selection`, those that shape the access log.
  virtual std::map<std::string, std::string> Params(bool only_selection) const = 0;
  /// A public program of the method whose plan NewPlanWriter() writes where the run asks for it, as
  /// its source; empty: there is none.
  virtual std::string AsRun() const { return {}; }
  /// Why a run at this context cannot be (budget under sink + window, ...): usage Error.
  virtual void Check(const llm::Model& /*model*/, int64_t /*context*/) const {}
};

/// What most of a trace's tokens are.
enum class TraceKind : uint8_t { kLongInput, kLongGeneration };
/// Long generation where more tokens are decoded than the prompt has.
TraceKind KindOf(const traces::proto::TraceInfo& info);
std::string_view Name(TraceKind kind);

/// A parameter for which the paper has two values, as a command line writes them.
struct KindDefault {
  std::string name, long_input, long_generation;
};

/// A method as listed, completed and configured by name.
struct MethodInfo {
  std::string name;     ///< "freekv"
  std::string title;    ///< "FreeKV"
  std::string summary;  ///< one line
  std::string source;   ///< paper, code
  std::vector<ParamSpec> params;
  /// Named variants that `--method all` lists beside the defaults: name -> values.
  std::vector<std::pair<std::string, ParamValues>> presets;
  std::function<std::unique_ptr<Method>(const ParamValues&)> make;
  std::vector<KindDefault> by_kind = {};  ///< instead of the default in `params`, on a trace
};

/// Adds to `values` what the method's paper takes for such a trace and they do not say. Returns a
/// line on each.
std::vector<std::string> AddKindDefaults(const MethodInfo& method, TraceKind kind,
                                         ParamValues& values);

/// All methods, in the order of registry.cc.
const std::vector<MethodInfo>& Methods();

/// A hash of all that policies are made of: access logs of two programs are alike where it is.
std::string_view PoliciesHash();

/// A method or preset by name, with the preset's values laid under `values`. Unknown: usage Error
/// listing all names.
struct NamedMethod {
  std::string name;
  const MethodInfo* info = nullptr;
  std::unique_ptr<Method> method;
};
NamedMethod MakeMethod(std::string_view name, const ParamValues& values);

struct ReplayOptions {
  /// Query heads a KV head, for a model whose groups are others than the trace's; 0: the trace's.
  int32_t group = 0;
  /// KV heads a layer, for a model that has more than the trace: the others are TracedKvHeads();
  /// 0: the trace's.
  int32_t kv_heads = 0;
  std::vector<int> layers = {};          ///< replay these only; empty: all
  std::function<void(double)> progress;  ///< called with the share done, from any thread
};

/// Names in AccessLog::params of a group, and of KV heads a layer, that are not the trace's.
inline constexpr const char* kGroupParam = "query_group";
inline constexpr const char* kKvHeadsParam = "kv_heads";

/// Replays the layers of the trace over all cores and measures attention mass and output error.
/// Layers below method.DenseLayers() are logged as dense.
traces::AccessLog Replay(const traces::Trace& trace, const std::string& trace_hash,
                         const std::string& method_name, const Method& method,
                         const ReplayOptions& options = {});

}  // namespace stallcast::methods
