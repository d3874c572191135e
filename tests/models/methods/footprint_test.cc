// Footprints of Llama-3.1-8B, counted by hand: 32 layers of 8 KV heads and 128 dimensions of 2
// bytes are 4 KiB a token and layer.
#include <gtest/gtest.h>

#include "models/llm/model.h"
#include "models/methods/method.h"

namespace stallcast::methods {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr int64_t kContext = 32768, kTokenLayer = 4 * kKiB;

Footprint Of(const char* method, const ParamValues& values, int64_t context = kContext,
             int32_t batch = 1) {
  llm::Model model;
  model.layers = 32;
  model.query_heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  return MakeMethod(method, values).method->Bytes(model, context, batch);
}

TEST(Footprint, FullCacheIsAllOnTheGpu) {
  EXPECT_EQ(Of("full", {}).gpu(), 4 * kGiB);
  EXPECT_EQ(Of("full", {}, kContext, 3).gpu(), 12 * kGiB);
  EXPECT_EQ(Of("full", {}).host, 0);
}

TEST(Footprint, OffloadKeepsTwoLayersOnTheGpu) {
  EXPECT_EQ(Of("offload", {}).gpu(), kMiB * 2 * 128);
  EXPECT_EQ(Of("offload", {}).host, 4 * kGiB);
  EXPECT_EQ(Of("offload", {{"prefetch", "0"}}).gpu(), 128 * kMiB);
}

TEST(Footprint, StreamingIsTheBudgetHoweverLongTheContext) {
  EXPECT_EQ(Of("streaming", {}).gpu(), 256 * kMiB);
  EXPECT_EQ(Of("streaming", {}, 1000).gpu(), kTokenLayer * 1000 * 32);
}

TEST(Footprint, QuestAddsThirtyTwoBytesATokenAndHead) {
  const Footprint bytes = Of("quest", {});
  EXPECT_EQ(bytes.gpu_kv, 4 * kGiB);
  EXPECT_EQ(bytes.gpu_index, 30 * kContext * 8 * 32);
  EXPECT_EQ(bytes.host, 0);
}

TEST(Footprint, CpuAttentionKeepsTheCacheOnTheHost) {
  // An output of 32 heads, 256 bytes and a sum each.
  EXPECT_EQ(Of("cpu-attention", {}).gpu(), 32 * 260);
  EXPECT_EQ(Of("cpu-attention", {}).host, 4 * kGiB + 32 * 260);
  EXPECT_EQ(Of("cpu-attention", {{"gpu_tokens", "1000"}}).gpu_kv, kTokenLayer * 32 * 1000);
}

TEST(Footprint, HiSparseKeepsItsBufferAndAnIndex) {
  const Footprint bytes = Of("hisparse", {});
  // The buffer and the newest page; what is on its way to the host.
  EXPECT_EQ(bytes.gpu_kv, kTokenLayer * (2 * kContext + 30 * (4096 + 16)));
  EXPECT_EQ(bytes.gpu_buffers, kTokenLayer * 30 * 16);
  EXPECT_EQ(bytes.gpu_index, Of("quest", {}).gpu_index + int64_t{30} * 8 * (2048 + 257) * 4);
  EXPECT_EQ(bytes.host, 30 * kContext * kTokenLayer);
  // Tokens are chosen by their keys, which are half of the cache.
  EXPECT_EQ(Of("hisparse", {{"page", "1"}}).gpu_index,
            30 * (kContext * kTokenLayer / 2 + int64_t{8} * (kContext + 4097) * 4));
  EXPECT_LT(Of("hisparse", {}, 2048).gpu_kv, kTokenLayer * 32 * 2049);
}

TEST(Footprint, MethodsThatDropTokensTakeWhatTheyKeep) {
  EXPECT_EQ(Of("snapkv", {}).gpu_kv, kTokenLayer * 32 * (2048 + 4096));
  EXPECT_EQ(Of("snapkv", {{"group", "query-head"}}).gpu_kv, kTokenLayer * 32 * 4 * (2048 + 4096));
  EXPECT_EQ(Of("h2o", {}).gpu_kv, kTokenLayer * 32 * 2048);
  EXPECT_EQ(Of("raas", {}).gpu_kv, kTokenLayer * (2 * kContext + 30 * 2048));
  EXPECT_EQ(Of("raas", {{"prompt", "pinned"}}).gpu_kv, kTokenLayer * 32 * kContext);
  EXPECT_EQ(Of("rkv", {}).gpu_kv, kTokenLayer * 32 * (2048 + 128));
  // Half of the heads keep everything; two of eight do, and the others a fifth and three tokens.
  EXPECT_EQ(Of("duoattention", {}).gpu_kv, kTokenLayer * 32 * (kContext + 384) / 2);
  EXPECT_EQ(Of("razorattention", {}).gpu_kv,
            kTokenLayer * 32 * (2 * kContext + 6 * (kContext / 5 + 5)) / 8);
}

TEST(Footprint, IndicesOnTheHostCountThere) {
  // A hash table's entry is 4 bytes a token: 150 of them are more than a key and a value.
  EXPECT_GT(Of("magicpig", {}).host, 31 * kContext * (kTokenLayer + 8 * 600));
  EXPECT_LT(Of("magicpig", {}).gpu_kv, Of("full", {}).gpu_kv / 10);
  // 512 bytes of index a cluster of 16 tokens and head, and its size.
  EXPECT_EQ(Of("retroinfer", {}).gpu_index, int64_t{32} * 8 * 2044 * (512 + 4));
  EXPECT_EQ(Of("retroinfer", {}).host, 4 * kGiB);
  // Of two layers at a time: codes of 16 bytes a token and head, 64 centroids of 256 bytes.
  EXPECT_EQ(Of("pqcache", {}).gpu_index, int64_t{2} * 8 * (kContext * 16 + 64 * 256));
  EXPECT_EQ(Of("pqcache", {{"codes", "compact"}}).gpu_index,
            int64_t{2} * 8 * (kContext * 2 + 64 * 256));
}

TEST(Footprint, FreeKvKeepsBudgetSummariesAndTwoBuffers) {
  const Footprint bytes = Of("freekv", {});
  EXPECT_EQ(bytes.gpu_kv, kContext * kTokenLayer + kTokenLayer * 31 * 2048);
  // 512 B a page and KV head, and two maps of 4 bytes: all pages, and those on the GPU.
  EXPECT_EQ(bytes.gpu_index, int64_t{31} * 8 * (1024 * 512 + (1024 + 64) * 4));
  // Two buffers of one head's 64 pages of 16 KiB, and 31 layers' last queries of 8 KiB.
  EXPECT_EQ(bytes.gpu_buffers, kKiB * 2 * 64 * 16 + kKiB * 31 * 8);
  EXPECT_EQ(bytes.host, 31 * kContext * kTokenLayer);
  EXPECT_EQ(Of("freekv", {{"double_buffer", "off"}}).gpu_buffers, kKiB * 64 * 16 + kKiB * 31 * 8);
  EXPECT_EQ(Of("freekv", {{"recall", "zero-copy"}, {"correction", "off"}}).gpu_buffers, 0);
  // Staged: 32 missed pages of all heads at worst, pinned and where they land, twice.
  EXPECT_EQ(Of("freekv", {{"recall", "staged"}}).host - bytes.host, kKiB * 2 * 32 * 128);
}

TEST(Footprint, ArkValeHasNoBuffersAndOneMapALayer) {
  const Footprint bytes = Of("arkvale", {});
  EXPECT_EQ(bytes.gpu_kv, 2 * kContext * kTokenLayer + kTokenLayer * 30 * 2048);
  EXPECT_EQ(bytes.gpu_index, int64_t{30} * (8 * 1024 * 512 + (1024 + 64) * 4));
  EXPECT_EQ(bytes.gpu_buffers, 0);
  EXPECT_EQ(bytes.host, 30 * kContext * kTokenLayer);
  EXPECT_EQ(Of("arkvale-freekv", {}).gpu_kv, Of("freekv", {}).gpu_kv);
}

// Paper, table 3, in tokens of all layers: B + n / 2c + m / 2s for c = s = 16, Qwen3-8B, 32K + 16K.
TEST(Footprint, LouisKvIsItsTableThree) {
  llm::Model model;
  model.layers = 36;
  model.query_heads = 32;
  model.kv_heads = 8;
  model.head_dim = 128;
  constexpr int64_t kInput = 32768, kOutput = 16384, kBudget = 1024, kSize = 16;
  const Footprint bytes = MakeMethod("louiskv", {{"budget", "1024"}, {"dense_layers", "0"}})
                              .method->Bytes(model, kInput + kOutput, 4);
  constexpr int64_t kTokens = kBudget + kInput / (2 * kSize) + kOutput / (2 * kSize);
  EXPECT_EQ(bytes.gpu_kv + bytes.gpu_index, int64_t{4} * 4 * 36 * 8 * 128 * kTokens);
  // Beside it: the tokens of the units and where those begin, and the last queries.
  constexpr int64_t kUnits = (kInput + kOutput) / kSize;
  EXPECT_EQ(bytes.gpu_buffers,
            int64_t{4} * 36 * (8 * 4 * (kInput + kOutput + kUnits + 1) + 32 * 128 * 2));
  EXPECT_EQ(bytes.host, int64_t{4} * 36 * 4096 * (kInput + kOutput - 64 - 256));
}

TEST(Footprint, LouisKvDenseLayersAreWholeAndQueryHeadsChooseForThemselves) {
  const Footprint bytes = Of("louiskv", {});
  EXPECT_EQ(bytes.gpu_kv, kTokenLayer * (2 * kContext + int64_t{30} * 2048));
  const Footprint alone = Of("louiskv", {{"group", "query-head"}});
  EXPECT_EQ(alone.gpu_kv - bytes.gpu_kv, int64_t{30} * 3 * kTokenLayer * (2048 - 64 - 256));
  EXPECT_EQ(Of("louiskv", {}, 1000).gpu_kv, kTokenLayer * 1000 * 32);
  // Staged: the rows of all heads, pinned and where they land.
  const Footprint staged = Of("louiskv", {{"recall", "staged"}});
  EXPECT_EQ(staged.host - bytes.host, kTokenLayer * (2048 - 64 - 256));
}

TEST(Footprint, PrkvAddsALayerToRestructureAndAStagingBuffer) {
  const Footprint bytes = Of("prkv", {{"budget", "1088"}});
  EXPECT_EQ(bytes.gpu_kv, kTokenLayer * 32 * 1088);
  EXPECT_EQ(bytes.gpu_index, int64_t{32} * 8 * (1024 * 512 + (1024 + 34) * 4));
  constexpr int64_t kMissed = 1024 * kTokenLayer;
  EXPECT_EQ(bytes.gpu_buffers,
            2 * kContext * kTokenLayer + int64_t{32} * 64 * 32 * 128 * 2 + kMissed);
  EXPECT_EQ(bytes.host, 32 * kContext * kTokenLayer + kMissed);
  const Footprint plain =
      Of("prkv", {{"budget", "1088"}, {"static_ratio", "0"}, {"transfer", "per-page"}});
  EXPECT_EQ(plain.gpu_buffers, 0);
  EXPECT_EQ(plain.host, 32 * kContext * kTokenLayer);
}

TEST(Footprint, ParisKvKeepsItsRegionsAndAHundredAndTwelveBytesATokenAndHead) {
  const Footprint bytes = Of("pariskv", {});
  const int64_t region = kContext - 128 - 512;
  EXPECT_EQ(bytes.gpu_kv, 32 * (128 + 512 + 512) * kTokenLayer);
  EXPECT_EQ(bytes.gpu_index, int64_t{32} * 8 * (region * 112 + 16 * 256 * 4));
  // What each layer retrieves and the ids of a tenth of the tokens; a score a token and the
  // estimates of that tenth.
  EXPECT_EQ(bytes.gpu_buffers, 8 * (32 * (100 * 512 + 3'213 * 4) + region + 3'213 * 4));
  EXPECT_EQ(bytes.host, 32 * region * kTokenLayer);
  // Shorter contexts are attended whole.
  EXPECT_EQ(Of("pariskv", {}, 1999).gpu_kv, 32 * 1999 * kTokenLayer);
  EXPECT_EQ(Of("pariskv", {{"dense_until", "1000000"}}).gpu_kv, Of("full", {}).gpu_kv);
}

TEST(Footprint, ShadowKvKeepsFactorsOfTheKeysAndAMeanKeyAChunk) {
  const Footprint bytes = Of("shadowkv", {});
  EXPECT_EQ(bytes.gpu_kv, 32 * ((48 + 4 + 1 + 256) * 8 + 4'096) * kTokenLayer);
  // 160 values a token and a channel of each head; a key and a number for each 8 tokens and head.
  EXPECT_EQ(bytes.gpu_index, int64_t{32} * (160 * 2 * (kContext + 1'024) + kContext * (256 + 4)));
  EXPECT_EQ(bytes.gpu_buffers, 32 * 8 * 256 * 4 * 4 + kContext * 5 * 4);
  EXPECT_EQ(bytes.host, 32 * kContext * kTokenLayer / 2);
  // Shorter prompts are attended whole.
  const Footprint dense = Of("shadowkv", {{"reserve", "1"}}, 4'096);
  EXPECT_EQ(dense.gpu(), 32 * 4'096 * kTokenLayer);
  EXPECT_EQ(dense.host, 0);
}

TEST(Footprint, WgKvKeepsAQuarterBesideTheWindow) {
  const Footprint bytes = Of("wgkv", {});
  const int64_t pages = (kContext - 256) / 4 / 16 + 256 / 16, rows = 32 * 8;
  EXPECT_EQ(bytes.gpu_kv, rows * pages * 16 * 512);
  // A page table, a gate's score of each token in the window, and 132,097 weights a head.
  EXPECT_EQ(bytes.gpu_index, rows * (pages * 4 + 256 * 4) + int64_t{rows} * 132'097 * 2);
  EXPECT_EQ(bytes.host, 0);
  EXPECT_EQ(Of("wgkv", {{"sparsity", "0"}}).gpu_kv, 4 * kGiB);
  EXPECT_EQ(Of("wgkv-quest", {}).gpu_index - bytes.gpu_index, rows * pages * 512);
  // A prompt is admitted before anything is evicted.
  EXPECT_EQ(Of("wgkv-snapkv", {}).gpu_kv, bytes.gpu_kv);
  // The last 256 queries of 32 heads in 32 layers.
  EXPECT_EQ(Of("wgkv-snapkv", {}).gpu_buffers, int64_t{32} * 256 * 32 * 128 * 2);
}

TEST(Footprint, ContextsUnderTheBudgetTakeWhatTheyHold) {
  EXPECT_EQ(Of("freekv", {}, 1000).gpu_kv, kTokenLayer * 32 * 1024);  // whole pages
}

}  // namespace
}  // namespace stallcast::methods
