// Every policy against its paper in double precision, on awkward shapes and on real tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "models/methods/arkvale/policy.h"
#include "models/methods/freekv/policy.h"
#include "models/methods/method.h"
#include "models/methods/quest/policy.h"
#include "models/methods/streaming/policy.h"
#include "tests/models/methods/brute_force.h"
#include "tests/models/methods/random_trace.h"
#include "tests/models/methods/replayed.h"
#include "tests/models/methods/samples.h"

namespace stallcast::methods {
namespace {

// The log's own bookkeeping: nothing is recalled that is there already, nothing is attended that
// is not, and the GPU never holds more than its slots.
void ExpectConserved(const Replayed& log, int steps, size_t slots) {
  for (int head = 0; head < log.access.heads; ++head) {
    std::set<uint32_t> could_be_resident;
    for (int step = 0; step < steps; ++step) {
      const int64_t at = int64_t{step} * log.access.heads + head;
      const std::set<uint32_t> selected = Set(log.access.selected[at]);
      const std::set<uint32_t> now = Set(log.access.recalled_now[at]);
      const std::set<uint32_t> ahead = Set(log.access.recalled_ahead[at]);
      ASSERT_LE(selected.size(), slots);
      for (uint32_t page : now) {
        ASSERT_TRUE(selected.contains(page)) << "recalled before attention but not attended";
      }
      for (uint32_t page : ahead) {
        ASSERT_FALSE(selected.contains(page)) << "recalled though on the GPU";
      }
      // A page attended was attended the step before, recalled since, or left the window just now
      // with a slot free.
      if (step > 0) {
        for (uint32_t page : selected) {
          ASSERT_TRUE(could_be_resident.contains(page) || now.contains(page) ||
                      could_be_resident.size() < slots)
              << "page " << page << " came from nowhere";
        }
      }
      could_be_resident = selected;
      could_be_resident.insert(ahead.begin(), ahead.end());
    }
  }
}

std::vector<RandomTraceOptions> Shapes() {
  return {
      {},                                      // pages of 8 end inside the prompt
      {.kv_heads = 1, .group = 1, .seed = 2},  // multi-head attention
      {.kv_heads = 3,
       .group = 2,
       .dim = 17,
       .prompt = 160,
       .steps = 33,
       .value_dim = 17,
       .seed = 3},
      {.group = 7, .dim = 64, .prompt = 129, .steps = 41, .prompt_queries = 0, .seed = 4},
      {.kv_heads = 2, .group = 4, .dim = 8, .prompt = 40, .steps = 90, .seed = 5},  // grows past
      {.prompt = 3, .steps = 20, .value_dim = 5, .seed = 6},  // shorter than the sink
      {.dim = 128, .prompt = 700, .steps = 20, .prompt_queries = 5, .value_dim = 128, .seed = 7},
      // More pages, and values of more dimensions, than a panel of 256.
      {.dim = 32, .prompt = 2500, .steps = 8, .value_dim = 300, .seed = 9},
  };
}

class PolicyOnShape : public testing::TestWithParam<RandomTraceOptions> {
 protected:
  const traces::Trace trace = RandomTrace(GetParam());
  const LayerTensors tensors{trace, 0};
  const brute::Layer layer{trace, 0};
};
INSTANTIATE_TEST_SUITE_P(Random, PolicyOnShape, testing::ValuesIn(Shapes()));

TEST_P(PolicyOnShape, Quest) {
  for (const auto group :
       {QuestParams::Group::kQueryHead, QuestParams::Group::kMax, QuestParams::Group::kMean}) {
    const QuestParams params{.budget = 48, .page = 8, .group = group};
    ExpectSame(Replayed(QuestPolicy(params), tensors), brute::Quest(layer, params), layer);
  }
}

TEST_P(PolicyOnShape, ArkVale) {
  for (const auto variant : {ArkValeParams::Variant::kPublished, ArkValeParams::Variant::kFreeKv}) {
    for (const int64_t topk : {0, 6}) {
      const ArkValeParams params{
          .variant = variant, .budget = 96, .page = 8, .topk = topk, .sink = 8, .window = 16};
      const Replayed log(ArkValePolicy(params), tensors);
      // What is on the GPU follows from every step before: one near tie leaves a head's rest open.
      ExpectSame(log, brute::ArkVale(layer, params), layer, 0.7);
      ExpectConserved(log, layer.steps, 9);
    }
  }
}

TEST_P(PolicyOnShape, FreeKv) {
  for (const double tau : {0.0, 0.7, 0.85, 1.0}) {
    const FreeKvParams params{.budget = 64, .page = 8, .sink = 8, .window = 16, .tau = tau};
    const Replayed log(FreeKvPolicy(params), tensors);
    ExpectSame(log, brute::FreeKv(layer, params), layer);
    ExpectConserved(log, layer.steps, 5);
  }
}

TEST_P(PolicyOnShape, FreeKvPieces) {
  for (const auto pooling :
       {Pooling::kSoftmaxMean, Pooling::kSoftmaxMeanUnscaled, Pooling::kMean}) {
    for (const auto summary : {PageSummary::kMinMax, PageSummary::kCuboidMean}) {
      FreeKvParams params{.budget = 72, .page = 4, .sink = 0, .window = 12, .tau = 0.8};
      params.pooling = pooling;
      params.summary = summary;
      ExpectSame(Replayed(FreeKvPolicy(params), tensors), brute::FreeKv(layer, params), layer);
    }
  }
  for (const bool correction : {true, false}) {
    for (const bool speculation : {true, false}) {
      FreeKvParams params{.budget = 64, .page = 8, .sink = 16, .window = 8};
      params.correction = correction;
      params.speculation = speculation;
      ExpectSame(Replayed(FreeKvPolicy(params), tensors), brute::FreeKv(layer, params), layer);
    }
  }
}

TEST_P(PolicyOnShape, StreamingAttendsSinkAndWindow) {
  const Replayed log(StreamingPolicy({.sink = 5, .budget = 37}), tensors);
  for (int step = 0; step < layer.steps; ++step) {
    const int64_t context = layer.prompt + step + 1;
    const std::vector<bool> attended = Attended(log, step, 0, context);
    for (int64_t t = 0; t < context; ++t) {
      ASSERT_EQ(attended[t], t < 5 || t >= context - 32) << step << " " << t;
    }
    ASSERT_EQ(log.access.attended_tokens[step], std::min<int64_t>(context, 37));
    ASSERT_EQ(log.access.evicted[step], context > 37);
  }
}

TEST_P(PolicyOnShape, MassAndErrorAreThoseOfTrueAttention) {
  const FreeKvParams freekv{.budget = 64, .page = 8, .sink = 8, .window = 16, .tau = 0.8};
  const QuestParams quest{.budget = 48, .page = 8};
  const ArkValeParams arkvale{.budget = 96, .page = 8, .sink = 8, .window = 16};
  const Replayed logs[] = {{FreeKvPolicy(freekv), tensors},
                           {QuestPolicy(quest), tensors},
                           {ArkValePolicy(arkvale), tensors},
                           {StreamingPolicy({.sink = 5, .budget = 37}), tensors}};
  for (const Replayed& log : logs) {
    for (int step = 0; step < layer.steps; step += 3) {
      const auto attended = AttendedByHead(log, step, layer.prompt + step + 1);
      ASSERT_NEAR(log.fidelity.mass[step], brute::Mass(layer, step, attended), 1e-5);
      if (layer.values.empty()) continue;
      ASSERT_NEAR(log.fidelity.output_error[step], brute::OutputError(layer, step, attended), 1e-5);
    }
    ASSERT_EQ(log.fidelity.output_error.empty(), layer.values.empty());
  }
}

TEST(Policies, ShortContextsAreAttendedWholeAndMoveNothing) {
  const traces::Trace trace = RandomTrace({.prompt = 100, .steps = 28, .value_dim = 24});
  const LayerTensors tensors(trace, 0);
  const Replayed logs[] = {
      {FreeKvPolicy({.budget = 128, .page = 8, .sink = 16, .window = 16}), tensors},
      {QuestPolicy({.budget = 128, .page = 8}), tensors},
      {ArkValePolicy({.budget = 128, .page = 8, .sink = 16, .window = 16}), tensors},
      {StreamingPolicy({.budget = 128}), tensors}};
  for (const Replayed& log : logs) {
    EXPECT_EQ(log.access.recalled_now.total(), 0);
    EXPECT_EQ(log.access.recalled_ahead.total(), 0);
    for (int step = 0; step < 28; ++step) {
      EXPECT_EQ(log.fidelity.mass[step], 1.0f);
      EXPECT_EQ(log.fidelity.output_error[step], 0.0f);
      EXPECT_EQ(log.access.evicted[int64_t{step} * log.access.heads], 0);
      EXPECT_EQ(log.access.attended_tokens[int64_t{step} * log.access.heads], 101 + step);
    }
  }
}

TEST(Policies, LargeLogitsNeitherOverflowNorTie) {
  // Raw scores in the thousands: exp() of their differences is zero in float.
  traces::Trace trace = RandomTrace({.dim = 64, .prompt = 400, .steps = 10, .seed = 11});
  for (traces::Tensor& tensor : trace.tensors) {
    auto* values = reinterpret_cast<float*>(tensor.data.data());
    for (int64_t i = 0; i < tensor.spec.elements(); ++i) values[i] *= 12;
  }
  const LayerTensors tensors(trace, 0);
  const brute::Layer layer(trace, 0);
  FreeKvParams params{.budget = 160, .page = 8, .sink = 8, .window = 16};
  params.pooling = Pooling::kMean;
  ExpectSame(Replayed(FreeKvPolicy(params), tensors), brute::FreeKv(layer, params), layer);
  params.pooling = Pooling::kSoftmaxMeanUnscaled;
  const Replayed log(FreeKvPolicy(params), tensors);
  for (float mass : log.fidelity.mass) EXPECT_TRUE(mass >= 0 && mass <= 1.000001f) << mass;
  for (int64_t cell = 0; cell < log.access.selected.size(); ++cell) {
    EXPECT_EQ(log.access.selected[cell].size(), 17u);
  }
}

TEST(Policies, MatchThePapersOnRealTensors) {
  traces::Trace trace = traces::ReadTrace(kRealTrace);
  trace.info.set_decode_steps(std::min<int64_t>(trace.info.decode_steps(), 12));
  const int index = trace.Layers().back();
  const LayerTensors tensors(trace, index);
  const brute::Layer layer(trace, index);
  const FreeKvParams freekv;
  ExpectSame(Replayed(FreeKvPolicy(freekv), tensors), brute::FreeKv(layer, freekv), layer, 0.5);
  const ArkValeParams arkvale;
  const Replayed log(ArkValePolicy(arkvale), tensors);
  ExpectSame(log, brute::ArkVale(layer, arkvale), layer, 0.3);
  const QuestParams quest;
  ExpectSame(Replayed(QuestPolicy(quest), tensors), brute::Quest(layer, quest), layer, 0.5);
  for (int step = 0; step < layer.steps; ++step) {
    const std::vector<bool> attended = Attended(log, step, 0, layer.prompt + step + 1);
    ASSERT_NEAR(log.fidelity.mass[step], brute::Mass(layer, step, {attended}), 1e-5);
    if (layer.values.empty()) continue;
    ASSERT_NEAR(log.fidelity.output_error[step], brute::OutputError(layer, step, {attended}), 1e-5);
  }
}

}  // namespace
}  // namespace stallcast::methods
