// Predictions from files, as the commands make them.
#include "sim/predict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "models/hardware/cost_model.h"
#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "models/methods/decoder_plan.h"
#include "sim/engine.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/samples.h"
#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;

class Predictions : public testing::Test {
 protected:
  void SetUp() override {
    setenv("XDG_CACHE_HOME", (folder_ / "user").c_str(), 1);
    methods::RandomTraceOptions options;
    options.layers = 3;
    options.dim = 32;
    Write(methods::RandomTrace(options));
  }
  void TearDown() override { unsetenv("XDG_CACHE_HOME"); }

  void Write(traces::Trace trace) {
    auto& model = *trace.info.mutable_model();
    model.set_name("random");
    model.set_layers(3);
    model.set_query_heads(6);
    model.set_kv_heads(2);
    model.set_head_dim(32);
    model.set_hidden(192);
    model.set_intermediate(512);
    model.set_vocabulary(1000);
    traces::TraceWriter writer(path(), trace.info);
    for (const traces::Tensor& tensor : trace.tensors) writer.Write(tensor.spec, tensor.data);
    writer.Finish();
  }
  fs::path path() const { return folder_ / "random.kvt"; }
  static PredictRequest FreeKv() {
    PredictRequest request;
    request.params = {{"budget", "128"}, {"page", "16"}, {"sink", "16"}, {"window", "32"}};
    return request;
  }
  // The decode steps of a model whose sizes are known.
  static PredictRequest LlamaSteps(const std::string& method) {
    PredictRequest request;
    request.method = method;
    request.model = "llama-3.1-8b";
    request.prefill = false;
    return request;
  }

  ScratchFolder folder_;
};

TEST_F(Predictions, FillInTheTracesOwnRun) {
  const Prediction p = Predictor(path()).Predict(FreeKv());
  EXPECT_EQ(p.model.name, "random");
  EXPECT_EQ(p.request.context, 203);
  EXPECT_EQ(p.request.steps, 70);
  EXPECT_EQ(p.metrics.step_times.size(), 70u);
  EXPECT_GT(p.prefill->count(), 0);
  EXPECT_TRUE(p.fits);
  EXPECT_GT(p.largest_context, 203);
}

TEST_F(Predictions, AMachineWhoseFileChangesIsReadAgain) {
  const fs::path file = folder_ / "mine.toml";
  hardware::Profile machine = hardware::FindProfile("h200");
  hardware::SaveProfile(machine, file);
  PredictRequest request = FreeKv();
  request.machine = file.string();
  Predictor predictor(path());
  const Picoseconds before = predictor.Predict(request).metrics.step_mean;
  EXPECT_EQ(predictor.Predict(request).metrics.step_mean, before);
  machine.handoff.SetHostSync(1e-3);
  hardware::SaveProfile(machine, file);
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  EXPECT_GT(predictor.Predict(request).metrics.step_mean, 2 * before);
  fs::remove(file);
  EXPECT_THROW(predictor.Predict(request), Error);
}

TEST_F(Predictions, LaunchesOfTwiceTheTimeMakeAHostBoundStepLonger) {
  Predictor predictor(path());
  PredictRequest request;
  request.method = "full";
  const Picoseconds before = predictor.Predict(request).metrics.step_mean;
  const double launch = hardware::FindProfile("h200").host.launch;
  request.machine_overrides = {{"host.launch", fmt::format("{:.9g}s", 2 * launch)}};
  EXPECT_GT(predictor.Predict(request).metrics.step_mean, 1.5 * before);
}

TEST_F(Predictions, AFasterLinkMakesNoStepLonger) {
  Predictor predictor(path());
  PredictRequest request = LlamaSteps("offload");
  request.context = 32'000;
  request.steps = 2;
  Picoseconds slower = Picoseconds::max();
  for (const char* rate :
       {"25GB/s", "50GB/s", "100GB/s", "200GB/s", "400GB/s", "600GB/s", "800GB/s"}) {
    request.machine_overrides = {{"link.h2d", rate}};
    const Picoseconds step = predictor.Predict(request).metrics.step_mean;
    EXPECT_LE(step, slower) << rate;
    slower = step;
  }
}

