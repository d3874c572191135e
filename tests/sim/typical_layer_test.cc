#include "sim/typical_layer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/predict.h"
#include "tests/models/methods/samples.h"
#include "traces/format/trace_file.h"

namespace stallcast::sim {
namespace {

using traces::Role;
using traces::Timeline;

struct Span {
  int64_t start, duration;
};
struct Row {
  int64_t op;
  int16_t layer;
  const char* name;
  Span predicted, measured;
};

Timeline Of(Timeline::Origin origin, const std::vector<Row>& rows, Span Row::*side) {
  Timeline t;
  t.origin = origin;
  t.title = "test";
  t.lanes = {{"compute", traces::LaneKind::kStream, true}};
  t.names = {"gemm", "norm", "score"};
  for (const Row& row : rows) {
    t.lane.push_back(0);
    t.op.push_back(row.op);
    t.step.push_back(0);
    t.layer.push_back(row.layer);
    t.role.push_back(Role::kOther);
    const std::string name = row.name;
    t.name.push_back(name == "gemm" ? 0 : name == "norm" ? 1 : 2);
    t.start.emplace_back((row.*side).start);
    t.duration.emplace_back((row.*side).duration);
    t.bytes.push_back(0);
  }
  return t;
}

TypicalLayer Find(const Timeline& predicted, const Timeline& measured) {
  return FindTypicalLayer(
      Compare(Predicted<const Timeline*>{&predicted}, Measured<const Timeline*>{&measured}));
}

TypicalLayer Find(const std::vector<Row>& rows) {
  return Find(Of(Timeline::Origin::kPredicted, rows, &Row::predicted),
              Of(Timeline::Origin::kMeasured, rows, &Row::measured));
}

TEST(TypicalLayer, TellsWhereAPredictionAndARunPart) {
  // Layers 0 and 1 alike, layer 2 has an op more; what belongs to no layer is left out.
  const TypicalLayer layer = Find({{0, 0, "norm", {0, 10}, {1000, 12}},
                                   {1, 0, "gemm", {12, 40}, {1018, 44}},
                                   {2, 1, "norm", {60, 10}, {1070, 14}},
                                   {3, 1, "gemm", {72, 40}, {1088, 48}},
                                   {4, 2, "norm", {120, 10}, {1150, 10}},
                                   {5, 2, "score", {131, 5}, {1161, 5}},
                                   {6, 2, "gemm", {140, 40}, {1170, 40}},
                                   {7, -1, "gemm", {190, 40}, {1220, 40}}});
  EXPECT_EQ(layer.layers, 2);
  EXPECT_EQ(layer.of, 3);
  ASSERT_EQ(layer.places.size(), 2u);
  const TypicalLayer::Place& norm = layer.places[0];
  const TypicalLayer::Place& gemm = layer.places[1];
  EXPECT_EQ(norm.op, "norm");
  EXPECT_EQ(norm.begin.predicted.value.count(), 0);
  EXPECT_EQ(norm.duration.measured.value.count(), 13);  // 12 and 14
  EXPECT_EQ(norm.start_delay().count(), 3);
  EXPECT_EQ(gemm.op, "gemm");
  EXPECT_EQ(gemm.begin.predicted.value.count(), 12);
  EXPECT_EQ(gemm.begin.measured.value.count(), 18);
  EXPECT_EQ(gemm.idle.predicted.value.count(), 2);
  EXPECT_EQ(gemm.idle.measured.value.count(), 5);  // 6 and 4
  EXPECT_EQ(gemm.duration.measured.value.count(), 46);
  EXPECT_EQ(gemm.start_delay().count(), 6 + 6);
  EXPECT_EQ(layer.period.predicted.value.count(), 60);
  EXPECT_EQ(layer.period.measured.value.count(), 75);  // 70 and 80
}

TEST(TypicalLayer, IsNoneWithoutLayers) {
  const TypicalLayer layer = Find({{0, -1, "gemm", {0, 10}, {0, 10}}});
  EXPECT_TRUE(layer.places.empty());
  EXPECT_EQ(layer.of, 0);
}

// Full attention's layers are all alike, and its ops follow one another on one stream.
TEST(TypicalLayer, OfARecordingAddsUpToTheLayer) {
  const std::string source = STALLCAST_SOURCE_DIR;
  const traces::Trace recorded = traces::ReadTrace(source + "/traces/measured/full.kvt");
  PredictorOptions options;
  options.cache = false;
  Predictor predictor(methods::kMeasuredTraces / "code-8k.kvt", options);
  PredictRequest request;
  request.method = "full";
  request.model = "llama-3.1-8b";
  request.steps = 4;
  request.prefill = false;
  Timeline predicted;
  predictor.Predict(request, &predicted);
  const TypicalLayer layer = Find(predicted, recorded.timelines.at(0));
  EXPECT_EQ(layer.layers, 4 * 32);
  EXPECT_EQ(layer.of, layer.layers);
  std::vector<std::string> ops;
  Picoseconds sum{0};
  for (const TypicalLayer::Place& place : layer.places) {
    ops.push_back(place.op);
    sum += place.idle.measured.value + place.duration.measured.value;
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"norm", "gemm", "rope_append", "decode_attention",
                                           "gemm", "norm", "gemm", "swiglu", "gemm"}));
  // The first layer of a step begins behind the step's end, and the last has no next one.
  EXPECT_NEAR(Seconds(sum), Seconds(layer.period.measured.value),
              0.03 * Seconds(layer.period.measured.value));
}

}  // namespace
}  // namespace stallcast::sim
