#include "traces/samples.h"

#include <fmt/format.h>

#include "traces/common/error.h"
#include "traces/common/nearest.h"
#include "traces/common/shipped.h"

namespace stallcast::traces {

namespace fs = std::filesystem;

const std::vector<Sample>& Samples() {
  static const std::vector<Sample> samples = {
      {"8k", "qwen-8k.kvt", "a prompt of 8,192 tokens of C++, continued"},
      {"32k", "qwen-32k.kvt", "a prompt of 32,000 tokens of C++, continued"},
      {"generation", "qwen-generation.kvt", "a long answer to a short request"},
  };
  return samples;
}

fs::path SampleFolder() { return Shipped("traces/samples"); }

fs::path TracePath(const std::string& trace) {
  constexpr std::string_view kPrefix = "sample:";
  if (!trace.starts_with(kPrefix)) return trace;
  const std::string name = trace.substr(kPrefix.size());
  std::vector<std::string_view> names;
  for (const Sample& sample : Samples()) {
    names.push_back(sample.name);
    if (sample.name != name) continue;
    const fs::path path = SampleFolder() / sample.file;
    std::error_code error;
    if (fs::is_regular_file(path, error)) return path;
    throw Error("the sample is not installed", path.string(),
                "install Stallcast with its samples, or give a trace of your own");
  }
  throw UsageError(fmt::format("there is no sample '{}'", name), trace, Suggestion(name, names));
}

}  // namespace stallcast::traces
