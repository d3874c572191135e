// Programs by who issues them: our own from C++, PyTorch and as graphs, and public ones as run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include "models/hardware/cost_model.h"
#include "models/methods/decoder_plan.h"
#include "models/methods/method.h"
#include "models/plan/graph.h"
#include "models/plan/operators.h"
#include "sim/engine.h"

namespace stallcast::sim {
namespace {

using methods::PlanInput;
using plan::Host;
using plan::Operator;

PlanInput Llama(int64_t context, int32_t batch, int32_t steps, Host host, bool as_run) {
  PlanInput input{llm::FindModel("llama-3.1-8b"), batch, context, steps, host, nullptr};
  input.as_run = as_run;
  return input;
}

plan::Plan Decode(const std::string& method, const methods::ParamValues& params,
                  const PlanInput& input) {
  return methods::WriteDecode(*methods::MakeMethod(method, params).method, input);
}

double StepMs(const plan::Plan& plan, const hardware::Profile& machine) {
  const hardware::CostModel model(machine);
  const Execution run = Simulation(plan, model).Run();
  return Milliseconds(run.end[At(plan.step_ends.back())]) /
         static_cast<double>(plan.step_ends.size());
}

// n operators that launch cost their thread n times c, and nothing else does where the GPU keeps
// up.
TEST(HostsTest, AHostBoundChainTakesItsCallsAlone) {
  hardware::Profile machine = hardware::FindProfile("h200");
  machine.pytorch = {};
  machine.pytorch.launch = 50e-6;
  machine.pytorch.linear = 1e-6;
  const hardware::CostModel model(machine);
  const auto time = [&](int count) {
    plan::PlanBuilder builder;
    const plan::LaneId host = builder.AddHost("host", Host::kPyTorch);
    const plan::LaneId compute = builder.AddStream("compute", host, true);
    for (int i = 0; i < count; ++i) {
      builder.Run(compute, plan::Eager{.op = Operator::kLaunch, .read = 4096, .written = 4096});
    }
    const plan::Plan plan = builder.Finish();
    return Simulation(plan, model).Run().end_of_all;
  };
  EXPECT_EQ(time(101) - time(1), 100 * FromSeconds(50e-6));
}

TEST(HostsTest, AGraphStepOfTheFullCacheHasOneLaunch) {
  const plan::Plan plan = Decode("full", {}, Llama(8192, 1, 2, Host::kGraph, false));
  EXPECT_EQ(plan::GraphsAStep(plan), 1);
  const plan::Plan as_run =
      Decode("full", {{"cache", "static"}}, Llama(8192, 1, 2, Host::kGraph, true));
  EXPECT_EQ(plan::GraphsAStep(as_run), 1);
}

TEST(HostsTest, APyTorchHostIsSlowerAndAGraphIsNot) {
  const hardware::Profile machine = hardware::FindProfile("h200");
  const auto ms = [&](Host host, bool as_run) {
    return StepMs(Decode("full", {{"cache", "static"}}, Llama(8192, 1, 2, host, as_run)), machine);
  };
  for (const bool as_run : {false, true}) {
    EXPECT_LT(ms(Host::kCpp, as_run), ms(Host::kPyTorch, as_run));
    EXPECT_LE(ms(Host::kGraph, as_run), ms(Host::kCpp, as_run));
  }
}

// As PyTorch's profiler counts them in recordings of three steps: 4,667 operators and 1,493 kernels
// a step, of which 160 are second halves of split GEMMs and 32 of split attention.
TEST(AsRunTest, TheFullCacheHasAsManyOperatorsAsARecording) {
  const plan::Plan plan = Decode("full", {}, Llama(32000, 1, 3, Host::kPyTorch, true));
  int64_t operators = 0, kernels = 0;
  for (const plan::Op& op : plan.ops) {
    operators += plan::ProfiledOperators(plan::CallsOf(op.work));
    if (!IsHostWork(op)) kernels += plan::Count(op.work).launches;
  }
  EXPECT_NEAR(static_cast<double>(operators) / 3, 4667, 0.03 * 4667);
  EXPECT_NEAR(static_cast<double>(kernels) / 3, 1493 - 160 - 32, 0.03 * 1301);
}

TEST(AsRunTest, TheOffloadedCacheGoesBothWaysWhole) {
  const plan::Plan plan = Decode("offload", {}, Llama(32000, 1, 2, Host::kPyTorch, true));
  const plan::Plan fresh =
      Decode("offload", {{"write_back", "new"}}, Llama(32000, 1, 2, Host::kPyTorch, true));
  const auto bytes = [](const plan::Plan& of, bool back) {
    Bytes all = 0;
    for (const plan::Op& op : of.ops) {
      if (op.step != 1 || !std::holds_alternative<plan::Copy>(op.work)) continue;
      const plan::WorkCounts counts = plan::Count(op.work);
      all += back ? counts.link_d2h : counts.link_h2d;
    }
    return all;
  };
  const llm::Model model = llm::FindModel("llama-3.1-8b");
  const Bytes token = model.KvBytesPerToken();
  EXPECT_NEAR(static_cast<double>(bytes(plan, true)), static_cast<double>(32002 * token), 1e3);
  EXPECT_NEAR(static_cast<double>(bytes(fresh, true)), static_cast<double>(token), 1e3);
  // The last layer of the last step asks for nothing more.
  EXPECT_NEAR(static_cast<double>(bytes(plan, false)),
              static_cast<double>(31. / 32 * 32001 * token),
              1e-3 * 32001 * static_cast<double>(token));
}

// A row of capture/results/transformers-steps.csv, by title.
using Row = std::map<std::string, std::string>;

std::vector<Row> MeasuredSteps() {
  std::ifstream file(STALLCAST_SOURCE_DIR "/capture/results/transformers-steps.csv");
  const auto cells = [](const std::string& line) {
    std::vector<std::string> all;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) all.push_back(cell);
    return all;
  };
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> titles = cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> values = cells(line);
    for (size_t i = 0; i < std::min(titles.size(), values.size()); ++i) {
      if (i == 0) rows.emplace_back();
      rows.back()[titles[i]] = values[i];
    }
  }
  return rows;
}