TEST_F(Predictions, FullCacheKeepsAllAttention) {
  PredictRequest request;
  request.method = "full";
  EXPECT_EQ(Predictor(path()).Predict(request).selection.attention_mass, 1);
}

TEST_F(Predictions, AdmissionAndEvictionShowInWhatIsKept) {
  PredictRequest request;
  request.method = "wgkv";
  request.params = {{"window", "32"}, {"sparsity", "0.5"}};
  const SelectionMetrics admitted = Predictor(path()).Predict(request).selection;
  // Half of 171 to 240 tokens, and the window, of 204 to 273.
  EXPECT_NEAR(admitted.kept, 0.57, 0.04);
  EXPECT_EQ(admitted.eviction_rate, 0);
  EXPECT_TRUE(std::isnan(admitted.hit_rate)) << "nothing is selected";
  request.params["evict"] = "snapkv";
  request.params["capacity"] = "80";
  request.params["observe"] = "32";
  const SelectionMetrics evicted = Predictor(path()).Predict(request).selection;
  EXPECT_LT(evicted.kept, 80.0 / 204);
  EXPECT_GT(evicted.eviction_rate, 0.01);
  EXPECT_LT(evicted.eviction_rate, 0.5);
  request.method = "full";
  request.params = {};
  EXPECT_TRUE(std::isnan(Predictor(path()).Predict(request).selection.kept));
}

TEST_F(Predictions, TheCacheSparesTheReplay) {
  int replays = 0;
  PredictorOptions options;
  options.progress = [&](const std::string&, double) { ++replays; };
  const Prediction fresh = Predictor(path(), options).Predict(FreeKv());
  EXPECT_GT(replays, 0);
  replays = 0;
  PredictRequest other = FreeKv();
  other.machine = "a100-40gb";
  Predictor again(path(), options);
  again.Predict(other);
  const Prediction cached = again.Predict(FreeKv());
  EXPECT_EQ(replays, 0);
  EXPECT_EQ(cached.metrics.step_times, fresh.metrics.step_times);
  EXPECT_EQ(cached.selection.attention_mass, fresh.selection.attention_mass);
  // Another selection is another log; another plan parameter is not.
  PredictRequest plan_only = FreeKv();
  plan_only.params["recall"] = "batched";
  again.Predict(plan_only);
  EXPECT_EQ(replays, 0);
  PredictRequest selection = FreeKv();
  selection.params["tau"] = "0.3";
  again.Predict(selection);
  EXPECT_GT(replays, 0);
}

TEST_F(Predictions, ADamagedCacheIsReplayedAndMended) {
  Predictor(path()).Predict(FreeKv());
  fs::path log;
  for (const auto& entry : fs::directory_iterator(folder_ / ".stallcast")) log = entry.path();
  ASSERT_FALSE(log.empty());
  const auto size = fs::file_size(log);
  fs::resize_file(log, size / 2);
  int replays = 0;
  PredictorOptions options;
  options.progress = [&](const std::string&, double) { ++replays; };
  Predictor(path(), options).Predict(FreeKv());
  EXPECT_GT(replays, 0);
  EXPECT_EQ(fs::file_size(log), size);
}

