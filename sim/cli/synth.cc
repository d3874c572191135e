// stallcast synth
#include "sim/synth.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "sim/cli/commands.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/grid.h"
#include "sim/names.h"
#include "traces/common/whole_file.h"

namespace stallcast::cli {
namespace {

struct SynthCommand {
  std::string out, model, prompt;
  sim::SynthSpec spec;
  // Shape; 0: the model's, or the default.
  int model_layers = 0, heads = 0, kv_heads = 0, head_dim = 0;

  sim::SynthSpec Spec() const;
  void Run() const;
};

sim::SynthSpec SynthCommand::Spec() const {
  sim::SynthSpec s = spec;
  if (model.empty()) {
    s.model.name = s.model.title = "synthetic";
    s.model.layers = 4;
    s.model.query_heads = 32;
    s.model.kv_heads = 8;
    s.model.head_dim = 128;
    s.model.vocabulary = 32000;
  } else {
    sim::CheckModel(model, "--model");
    s.model = llm::FindModel(model);
  }
  if (model_layers > 0) s.model.layers = model_layers;
  if (heads > 0) s.model.query_heads = heads;
  if (kv_heads > 0) s.model.kv_heads = kv_heads;
  if (head_dim > 0) s.model.head_dim = head_dim;
  if (model.empty()) {
    s.model.hidden = int64_t{s.model.query_heads} * s.model.head_dim;
    s.model.intermediate = s.model.hidden * 7 / 2;
  }
  if (!prompt.empty()) s.prompt_tokens = sim::ParseTokens(prompt, "--prompt");
  return s;
}

void SynthCommand::Run() const {
  const sim::SynthSpec s = Spec();
  sim::CheckSynth(s);
  RefuseToReplace(out, {model});
  Progress progress;
  WriteWhole(out, [&](const std::filesystem::path& part) {
    traces::TraceWriter writer(part, sim::SynthInfo(s));
    sim::Synthesize(s, writer, [&](double share) { progress.Update("writing " + out, share); });
    writer.Finish();
  });
  progress.Clear();
  Print(fmt::format("{}: {} layers, {} query and {} KV heads of {}, {} prompt tokens, {} steps\n",
                    out, s.layers, s.model.query_heads, s.model.kv_heads, s.model.head_dim,
                    Count(s.prompt_tokens), Count(s.steps)));
}

}  // namespace

void AddSynth(CLI::App& app) {
  auto command = std::make_shared<SynthCommand>();
  CLI::App* sub = app.add_subcommand("synth", "Make a trace with stated statistics");
  sub->description(R"(Makes a synthetic trace whose queries and keys have the statistics asked for.

Examples:
  stallcast synth long.kvt --prompt 32K --steps 256
  stallcast synth drifting.kvt --similarity 0.8 --segment-length 8 --spread 64 --drift 30
  stallcast predict long.kvt

Everything predicted from it is marked synthetic.)");
  sim::SynthSpec& s = command->spec;
  const auto positive = CLI::Range(1, 1'000'000'000);
  sub->add_option("out", command->out, "File to write (.kvt)")->required()->type_name("OUT");

  constexpr const char* kShape = "Shape";
  sub->add_option("--model", command->model,
                  "Heads, dimensions and depth of a known model, or of a config.json")
      ->type_name("NAME")
      ->group(kShape);
  sub->add_option("--layers", s.layers, "Layers that get tensors, spread over the depth")
      ->capture_default_str()
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--model-layers", command->model_layers, "Depth of the model (default 4)")
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--heads", command->heads, "Query heads (default 32)")
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--kv-heads", command->kv_heads, "KV heads (default 8)")
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--head-dim", command->head_dim,
                  "Elements a head, a multiple of 16 (default 128)")
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--prompt", command->prompt, "Prompt tokens, as 8192 or 8K (default 8K)")
      ->type_name("TOKENS")
      ->group(kShape);
  sub->add_option("--steps", s.steps, "Decode steps")
      ->capture_default_str()
      ->check(positive)
      ->type_name("N")
      ->group(kShape);
  sub->add_option("--seed", s.seed, "Same seed, same tensors")
      ->capture_default_str()
      ->type_name("N")
      ->group(kShape);

  constexpr const char* kStatistics = "Statistics";
  const auto real = [&](const char* name, double& value, const char* help, const char* type) {
    sub->add_option(name, value, help)->capture_default_str()->type_name(type)->group(kStatistics);
  };
  const auto count = [&](const char* name, auto& value, const char* help, const char* type) {
    sub->add_option(name, value, help)->capture_default_str()->type_name(type)->group(kStatistics);
  };
  real("--similarity", s.similarity, "Mean cosine of queries of adjacent steps", "COSINE");
  real("--segment-length", s.segment_length, "Mean steps between query jumps", "STEPS");
  real("--head-correlation", s.head_correlation, "Share of jumps common to a layer's heads",
       "SHARE");
  real("--sink-mass", s.sink_mass, "Attention mass of the sink tokens", "SHARE");
  count("--sink-tokens", s.sink_tokens, "Sink tokens", "TOKENS");
  real("--local-mass", s.local_mass, "Attention mass of the local window", "SHARE");
  count("--local-window", s.local_window, "Local window", "TOKENS");
  count("--spread", s.spread, "Units that carry a query's long-range mass", "UNITS");
  count("--unit", s.unit_tokens, "Tokens a unit", "TOKENS");
  real("--drift", s.drift_degrees, "Turn of the mean key over 1024 tokens", "DEGREES");
  sub->add_flag("--rotate", s.rotated,
                "Leave no dimension empty, as in a model; logits are then as exact as bf16")
      ->group(kStatistics);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
