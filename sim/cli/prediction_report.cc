// Everything about one prediction.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "sim/cli/prediction_output.h"
#include "sim/prediction_fields.h"

namespace stallcast::cli {
namespace {

using sim::Prediction;

constexpr double kMega = 1e6;
constexpr double kGibi = 1024.0 * 1024 * 1024;
constexpr size_t kLabel = 13;  // columns of a label

std::string Gibibytes(Bytes bytes) { return Fixed(static_cast<double>(bytes) / kGibi, 1); }

std::string Labelled(std::string_view label, const std::string& value, Tone tone,
                     const Screen& screen) {
  const size_t room = screen.width > kLabel + 20 ? screen.width - kLabel : screen.width;
  std::string text;
  const std::string lines = Wrap(value, room);
  for (size_t begin = 0; begin <= lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    text += fmt::format("{:<{}}", begin == 0 ? label : "", kLabel) +
            Paint(lines.substr(begin, end - begin), tone, screen) + '\n';
    begin = end + 1;
  }
  return text;
}

// Which memory is too small; the times are of a machine that had it.
std::string Shortage(const Prediction& p) {
  std::string text;
  const auto add = [&](const char* what, Bytes need, Bytes limit) {
    if (need <= limit) return;
    text += fmt::format("{}it needs {} GiB of {} memory, there are {}", text.empty() ? "" : "; ",
                        Gibibytes(need), what, Gibibytes(limit));
  };
  add("GPU", p.gpu_memory, p.gpu_limit);
  add("host", p.footprint.host, p.host_limit);
  return text + ". The times are of a machine that had them.";
}

}  // namespace

std::string Report(const MachinePredictions& machine, const std::string& trace,
                   const TableForm& form) {
  const Prediction& p = machine.rows.front();
  const sim::Metrics& m = p.metrics;
  const Screen& screen = form.screen;
  std::string text = p.request.method + ": " + Heading(machine, trace, screen) + "\n";
  const auto line = [&](std::string_view label, const std::string& value,
                        Tone tone = Tone::kPlain) { text += Labelled(label, value, tone, screen); };
  if (!p.fits) line("does not fit", Shortage(p), Tone::kBad);
  const std::vector<std::string> missed = form.required.Missed(sim::FiguresOf(p));
  if (p.fits && !missed.empty()) {
    line("not enough",
         fmt::format("{} (--min-mass, --max-gpu, --max-step)", fmt::join(missed, "; ")),
         Tone::kBad);
  }
  line("step", fmt::format("{} ms P50, {} P95, {} mean: {} tokens/s",
                           Fixed(Milliseconds(m.step_p50), 3), Fixed(Milliseconds(m.step_p95), 3),
                           Fixed(Milliseconds(m.step_mean), 3), Short(m.tokens_per_second)));
  if (p.host_band) {
    line("host band",
         fmt::format("{} to {} ms mean: this host's PyTorch operators were not measured",
                     Fixed(Milliseconds(p.host_band->least), 1),
                     Fixed(Milliseconds(p.host_band->most), 1)));
  }
  if (p.sampled) {
    line("sampled",
         fmt::format("{} ms P10, {} P50, {} P90 of the mean step over {} samples",
                     Fixed(Milliseconds(p.sampled->p10), 3), Fixed(Milliseconds(p.sampled->p50), 3),
                     Fixed(Milliseconds(p.sampled->p90), 3), p.request.samples));
  }
  line("ceiling",
       fmt::format("{} ms is the least time for the same work; the step takes {} times that",
                   Fixed(Milliseconds(m.ceiling), 3), Fixed(1 + sim::AboveCeiling(m), 2)));
  const std::string role = sim::MostExposedRole(m);
  line("exposed", fmt::format("{} ms of GPU idle time a step{}", Fixed(Milliseconds(m.exposed), 3),
                              role.empty() ? "" : ", most of it waiting for " + role));
  if (p.prefill) line("prefill", fmt::format("{} s to the first step", Short(Seconds(*p.prefill))));

  TextTable roles({{"role", "", true},
                   {"busy", "ms"},
                   {"exposed", "ms"},
                   {"overlapped", "%"},
                   {"moved", "MB"},
                   {"critical path", "ms"}});
  for (int r = 0; r < traces::kRoles; ++r) {
    const sim::RoleTime& time = m.roles[r];
    if (time.busy.count() == 0 && time.exposed.count() == 0 && m.critical[r].count() == 0) continue;
    roles.Add(
        {std::string(Name(static_cast<traces::Role>(r))), Fixed(Milliseconds(time.busy), 3),
         Fixed(Milliseconds(time.exposed), 3), time.busy.count() ? Percent(time.overlap()) : "-",
         Short(static_cast<double>(time.bytes) / kMega), Fixed(Milliseconds(m.critical[r]), 3)});
  }
  text += "\nA step by role\n" + roles.Render(screen) + "\n";

  const sim::SelectionMetrics& s = p.selection;
  line("attention",
       fmt::format("mass {} of the true attention weight{}{}", Fixed(s.attention_mass, 4),
                   std::isnan(s.attention_mass) ? " (not known)" : "",
                   std::isnan(s.output_error) ? ""
                                              : fmt::format(", relative error of the output {} %",
                                                            Percent(s.output_error, 2))));
  if (!std::isnan(s.hit_rate)) {
    line("selection",
         fmt::format("{} % hits on the GPU, {} % of layers select before attention, similarity {}",
                     Percent(s.hit_rate), Percent(s.correction_rate), Fixed(s.similarity, 3)));
  }
  if (s.evictions > 0) {
    line("evicted", fmt::format("{} units a layer and selection head, a step", Short(s.evictions)));
  }
  if (!std::isnan(s.kept)) {
    line("cache", fmt::format("{} % of the context is kept, {} % of layers evict in a step",
                              Percent(s.kept), Percent(s.eviction_rate)));
  }
  if (m.recall_bytes > 0) {
    line("recall",
         fmt::format("{} MB a step in {} pieces at {}",
                     Short(static_cast<double>(m.recall_bytes) / kMega), Short(m.recall_pieces),
                     FormatQuantity(m.recall_rate, Dimension::kRate)));
  }
  const auto& f = p.footprint;
  const auto fits = [](Bytes need, Bytes limit) { return need > limit ? "DOES NOT FIT: " : ""; };
  line("GPU memory",
       fmt::format("{}{} GiB of {} ({} left free): weights {}, KV {}, index {}, buffers {}, "
                   "activations {}",
                   fits(p.gpu_memory, p.gpu_limit), Gibibytes(p.gpu_memory), Gibibytes(p.gpu_limit),
                   Gibibytes(sim::kGpuReserve), Gibibytes(p.weights), Gibibytes(f.gpu_kv),
                   Gibibytes(f.gpu_index), Gibibytes(f.gpu_buffers), Gibibytes(f.gpu_activations)));
  line("host memory", fmt::format("{}{} GiB of {}", fits(f.host, p.host_limit), Gibibytes(f.host),
                                  Gibibytes(p.host_limit)));
  line("largest", fmt::format("context {} at this batch, batch {} at this context",
                              LargestContext(p), LargestBatch(p)));
  if (!p.params.empty()) line("parameters", JoinPairs(p.params));
  const std::string notes = Notes(machine, screen);
  return notes.empty() ? text : text + "\n" + notes;
}

}  // namespace stallcast::cli