double PredictedMs(const Row& row) {
  const std::string& program = row.at("program");
  const bool graph = program == "static graph";
  const PlanInput input = Llama(std::stoll(row.at("context")), std::stoi(row.at("batch")), 4,
                                graph ? Host::kGraph : Host::kPyTorch, true);
  methods::ParamValues params;
  if (program.starts_with("static")) params["cache"] = "static";
  if (program == "offloaded new") params["write_back"] = "new";
  return StepMs(
      Decode(program.starts_with("offloaded") ? "offload" : "full", params, input),
      hardware::LoadProfile(STALLCAST_SOURCE_DIR "/capture/results/hosts/" + row.at("host")));
}

// By what the host's operators cost between the steps, on hosts whose speed changes by two within a
// minute: goals over all programs. What the link was busy for is no matter of the host.
TEST(AsRunTest, StepsOfTransformersAreAsMeasured) {
  const std::vector<Row> rows = MeasuredSteps();
  ASSERT_FALSE(rows.empty());
  std::vector<double> errors;
  for (const Row& row : rows) {
    SCOPED_TRACE(row.at("program") + " " + row.at("context"));
    const double predicted = PredictedMs(row), measured = std::stod(row.at("measured_ms"));
    EXPECT_NEAR(predicted / std::stod(row.at("predicted_ms")), 1, 0.01) << "as_run.py --write";
    errors.push_back(std::abs(predicted / measured - 1));
    if (row.at("program") == "static graph") {
      EXPECT_LE(errors.back(), 0.15);
    }
    for (const char* way : {"to_gpu", "to_host"}) {
      const double busy = std::stod(row.at("measured_" + std::string(way) + "_ms"));
      if (busy < 1) continue;
      EXPECT_NEAR(std::stod(row.at("predicted_" + std::string(way) + "_ms")) / busy, 1, 0.1) << way;
    }
  }
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.2);
  EXPECT_LE(errors.back(), 0.5);
}

}  // namespace
}  // namespace stallcast::sim
