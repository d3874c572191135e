// stallcast-gpu bench
#include "capture/calibrate/bench.h"

#include <memory>

#include "capture/cli/commands.h"
#include "models/llm/model_options.h"
#include "sim/cli/output.h"
#include "sim/cli/progress.h"
#include "sim/names.h"

namespace stallcast::cli {
namespace {

struct BenchCommand {
  std::string filter;
  std::string model = "llama-3.1-8b";
  Format format = Format::kTable;

  void Run() const {
    sim::CheckModel(model, "--model");
    Progress progress;
    capture::BenchOptions options;
    options.model = llm::WithOptions(llm::FindModel(model), {{"weight-dtype", "bf16"}});
    options.filter = filter;
    options.progress = [&](const std::string& what, double share) { progress.Update(what, share); };
    const std::vector<capture::BenchRow> rows = capture::Bench(options);
    progress.Clear();
    Json records = Json::array();
    for (const capture::BenchRow& row : rows) {
      Json& record = records.emplace_back();
      record["kernel"] = row.kernel;
      record["shape"] = row.shape;
      record["time_us"] = row.seconds * 1e6;
      record["gb_per_s"] = row.bytes / row.seconds / 1e9;
      record["tflop_per_s"] = row.flops / row.seconds / 1e12;
      record["limit"] = row.limit;
      record["percent_of_limit"] = row.share * 100;
    }
    PrintRecords(records, format);
  }
};

}  // namespace

void AddBench(CLI::App& app) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App* sub = app.add_subcommand("bench", "Time kernels and transfers on this machine");
  sub->description(
      R"(Times the kernels and transfers of plans, at the shapes of a model. Each stands beside its
limit, which the same run measures: large reads of device memory, a large GEMM, the link,
host memory.

Examples:
  stallcast-gpu bench
  stallcast-gpu bench --filter attention --format csv)");
  sub->add_option("--filter", command->filter, "Part of the kernels' names (default: all)")
      ->type_name("TEXT");
  sub->add_option("--model", command->model,
                  "Whose shapes to time, as bf16 (default: llama-3.1-8b)")
      ->type_name("NAME");
  AddFormat(*sub, command->format);
  sub->callback([command] { command->Run(); });
}

}  // namespace stallcast::cli
