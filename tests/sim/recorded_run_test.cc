#include "sim/recorded_run.h"

#include <gtest/gtest.h>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

RecordedRun ARun() {
  RecordedRun run;
  run.trace = "traces/samples/qwen-32k.kvt";
  run.request.method = "quest";
  run.request.params = {{"budget", "4096"}, {"page", "32"}};
  run.request.model = "llama-3.1-8b";
  run.request.tensor_parallel = 2;
  run.request.machine = "gh200";
  // More than ten, in no order of their names.
  for (int i = 0; i < 12; ++i) {
    run.request.machine_overrides.emplace_back(i % 2 == 0 ? "link.h2d" : "host.launch",
                                               std::to_string(i) + "=x");
  }
  run.request.context = 65536;
  run.request.batch = 4;
  run.request.steps = 8;
  run.request.host = plan::Host::kGraph;
  return run;
}

TEST(RecordedRun, ComesBack) {
  const RecordedRun run = ARun();
  traces::proto::TraceInfo info;
  SetRun(run, &info);
  const RecordedRun back = RunOf(info, "run.kvt");
  EXPECT_EQ(back.request, run.request);
  EXPECT_EQ(back.trace, run.trace);
}

TEST(RecordedRun, SaysWhatIsMissingOrWrong) {
  EXPECT_THROW(RunOf({}, "run.kvt"), Error);
  traces::proto::TraceInfo whole;
  SetRun(ARun(), &whole);
  for (const char* key : {"trace", "method", "model", "machine", "context", "batch", "steps",
                          "tensor_parallel", "graph"}) {
    traces::proto::TraceInfo info = whole;
    info.mutable_parameters()->erase(key);
    try {
      RunOf(info, "run.kvt");
      FAIL() << key;
    } catch (const Error& error) {
      EXPECT_NE(error.problem().find(key), std::string::npos) << error.what();
      EXPECT_EQ(error.where(), "run.kvt");
    }
  }
  for (const char* wrong : {"", "-1", "x", "1.5", "99999999999999999999"}) {
    traces::proto::TraceInfo info = whole;
    (*info.mutable_parameters())["batch"] = wrong;
    EXPECT_THROW(RunOf(info, "run.kvt"), Error) << wrong;
  }
  traces::proto::TraceInfo info = whole;
  (*info.mutable_parameters())["set.3"] = "no value";
  EXPECT_THROW(RunOf(info, "run.kvt"), Error);
}

}  // namespace
}  // namespace stallcast::sim