TEST_F(Predictions, WithoutAWritableFolderNothingIsLostButTime) {
  if (geteuid() == 0) {
    // Root may write anywhere: a file in the folder's place has the same effect.
    std::ofstream(folder_ / ".stallcast") << "not a folder";
  } else {
    fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  setenv("XDG_CACHE_HOME", path().c_str(), 1);  // a file: nothing can be made inside
  const Prediction p = Predictor(path()).Predict(FreeKv());
  EXPECT_GT(p.metrics.step_mean.count(), 0);
}

TEST_F(Predictions, RunsAtOnceShareACache) {
  std::vector<std::thread> runs;
  std::vector<Picoseconds> means(8);
  for (size_t i = 0; i < means.size(); ++i) {
    runs.emplace_back([&, i] { means[i] = Predictor(path()).Predict(FreeKv()).metrics.step_mean; });
  }
  for (std::thread& run : runs) run.join();
  for (Picoseconds mean : means) EXPECT_EQ(mean, means[0]);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_ / ".stallcast")) {
    EXPECT_EQ(entry.path().extension(), ".kvt") << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(Predictions, MissingOrSenselessTensorsAreOneLine) {
  methods::RandomTraceOptions options;
  options.layers = 3;
  options.dim = 32;
  traces::Trace trace = methods::RandomTrace(options);
  for (traces::Tensor& tensor : trace.tensors) {
    if (tensor.spec.kind == traces::TensorKind::kKey) {
      const float nan = NAN;
      std::memcpy(tensor.data.data() + 400, &nan, sizeof nan);
    }
  }
  Write(std::move(trace));
  EXPECT_THROW(Predictor(path()).Predict(FreeKv()), Error);

  trace = methods::RandomTrace(options);
  std::erase_if(trace.tensors,
                [](const traces::Tensor& t) { return t.spec.kind == traces::TensorKind::kQuery; });
  Write(std::move(trace));
  EXPECT_THROW(Predictor(path()).Predict(FreeKv()), Error);
}

TEST_F(Predictions, SaysWhatQualifiesThem) {
  PredictRequest request = FreeKv();
  request.model = "llama-3.1-8b";
  request.machine = "a100-40gb";
  request.machine_overrides = {{"link.h2d", "12GB/s"}};
  request.context = 4096;
  const Prediction p = Predictor(path()).Predict(request);
  const auto mentions = [&](std::string_view word) {
    return std::any_of(p.notes.begin(), p.notes.end(), [&](const std::string& note) {
      return note.find(word) != std::string::npos;
    });
  };
  EXPECT_TRUE(mentions("projected"));
  EXPECT_TRUE(mentions("derived"));
  EXPECT_TRUE(mentions("overridden"));
}

TEST_F(Predictions, SelectionIsThatOfThePredictedSteps) {
  Predictor predictor(path());
  PredictRequest request = FreeKv();
  const SelectionMetrics all = predictor.Predict(request).selection;
  request.steps = 1;
  const Prediction first = predictor.Predict(request);
  const std::shared_ptr<const traces::AccessLog> log = predictor.Log(request);
  double mass = 0;
  for (const traces::LayerAccess& layer : log->layers) mass += layer.attention_mass.front();
  EXPECT_NEAR(first.selection.attention_mass, mass / std::ssize(log->layers), 1e-9);
  EXPECT_NE(first.selection.attention_mass, all.attention_mass);
  // Repeated, or by sequences that begin elsewhere, all steps are as often there as once.
  request.steps = 140;
  request.batch = 2;
  EXPECT_NEAR(predictor.Predict(request).selection.attention_mass, all.attention_mass, 1e-9);
}

TEST_F(Predictions, TheLargestContextFitsAndAPageMoreDoesNot) {
  Predictor predictor(path());
  for (const char* method : {"full", "freekv", "quest"}) {
    PredictRequest request = LlamaSteps(method);
    request.steps = 8;
    request.context = predictor.Predict(request).largest_context;
    EXPECT_TRUE(predictor.Predict(request).fits) << method;
    request.context += 64;
    EXPECT_FALSE(predictor.Predict(request).fits) << method;
  }
}

TEST_F(Predictions, NoSizeIsTooLargeToBeReckoned) {
  Predictor predictor(path());
  PredictRequest request = LlamaSteps("full");
  request.steps = 1;
  request.context = int64_t{1} << 27;
  EXPECT_LT(predictor.Predict(request).largest_batch, 16) << "of 128 million tokens each";
  request.context = 256;
  request.batch = 1 << 17;
  EXPECT_LT(predictor.Predict(request).largest_context, 4096) << "of 131,072 sequences each";
}

TEST_F(Predictions, SayWhatOthersCouldCopyMeanwhile) {
  Predictor predictor(path());
  PredictRequest request;
  request.method = "full";
  request.machine_overrides = {{"background.h2d", "500GB/s"}};
  const Prediction p = predictor.Predict(request);
  EXPECT_LT(p.metrics.background_h2d, hardware::FindProfile("h200").link.h2d);
  EXPECT_GT(p.metrics.background_h2d, 1e9);
  EXPECT_TRUE(std::ranges::any_of(p.notes, [](const std::string& note) {
    return note.starts_with("background.h2d: ") && note.ends_with(" of 500.0 GB/s copied");
  }));
}

TEST_F(Predictions, GpusThatShareAModelSumTwiceALayer) {
  Predictor predictor(path());
  PredictRequest request;
  request.method = "full";
  const auto sums = [&] {
    traces::Timeline timeline;
    predictor.Predict(request, &timeline);
    const auto name = std::ranges::find_if(
        timeline.names, [](const std::string& n) { return n.ends_with("all_reduce"); });
    return name != timeline.names.end();
  };
  EXPECT_FALSE(sums());
  request.tensor_parallel = 2;
  EXPECT_TRUE(sums());
}

TEST_F(Predictions, OneGpuOfTwoHoldsHalfTheKvAndStreamsHalfTheProducts) {
  Predictor predictor(path());
  PredictRequest request;
  request.method = "full";
  request.model = "llama-3.1-8b";
  const Prediction whole = predictor.Predict(request);
  request.tensor_parallel = 2;
  const Prediction half = predictor.Predict(request);
  EXPECT_EQ(2 * half.footprint.gpu_kv, whole.footprint.gpu_kv);
  EXPECT_NEAR(static_cast<double>(half.weights) / static_cast<double>(whole.weights), 0.5, 0.01);
  EXPECT_LT(half.metrics.compute_busy, 0.75 * whole.metrics.compute_busy);
}

TEST_F(Predictions, WhatDoesNotFitIsSaid) {
  PredictRequest request;
  request.method = "full";
  request.model = "llama-3-70b";
  request.context = 100'000;
  const Prediction p = Predictor(path()).Predict(request);
  EXPECT_FALSE(p.fits);
  EXPECT_EQ(p.largest_batch, 0);
  const auto told = std::ranges::find_if(
      p.notes, [](const std::string& note) { return note.starts_with("does not fit"); });
  ASSERT_NE(told, p.notes.end());
  EXPECT_NE(told->find(" GiB on the GPU, where "), std::string::npos) << *told;
  EXPECT_EQ(told->find("host"), std::string::npos) << "which is large enough";
}

TEST_F(Predictions, WhatTheHostCannotHoldIsSaidToo) {
  Predictor predictor(path());
  PredictRequest request = LlamaSteps("offload");
  request.context = 8000;
  request.machine_overrides = {{"host.bytes", "8GB"}};
  const auto told = [&](int32_t batch) {
    request.batch = batch;
    const std::vector<std::string> notes = predictor.Predict(request).notes;
    const auto note = std::ranges::find_if(
        notes, [](const std::string& each) { return each.starts_with("does not fit"); });
    return note == notes.end() ? std::string() : *note;
  };
  const int32_t largest = predictor.Predict(request).largest_batch;
  EXPECT_EQ(largest, 7);  // 128 KiB a token
  EXPECT_EQ(told(largest), "");
  EXPECT_NE(told(largest + 1).find(" GiB on the host, where 7.5 are free"), std::string::npos);
  EXPECT_EQ(told(largest + 1).find("GPU"), std::string::npos) << "which is large enough";
}

TEST_F(Predictions, MemoryIsThePeakOfTheRun) {
  Predictor predictor(path());
  PredictRequest request = LlamaSteps("pariskv");
  request.params = {{"topk", "20"}, {"dense_until", "100000"}};
  request.context = 99'990;
  request.steps = 5;
  const auto keys_and_values = [&] { return predictor.Predict(request).footprint.gpu_kv; };
  const auto all = [](int64_t tokens) {
    return tokens * llm::FindModel("llama-3.1-8b").KvBytesPerToken();
  };
  EXPECT_EQ(keys_and_values(), all(99'995));
  request.steps = 20;  // the last of which retrieve
  EXPECT_EQ(keys_and_values(), all(99'999));
  request.context = 120'000;
  EXPECT_EQ(keys_and_values(), all(128 + 512 + 512));

  // No context is said to fit on the way to which memory runs out.
  request.params["dense_until"] = "10000000";
  const int64_t largest = predictor.Predict(request).largest_context;
  request.method = "full";
  request.params.clear();
  EXPECT_LE(largest, predictor.Predict(request).largest_context);
}

bool Says(const Prediction& prediction, std::string_view begin) {
  return std::ranges::any_of(prediction.notes,
                             [&](const std::string& note) { return note.starts_with(begin); });
}

TEST_F(Predictions, KvHeadsThatTheTraceLacksAreOtherLayers) {
  Predictor predictor(path());
  PredictRequest request = FreeKv();
  request.params["dense_layers"] = "0";
  request.model = "llama-3.1-8b";  // 8 KV heads
  request.steps = 4;
  EXPECT_TRUE(Says(predictor.Predict(request), "projected: 8 KV heads a layer, the trace's 2"));
  const auto wide = predictor.Log(request);
  request.repeat_heads = true;
  EXPECT_FALSE(Says(predictor.Predict(request), "projected: 8 KV heads a layer"));
  const auto own = predictor.Log(request);
  ASSERT_EQ(wide->kv_heads, 8);
  ASSERT_EQ(own->kv_heads, 2);
  // A head compares its own queries, whichever layer it stands in.
  const std::vector<std::vector<int>> lenders = {{0, 1, 2, 0}, {1, 0, 2, 1}, {2, 1, 0, 2}};
  for (size_t layer = 0; layer < 3; ++layer) {
    for (int step = 1; step < own->steps; ++step) {
      for (int head = 0; head < 8; ++head) {
        const auto lender = static_cast<size_t>(lenders[layer][static_cast<size_t>(head / 2)]);
        EXPECT_EQ(wide->layers[layer].similarity[static_cast<size_t>(step * 8 + head)],
                  own->layers[lender].similarity[static_cast<size_t>(step * 2 + head % 2)]);
      }
    }
  }
}

TEST_F(Predictions, ThresholdsFollowTheTracesKind) {
  const auto tau = [&](const char* method, const methods::ParamValues& params) {
    Predictor predictor(path());
    PredictRequest request;
    request.method = method;
    request.params = params;
    request.steps = 1;
    const Prediction p = predictor.Predict(request);
    EXPECT_EQ(Says(p, "tau = "), !params.contains("tau"));
    return p.params.at("tau");
  };
  EXPECT_EQ(tau("freekv", {}), "0.8");
  EXPECT_EQ(tau("louiskv", {}), "0.85");
  EXPECT_EQ(tau("freekv", {{"tau", "0.9"}}), "0.9");
  methods::RandomTraceOptions generation;
  generation.layers = 3, generation.dim = 32, generation.prompt = 20, generation.steps = 60;
  Write(methods::RandomTrace(generation));
  EXPECT_EQ(tau("freekv", {}), "0.9");
  EXPECT_EQ(tau("louiskv", {}), "0.7");
}

TEST_F(Predictions, ADamagedLayerIsLeftOut) {
  std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(path()) / 2));  // of the middle layer
  file.put('x').put('y');
  file.close();
  const Prediction p = Predictor(path()).Predict(FreeKv());
  EXPECT_TRUE(Says(p, "layer 1 is left out: "));
  EXPECT_EQ(Predictor(path()).Log(FreeKv())->layers.size(), 2u);
  PredictorOptions strict;
  strict.strict = true;
  EXPECT_THROW(Predictor(path(), strict).Predict(FreeKv()), Error);
}

TEST_F(Predictions, SamplesBracketTheMedian) {
  PredictRequest request = FreeKv();
  request.samples = 50;
  const Prediction p = Predictor(path()).Predict(request);
  ASSERT_TRUE(p.sampled);
  EXPECT_LT(p.sampled->p10, p.sampled->p50);
  EXPECT_LT(p.sampled->p50, p.sampled->p90);
  ASSERT_EQ(p.sampled_steps.size(), p.metrics.step_times.size());
  for (size_t step = 0; step < p.sampled_steps.size(); ++step) {
    EXPECT_LE(p.sampled_steps[step].p10, p.metrics.step_times[step]);
    EXPECT_GE(p.sampled_steps[step].p90, p.metrics.step_times[step]);
  }
}

TEST_F(Predictions, QuantilesAreThoseOfTheSampledRuns) {
  PredictRequest request = LlamaSteps("full");
  request.context = 4000;
  request.steps = 2;
  request.samples = 10;
  const Prediction p = Predictor(path()).Predict(request);
  const plan::Plan plan = methods::WriteDecode(
      *methods::MakeMethod("full", {}).method,
      {.model = llm::FindModel("llama-3.1-8b"), .prompt_tokens = 4000, .steps = 2});
  const Simulation simulation(plan, hardware::CostModel(hardware::FindProfile("h200")));
  std::vector<Picoseconds> means, second_steps;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Execution run = simulation.Sample(seed);
    const auto end = [&](int step) {
      return run.end[static_cast<size_t>(plan::Index(plan.step_ends[static_cast<size_t>(step)]))];
    };
    means.push_back(end(1) / 2);
    second_steps.push_back(end(1) - end(0));
  }
  for (std::vector<Picoseconds>* times : {&means, &second_steps})
    std::sort(times->begin(), times->end());
  ASSERT_TRUE(p.sampled);
  // By nearest rank: the first, fifth and ninth of ten.
  EXPECT_EQ(p.sampled->p10, means[0]);
  EXPECT_EQ(p.sampled->p50, means[4]);
  EXPECT_EQ(p.sampled->p90, means[8]);
  EXPECT_EQ(p.sampled_steps.at(1).p90, second_steps[8]);
}

TEST_F(Predictions, StopWhenAsked) {
  int steps_of_progress = 0;
  std::stop_source stop;
  PredictorOptions options;
  options.progress = [&](const std::string& what, double) {
    EXPECT_EQ(what, "sampling freekv");
    ++steps_of_progress;
    stop.request_stop();
  };
  PredictRequest request = FreeKv();
  Predictor(path()).Predict(request);  // replays
  Predictor predictor(path(), options);
  request.samples = 100'000;
  EXPECT_THROW(predictor.Predict(request, nullptr, stop.get_token()), Cancelled);
  EXPECT_LT(steps_of_progress, 1000);
  EXPECT_THROW(predictor.Log(request, stop.get_token()), Cancelled);
  EXPECT_NE(predictor.Log(request), nullptr) << "a cancelled replay leaves nothing half done";
}

// On every trace that ships.
TEST(Samples, EveryMethodRunsOnEverySample) {
  const auto samples = methods::Samples();
  ASSERT_FALSE(samples.empty());
  for (const fs::path& sample : samples) {
    Predictor predictor(sample);
    for (const methods::MethodInfo& info : methods::Methods()) {
      PredictRequest request;
      request.method = info.name;
      request.model = "llama-3.1-8b";
      request.prefill = false;
      const Prediction p = predictor.Predict(request);
      EXPECT_GE(p.metrics.step_mean, p.metrics.ceiling) << info.name;
      EXPECT_GT(p.selection.attention_mass, 0.5) << info.name;
      EXPECT_LE(p.selection.attention_mass, 1) << info.name;
      // Where something had to be recalled to a budget, something else made room. ParisKV keeps
      // nothing of the step before; two have caches that may hold more than was ever used.
      const std::set<std::string> others = {"pariskv", "pqcache", "retroinfer"};
      if (p.selection.hit_rate < 1 && !others.contains(info.name)) {
        EXPECT_GT(p.selection.evictions, 0) << info.name;
      }
      const bool all =
          info.name == "full" || !methods::MakeMethod(info.name, {}).method->NewPolicy();
      const auto& tensors = predictor.report().tensors;
      const bool values = std::any_of(tensors.begin(), tensors.end(), [](const auto& spec) {
        return spec.kind == traces::TensorKind::kValue;
      });
      if (all) {
        EXPECT_EQ(p.selection.output_error, 0) << info.name;
        EXPECT_EQ(p.selection.evictions, 0) << info.name;
      } else if (values) {
        EXPECT_GT(p.selection.output_error, 0) << info.name;
        EXPECT_LT(p.selection.output_error, 0.5) << info.name;
      } else {
        EXPECT_TRUE(std::isnan(p.selection.output_error)) << info.name;
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::sim
