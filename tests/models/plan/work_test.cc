// Counted bytes and operations against hand calculations, most for one layer of Llama-3.1-8B.
#include "models/plan/work.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace stallcast::plan {
namespace {

struct Case {
  Work work;
  WorkCounts expected;
  Bytes moved;
};

std::vector<Case> Cases() {
  return {
      // 4096 x 6144 weights, one row: (4096 + 25165824) * 2 read, 6144 * 2 written.
      {Gemm{.m = 1, .n = 6144, .k = 4096},
       {.device_read = 50'339'840, .device_written = 12'288, .flops = 50'331'648},
       50'352'128},
      // Seven and a half matrices of 1536 x 2048, 16 rows in and out.
      {GroupedGemm{.rows = 16, .n = 1536, .k = 2048, .matrices = 7.5},
       {.device_read = 47'251'456, .device_written = 49'152, .flops = 100'663'296},
       47'300'608},
      // The same the other way, summed to two rows.
      {GroupedGemm{.rows = 16, .n = 2048, .k = 1536, .matrices = 7.5, .outputs = 2},
       {.device_read = 47'235'072, .device_written = 8'192, .flops = 100'663'296},
       47'243'264},
      {Route{.rows = 4, .experts = 128, .active = 8},
       {.device_read = 1'024, .device_written = 256, .flops = 2'560},
       1'280},
      // 8,192 latents of 1,152 bytes; 256 queries of 576 elements, outputs of 512.
      {LatentAttention{.kv_tokens = 8'192,
                       .kv_tokens_max = 4'096,
                       .sequences = 2,
                       .heads = 128,
                       .width = 576,
                       .value_width = 512,
                       .kv_row_bytes = 1'152},
       {.device_read = 9'732'096,
        .device_written = 262'144,
        .flops = 2'281'701'376,
        .serial_items = 128},
       9'994'240},
      {LatentIndex{.keys = 32'768,
                   .pairs = 32'768,
                   .keys_max = 32'768,
                   .heads = 64,
                   .dim = 128,
                   .key_bytes = 132,
                   .top_k = 2'048},
       {.device_read = 4'325'376,
        .device_written = 131'072,
        .flops = 536'870'912,
        .serial_items = 32'768},
       4'456'448},
      // 64 states of 64 KiB, read and written; a token's keys, queries and values.
      {StateUpdate{.sequences = 2, .tokens = 2, .heads = 32, .key_dim = 128, .value_dim = 128},
       {.device_read = 4'243'456, .device_written = 4'210'688, .flops = 8'388'608},
       8'454'144},
      // 16,384 keys and values of 256 bytes; 64 queries and outputs of 256 bytes, a sum each.
      {HostAttention{.kv_tokens = 16'384,
                     .sequences = 2,
                     .query_heads = 32,
                     .head_dim = 128,
                     .kv_row_bytes = 256,
                     .group = 4,
                     .threads = 8},
       {.host_memory = 8'421'632, .flops = 33'554'432},
       8'421'632},
      // 100 cache lines and 1,000 bytes.
      {HostLookup{.accesses = 100, .bytes = 1'000, .threads = 8},
       {.host_memory = 7'400, .serial_items = 13},
       7'400},
      // Ten passes over 16 rows of 1,000 vectors of 256 bytes.
      {HostKMeans{
           .rows = 16, .tokens = 1'000, .clusters = 64, .dim = 64, .iterations = 10, .threads = 8},
       {.host_memory = 40'960'000, .flops = 1'310'720'000, .serial_items = 10},
       40'960'000},
      // 8 rows of 1,000 codes of 16 bytes and tables of 2,048 bytes; 32 heads' scores.
      {CodeScore{
           .tokens = 1'000, .kv_rows = 8, .group = 4, .subspaces = 2, .codes = 64, .code_bytes = 8},
       {.device_read = 144'384, .device_written = 128'000, .flops = 64'000},
       272'384},
      // 16 rows of 100 units, 516 bytes each; 64 queries and outputs of 256 bytes.
      {WeightedAttention{.units = 100, .kv_rows = 16, .group = 4, .head_dim = 128},
       {.device_read = 841'984, .device_written = 16'384, .flops = 3'276'800},
       858'368},
      // Two states of 64 rows, 256 bytes and a sum each, and one of them out.
      {MergeStates{.rows = 64, .head_dim = 128},
       {.device_read = 33'280, .device_written = 16'384, .flops = 32'768},
       49'664},
      // Three quarters of the buffer to and fro.
      {AllReduce{.bytes = 65'536, .gpus = 4}, {.device_read = 98'304}, 98'304},
      // Input, residual and weight read, sum and normed written.
      {Norm{.rows = 3, .width = 100},
       {.device_read = 1'400, .device_written = 1'200, .flops = 1'500},
       2'600},
      // 32 + 8 + 8 heads of 128: 12,288 bytes each way; 40 heads are rotated.
      {RopeAppend{.tokens = 1, .query_heads = 32, .kv_heads = 8, .head_dim = 128},
       {.device_read = 12'288, .device_written = 12'288, .flops = 15'360},
       24'576},
      {SwiGlu{.rows = 1, .width = 14'336},
       {.device_read = 57'344, .device_written = 28'672, .flops = 71'680},
       86'016},
      {Sample{.rows = 2, .vocabulary = 128'256},
       {.device_read = 513'024, .device_written = 8, .flops = 256'512},
       513'032},
      // 32 K tokens x 8 KV heads x 512 bytes, and the query and output of 32 heads; 256 tokens a
      // split.
      {DecodeAttention{.kv_tokens = 262'144,
                       .kv_tokens_max = 32'768,
                       .sequences = 1,
                       .kv_heads = 8,
                       .group = 4,
                       .head_dim = 128},
       {.device_read = 134'225'920,
        .device_written = 8'192,
        .flops = 536'870'912,
        .serial_items = 256},
       134'234'112},
      // Two tokens after one: 2 + 3 pairs a head.
      {PrefillAttention{
           .sequences = 1, .tokens = 2, .past = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 10},
       {.device_read = 160 + 240, .device_written = 160, .flops = 4 * 5 * 4 * 10},
       560},
      // Ten tokens, a window of 4: 4 * 5 / 2 + 6 * 4 pairs of each of 4 heads; 6 columns, seen by
      // (10 - 4 + 1) / 2 rows of 2 heads each.
      {VerticalSlashAttention{.sequences = 1,
                              .tokens = 10,
                              .window = 4,
                              .vertical = 6,
                              .query_heads = 4,
                              .kv_heads = 2,
                              .head_dim = 8},
       {.device_read = 640 + 640, .device_written = 640, .flops = 4 * 8 * (4 * 34 + 2 * 6 * 3.5)},
       1'920},
      // 132,097 weights a head, as the paper's code has; two keys a token in, a score out.
      {GateMlp{.tokens = 10, .kv_heads = 8, .head_dim = 128, .hidden = 512},
       {.device_read = (2 * 1'280 + 132'097) * 8 * 2,
        .device_written = 320,
        .flops = 10.0 * 8 * 2 * 512 * 257},
       2'154'832},
      // A score a token, 512 bytes in and out an admitted one, a length a row.
      {Admit{.rows = 2, .tokens = 100, .admitted = 25, .head_dim = 128},
       {.device_read = 400 + 12'800, .device_written = 12'800 + 8},
       26'008},
      {WindowScore{.rows = 2, .tokens = 1'000, .queries = 16, .group = 4, .head_dim = 128},
       {.device_read = (1'000 + 128) * 256, .device_written = 4'000, .flops = 16'384'000},
       292'768},
      // A page of 32 keys in, two vectors out.
      {Summarize{.units = 10, .unit_tokens = 32, .vectors = 2, .head_dim = 128},
       {.device_read = 81'920, .device_written = 5'120, .flops = 81'920},
       87'040},
      {QuerySimilarity{.rows = 32, .head_dim = 128},
       {.device_read = 16'384, .device_written = 32, .flops = 24'576},
       16'416},
      // 1,024 pages x 8 heads x 512 bytes, queries of 32 heads, a score a page and head.
      {Score{.units = 1'024, .kv_rows = 8, .group = 4, .vectors = 2, .head_dim = 128},
       {.device_read = 4'194'304 + 8'192, .device_written = 32'768, .flops = 16'777'216},
       4'235'264},
      // The same, and a score of each of the four query heads of a group.
      {Score{.units = 1'024,
             .kv_rows = 8,
             .group = 4,
             .vectors = 2,
             .head_dim = 128,
             .pool = Score::Pool::kNone},
       {.device_read = 4'194'304 + 8'192, .device_written = 131'072, .flops = 16'777'216},
       4'333'568},
      // Pooled by a second kernel, after a softmax, or over a sequence's heads.
      {Score{.units = 1'024,
             .kv_rows = 8,
             .group = 4,
             .vectors = 2,
             .head_dim = 128,
             .pool = Score::Pool::kSoftmax},
       {.device_read = 4'194'304 + 8'192,
        .device_written = 32'768,
        .flops = 16'777'216,
        .launches = 2},
       4'235'264},
      {Score{.units = 1'024,
             .kv_rows = 8,
             .group = 4,
             .vectors = 1,
             .head_dim = 128,
             .pool = Score::Pool::kSequence},
       {.device_read = 2'097'152 + 8'192,
        .device_written = 32'768,
        .flops = 8'388'608,
        .launches = 2},
       2'138'112},
      {TopK{.rows = 8, .candidates = 1'024, .k = 32},
       {.device_read = 32'768, .device_written = 1'024, .flops = 8'192, .serial_items = 1'024},
       33'792},
      // Scores and ids, in and out.
      {Sort{.rows = 8, .candidates = 1'024},
       {.device_read = 65'536, .device_written = 65'536},
       131'072},
      {AssignSlots{.rows = 8, .k = 32, .slots = 64},
       {.device_read = 3'072, .device_written = 4'096, .serial_items = 96},
       7'168},
      // Scores of four heads and an offset a unit, the tokens chosen read and written.
      {SelectUnits{.rows = 8, .group = 4, .units = 2'048, .tokens = 1'728},
       {.device_read = 8 * (2'048 * 20 + 6'912),
        .device_written = 55'296,
        .flops = 262'144,
        .serial_items = 2'048},
       8 * (2'048 * 20 + 2 * 6'912)},
      // 32 K keys in; 2,048 centroids, offsets and the tokens by cluster out.
      {KMeans{.rows = 8, .tokens = 32'768, .clusters = 2'048, .head_dim = 128, .iterations = 5},
       {.device_read = 67'108'864,
        .device_written = 8 * (2'048 * 260 + 131'072),
        .flops = 687'194'767'360,
        .serial_items = 5},
       67'108'864 + 8 * (2'048 * 260 + 131'072)},
      // 64 queries of four heads over 32 K keys, products twice.
      {ObservationScore{.rows = 8, .group = 4, .queries = 64, .head_dim = 128, .tokens = 32'768},
       {.device_read = (2'048 + 262'144) * 256,
        .device_written = 1'048'576,
        .flops = 34'359'738'368},
       (2'048 + 262'144) * 256 + 1'048'576},
      // 16 sign patterns, 64 bytes of 4-bit codes and 16 bf16 weights a key: 112 bytes.
      {KeyEncode{.keys = 10, .head_dim = 128, .subspaces = 16},
       {.device_read = 2'560, .device_written = 1'120, .flops = 20'480},
       3'680},
      // Four queries and 16 x 256 counts in; as many bonuses and the rotated query out.
      {CollisionTable{.rows = 2, .group = 4, .head_dim = 128, .subspaces = 16},
       {.device_read = 2 * (1'024 + 16'384),
        .device_written = 2 * (4'096 + 512),
        .flops = 2 * 16 * 65'536,
        .serial_items = 256},
       2 * 22'016},
      // 16 bytes a token and KV head in, a byte a token and query head out.
      {CollisionScore{.rows = 8, .kv_rows = 2, .tokens = 1'000, .subspaces = 16},
       {.device_read = 32'000, .device_written = 8'000, .flops = 128'000},
       40'000},
      {BucketTopK{.rows = 8, .candidates = 1'000, .k = 100},
       {.device_read = 8'000, .device_written = 3'200, .flops = 8'000},
       11'200},
      // 64 bytes of codes, 32 of weights and the id of each candidate.
      {Rerank{.rows = 2, .candidates = 100, .head_dim = 128, .subspaces = 16},
       {.device_read = 20'000, .device_written = 800, .flops = 51'200},
       20'800},
      // 1,000 keys of 256 channels in; 160 values a token and a channel out.
      {FactorizeKeys{.sequences = 2, .tokens = 1'000, .kv_heads = 2, .head_dim = 128, .rank = 160},
       {.device_read = 1'024'000,
        .device_written = 2 * 1'256 * 320,
        .flops = 2.0 * 2 * 1'000 * 256 * (256 + 160),
        .serial_items = 2 * 256},
       1'024'000 + 2 * 1'256 * 320},
      // 160 values a token and a channel of each row in, 128 channels a token out.
      {RebuildKeys{.rows = 2, .tokens = 100, .rank = 160, .head_dim = 128},
       {.device_read = (100 + 256) * 320, .device_written = 25'600, .flops = 4'096'000},
       (100 + 256) * 320 + 25'600},
      {Layout{.pieces = 5, .piece_bytes = 16'384},
       {.device_read = 81'920, .device_written = 81'920},
       163'840},
      {Copy{.pieces = 32, .piece_bytes = 16'384},
       {.device_written = 524'288, .link_h2d = 524'288},
       524'288},
      {ZeroCopyGather{.pieces = 17, .piece_bytes = 8'192, .blocks = 8},
       {.device_written = 139'264, .link_h2d = 139'264, .serial_items = 3},
       139'264},
      {HostGather{.pieces = 10, .piece_bytes = 8'192, .threads = 4},
       {.host_memory = 163'840, .serial_items = 3},
       81'920},
      {HostSync{}, {}, 0},
      {HostHandoff{}, {}, 0},
      {GraphLaunch{.nodes = 400}, {}, 0},
      {Eager{.read = 4'096, .written = 8'192, .kernels = 2},
       {.device_read = 4'096, .device_written = 8'192, .launches = 2},
       12'288},
      {HostCalls{.op = Operator::kView, .count = 3}, {}, 0},
  };
}

TEST(KernelShape, PagesPickedFromALongerCacheLieFartherApart) {
  DecodeAttention work{.kv_tokens = 16'384,
                       .kv_tokens_max = 2'048,
                       .sequences = 1,
                       .kv_heads = 8,
                       .group = 4,
                       .head_dim = 128};
  EXPECT_EQ(ShapeOf(work), (KernelShape{2'048, 8, 4, 1}));
  work.cache_tokens = 65'536;
  EXPECT_EQ(ShapeOf(work), (KernelShape{2'048, 8, 4, 32}));
  work.cache_tokens = 1;  // what is attended is there
  EXPECT_EQ(ShapeOf(work), (KernelShape{2'048, 8, 4, 1}));
}

TEST(KernelShape, KeysAreRebuiltAsIfEachRowWereAsLongAsTheLongest) {
  RebuildKeys work{.rows = 8, .tokens = 800, .rank = 160, .head_dim = 128};
  EXPECT_EQ(ShapeOf(work), (KernelShape{8, 800, 160, 128}));
  work.tokens_max = 100;  // as all are
  EXPECT_EQ(ShapeOf(work), (KernelShape{8, 800, 160, 128}));
  work.tokens_max = 300;
  EXPECT_EQ(ShapeOf(work), (KernelShape{8, 2'400, 160, 128}));
}

// The kernel that pools over the group in passing takes as long when it does not.
TEST(KernelShape, TwoVectorScoresThatAreNotPooledAreMadeByTheKernelThatPools) {
  Score work{.units = 512, .kv_rows = 8, .group = 4, .vectors = 2, .head_dim = 128};
  const KernelShape pooled = ShapeOf(work);
  work.pool = Score::Pool::kNone;
  EXPECT_EQ(ShapeOf(work), pooled);
  work.vectors = 1;
  EXPECT_EQ(ShapeOf(work), (KernelShape{512, 8, 4, 8}));  // calibrated by itself
}

TEST(WorkTest, CountsMatchHandCalculations) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(std::string(KindName(c.work)));
    const WorkCounts counts = Count(c.work);
    EXPECT_EQ(counts.device_read, c.expected.device_read);
    EXPECT_EQ(counts.device_written, c.expected.device_written);
    EXPECT_EQ(counts.link_h2d, c.expected.link_h2d);
    EXPECT_EQ(counts.link_d2h, c.expected.link_d2h);
    EXPECT_EQ(counts.host_memory, c.expected.host_memory);
    EXPECT_DOUBLE_EQ(counts.flops, c.expected.flops);
    EXPECT_DOUBLE_EQ(counts.serial_items, c.expected.serial_items);
    EXPECT_EQ(counts.launches, c.expected.launches);
    EXPECT_EQ(MovedBytes(c.work), c.moved);
  }
}

TEST(WorkTest, EveryKindHasAHandCalculation) {
  std::set<int> kinds;
  for (const Case& c : Cases()) kinds.insert(KindOf(c.work));
  EXPECT_EQ(static_cast<int>(kinds.size()), kOpKinds);
}

TEST(WorkTest, NamesOfKindsAreDistinct) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < kOpKinds; ++kind) names.insert(KindName(kind));
  EXPECT_EQ(static_cast<int>(names.size()), kOpKinds);
  EXPECT_EQ(KindName(Work(Score{})), "score");
}

TEST(WorkTest, CopiesToTheHostReadTheDevice) {
  const WorkCounts counts =
      Count(Copy{.direction = Direction::kDeviceToHost, .pieces = 3, .piece_bytes = 100});
  EXPECT_EQ(counts.link_d2h, 300);
  EXPECT_EQ(counts.device_read, 300);
  EXPECT_EQ(counts.link_h2d, 0);
  EXPECT_EQ(counts.device_written, 0);
}

TEST(WorkTest, LongestSplitIsATileForShortRowsAndTheWholeRowForShorterOnes) {
  const auto items = [](int64_t longest) {
    return Count(DecodeAttention{.kv_tokens = longest,
                                 .kv_tokens_max = longest,
                                 .sequences = 1,
                                 .kv_heads = 1,
                                 .group = 1,
                                 .head_dim = 128})
        .serial_items;
  };
  EXPECT_EQ(items(100), 100);
  EXPECT_EQ(items(128 * 128), 128);
  EXPECT_EQ(items(131'072), 1'024);
}

}  // namespace
}  // namespace stallcast::plan
