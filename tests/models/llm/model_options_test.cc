#include "models/llm/model_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/scratch_folder.h"
#include "traces/common/error.h"

namespace stallcast::llm {
namespace {

TEST(ModelOptions, WidthsOfKvAndWeightsAreApart) {
  const Model model = FindModel("llama-3.1-8b");
  const Model narrow = WithOptions(model, {{"kv-dtype", "fp8"}});
  EXPECT_EQ(narrow.WeightBytes(), model.WeightBytes());
  EXPECT_EQ(2 * narrow.KvBytesPerToken(), model.KvBytesPerToken());
  // 34 bytes for 32 elements.
  EXPECT_EQ(WithOptions(model, {{"kv-dtype", "q8_0"}}).KvRowBytes(), 136);
  const Model light = WithOptions(model, {{"weight-dtype", "int4"}});
  EXPECT_EQ(light.KvBytesPerToken(), model.KvBytesPerToken());
  EXPECT_LT(light.WeightBytes(), model.WeightBytes() / 2);
}

TEST(ModelOptions, ExpertsThatTokensTookComeFromAFile) {
  const ScratchFolder scratch;
  const std::string file = (scratch / "taken.txt").string();
  std::ofstream(file) << "1, 1, 1, 1\n1 1 1 93";
  const Model model = FindModel("mixtral-8x7b");
  const Model skewed = WithOptions(model, {{"routing", file}});
  EXPECT_LT(skewed.DistinctExperts(4), model.DistinctExperts(4));
  std::ofstream(file) << "1 2 3";
  EXPECT_THROW(WithOptions(model, {{"routing", file}}), Error);
  std::ofstream(file) << "1 2 3 4 5 6 7 many";
  EXPECT_THROW(WithOptions(model, {{"routing", file}}), Error);
}

TEST(ModelOptions, SenselessValuesAreUsageErrors) {
  const Model model = FindModel("llama-3.1-8b");
  for (const ModelValues& values : {ModelValues{{"kv-dtype", "int3"}},
                                    {{"kv-dtype", "mxfp4"}},
                                    {{"weight-dtype", ""}},
                                    {{"queries", "0"}},
                                    {{"queries", "2.5"}},
                                    {{"accepted", "2"}},
                                    {{"queries", "3"}, {"accepted", "3.1"}},
                                    {{"routing", "uniform"}},
                                    {{"of my own", "1"}}}) {
    try {
      WithOptions(model, values);
      ADD_FAILURE() << values.begin()->first << "=" << values.begin()->second;
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage());
      EXPECT_FALSE(error.where().empty());
    }
  }
  const Model several = WithOptions(model, {{"queries", "4"}, {"accepted", "2.5"}});
  EXPECT_EQ(several.queries, 4);
  EXPECT_EQ(several.accepted, 2.5);
}

}  // namespace
}  // namespace stallcast::llm
