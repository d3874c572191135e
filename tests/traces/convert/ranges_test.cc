#include "traces/convert/ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace stallcast::traces::convert {
namespace {

int32_t Step(const std::string& name) {
  const auto found = StepName(name);
  return found ? found->number : -1;
}

int32_t Layer(const std::string& name) {
  const auto found = LayerName(name);
  return found ? found->number : -1;
}

TEST(StepNameTest, WholeWordsWithANumber) {
  EXPECT_EQ(Step("ProfilerStep#12"), 12);
  EXPECT_EQ(Step("step 3"), 3);
  EXPECT_EQ(Step("STEP: 3"), 3);
  EXPECT_EQ(Step("decode/iter_17"), 17);
  EXPECT_EQ(Step("step::2"), 2);
  EXPECT_EQ(Step("sample_0 step=4 rank=1"), 4);
  EXPECT_EQ(Step("stallcast step at token 8192"), 8192);
  EXPECT_EQ(Step("Iteration[9]"), 9);
}

TEST(StepNameTest, OtherNamesAreNone) {
  for (const char* name : {"", "step", "stepping 3", "footstep 3", "Optimizer.step#Adam.step",
                           "step 3x", "step -", "step 99999999999", "aten::mm", "3 steps"}) {
    EXPECT_EQ(Step(name), -1) << name;
  }
}

TEST(StepNameTest, FamiliesTellNamesApart) {
  EXPECT_EQ(StepName("ProfilerStep#1")->family, StepName("ProfilerStep#22")->family);
  EXPECT_NE(StepName("ProfilerStep#1")->family, StepName("step 1")->family);
}

TEST(LayerNameTest, PathsAndWords) {
  EXPECT_EQ(Layer("layer 3"), 3);
  EXPECT_EQ(Layer("model.layers.12.self_attn"), 12);
  EXPECT_EQ(Layer("TransformerBlock_5"), 5);
  EXPECT_EQ(Layer("player 3"), -1);
  EXPECT_EQ(Layer("layer_norm"), -1);
}

TEST(ServerStepNameTest, NamesOfServersAreOneFamily) {
  const auto family = [](const char* name) {
    const auto found = ServerStepName(name);
    return found ? std::string(found->family) : "none";
  };
  EXPECT_EQ(family("execute_context_0(0)_generation_8(8)"), "execute_");
  EXPECT_EQ(family("execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)"), "execute_");
  EXPECT_EQ(family("step[DECODE bs=32]"), "step[");
  EXPECT_EQ(family("stepping"), "none");
  EXPECT_EQ(family("execute"), "none");
}

TEST(FamilyNameTest, TheWholeNameOrANumberBehindIt) {
  EXPECT_EQ(FamilyName("decode", "decode")->number, -1);
  EXPECT_EQ(FamilyName("decode 12", "decode")->number, 12);
  EXPECT_FALSE(FamilyName("decoder 12", "decode"));
  EXPECT_FALSE(FamilyName("a decode 12", "decode"));
}

// Of the ranges around a time, the one that began last; of those, the shortest.
TEST(NumberedRangesTest, AgreesWithLookingAtAllOfNestedRanges) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    struct Range {
      int64_t begin, end;
    };
    // Cutting an interval again and again gives ranges that nest or lie apart.
    std::vector<Range> ranges = {{0, 1000}};
    for (int i = 0; i < 12; ++i) {
      const Range in = ranges[random() % ranges.size()];
      if (in.end - in.begin < 4) continue;
      const auto begin = in.begin + static_cast<int64_t>(random() % ((in.end - in.begin) / 2));
      ranges.push_back({begin, begin + static_cast<int64_t>(random() % (in.end - begin))});
      for (size_t other = 1; other + 1 < ranges.size(); ++other) {
        const Range& a = ranges[other];
        const Range& b = ranges.back();
        const bool apart = b.end <= a.begin || a.end <= b.begin;
        const bool nested =
            (a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end);
        if (apart || nested) continue;
        ranges.pop_back();
        break;
      }
    }
    ranges.erase(ranges.begin());
    NumberedRanges numbered;
    for (size_t i = 0; i < ranges.size(); ++i) {
      numbered.Add(Picoseconds(ranges[i].begin), Picoseconds(ranges[i].end),
                   static_cast<int32_t>(i));
    }
    numbered.Arrange();
    for (int64_t time = -5; time < 1005; ++time) {
      int64_t begin = -1, length = 0;
      for (const Range& range : ranges) {
        if (time < range.begin || time >= range.end) continue;
        if (range.begin > begin || (range.begin == begin && range.end - begin < length)) {
          begin = range.begin;
          length = range.end - range.begin;
        }
      }
      const int32_t found = numbered.At(Picoseconds(time));
      if (begin < 0) {
        ASSERT_EQ(found, -1) << time;
      } else {
        ASSERT_GE(found, 0) << time;
        EXPECT_EQ(ranges[static_cast<size_t>(found)].begin, begin) << time;
        EXPECT_EQ(ranges[static_cast<size_t>(found)].end - begin, length) << time;
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::traces::convert
