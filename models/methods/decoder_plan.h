// The part of a plan that every method shares: a decoder's projections, MLP and sampling.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/methods/method.h"
#include "models/methods/projected_log.h"
#include "models/plan/host_regions.h"
#include "models/plan/plan.h"

namespace stallcast::methods {

/// A plan being written: a main host thread, the compute stream, and what the method adds. Method
/// writers use `builder` and the two lanes, and read the run from `input` and `log`.
class DecoderPlan {
 public:
  explicit DecoderPlan(const PlanInput& input);

  plan::PlanBuilder builder;
  const llm::Model whole;  ///< the model with all of its layers
  /// The run as methods see it: its model has the layers that attend everything, numbered from 0.
  const PlanInput input;
  const ProjectedLog log;
  plan::LaneId host;               ///< the thread that runs the model
  plan::LaneId compute;            ///< its stream
  std::vector<std::string> notes;  ///< what qualifies the method's plan, a line each

  /// Tokens a sequence has cached when step `step` attends, its own included.
  int64_t Context(int step) const { return input.prompt_tokens + step + 1; }
  /// (sequence, KV head) pairs.
  int64_t kv_rows() const { return int64_t{input.batch} * input.model.kv_heads; }
  /// What the log says of a layer in a step, clamped to the run's context.
  struct LayerAccess {
    std::vector<AccessCell> cells;  ///< sequence * log.heads() + head
    uint8_t flags = 0;              ///< of any cell
    int64_t attended_tokens = 0, attended_tokens_max = 0;
  };
  LayerAccess Access(int step, int layer) const;
  /// A gather of the units that are recalled before a step's attention, with the regions of the
  /// host's memory (plan::Regions) that it reads in the layer's pool of so many bytes. A unit is a
  /// piece in each of `parts` of the pool (such as keys and values), where a head's lie one behind
  /// the other.
  plan::ZeroCopyGather Scattered(plan::ZeroCopyGather gather, Bytes pool, int step, int layer,
                                 int64_t parts = 1);
  enum class When : uint8_t { kNow, kAhead };  ///< before the step's attention; beside it
  /// Of each of a layer's cells (as LayerAccess has them) the copies, one a unit, that recall it
  /// from a pool in which a unit's heads lie one behind the other, `piece` bytes each (HND): in how
  /// many regions (plan::kCopyRegion) they lie that no cell before has read.
  std::vector<plan::Copy> CopiesOfUnits(When when, int step, int layer, Bytes piece) const;
  /// All of them (one at least, of equal pieces) as one op.
  static plan::Copy OneAfterTheOther(std::span<const plan::Copy> copies);

  /// What a layer of the whole model is called here: those that attend everything come first.
  int LayerId(int layer) const { return ids_[static_cast<size_t>(layer)]; }

  /// Decode attention on the compute stream of the method's own shape; widths, sequences and the
  /// queries of a step are filled in.
  plan::OpId Attend(plan::DecodeAttention attention, std::initializer_list<plan::OpId> waits = {});
  /// Decode attention on the compute stream over `kv_tokens` tokens (all rows together).
  plan::OpId Attend(int layer, int64_t kv_tokens, int64_t kv_tokens_max,
                    std::initializer_list<plan::OpId> waits = {});
  /// The thread of a PyTorch program calls operators that launch nothing; other hosts need none.
  void Call(plan::Operator op, int64_t count = 1);
  /// item(): a number that the GPU has goes to the host, which waits for all of that stream.
  void ReadScalar(plan::LaneId stream);

  /// Attention over the whole cache on the GPU.
  plan::OpId AttendAll(int step, int layer, std::initializer_list<plan::OpId> waits = {});

 private:
  plan::OpId AttendLatents(int64_t kv_tokens, int64_t kv_tokens_max,
                           std::initializer_list<plan::OpId> waits);
  /// What the log says of a head, clamped to the run's context.
  AccessCell Cell(int step, int layer, int sequence, int head) const;
  /// In another context than the log's, units lie that many times as far apart.
  double UnitsApart() const;
  plan::RegionsRead RegionsOf(int step, int layer, Bytes piece) const;
  /// By layer, of the step that was asked for last.
  std::vector<plan::RegionsRead> regions_;
  int regions_step_ = -1;
  std::vector<int> ids_;  // by layer of the whole model
};

/// The whole plan of `input.steps` decode steps.
plan::Plan WriteDecode(const Method& method, const PlanInput& input);
/// The plan of the prefill of `input.prompt_tokens` tokens a sequence.
plan::Plan WritePrefill(const Method& method, const PlanInput& input);

}  // namespace stallcast::methods
