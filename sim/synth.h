// Query and key tensors with stated statistics, for a condition that nobody captured.
//
// Construction. A head has head_dim dimensions in six groups that never mix:
//
//   group     keys                                      queries
//   sink      (lambda, lambda) for sink tokens, else 0  alpha sqrt(d) / lambda, in two parts
//   topics    lambda e_p for odd tokens of a unit of    gamma sqrt(d) / lambda e_p for the topic p
//             topic p, else 0                           of the query's segment
//   position  lambda c(j) for even tokens j             beta sqrt(d) / lambda c(t)
//   query     0                                         y_t, see below
//   drift     3 lambda (cos phi j, sin phi j)           0
//   noise     Gaussian-like, norm about lambda / 4      0
//
// with c(j) = (cos w_m j, sin w_m j)_m / sqrt(M) for M frequencies w_m spread irregularly over
// (0, pi / local_window), so that c(t).c(j) = k(t - j) is 1 at distance 0, near 0 from local_window
// on, and does not come back. A query's logits (q.k / sqrt(d)) are then exactly alpha on sink
// tokens, gamma on the odd tokens of its topic, beta k(t - j) on even tokens, 0 on the rest. The
// sink group has two dimensions, the second for what bf16 leaves of alpha in the first.
//
// Masses. gamma is set so that a token's topic outweighs all tokens at logit 0 by 500 to 1; beta
// and alpha then solve, for every step (bisection in beta, alpha in closed form),
//   mass(window) = local_mass,  mass(sink) = sink_mass,
// leaving 1 - local_mass - sink_mass for the long range, spread evenly over the `spread` units of
// the topic. Numbers of sink, window and topic tokens do not depend on head or layer, so one
// solution serves all.
//
// Segments. A KV head's query jumps with probability 1 / segment_length a step; a jump draws
// another topic, the query heads of a group jump together, and a share `head_correlation` of the
// steps takes one draw for all heads of the layer. Topics hold units that are complete and outside
// the window; later ones hold units of the decoded part too.
//
// Similarity. All queries have norm lambda, a power of two so large that keys see at most 2 % of a
// query's squared norm. The query group's part y_t, which no key sees, has the norm
// left over and the direction that makes cos(q_t, q_t-1) exactly the value wanted: y_t = |y_t| (n u
// + sqrt(1 - n^2) v) with u along y_t-1, v random and orthogonal to u, n from the inner product
// wanted. With deficit D = 1 - similarity and L = segment_length, jumps take half of it:
//   1 - cos = min(1, L D / 2) at a jump; the rest of D, spread uniformly within +-50 % of its mean,
// within segments; so the mean over steps is `similarity`.
//
// Drift. The mean key turns by phi a token in its own plane, whatever else is asked for.
//
// Rotation. If asked for, queries and keys are turned by the same random signs and Walsh-Hadamard
// transform. Products are as they were but for the rounding to bf16, and no dimension is empty, as
// in a model: a GPU that runs at its power limit multiplies zeros faster.
#pragma once

#include <cstdint>
#include <functional>

#include "models/llm/model.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {

struct SynthSpec {
  llm::Model model;  ///< shape; `layers` of it get tensors, evenly spaced in depth
  int32_t layers = 4;
  int64_t prompt_tokens = 8192;
  int32_t steps = 256;
  uint64_t seed = 1;
  double similarity = 0.9;        ///< mean cosine of queries of adjacent steps, in (0, 1)
  double segment_length = 16;     ///< mean steps between query jumps, at least 1
  double head_correlation = 0.5;  ///< share of jumps that all heads of a layer make together
  double sink_mass = 0.3;         ///< attention mass of the sink tokens
  int32_t sink_tokens = 4;
  double local_mass = 0.3;    ///< attention mass of the window
  int64_t local_window = 64;  ///< tokens, the newest included
  int32_t spread = 16;        ///< units that carry the long-range mass of a query
  int32_t unit_tokens = 32;
  double drift_degrees = 10;  ///< turn of the mean key over 1024 tokens
  bool rotated = false;       ///< no dimension is empty; logits are then as exact as bf16
};

/// Writes the trace: bf16 queries (of the last 64 prompt tokens at most and of all decode steps)
/// and keys, TraceInfo.synthetic set and the statistics among its parameters. The same spec gives
/// the same tensors. Values out of range, a prompt too short for sink, window and two topics of
/// `spread` units, or statistics that head_dim cannot hold: usage Errors naming the option.
void Synthesize(const SynthSpec& spec, traces::TraceWriter& writer,
                const std::function<void(double)>& progress = {});

/// The TraceInfo that a synthetic trace of this spec carries.
traces::proto::TraceInfo SynthInfo(const SynthSpec& spec);

/// Checks the spec; throws as Synthesize() does.
void CheckSynth(const SynthSpec& spec);

}  // namespace stallcast::sim
