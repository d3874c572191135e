// Predictions from traces as captures leave them: cut short, or with attention of another kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "sim/predict.h"
#include "tests/scratch_folder.h"
#include "tests/sim/small_trace.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class CapturedTrace : public ::testing::Test {
 protected:
  void SetUp() override { WriteSmallTrace(whole_); }

  /// The small trace with another description; without an End chunk where `cut`.
  std::filesystem::path With(const std::function<void(traces::proto::TraceInfo&)>& change,
                             bool cut = false) const {
    const std::filesystem::path path = folder_.path() / "changed.kvt";
    traces::Trace trace = traces::ReadTrace(whole_);
    change(trace.info);
    traces::TraceWriter writer(path, trace.info);
    for (const traces::Tensor& tensor : trace.tensors) writer.Write(tensor.spec, tensor.data);
    if (!cut) writer.Finish();
    return path;
  }
  static Prediction Predict(const std::filesystem::path& path, const std::string& method,
                            const methods::ParamValues& params = {}) {
    PredictRequest request;
    request.method = method;
    request.params = params;
    PredictorOptions options;
    options.cache = false;
    return Predictor(path, options).Predict(request);
  }

  const ScratchFolder folder_;
  const std::filesystem::path whole_ = folder_.path() / "whole.kvt";
};

TEST_F(CapturedTrace, OfAKilledProcessPredictsWhatIsThere) {
  const auto cut = With([](traces::proto::TraceInfo& info) { info.set_decode_steps(0); }, true);
  for (const char* method : {"full", "streaming", "quest"}) {
    methods::ParamValues params;
    if (method == std::string_view("quest")) params["dense_layers"] = "0";
    const Prediction whole = Predict(whole_, method, params), of_cut = Predict(cut, method, params);
    EXPECT_EQ(of_cut.request.steps, whole.request.steps) << method;
    EXPECT_EQ(of_cut.metrics.step_times, whole.metrics.step_times) << method;
    EXPECT_THAT(of_cut.notes, Contains(HasSubstr("truncated"))) << method;
  }
}

TEST_F(CapturedTrace, AWindowThatTheMethodKeepsLosesNothing) {
  const methods::ParamValues params{{"budget", "256"}};
  const double whole = Predict(whole_, "streaming", params).selection.attention_mass;
  EXPECT_LT(whole, 0.99);
  const auto one_layer = With([](traces::proto::TraceInfo& info) {
    info.mutable_model()->add_attention()->set_window(100);
  });
  const Prediction of_one = Predict(one_layer, "streaming", params);
  EXPECT_GT(of_one.selection.attention_mass, whole);
  EXPECT_LT(of_one.selection.attention_mass, 0.999);
  EXPECT_THAT(of_one.notes, Contains(HasSubstr("layers 0 ")));
  // As hooks wrote it that knew no layer's own.
  const auto named = With([](traces::proto::TraceInfo& info) {
    (*info.mutable_parameters())["sliding_window"] = "100";
  });
  EXPECT_NEAR(Predict(named, "streaming", params).selection.attention_mass, 1, 1e-5);
}

TEST_F(CapturedTrace, SaysWhatItAssumes) {
  const auto trace = With([](traces::proto::TraceInfo& info) {
    info.mutable_model()->set_intermediate(0);
    (*info.mutable_parameters())["sliding_window"] = "100";
  });
  const Prediction prediction = Predict(trace, "streaming");
  EXPECT_EQ(prediction.model.intermediate, 4 * prediction.model.hidden);
  EXPECT_THAT(prediction.notes, Contains(HasSubstr("MLP")));
  EXPECT_THAT(prediction.notes, Contains(HasSubstr("100 tokens")));
  EXPECT_THAT(Predict(whole_, "streaming").notes, Each(Not(HasSubstr("assumed"))));
}

TEST_F(CapturedTrace, IsNoDenseModelWhereItHasExpertsOrLayersWithoutKeys) {
  const auto expect_refused = [&](const std::filesystem::path& path, const std::string& why) {
    try {
      Predict(path, "streaming");
      ADD_FAILURE() << "predicted as a dense model";
    } catch (const Error& error) {
      EXPECT_THAT(error.problem(), HasSubstr(why));
    }
  };
  expect_refused(With([](traces::proto::TraceInfo& info) {
                   info.mutable_model()->mutable_experts()->set_count(8);
                 }),
                 "8 experts");
  expect_refused(With([](traces::proto::TraceInfo& info) {
                   info.mutable_model()->add_attention()->set_absent(true);
                 }),
                 "1 of its 2 layers");
}

TEST_F(CapturedTrace, WithoutATokenSaysSo) {
  const std::filesystem::path path = folder_.path() / "empty.kvt";
  traces::proto::TraceInfo info = traces::ReadTrace(whole_).info;
  info.set_prompt_tokens(0);
  info.set_decode_steps(0);
  traces::TraceWriter writer(path, info);
  writer.Finish();
  try {
    Predict(path, "streaming");
    FAIL() << "predicted from nothing";
  } catch (const Error& error) {
    EXPECT_EQ(error.problem(), "the trace holds no tokens");
  }
}

}  // namespace
}  // namespace stallcast::sim
