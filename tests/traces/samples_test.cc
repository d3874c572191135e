#include "traces/samples.h"

#include <gtest/gtest.h>

#include <string>

#include "traces/common/error.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

TEST(Samples, OtherNamesArePaths) {
  for (const char* path : {"a.kvt", "/b/c.kvt", "samples:8k", "./sample:8k", ""}) {
    EXPECT_EQ(TracePath(path), path);
  }
}

TEST(Samples, AllShipAndAreWhole) {
  for (const Sample& sample : Samples()) {
    SCOPED_TRACE(sample.name);
    const Trace trace =
        ReadTrace(TracePath("sample:" + std::string(sample.name)), {.strict = true});
    EXPECT_FALSE(trace.Layers().empty());
    EXPECT_FALSE(trace.info.synthetic());
    EXPECT_FALSE(trace.info.provenance().empty());
    EXPECT_GT(trace.info.prompt_tokens(), 0);
    EXPECT_GT(trace.info.decode_steps(), 0);
  }
}

TEST(Samples, UnknownOnesAreRefused) {
  for (const char* name : {"sample:", "sample:9k", "sample:../8k", "sample:8k.kvt"}) {
    EXPECT_THROW(TracePath(name), Error) << name;
  }
}

}  // namespace
}  // namespace stallcast::traces
