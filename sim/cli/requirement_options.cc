#include "sim/cli/requirement_options.h"

#include <string>

#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::cli {

void AddRequirements(CLI::App& command, sim::Requirements& required) {
  constexpr const char* kGroup = "Good enough";
  const auto add = [&](const char* name, const char* help, const char* type, auto set) {
    command.add_option_function<std::string>(name, set, help)->type_name(type)->group(kGroup);
  };
  add("--min-mass", "Least share of the true attention weight (default 0.95; 0: any)", "SHARE",
      [&required](const std::string& text) {
        required.min_mass = ParseQuantity(text, Dimension::kNumber, "--min-mass");
        if (required.min_mass <= 1) return;
        throw UsageError(text + " is more than all of the attention", "--min-mass",
                         "give a share, 0 to 1");
      });
  add("--max-gpu", "Most GPU memory, as 24GB", "SIZE", [&required](const std::string& text) {
    required.max_gpu_bytes = ParseQuantity(text, Dimension::kBytes, "--max-gpu");
  });
  add("--max-step", "Longest mean step, as 30ms", "TIME", [&required](const std::string& text) {
    required.max_step_ms = ParseQuantity(text, Dimension::kTime, "--max-step") * 1e3;
  });
}

}  // namespace stallcast::cli
