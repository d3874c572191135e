// Costs in closed form, on a machine with round numbers.
#include "models/hardware/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::hardware {
namespace {

using plan::Copy;
using plan::CopyPath;
using plan::Direction;

Profile RoundProfile() {
  Profile p;
  p.name = "round";
  p.status = "derived";
  p.link.h2d = 50e9, p.link.d2h = 40e9, p.link.both_h2d = 30e9, p.link.both_d2h = 36e9;
  p.copy.h2d_start = 2e-6, p.copy.d2h_start = 1e-6, p.copy.row_2d = 10e-9;
  p.copy.device_factor = 5, p.copy.inline_below = 20e3, p.copy.spread = 0.02;
  p.zero_copy.start = 1e-6, p.zero_copy.spread = 0.03;
  p.host.launch = 4e-6, p.host.copy_call = 3e-6, p.host.copy_back_call = 2e-6,
  p.host.batch_call = 5e-6;
  p.host.event_record = 0.5e-6, p.host.stream_wait = 0.25e-6, p.handoff.SetHostSync(2e-6);
  p.handoff(Site::kHost, Site::kHost, How::kEvent) = 6e-6, p.host.graph_launch = 7e-6,
                                      p.host.graph_node = 10e-9;
  p.host.memory = 100e9, p.host.gather_thread = 4e9, p.host.gather_piece = 0.5e-6,
  p.host.bytes = 1e12, p.host.spread = 0.1;
  p.handoff(Site::kHost, Site::kKernel, How::kStream) = 1.5e-6,
                                        p.handoff(Site::kKernel, Site::kKernel, How::kStream) =
                                            1.2e-6,
                                        p.handoff.SetCopyGap(1.6e-6);
  p.handoff.SetCopyLaunch(1.8e-6);
  p.handoff.SetEvent(1.1e-6), p.handoff(Site::kKernel, Site::kKernel, How::kGraph) = 0.5e-6,
                                                                      p.device.sms = 100;
  p.memory.bandwidth = 4e12, p.memory.bytes = 1e11;
  p.batch.host_piece = Curve({1000, 19999, 20000}, {2e-6, 2e-6, 1e-6});
  p.batch.engine_piece = Curve({1000}, {0.1e-6});
  p.zero_copy.rate = Surface({1000, 10000}, {1, 8, 64}, {1e9, 8e9, 20e9, 9e9, 60e9, 60e9});
  p.zero_copy.memory_loss = Curve({8}, {400e9});
  for (const std::string_view kind : KernelKinds()) {
    p.kernels.emplace(kind, KernelFit{.fixed_s = 2e-6,
                                      .bandwidth = 2e12,
                                      .flops_rate = 100e12,
                                      .serial_s = 1e-9,
                                      .spread = 0.07,
                                      .min_bytes = 1e5,
                                      .max_bytes = 1e9,
                                      .points = {},
                                      .source = "test"});
  }
  return p;
}

constexpr Picoseconds Us(double us) { return FromSeconds(us * 1e-6); }

double DemandOn(const OpCost& cost, Resource resource) {
  for (int i = 0; i < cost.demands; ++i) {
    const Demand& demand = cost.demand[static_cast<size_t>(i)];
    if (demand.resource == resource) return demand.per_unit;
  }
  return 0;
}

class CostModelTest : public testing::Test {
 protected:
  CostModel model_{RoundProfile()};
  double Capacity(Resource resource) const {
    return model_.capacity()[static_cast<size_t>(resource)];
  }
};

TEST_F(CostModelTest, AKernelTakesFixedAndTheLargestOfItsTerms) {
  // A layout op has bytes only: 2 x 1 MB at 2 TB/s.
  OpCost cost = model_.Cost(plan::Layout{.pieces = 100, .piece_bytes = 10'000});
  EXPECT_EQ(cost.Alone(), Us(2 + 1));
  EXPECT_EQ(cost.host, Us(4));
  EXPECT_EQ(cost.first_call, cost.host);
  EXPECT_EQ(cost.last_piece, Us(0));
  EXPECT_EQ(cost.engine, Engine::kNone);
  EXPECT_DOUBLE_EQ(cost.spread, 0.07);
  EXPECT_FALSE(cost.extrapolated);
  // 2 x 4096^3 operations at 100 TFLOPS outlast their bytes.
  cost = model_.Cost(plan::Gemm{.m = 4096, .n = 4096, .k = 4096});
  EXPECT_NEAR(Seconds(cost.Alone()), 2e-6 + 2.0 * 4096 * 4096 * 4096 / 100e12, 1e-12);
  EXPECT_LT(cost.rate, 2e12);
  // What others have written delays the weights that a product streams, not its operations.
  EXPECT_FALSE(cost.streams_weights);
  EXPECT_TRUE(model_.Cost(plan::Gemm{.m = 1, .n = 4096, .k = 4096}).streams_weights);
  // 4 rows of 1,000 tokens of 512 bytes, half of them the same, at 500 GB/s out of the cache.
  Profile caching = RoundProfile();
  plan::DecodeAttention shared{.kv_tokens = 4000,
                               .kv_tokens_max = 1000,
                               .sequences = 1,
                               .kv_heads = 4,
                               .group = 1,
                               .head_dim = 128,
                               .distinct_tokens = 2000};
  caching.kernels["decode_attention"].cache_rate = 0.5e12;
  const OpCost from_cache = CostModel(caching).Cost(shared);
  EXPECT_NEAR(Seconds(from_cache.Alone()), 2e-6 + 4000 * 512 / 0.5e12, 1e-12);
  EXPECT_LT(from_cache.amount, 4000 * 512);  // of the device memory
  shared.distinct_tokens = 0;
  EXPECT_NEAR(Seconds(CostModel(caching).Cost(shared).Alone()), 2e-6 + 4002.0 * 512 / 2e12, 1e-9);
  // 50,000 candidates of one row at 1 ns outlast 200 KB.
  cost = model_.Cost(plan::TopK{.rows = 1, .candidates = 50'000, .k = 1});
  EXPECT_EQ(cost.Alone(), Us(2 + 50));
}

TEST_F(CostModelTest, KeysAreRebuiltForAsLongAsTheLongestRowTakes) {
  plan::RebuildKeys keys{.rows = 8, .tokens = 8'000, .rank = 160, .head_dim = 128};
  const Picoseconds fixed = model_.Cost(keys).fixed;
  const double flow = Seconds(model_.Cost(keys).Alone() - fixed);
  keys.tokens_max = 1'000;  // each of them
  EXPECT_NEAR(Seconds(model_.Cost(keys).Alone() - fixed), flow, 1e-12);
  keys.tokens_max = 2'500;
  const OpCost uneven = model_.Cost(keys);
  EXPECT_NEAR(Seconds(uneven.Alone() - fixed), 2.5 * flow, 2e-12);
  EXPECT_EQ(uneven.amount, model_.Cost(plan::RebuildKeys{8, 8'000, 160, 128}).amount);
}

TEST_F(CostModelTest, AKernelsDemandsAreItsTrafficAndItsBlocks) {
  const OpCost large = model_.Cost(plan::Layout{.pieces = 1'000, .piece_bytes = 1'000'000});
  EXPECT_EQ(DemandOn(large, Resource::kDeviceMemory), 1);
  EXPECT_DOUBLE_EQ(DemandOn(large, Resource::kSms) * large.rate, 100);
  EXPECT_EQ(large.weight, large.rate);
  EXPECT_TRUE(large.extrapolated);
  const OpCost four = model_.Cost(plan::Layout{.pieces = 1, .piece_bytes = 64 * 1024});
  EXPECT_DOUBLE_EQ(DemandOn(four, Resource::kSms) * four.rate, 4);
  const OpCost one = model_.Cost(plan::Layout{.pieces = 1, .piece_bytes = 1});
  EXPECT_DOUBLE_EQ(DemandOn(one, Resource::kSms) * one.rate, 1);
  EXPECT_TRUE(one.extrapolated);
  const OpCost part = model_.Cost(plan::Layout{.pieces = 1, .piece_bytes = 24 * 1024});
  EXPECT_DOUBLE_EQ(DemandOn(part, Resource::kSms) * part.rate, 2);  // one block has half as much
}

TEST_F(CostModelTest, AKernelOfAnEndOfTheTimedRangeIsInIt) {
  const auto extrapolated = [&](Bytes moved) {
    return model_.Cost(plan::Layout{.pieces = 1, .piece_bytes = moved / 2}).extrapolated;
  };
  EXPECT_TRUE(extrapolated(99'998));
  EXPECT_FALSE(extrapolated(100'000));
  EXPECT_FALSE(extrapolated(1'000'000'000));
  EXPECT_TRUE(extrapolated(1'000'000'002));
}

TEST_F(CostModelTest, NoWorkTakesTheFixedTimeOnly) {
  EXPECT_EQ(model_.Cost(plan::Layout{}).Alone(), Us(2));
  EXPECT_EQ(model_.Cost(plan::Gemm{}).amount, 0);
  EXPECT_EQ(model_.Cost(plan::ZeroCopyGather{}).Alone(), Us(1));
  EXPECT_EQ(model_.Cost(Copy{.path = CopyPath::kPerPiece}).host, Us(0));
  EXPECT_EQ(model_.Cost(Copy{.path = CopyPath::kPerPiece}).engine, Engine::kNone);
}

TEST_F(CostModelTest, AKernelIsNoFasterThanTheMemory) {
  Profile profile = RoundProfile();
  profile.kernels["layout"].bandwidth = 9e12;
  const OpCost cost = CostModel(profile).Cost(plan::Layout{.pieces = 1, .piece_bytes = 2'000'000});
  EXPECT_EQ(cost.Alone(), Us(2 + 1));
}

TEST_F(CostModelTest, ABulkCopyIsOneCallOneStartAndItsBytes) {
  const OpCost h2d = model_.Cost(Copy{.pieces = 10, .piece_bytes = 100'000});
  EXPECT_EQ(h2d.host, Us(3));
  EXPECT_EQ(h2d.first_call, Us(3));
  EXPECT_EQ(h2d.engine, Engine::kCopyH2D);
  EXPECT_DOUBLE_EQ(h2d.spread, 0.02);
  EXPECT_EQ(h2d.Alone(), Us(2 + 20));
  EXPECT_EQ(DemandOn(h2d, Resource::kLinkH2D), 1);
  EXPECT_EQ(DemandOn(h2d, Resource::kLinkD2H), 0);
  EXPECT_EQ(DemandOn(h2d, Resource::kLinkBoth), 1);
  EXPECT_EQ(DemandOn(h2d, Resource::kDeviceMemory), 5);
  const OpCost d2h = model_.Cost(
      Copy{.direction = Direction::kDeviceToHost, .pieces = 10, .piece_bytes = 100'000});
  EXPECT_EQ(d2h.engine, Engine::kCopyD2H);
  EXPECT_EQ(d2h.Alone(), Us(1 + 25));
  EXPECT_EQ(DemandOn(d2h, Resource::kLinkD2H), 1);
  EXPECT_EQ(d2h.host, Us(2));
}

// n pieces of engine time e issued by calls of h end after h + n e, or n h + e if that is later.
TEST_F(CostModelTest, PiecewiseCopiesOverlapWithTheirCalls) {
  for (const Bytes piece : {1'000, 50'000, 1'000'000}) {
    const int64_t n = 40;
    const OpCost cost =
        model_.Cost(Copy{.path = CopyPath::kPerPiece, .pieces = n, .piece_bytes = piece});
    const double h = 3e-6;
    const double e = 2e-6 + static_cast<double>(piece) / 50e9;
    const double end = std::max(Seconds(cost.first_call) + Seconds(cost.Alone()),
                                Seconds(cost.host) + Seconds(cost.last_piece));
    EXPECT_NEAR(end, std::max(h + n * e, n * h + e), 1e-10) << piece;
  }
}

TEST_F(CostModelTest, OnlyTheFirstOfSmallCopiesToTheGpuGoesInItsCall) {
  Profile profile = RoundProfile();
  profile.copy.h2d_inline_call = Curve({1'000, 20'000}, {5e-6, 5e-6});
  const CostModel model(profile);
  const auto inlined = [&](CopyPath path, int64_t pieces, Bytes bytes) {
    return model.InlinedCost(Copy{.path = path, .pieces = pieces, .piece_bytes = bytes})
        .has_value();
  };
  EXPECT_TRUE(inlined(CopyPath::kBulk, 1, 20'000));
  EXPECT_TRUE(inlined(CopyPath::kPerPiece, 1, 20'000));
  EXPECT_TRUE(inlined(CopyPath::kPerPiece, 9, 20'000));
  EXPECT_FALSE(inlined(CopyPath::kBulk, 1, 20'001));
  EXPECT_FALSE(inlined(CopyPath::kPerPiece, 0, 1'000));
  EXPECT_FALSE(inlined(CopyPath::kBulk, 9, 1'000));  // one call with nine times as much
  EXPECT_FALSE(inlined(CopyPath::kBatched, 9, 1'000));
  EXPECT_FALSE(inlined(CopyPath::k2D, 1, 1'000));
  // One is at the GPU when its bytes have crossed the link, whatever path wrote it.
  for (const CopyPath path : {CopyPath::kBulk, CopyPath::kPerPiece}) {
    const auto one = model.InlinedCost(Copy{.path = path, .pieces = 1, .piece_bytes = 20'000});
    EXPECT_EQ(one->host, Us(5));
    EXPECT_EQ(one->Alone(), Us(0.4));
    EXPECT_EQ(one->last_piece, Us(0));
  }
}

// By all states in which two memories of 4 MiB can be when the call begins.
TEST_F(CostModelTest, TheGpuIsToldOfABatchThatItsCallCarriesWhenMemoryIsFullAndAtTheEnd) {
  constexpr int kStates = 200;
  constexpr double kFit = (4 << 20) / 10'000.0;
  Profile profile = RoundProfile();
  profile.copy.h2d_inline_time = Curve({1000, 20000}, {0.7e-6, 0.7e-6});
  const CostModel model(profile);
  for (const int pieces : {1, 100, 400, 3000}) {
    double first = 0, last = 0;  // pieces before the GPU is told of any; that it is told of at last
    for (int i = 0; i < kStates; ++i) {
      for (int j = 0; j < kStates; ++j) {
        double from = pieces, to = 0;
        for (const int state : {i, j}) {
          for (double full = (state + 0.5) / kStates * kFit; full < pieces; full += kFit) {
            from = std::min(from, full), to = std::max(to, full);
          }
        }
        first += from / kStates / kStates, last += (pieces - to) / kStates / kStates;
      }
    }
    const OpCost cost =
        model.Cost(Copy{.path = CopyPath::kBatched, .pieces = pieces, .piece_bytes = 10'000});
    EXPECT_EQ(cost.host, Us(5 + pieces * 2)) << pieces;
    EXPECT_NEAR(Seconds(cost.first_call) * 1e6, 5 + first * 2, 0.01 * first) << pieces;
    EXPECT_NEAR(Seconds(cost.last_piece) * 1e6, 2 + last * 0.7, 0.01 * last) << pieces;
    EXPECT_EQ(cost.Alone(), Us(2 + pieces * 0.7)) << pieces;
  }
}

TEST_F(CostModelTest, LargePiecesOfABatchMoveWhenItsCallIsOver) {
  const OpCost large =
      model_.Cost(Copy{.path = CopyPath::kBatched, .pieces = 100, .piece_bytes = 50'000});
  EXPECT_EQ(large.host, Us(5 + 100));
  EXPECT_EQ(large.first_call, large.host);
  EXPECT_EQ(large.Alone(), Us(2 + 100 * 0.1 + 100));
  EXPECT_TRUE(large.extrapolated);
  // To the host there is no small-piece path.
  const OpCost d2h = model_.Cost(Copy{.direction = Direction::kDeviceToHost,
                                      .path = CopyPath::kBatched,
                                      .pieces = 100,
                                      .piece_bytes = 10'000});
  EXPECT_EQ(d2h.host, Us(5 + 100));
  EXPECT_EQ(d2h.first_call, d2h.host);
}

TEST_F(CostModelTest, RowsOfA2DCopyHaveALeastTime) {
  const auto alone = [&](Bytes row) {
    return model_.Cost(Copy{.path = CopyPath::k2D, .pieces = 1'000, .piece_bytes = row}).Alone();
  };
  EXPECT_EQ(alone(1), Us(2 + 10));
  EXPECT_EQ(alone(500), Us(2 + 10));
  EXPECT_EQ(alone(1'000), Us(2 + 20));
}

// Weighted max-min: each flow gets weight x level; kLinkBoth fills at the measured pair of rates.
TEST_F(CostModelTest, BothWaysGiveTheMeasuredRates) {
  const OpCost up = model_.Cost(Copy{.pieces = 1, .piece_bytes = 1'000'000});
  const OpCost down = model_.Cost(
      Copy{.direction = Direction::kDeviceToHost, .pieces = 1, .piece_bytes = 1'000'000});
  const double level = Capacity(Resource::kLinkBoth) / (up.weight + down.weight);
  EXPECT_DOUBLE_EQ(up.weight * level, 30e9);
  EXPECT_DOUBLE_EQ(down.weight * level, 36e9);
  // No earlier bottleneck, and none for a direction alone.
  EXPECT_LE(up.weight * level, std::min(up.rate, Capacity(Resource::kLinkH2D)));
  EXPECT_LE(down.weight * level, std::min(down.rate, Capacity(Resource::kLinkD2H)));
  EXPECT_GE(Capacity(Resource::kLinkBoth), up.rate);
  EXPECT_GE(Capacity(Resource::kLinkBoth), down.rate);
  const OpCost gather =
      model_.Cost(plan::ZeroCopyGather{.pieces = 64, .piece_bytes = 1'000, .blocks = 8});
  EXPECT_EQ(gather.weight, up.weight);
}

TEST_F(CostModelTest, AOneSidedLinkKeepsItsFasterDirection) {
  Profile profile = RoundProfile();
  Set(profile, "link.h2d", "1GB/s");
  const CostModel model(profile);
  EXPECT_EQ(model.capacity()[static_cast<size_t>(Resource::kLinkBoth)], 40e9);
}

TEST_F(CostModelTest, ZeroCopyIsProportionalToBlocksUntilTheLink) {
  const auto cost = [&](int64_t pieces, Bytes bytes, int32_t blocks) {
    return model_.Cost(
        plan::ZeroCopyGather{.pieces = pieces, .piece_bytes = bytes, .blocks = blocks});
  };
  EXPECT_DOUBLE_EQ(cost(1'000, 1'000, 1).rate, 1e9);
  EXPECT_NEAR(cost(1'000, 1'000, 4).rate, 4e9, 1);
  EXPECT_DOUBLE_EQ(cost(1'000, 10'000, 8).rate, 50e9);  // the link, not the table's 60
  EXPECT_EQ(cost(1'000, 1'000, 8).Alone(), Us(1 + 125));
  EXPECT_EQ(cost(1'000, 1'000, 8).host, Us(4));
  // A block reads 64 KiB at a time: what fits into that keeps one busy, more a second.
  EXPECT_DOUBLE_EQ(cost(8, 1'000, 64).rate, 1e9);
  EXPECT_NEAR(cost(64, 1'024, 64).rate, RoundProfile().zero_copy.rate.At(1'024, 1), 1);
  EXPECT_NEAR(cost(65, 1'024, 64).rate, RoundProfile().zero_copy.rate.At(1'024, 2), 1);
  EXPECT_TRUE(cost(1'000, 100, 8).extrapolated);
  EXPECT_TRUE(cost(7'000, 1'000, 100).extrapolated);
  EXPECT_FALSE(cost(7'000, 1'000, 64).extrapolated);
  EXPECT_FALSE(cost(1'000, 1'000, 100).extrapolated);  // 16 blocks have bytes to read
}

// 10 MB, which blocks of 8 GB/s together read in 1.25 ms.
plan::ZeroCopyGather ScatteredPieces(int64_t regions, Bytes pool) {
  return {.pieces = 10'000,
          .piece_bytes = 1'000,
          .blocks = 8,
          .scattered_over = pool,
          .regions = regions};
}

// Of whose bytes the link or translation sets the rate, not how much a block has on its way.
Profile ProfileOfManyBlocks() {
  Profile profile = RoundProfile();
  profile.zero_copy.rate =
      hardware::Surface({100, 7'000}, {1, 8, 64}, {6e9, 8e9, 8e9, 6e9, 8e9, 8e9});
  return profile;
}

TEST_F(CostModelTest, RegionsAreTranslatedOneAfterTheOther) {
  Profile profile = ProfileOfManyBlocks();
  profile.zero_copy.translation = Curve({1e6, 100e6}, {100e-9, 100e-9});
  const CostModel model(profile);
  const auto cost = [&](int64_t regions, Bytes pool) {
    return model.Cost(ScatteredPieces(regions, pool));
  };
  EXPECT_DOUBLE_EQ(cost(100'000, 0).rate, 8e9) << "near each other";
  EXPECT_DOUBLE_EQ(cost(10'000, 1'000'000).rate, 8e9) << "1 ms for 1.25 of bytes";
  EXPECT_DOUBLE_EQ(cost(20'000, 1'000'000).rate, 10e6 / 2e-3);
  EXPECT_DOUBLE_EQ(cost(-1, 1'000'000).rate, 8e9) << "not known: a region a piece";
  EXPECT_FALSE(cost(1, 100'000'000).extrapolated);
  EXPECT_TRUE(cost(1, 1'000'000'000).extrapolated);
}

TEST_F(CostModelTest, TheTranslationOfAddressesMayTakeLongerThanTheBytes) {
  Profile profile = ProfileOfManyBlocks();
  profile.zero_copy.translation = Curve({1e6, 100e6}, {40e-9, 160e-9});
  const CostModel model(profile);
  const auto cost = [&](int64_t regions, Bytes pool) {
    return model.Cost(ScatteredPieces(regions, pool));
  };
  const OpCost near = cost(10'000, 0);  // 1.25 ms
  EXPECT_DOUBLE_EQ(near.rate, 8e9);
  EXPECT_DOUBLE_EQ(cost(1'000, 100'000'000).rate, near.rate) << "160 us";
  EXPECT_DOUBLE_EQ(cost(10'000, 100'000'000).rate, 10e6 / 1.6e-3) << "1.6 ms";
  EXPECT_DOUBLE_EQ(cost(-1, 100'000'000).rate, 10e6 / 1.6e-3) << "not known: a region a piece";
  EXPECT_NEAR(cost(20'000, 10'000'000).rate, 10e6 / 1.6e-3, 1) << "80 ns each";
  EXPECT_EQ(cost(10'000, 100'000'000).fixed, near.fixed);
  EXPECT_DOUBLE_EQ(cost(0, 100'000'000).rate, near.rate);
  EXPECT_FALSE(cost(10'000, 100'000'000).extrapolated);
  EXPECT_TRUE(cost(10'000, 200'000'000).extrapolated);
}

// Of ten megabytes in so many regions, read by so many blocks.
double ScatteredSeconds(const Profile& profile, int32_t blocks, int64_t regions) {
  plan::ZeroCopyGather gather = ScatteredPieces(regions, 10'000'000);
  gather.blocks = blocks;
  return 10e6 / CostModel(profile).Cost(gather).rate;
}

TEST_F(CostModelTest, AFewBlocksWaitForTranslationAndBytesInTurn) {
  Profile profile = RoundProfile();  // a block reads 1 GB/s
  profile.zero_copy.translation = Curve({1e6, 100e6}, {40e-9, 40e-9});
  // Ten megabytes are 153 rounds of 64 KiB of one block, 39 of four.
  const double round = 65'536e-9;
  EXPECT_NEAR(ScatteredSeconds(profile, 1, 10'000), 153 * round + 10'000 * 40e-9, 1e-9);
  EXPECT_NEAR(ScatteredSeconds(profile, 4, 10'000), 39 * round + 10'000 * 40e-9 / 4, 1e-9);
  EXPECT_NEAR(ScatteredSeconds(profile, 4, 100), 39 * round + 100 * 40e-9 / 4, 1e-9);
}

TEST_F(CostModelTest, ABlockThatLooksAheadIsWorthSeveralThatDoNotUntilTheLink) {
  Profile profile = RoundProfile();  // 65.5 us a round of a block that does not
  plan::ZeroCopyGather gather{.pieces = 1'000, .piece_bytes = 1'000, .blocks = 2};
  const auto rate = [&] { return CostModel(profile).Cost(gather).rate; };
  profile.zero_copy.round_ahead = 16.384e-6;
  EXPECT_NEAR(rate(), 2e9, 1);
  gather.lookup = plan::ZeroCopyGather::Lookup::kAhead;
  EXPECT_NEAR(rate(), 8e9, 1);
  gather.piece_bytes = 10'000, gather.blocks = 64;
  EXPECT_DOUBLE_EQ(rate(), 50e9);
  profile.zero_copy.round_ahead = 0;  // not known
  gather.piece_bytes = 1'000, gather.blocks = 2;
  EXPECT_NEAR(rate(), 2e9, 1);
  // Where addresses are translated, its rounds count as long.
  profile.zero_copy.translation = Curve({1e6, 100e6}, {1e-9, 1e-9});
  profile.zero_copy.round_ahead = 16.384e-6;
  gather = ScatteredPieces(10'000, 10'000'000);
  gather.blocks = 1, gather.lookup = plan::ZeroCopyGather::Lookup::kAhead;
  EXPECT_NEAR(10e6 / rate(), 153 * 16.384e-6 + 10'000 * 1e-9, 1e-9);
}

TEST_F(CostModelTest, ZeroCopyTakesMultiprocessorsAndMemoryFromOthers) {
  const OpCost cost =
      model_.Cost(plan::ZeroCopyGather{.pieces = 5'000, .piece_bytes = 1'000, .blocks = 64});
  EXPECT_DOUBLE_EQ(DemandOn(cost, Resource::kSms) * cost.rate, 32);  // two blocks each
  EXPECT_DOUBLE_EQ(DemandOn(cost, Resource::kDeviceMemory) * cost.rate, 20e9 + 400e9);
  EXPECT_EQ(DemandOn(cost, Resource::kLinkH2D), 1);
  const OpCost many =
      model_.Cost(plan::ZeroCopyGather{.pieces = 500'000, .piece_bytes = 1'000, .blocks = 400});
  EXPECT_DOUBLE_EQ(DemandOn(many, Resource::kSms) * many.rate, 100);  // there are no more
  // A kernel that would fill memory keeps the rest: transfers reach their rate first.
  const OpCost kernel = model_.Cost(plan::Layout{.pieces = 1'000, .piece_bytes = 1'000'000});
  EXPECT_LT(cost.rate / cost.weight, kernel.rate / kernel.weight);
}

TEST_F(CostModelTest, AFlowAloneReachesItsRateOnAnyMachine) {
  Profile profile = RoundProfile();
  Set(profile, "memory.bandwidth", "100GB/s");
  const CostModel model(profile);
  for (const plan::Work& work :
       {plan::Work(plan::ZeroCopyGather{.pieces = 1'000, .piece_bytes = 1'000, .blocks = 64}),
        plan::Work(Copy{.pieces = 1, .piece_bytes = 1'000'000}),
        plan::Work(plan::HostGather{.pieces = 8, .piece_bytes = 1'000, .threads = 99}),
        plan::Work(plan::Layout{.pieces = 1, .piece_bytes = 1'000'000})}) {
    const OpCost cost = model.Cost(work);
    ASSERT_GT(cost.demands, 0);
    for (int i = 0; i < cost.demands; ++i) {
      const Demand& demand = cost.demand[static_cast<size_t>(i)];
      EXPECT_LE(demand.per_unit * cost.rate,
                model.capacity()[static_cast<size_t>(demand.resource)] * (1 + 1e-12));
    }
  }
}

TEST_F(CostModelTest, HostGathersShareHostMemory) {
  // 0.5 us a piece and 2 us for its bytes; a second thread must be woken.
  EXPECT_EQ(
      model_.Cost(plan::HostGather{.pieces = 100, .piece_bytes = 8'000, .threads = 1}).Alone(),
      Us(250));
  const OpCost two =
      model_.Cost(plan::HostGather{.pieces = 100, .piece_bytes = 8'000, .threads = 2});
  EXPECT_EQ(two.Alone(), Us(6 + 125));
  EXPECT_EQ(two.host, Us(0));
  EXPECT_EQ(DemandOn(two, Resource::kHostMemory), 2);
  // 100 threads would want 400 GB/s of the 50 that reading and writing leave.
  const OpCost many =
      model_.Cost(plan::HostGather{.pieces = 100, .piece_bytes = 8'000, .threads = 100});
  EXPECT_EQ(many.Alone(), Us(6 + 16));
}

TEST_F(CostModelTest, HostAttentionReadsAsFastAsMemoryAndThreadsLet) {
  plan::HostAttention attention{.kv_tokens = 20'000, .sequences = 1, .kv_row_bytes = 1'000};
  const auto alone = [&](const Profile& profile, int32_t threads) {
    attention.threads = threads;
    const OpCost cost = CostModel(profile).Cost(attention);
    EXPECT_EQ(DemandOn(cost, Resource::kHostMemory), 1);
    return cost.Alone();
  };
  Profile profile = RoundProfile();
  // 40 MB at twice the 4 GB/s that a thread gathers; at the memory's 100 GB/s.
  EXPECT_EQ(alone(profile, 1), Us(5'000));
  EXPECT_EQ(alone(profile, 2), Us(6 + 2'500));
  EXPECT_EQ(alone(profile, 100), Us(6 + 400));
  EXPECT_TRUE(CostModel(profile).Cost(attention).extrapolated);
  Set(profile, "host.attention", "50GB/s");
  EXPECT_EQ(alone(profile, 100), Us(6 + 800));
  EXPECT_FALSE(CostModel(profile).Cost(attention).extrapolated);
  profile.host.attention_rate = hardware::Curve({1, 4}, {5e9, 20e9});
  EXPECT_EQ(alone(profile, 1), Us(8'000));
  EXPECT_EQ(alone(profile, 4), Us(6 + 2'000));
  EXPECT_FALSE(CostModel(profile).Cost(attention).extrapolated);
  alone(profile, 8);
  EXPECT_TRUE(CostModel(profile).Cost(attention).extrapolated);
}

TEST_F(CostModelTest, HostLookupsFindPlacesAndReadBytes) {
  // 0.5 us an access, which threads share; 80 KB at twice the 4 GB/s that a thread gathers.
  EXPECT_EQ(model_.Cost(plan::HostLookup{.accesses = 100, .bytes = 80'000, .threads = 1}).Alone(),
            Us(50 + 10));
  EXPECT_EQ(model_.Cost(plan::HostLookup{.accesses = 100, .bytes = 80'000, .threads = 4}).Alone(),
            Us(6 + 12.5 + 2.5));
  EXPECT_EQ(model_.Cost(plan::HostLookup{}).Alone(), Us(0));
}

TEST_F(CostModelTest, HostGathersByThreadsAsTheyWereTimed) {
  Profile profile = RoundProfile();
  profile.host.gather_rate = Curve({1, 2, 8}, {4e9, 6.4e9, 16e9});
  profile.host.gather_start = Curve({1, 2, 8}, {1e-6, 5e-6, 20e-6});
  const auto alone = [&](int32_t threads, int64_t pieces = 100) {
    const CostModel model(profile);
    return model.Cost(plan::HostGather{pieces, 8'000, threads}).Alone();
  };
  // Pieces of 0.5 us are shared by all, the bytes pass at what the threads reach together.
  EXPECT_EQ(alone(1), Us(1 + 50 + 200));
  EXPECT_EQ(alone(2), Us(5 + 25 + 125));
  EXPECT_EQ(alone(8), Us(20 + 6.25 + 50));
  // A thread that finds no piece is not woken.
  EXPECT_EQ(alone(8, 2), Us(5 + 0.5 + 2.5));
  const CostModel model(profile);
  EXPECT_FALSE(model.Cost(plan::HostGather{100, 8'000, 8}).extrapolated);
  EXPECT_TRUE(model.Cost(plan::HostGather{100, 8'000, 16}).extrapolated);
  Set(profile, "host.gather_thread", "8GB/s");
  EXPECT_EQ(alone(2), Us(5 + 25 + 62.5));
  // The first 2 MiB at a rate of their own.
  profile.host.gather_first_rate = Curve({1, 2, 8}, {8e9, 16e9, 32e9});
  EXPECT_EQ(alone(2), Us(5 + 25 + 50));
  EXPECT_EQ(alone(2, 512), Us(5 + 128 + 131.072 + (512 * 8'000 - 2'097'152) / 12.8e3));
}

TEST_F(CostModelTest, RowsByThreadsAsTheyWereTimed) {
  Profile profile = RoundProfile();
  profile.host.gather_rate = Curve({1, 2, 8}, {4e9, 6.4e9, 16e9});
  const auto alone = [&](int64_t piece, int32_t threads) {
    return CostModel(profile).Cost(plan::HostGather{1'000, piece, threads}).Alone();
  };
  // Untimed, threads share what rows take.
  EXPECT_EQ(alone(256, 1), Us(500 + 64));
  EXPECT_EQ(alone(256, 8), Us(6 + 500 / 8. + 16));
  profile.host.gather_row = Curve({1, 2, 8}, {40e-9, 30e-9, 20e-9});
  EXPECT_EQ(alone(256, 1), Us(40 + 64));
  EXPECT_EQ(alone(256, 2), Us(6 + 30 + 40));
  EXPECT_EQ(alone(256, 8), Us(6 + 20 + 16));
  // A page takes as long beside its bytes.
  EXPECT_EQ(alone(16'000, 8), Us(6 + 20 + 1'000));
  EXPECT_FALSE(CostModel(profile).Cost(plan::HostGather{1'000, 256, 8}).extrapolated);
  EXPECT_TRUE(CostModel(profile).Cost(plan::HostGather{1'000, 256, 9}).extrapolated);
  profile.host.gather_rate = Curve({1, 2, 8, 9}, {4e9, 6.4e9, 16e9, 16e9});
  EXPECT_TRUE(CostModel(profile).Cost(plan::HostGather{1'000, 256, 9}).extrapolated);
  Set(profile, "host.gather_piece", "1us");
  EXPECT_EQ(alone(256, 2), Us(6 + 60 + 40));
}

TEST_F(CostModelTest, HostWorkAndLatencies) {
  EXPECT_EQ(model_.Cost(plan::GraphLaunch{.nodes = 300}).host, Us(7 + 3));
  for (const plan::Work& work : {plan::Work(plan::HostSync{}), plan::Work(plan::HostHandoff{})}) {
    EXPECT_EQ(model_.Cost(work).host + model_.Cost(work).Alone(), Us(0));
  }
  Profile profile = RoundProfile();
  profile.host.notify = 1.75e-6;
  const CostModel notifies(profile);
  EXPECT_EQ(notifies.Cost(plan::HostHandoff{}).host, Us(1.75));
  EXPECT_EQ(notifies.Cost(plan::HostSync{}).host, Us(0));
  const Latencies& latencies = model_.latencies();
  EXPECT_EQ(latencies.handoff(Site::kHost, Site::kKernel, How::kStream), Us(1.5));
  EXPECT_EQ(latencies.handoff(Site::kHost, Site::kD2H, How::kStream), Us(1.8));
  EXPECT_EQ(latencies.handoff(Site::kKernel, Site::kKernel, How::kStream), Us(1.2));
  EXPECT_EQ(latencies.handoff(Site::kD2H, Site::kKernel, How::kStream), Us(1.6));
  EXPECT_EQ(latencies.handoff(Site::kKernel, Site::kKernel, How::kEvent), Us(1.1));
  EXPECT_EQ(latencies.handoff(Site::kKernel, Site::kKernel, How::kGraph), Us(0.5));
  EXPECT_EQ(latencies.cpp.event_record, Us(0.5));
  EXPECT_EQ(latencies.cpp.stream_wait, Us(0.25));
  EXPECT_EQ(latencies.handoff(Site::kKernel, Site::kHost, How::kEvent), Us(2));
  EXPECT_EQ(latencies.handoff(Site::kHost, Site::kHost, How::kEvent), Us(6));
}

TEST_F(CostModelTest, WhereARunIsRecordedEachOfItsCallsCostsMore) {
  Profile profile = RoundProfile();
  profile.copy.h2d_inline_call = Curve({1'000}, {5e-6});
  profile.recorder.copy_call = 1e-6, profile.recorder.copy_back_call = 2e-6;
  profile.recorder.launch = 4e-6, profile.recorder.op = 8e-6, profile.recorder.copy = 16e-6;
  profile.recorder.event_record = 32e-6, profile.recorder.stream_wait = 64e-6;
  profile.recorder.sync = 128e-6, profile.recorder.kernel = 256e-6;
  const auto model = [&](double recorded) {
    profile.host.recorded = recorded;
    return CostModel(profile);
  };
  const CostModel plain = model(0), recorded = model(1), half = model(0.5);
  const auto more = [&](const plan::Work& work) {
    return recorded.Cost(work).host - plain.Cost(work).host;
  };
  const Copy up{.pieces = 1, .piece_bytes = 1'000};
  Copy back = up;
  back.direction = Direction::kDeviceToHost;
  EXPECT_EQ(more(up), Us(1 + 8));
  EXPECT_EQ(half.Cost(up).host - plain.Cost(up).host, Us(0.5 + 4));
  EXPECT_EQ(more(back), Us(2 + 8));
  EXPECT_EQ(recorded.latencies().handoff(Site::kKernel, Site::kHost, How::kEvent) -
                plain.latencies().handoff(Site::kKernel, Site::kHost, How::kEvent),
            Us(128));
  EXPECT_EQ(more(Copy{.path = CopyPath::kPerPiece, .pieces = 7, .piece_bytes = 1'000}), Us(7 + 8));
  EXPECT_EQ(more(Copy{.path = CopyPath::kBatched, .pieces = 7, .piece_bytes = 1'000}), Us(1 + 8));
  EXPECT_EQ(recorded.InlinedCost(up)->host - plain.InlinedCost(up)->host, Us(1 + 8));
  EXPECT_EQ(more(plan::Layout{.pieces = 1, .piece_bytes = 1'000}), Us(4 + 8));
  EXPECT_EQ(more(plan::GraphLaunch{.nodes = 300}), Us(4));
  EXPECT_EQ(more(plan::HostSync{}), Us(0));
  const Latencies& a = plain.latencies();
  const Latencies& b = recorded.latencies();
  const auto later = [&](Site from, Site to) {
    return b.handoff(from, to, How::kStream) - a.handoff(from, to, How::kStream);
  };
  EXPECT_EQ(later(Site::kH2D, Site::kH2D), Us(16));
  EXPECT_EQ(later(Site::kD2H, Site::kD2H), Us(16));
  EXPECT_EQ(later(Site::kH2D, Site::kD2H), Us(0));
  EXPECT_EQ(later(Site::kKernel, Site::kKernel), Us(256));
  EXPECT_EQ(b.cpp.event_record - a.cpp.event_record, Us(32));
  EXPECT_EQ(b.cpp.stream_wait - a.cpp.stream_wait, Us(64));
}

TEST_F(CostModelTest, ATimedKernelCostsItsFactors) {
  const plan::Work timed = plan::Layout{.pieces = 100, .piece_bytes = 10'000};
  Profile profile = RoundProfile();
  KernelFit& fit = profile.kernels["layout"];
  fit.host_s = 2e-6;
  fit.points = {
      {.shape = plan::ShapeOf(timed), .seconds = 4.5e-6, .factor = 1.5, .host_factor = 2.5}};
  const OpCost cost = CostModel(profile).Cost(timed);
  EXPECT_EQ(cost.Alone(), Us(1.5 * (2 + 1)));
  EXPECT_EQ(cost.host, Us(2 * 2.5));
  // Without a call of its own the kind's is that of any launch.
  fit.host_s = 0;
  EXPECT_EQ(CostModel(profile).Cost(timed).host, Us(4));
}

TEST_F(CostModelTest, WhatAPieceOfACopyTakesGoesByItsSize) {
  Profile profile = RoundProfile();
  profile.copy.h2d_piece = Curve({1'000, 100'000}, {4e-6, 1e-6});
  profile.copy.d2h_piece = Curve({1'000}, {3e-6});
  const CostModel model(profile);
  const auto alone = [&](Direction direction, CopyPath path, int64_t pieces, Bytes bytes) {
    return model
        .Cost(Copy{.direction = direction, .path = path, .pieces = pieces, .piece_bytes = bytes})
        .Alone();
  };
  constexpr Direction kUp = Direction::kHostToDevice, kDown = Direction::kDeviceToHost;
  EXPECT_EQ(alone(kUp, CopyPath::kPerPiece, 10, 1'000), Us(10 * (4 + 0.02)));
  EXPECT_EQ(alone(kUp, CopyPath::kPerPiece, 10, 10'000), Us(10 * (2 + 0.2)));  // log-log
  EXPECT_EQ(alone(kUp, CopyPath::kPerPiece, 10, 1'000'000), Us(10 * (1 + 20)));
  EXPECT_EQ(alone(kDown, CopyPath::kBulk, 1, 40'000), Us(3 + 1));
}

TEST_F(CostModelTest, CopiesOfScatteredPiecesTranslateAddresses) {
  Profile profile = RoundProfile();
  profile.copy.h2d_piece = Curve({1'000}, {2e-6});
  profile.copy.translation = Curve({1e6, 100e6}, {0.4e-6, 1.6e-6});
  const CostModel model(profile);
  const auto cost = [&](int64_t regions, Bytes pool) {
    return model.Cost(Copy{.path = CopyPath::kPerPiece,
                           .pieces = 10,
                           .piece_bytes = 1'000,
                           .scattered_over = pool,
                           .regions = regions});
  };
  EXPECT_EQ(cost(10, 0).Alone(), Us(10 * (2 + 0.02))) << "near each other";
  EXPECT_EQ(cost(0, 1'000'000).Alone(), Us(10 * (2 + 0.02)));
  EXPECT_EQ(cost(10, 1'000'000).Alone(), Us(10 * (2.4 + 0.02)));
  EXPECT_EQ(cost(5, 100'000'000).Alone(), Us(10 * (2.8 + 0.02)));
  EXPECT_EQ(cost(10, 10'000'000).last_piece, Us(2.8 + 0.02)) << "log-log";
  EXPECT_FALSE(cost(1, 100'000'000).extrapolated);
  EXPECT_TRUE(cost(1, 200'000'000).extrapolated);
  // A profile that does not know.
  const Copy scattered{.path = CopyPath::kPerPiece,
                       .pieces = 10,
                       .piece_bytes = 1'000,
                       .scattered_over = 1'000'000,
                       .regions = 10};
  Copy near = scattered;
  near.regions = 0;
  EXPECT_EQ(model_.Cost(scattered).Alone(), model_.Cost(near).Alone());
}

TEST_F(CostModelTest, RefusesOpsLongerThanADay) {
  EXPECT_THROW(model_.Cost(Copy{.pieces = 1'000'000'000'000, .piece_bytes = 1'000'000}), Error);
  EXPECT_THROW(model_.Cost(Copy{.path = CopyPath::kPerPiece, .pieces = 1'000'000'000'000'000}),
               Error);
  EXPECT_THROW(model_.Cost(plan::GraphLaunch{.nodes = INT64_MAX}), Error);
  EXPECT_THROW(model_.Cost(plan::Layout{.pieces = 1'000'000'000, .piece_bytes = 1'000'000'000}),
               Error);
}

TEST_F(CostModelTest, RefusesProfilesThatMakeNoSense) {
  Profile profile = RoundProfile();
  profile.link.h2d = std::nan("");
  EXPECT_THROW(CostModel{profile}, Error);
}

// Beyond their bytes, copies take of the memory what they took at the link's own rate.
TEST(CostModelWhatIfTest, CopiesOverAFasterLinkHinderOthersNoMore) {
  const auto demand = [](std::initializer_list<std::pair<const char*, const char*>> sets,
                         Direction direction = Direction::kHostToDevice) {
    Profile profile = RoundProfile();
    for (const auto& [path, value] : sets) Set(profile, path, value);
    const Copy copy{.direction = direction, .pieces = 1, .piece_bytes = 1'000'000};
    return DemandOn(CostModel(profile).Cost(copy), Resource::kDeviceMemory);
  };
  EXPECT_DOUBLE_EQ(demand({}), 5);
  EXPECT_DOUBLE_EQ(demand({{"link.h2d", "25GB/s"}}), 5);
  EXPECT_DOUBLE_EQ(demand({{"link.h2d", "200GB/s"}}), 1 + 4.0 * 50 / 200);
  EXPECT_DOUBLE_EQ(demand({{"link.h2d", "200GB/s"}, {"link.h2d", "400GB/s"}}), 1 + 4.0 * 50 / 400);
  EXPECT_DOUBLE_EQ(demand({{"link.h2d", "200GB/s"}, {"copy.device_factor", "3"}}), 1 + 2.0 / 4);
  EXPECT_DOUBLE_EQ(demand({{"copy.device_factor", "3"}, {"link.h2d", "200GB/s"}}), 1 + 2.0 / 4);
  EXPECT_DOUBLE_EQ(demand({{"link.h2d", "200GB/s"}}, Direction::kDeviceToHost), 5);
}

// What-ifs never make an op alone slower.
TEST(CostModelWhatIfTest, FasterPartsNeverCostMore) {
  const std::vector<plan::Work> works = {
      Copy{.pieces = 64, .piece_bytes = 16'384},
      Copy{.path = CopyPath::kPerPiece, .pieces = 64, .piece_bytes = 16'384},
      Copy{.path = CopyPath::kBatched, .pieces = 64, .piece_bytes = 65'536},
      Copy{.path = CopyPath::k2D, .pieces = 64, .piece_bytes = 256},
      plan::ZeroCopyGather{.pieces = 100, .piece_bytes = 2'048, .blocks = 8},
      plan::Gemm{.m = 1, .n = 4096, .k = 4096}};
  for (const std::string& name : ProfileNames()) {
    const Profile before = FindProfile(name);
    Profile after = before;
    Set(after, "link.h2d", "1TB/s");
    Set(after, "memory.bandwidth", "20TB/s");
    for (const plan::Work& work : works) {
      EXPECT_LE(CostModel(after).Cost(work).Alone(), CostModel(before).Cost(work).Alone())
          << name << " " << plan::KindName(work);
    }
  }
}

}  // namespace
}  // namespace stallcast::hardware
