#include "traces/access_log.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/traces/sample.h"

namespace stallcast::traces {
namespace {

TEST(IdListsTest, CellsKeepTheirIds) {
  IdLists lists;
  const std::vector<std::vector<uint32_t>> cells = {{}, {3, 1, 4}, {}, {~0u}};
  for (const std::vector<uint32_t>& cell : cells) lists.Append(cell);
  ASSERT_EQ(lists.size(), 4);
  EXPECT_EQ(lists.total(), 4);
  for (int64_t cell = 0; cell < 4; ++cell) {
    EXPECT_EQ(std::vector<uint32_t>(lists[cell].begin(), lists[cell].end()), cells[cell]);
  }
}

std::string FaultAfter(const std::function<void(AccessLog&)>& change) {
  AccessLog log = SampleLog();
  change(log);
  return FirstFault(log);
}

TEST(AccessLogTest, FaultsAreFound) {
  EXPECT_EQ(FirstFault(SampleLog()), "");
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].similarity.clear(); }), "");
  const std::string column = "layer 1: a column holds neither one entry a cell nor none";
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].flags.pop_back(); }), column);
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].selected.Append({}); }), column);
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].attention_mass.push_back(1); }), column);
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].evicted.pop_back(); }), column);
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].output_error.pop_back(); }), column);
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].output_error.clear(); }), "");
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.steps = 4; }),
            "layer 0: a column holds neither one entry a cell nor none");
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[1].layer = 0; }),
            "layers are not in ascending order");
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.layers[0].heads = -1; }),
            "layer 0: negative number of heads");
  EXPECT_EQ(FaultAfter([](AccessLog& log) { log.steps = -1; }), "negative number of steps");
}

}  // namespace
}  // namespace stallcast::traces
