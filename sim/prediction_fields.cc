#include "sim/prediction_fields.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

namespace stallcast::sim {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::vector<PredictionField> MakeFields() {
  using P = const Prediction&;
  using enum FieldKind;
  std::vector<PredictionField> fields = {
      {"fits", "1 if weights and cache fit the GPU and the host, else 0",
       [](P p, int) { return p.fits ? 1.0 : 0.0; }, kFlag},
      {"step_p50_ms", "time of a decode step, median over the steps",
       [](P p, int) { return Milliseconds(p.metrics.step_p50); }},
      {"step_p95_ms", "time of a decode step, 95th percentile over the steps",
       [](P p, int) { return Milliseconds(p.metrics.step_p95); }},
      {"step_mean_ms", "time of a decode step, mean over the steps",
       [](P p, int) { return Milliseconds(p.metrics.step_mean); }},
      {"host_least_ms",
       "mean step with the least that PyTorch's operators may take; unmeasured hosts",
       [](P p, int) { return p.host_band ? Milliseconds(p.host_band->least) : kUnknown; }},
      {"host_most_ms", "the same with the most",
       [](P p, int) { return p.host_band ? Milliseconds(p.host_band->most) : kUnknown; }},
      {"sampled_p10_ms", "mean step, 10th percentile over the samples",
       [](P p, int) { return p.sampled ? Milliseconds(p.sampled->p10) : kUnknown; }},
      {"sampled_p50_ms", "mean step, median over the samples",
       [](P p, int) { return p.sampled ? Milliseconds(p.sampled->p50) : kUnknown; }},
      {"sampled_p90_ms", "mean step, 90th percentile over the samples",
       [](P p, int) { return p.sampled ? Milliseconds(p.sampled->p90) : kUnknown; }},
      {"tokens_per_second", "batch / mean step",
       [](P p, int) { return p.metrics.tokens_per_second; }},
      {"ceiling_ms", "least step time that any schedule of the same work could take",
       [](P p, int) { return Milliseconds(p.metrics.ceiling); }},
      {"above_ceiling", "mean step / ceiling - 1",
       [](P p, int) { return AboveCeiling(p.metrics); }},
      {"compute_busy_ms", "compute lane busy, a step",
       [](P p, int) { return Milliseconds(p.metrics.compute_busy); }},
      {"exposed_ms", "compute lane idle, a step",
       [](P p, int) { return Milliseconds(p.metrics.exposed); }},
      {"recall_bytes", "KV moved from host to GPU, a step",
       [](P p, int) { return static_cast<double>(p.metrics.recall_bytes); }, kCount},
      {"recall_pieces", "contiguous pieces of it, a step",
       [](P p, int) { return p.metrics.recall_pieces; }},
      {"recall_bytes_per_second", "rate while recall transfers run",
       [](P p, int) { return p.metrics.recall_bytes ? p.metrics.recall_rate : kUnknown; }},
      {"hit_rate", "selected units that were on the GPU already",
       [](P p, int) { return p.selection.hit_rate; }},
      {"corrected_rate", "layers of a step that select before their attention",
       [](P p, int) { return p.selection.correction_rate; }},
      {"attention_mass", "share of the true attention weight that is attended",
       [](P p, int) { return p.selection.attention_mass; }},
      {"output_error", "relative error of the attention output, where the trace has values",
       [](P p, int) { return p.selection.output_error; }},
      {"query_similarity", "mean cosine of the queries that the method compared",
       [](P p, int) { return p.selection.similarity; }},
      {"evicted_units", "units that leave the GPU, a layer and selection head, a step",
       [](P p, int) { return p.selection.evictions; }},
      {"kept_share", "mean share of the context that the cache holds, where tokens are dropped",
       [](P p, int) { return p.selection.kept; }},
      {"eviction_rate", "layers of a step that evict",
       [](P p, int) { return p.selection.eviction_rate; }},
      {"gpu_bytes", "GPU memory: weights, cache, index, buffers and activations",
       [](P p, int) { return static_cast<double>(p.gpu_memory); }, kCount},
      {"gpu_weights_bytes", "weights on the GPU",
       [](P p, int) { return static_cast<double>(p.weights); }, kCount},
      {"gpu_kv_bytes", "keys and values on the GPU",
       [](P p, int) { return static_cast<double>(p.footprint.gpu_kv); }, kCount},
      {"gpu_index_bytes", "summaries, codes and maps on the GPU",
       [](P p, int) { return static_cast<double>(p.footprint.gpu_index); }, kCount},
      {"gpu_buffer_bytes", "staging and double buffers on the GPU",
       [](P p, int) { return static_cast<double>(p.footprint.gpu_buffers); }, kCount},
      {"gpu_activation_bytes", "activations of a prompt's chunk, and logits, on the GPU",
       [](P p, int) { return static_cast<double>(p.footprint.gpu_activations); }, kCount},
      {"host_bytes", "host memory: pinned pool and host index",
       [](P p, int) { return static_cast<double>(p.footprint.host); }, kCount},
      {"gpu_limit_bytes", "GPU memory that there is for that; 1 GiB is left free",
       [](P p, int) { return static_cast<double>(p.gpu_limit); }, kCount},
      {"host_limit_bytes", "host memory that there is for that",
       [](P p, int) { return static_cast<double>(p.host_limit); }, kCount},
      {"largest_context_tokens", "longest context that fits at this batch; 0: none",
       [](P p, int) { return static_cast<double>(p.largest_context); }, kCount},
      {"largest_batch", "largest batch that fits at this context; 0: none",
       [](P p, int) { return static_cast<double>(p.largest_batch); }, kCount},
      {"prefill_s", "time to the first decode step",
       [](P p, int) { return p.prefill ? Seconds(*p.prefill) : kUnknown; }},
      {"extrapolated_share", "ops outside the range that the profile was calibrated for",
       [](P p, int) { return p.metrics.extrapolated; }},
  };
  struct ByRole {
    const char* suffix;
    const char* help;
    double (*value)(P, int);
    FieldKind kind = kReal;
  };
  const ByRole by_role[] = {
      {"_busy_ms", "ops of this role running, a step",
       [](P p, int r) { return Milliseconds(p.metrics.roles[r].busy); }},
      {"_exposed_ms", "compute lane idle, waiting for this role, a step",
       [](P p, int r) { return Milliseconds(p.metrics.roles[r].exposed); }},
      {"_overlap", "share of this role's busy time with the compute lane busy too",
       [](P p, int r) {
         const RoleTime& role = p.metrics.roles[r];
         return role.busy.count() ? role.overlap() : kUnknown;
       }},
      {"_bytes", "moved by ops of this role, a step",
       [](P p, int r) { return static_cast<double>(p.metrics.roles[r].bytes); }, kCount},
      {"_critical_ms", "on the critical path, a step",
       [](P p, int r) { return Milliseconds(p.metrics.critical[r]); }},
  };
  for (int role = 0; role < traces::kRoles; ++role) {
    const std::string prefix = "role_" + std::string(Name(static_cast<traces::Role>(role)));
    for (const ByRole& f : by_role) {
      fields.push_back({prefix + f.suffix, f.help, f.value, f.kind, role});
    }
  }
  return fields;
}

}  // namespace

std::span<const PredictionField> PredictionFields() {
  static const std::vector<PredictionField> fields = MakeFields();
  return fields;
}

std::string MostExposedRole(const Metrics& metrics) {
  const auto most =
      std::max_element(metrics.roles.begin(), metrics.roles.end(),
                       [](const RoleTime& a, const RoleTime& b) { return a.exposed < b.exposed; });
  if (most->exposed.count() <= 0) return {};
  const auto role = std::distance(metrics.roles.begin(), most);
  return std::string(Name(static_cast<traces::Role>(role)));
}

double AboveCeiling(const Metrics& metrics) {
  if (metrics.ceiling.count() <= 0) return kUnknown;
  return static_cast<double>(metrics.step_mean.count()) / metrics.ceiling.count() - 1;
}

}  // namespace stallcast::sim
