#include "kernels/movement/movement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <tuple>

#include "kernels/movement/batched_copy.h"
#include "kernels/runtime/cuda_handles.h"
#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

struct Shape {
  int32_t page_tokens, kv_heads, head_dim, slots;
  int64_t PieceElements() const { return int64_t{2} * page_tokens * head_dim; }
  int64_t PageElements() const { return kv_heads * PieceElements(); }
};

/// Element of (page, head, kv, token, channel), straight from the definition of the two layouts.
int64_t HndIndex(const Shape& s, int64_t page, int head, int kv, int token, int channel) {
  return (((page * s.kv_heads + head) * 2 + kv) * s.page_tokens + token) * s.head_dim + channel;
}
int64_t NhdIndex(const Shape& s, int64_t page, int head, int kv, int token, int channel) {
  return (((page * 2 + kv) * s.page_tokens + token) * s.kv_heads + head) * s.head_dim + channel;
}
int64_t Index(const Shape& s, bool nhd, int64_t page, int head, int kv, int token, int channel) {
  return nhd ? NhdIndex(s, page, head, kv, token, channel)
             : HndIndex(s, page, head, kv, token, channel);
}

PagedKv Pages(__nv_bfloat16* data, const Shape& s, bool nhd) {
  return nhd ? NhdPages(data, s.page_tokens, s.kv_heads, s.head_dim)
             : HndPages(data, s.page_tokens, s.kv_heads, s.head_dim);
}

/// Every bit pattern, NaNs included: moving must not touch values.
std::vector<__nv_bfloat16> RandomBits(std::mt19937& random, int64_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (uint16_t& value : bits) value = static_cast<uint16_t>(random());
  std::vector<__nv_bfloat16> values(bits.size());
  std::memcpy(static_cast<void*>(values.data()), bits.data(), 2 * bits.size());
  return values;
}

void ExpectSameBits(const std::vector<__nv_bfloat16>& expected,
                    const std::vector<__nv_bfloat16>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(Bits(expected[i]), Bits(actual[i])) << "element " << i;
  }
}

/// Distinct (slot, head) places, shuffled.
void Places(std::mt19937& random, const Shape& s, int64_t pieces, std::vector<int32_t>* slot,
            std::vector<int32_t>* head) {
  std::vector<int32_t> all(static_cast<size_t>(s.slots * s.kv_heads));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  for (int64_t i = 0; i < pieces; ++i) {
    slot->push_back(all[i] / s.kv_heads);
    head->push_back(all[i] % s.kv_heads);
  }
}

class Movement : public OnDevice, public testing::WithParamInterface<std::tuple<Shape, bool>> {};

TEST_P(Movement, ScatterPutsEachPieceInItsPlaceAndNothingElse) {
  const auto [s, nhd] = GetParam();
  const int64_t pieces_max = s.slots * s.kv_heads * 3 / 4;
  std::vector<int32_t> slot, head;
  Places(random_, s, pieces_max, &slot, &head);
  const auto pieces = RandomBits(random_, pieces_max * s.PieceElements());
  const auto d_pieces = Uploaded(pieces);
  const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
  for (const int64_t count : {int64_t{0}, int64_t{1}, pieces_max / 2, pieces_max}) {
    const auto cache = Poisoned<__nv_bfloat16>(s.slots * s.PageElements());
    const auto d_count = Uploaded(std::vector<int32_t>{static_cast<int32_t>(count)});
    auto expected = ToHost(cache);
    for (int64_t i = 0; i < count; ++i) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int token = 0; token < s.page_tokens; ++token) {
          for (int channel = 0; channel < s.head_dim; ++channel) {
            expected[Index(s, nhd, slot[i], head[i], kv, token, channel)] =
                pieces[((i * 2 + kv) * s.page_tokens + token) * s.head_dim + channel];
          }
        }
      }
    }
    ScatterPages(d_pieces.get(), d_slot.get(), d_head.get(), static_cast<int32_t>(pieces_max),
                 d_count.get(), Pages(cache.get(), s, nhd), nullptr);
    ExpectSameBits(expected, ToHost(cache));
  }
}

TEST_P(Movement, TransposeGivesHndPages) {
  const auto [s, nhd] = GetParam();
  const auto cache = RandomBits(random_, s.slots * s.PageElements());
  const auto d_cache = Uploaded(cache);
  std::vector<int32_t> slots(static_cast<size_t>(s.slots));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random_);
  const auto pages = std::max<int32_t>(1, s.slots / 2);
  const auto d_slots = Uploaded(slots);
  const auto hnd = Poisoned<__nv_bfloat16>(s.slots * s.PageElements());
  auto expected = ToHost(hnd);
  for (int64_t page = 0; page < pages; ++page) {
    for (int head = 0; head < s.kv_heads; ++head) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int token = 0; token < s.page_tokens; ++token) {
          for (int channel = 0; channel < s.head_dim; ++channel) {
            expected[HndIndex(s, page, head, kv, token, channel)] =
                cache[Index(s, nhd, slots[page], head, kv, token, channel)];
          }
        }
      }
    }
  }
  TransposePages(Pages(d_cache.get(), s, nhd), d_slots.get(), pages, hnd.get(), nullptr);
  ExpectSameBits(expected, ToHost(hnd));
}

TEST_P(Movement, ZeroCopyGatherReadsEitherPoolWithAnyNumberOfBlocks) {
  const auto [s, nhd] = GetParam();
  const int64_t pool_pages = 3 * s.slots;
  const auto bits = RandomBits(random_, pool_pages * s.PageElements());
  const Buffer<__nv_bfloat16> pool(pool_pages * s.PageElements(), Memory::kPinned);
  std::memcpy(static_cast<void*>(pool.get()), bits.data(), pool.bytes());
  const int64_t pieces_max = s.slots * s.kv_heads;
  std::vector<int32_t> slot, head;
  Places(random_, s, pieces_max, &slot, &head);
  std::vector<int64_t> source;
  for (int64_t i = 0; i < pieces_max; ++i) {
    source.push_back(static_cast<int64_t>(random_() % (pool_pages * s.kv_heads)));
  }
  const auto d_source = Uploaded(source);
  const auto d_slot = Uploaded(slot), d_head = Uploaded(head);
  for (const bool rows : {false, true}) {
    for (const int32_t blocks : {1, 3, 16}) {
      const int64_t count = pieces_max * blocks / 16;
      const auto d_count = Uploaded(std::vector<int32_t>{static_cast<int32_t>(count)});
      const auto cache = Poisoned<__nv_bfloat16>(s.slots * s.PageElements());
      auto expected = ToHost(cache);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t page = source[i] / s.kv_heads;
        const auto from_head = static_cast<int>(source[i] % s.kv_heads);
        for (int kv = 0; kv < 2; ++kv) {
          for (int token = 0; token < s.page_tokens; ++token) {
            for (int channel = 0; channel < s.head_dim; ++channel) {
              expected[Index(s, nhd, slot[i], head[i], kv, token, channel)] =
                  bits[Index(s, rows, page, from_head, kv, token, channel)];
            }
          }
        }
      }
      ZeroCopyGather(pool.get(), d_source.get(), d_slot.get(), d_head.get(),
                     static_cast<int32_t>(pieces_max), d_count.get(), Pages(cache.get(), s, nhd),
                     rows, blocks, nullptr);
      ExpectSameBits(expected, ToHost(cache));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Movement,
                         testing::Combine(testing::Values(Shape{1, 1, 64, 4}, Shape{16, 8, 128, 24},
                                                          Shape{32, 8, 128, 16},
                                                          Shape{16, 4, 64, 40}, Shape{7, 3, 80, 11},
                                                          Shape{5, 2, 8, 9}),
                                          testing::Bool()));

/// A recall of rows first_row and on, and where each of its units comes from and goes to.
struct Recall {
  Shape shape;
  int32_t sequences, first_row, rows, k, pool_pages;
  bool with_flags, flagged;
};

class Missed : public OnDevice, public testing::WithParamInterface<std::tuple<Recall, bool>> {
 protected:
  static constexpr int32_t kFirstSlot = 2;

  struct Move {
    int64_t piece, page, slot;  ///< of those moved; of the pool; of the cache
    int32_t head;
  };

  /// Fills the device's lists; the moves that they stand for, in their order.
  std::vector<Move> Draw(const Recall& r) {
    const int32_t slots = r.shape.slots;
    std::vector<int32_t> unit(static_cast<size_t>(r.rows) * r.k, -1), slot(unit), count, flag;
    std::vector<Move> moves;
    for (int32_t row = 0; row < r.rows; ++row) {
      count.push_back(row % 3 == 1 ? 0 : static_cast<int32_t>(random_() % (r.k + 1)));
      flag.push_back(static_cast<int32_t>(random_() % 2 * 3));
      std::vector<int32_t> free(static_cast<size_t>(slots - kFirstSlot));
      std::iota(free.begin(), free.end(), 0);
      std::shuffle(free.begin(), free.end(), random_);
      for (int32_t i = 0; i < count[row]; ++i) {
        unit[row * r.k + i] = static_cast<int32_t>(random_() % r.pool_pages);
        slot[row * r.k + i] = free[i];
        if (r.with_flags && (flag[row] != 0) != r.flagged) continue;
        const int64_t sequence = (r.first_row + row) / r.shape.kv_heads;
        moves.push_back(
            {static_cast<int64_t>(moves.size()), sequence * r.pool_pages + unit[row * r.k + i],
             sequence * slots + kFirstSlot + free[i], (r.first_row + row) % r.shape.kv_heads});
      }
    }
    unit_ = Uploaded(unit);
    slot_ = Uploaded(slot);
    count_ = Uploaded(count);
    flag_ = Uploaded(flag);
    return moves;
  }
  MissedUnits Lists(const Recall& r) const {
    return {unit_.get(), slot_.get(), count_.get(), r.with_flags ? flag_.get() : nullptr,
            r.flagged,   r.first_row, r.rows,       r.k};
  }

 private:
  Buffer<int32_t> unit_, slot_, count_, flag_;
};

TEST_P(Missed, ScatterTakesPiecesInTheOrderOfTheLists) {
  const auto [r, nhd] = GetParam();
  const Shape& s = r.shape;
  const std::vector<Move> moves = Draw(r);
  const auto pieces = RandomBits(random_, int64_t{r.rows} * r.k * s.PieceElements());
  const auto d_pieces = Uploaded(pieces);
  const auto cache = Poisoned<__nv_bfloat16>(int64_t{r.sequences} * s.slots * s.PageElements());
  auto expected = ToHost(cache);
  for (const Move& move : moves) {
    for (int64_t i = 0; i < s.PieceElements(); ++i) {
      const auto channel = static_cast<int>(i % s.head_dim);
      const auto token = static_cast<int>(i / s.head_dim % s.page_tokens);
      const auto kv = static_cast<int>(i / s.head_dim / s.page_tokens);
      expected[Index(s, nhd, move.slot, move.head, kv, token, channel)] =
          pieces[move.piece * s.PieceElements() + i];
    }
  }
  ScatterMissed(d_pieces.get(), Lists(r), {s.slots, kFirstSlot, r.pool_pages},
                Pages(cache.get(), s, nhd), nullptr);
  ExpectSameBits(expected, ToHost(cache));
}

TEST_P(Missed, ZeroCopyReadsEitherPool) {
  const auto [r, nhd] = GetParam();
  const Shape& s = r.shape;
  const int64_t pool_elements = int64_t{r.sequences} * r.pool_pages * s.PageElements();
  const auto bits = RandomBits(random_, pool_elements);
  const Buffer<__nv_bfloat16> pool(pool_elements, Memory::kPinned);
  std::memcpy(static_cast<void*>(pool.get()), bits.data(), pool.bytes());
  for (const bool rows : {false, true}) {
    const std::vector<Move> moves = Draw(r);
    const auto cache = Poisoned<__nv_bfloat16>(int64_t{r.sequences} * s.slots * s.PageElements());
    auto expected = ToHost(cache);
    for (const Move& move : moves) {
      for (int kv = 0; kv < 2; ++kv) {
        for (int token = 0; token < s.page_tokens; ++token) {
          for (int channel = 0; channel < s.head_dim; ++channel) {
            expected[Index(s, nhd, move.slot, move.head, kv, token, channel)] =
                bits[Index(s, rows, move.page, move.head, kv, token, channel)];
          }
        }
      }
    }
    ZeroCopyMissed(pool.get(), Lists(r), {s.slots, kFirstSlot, r.pool_pages},
                   Pages(cache.get(), s, nhd), rows, rows ? 3 : 16, nullptr);
    ExpectSameBits(expected, ToHost(cache));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recalls, Missed,
    testing::Combine(testing::Values(Recall{{1, 1, 64, 4}, 1, 0, 1, 1, 3, false, true},
                                     Recall{{16, 8, 128, 12}, 1, 0, 8, 10, 30, true, true},
                                     Recall{{16, 8, 128, 12}, 2, 8, 8, 10, 20, true, false},
                                     Recall{{4, 4, 64, 9}, 11, 5, 37, 7, 12, true, true},
                                     Recall{{7, 3, 80, 8}, 40, 0, 120, 5, 6, false, true},
                                     Recall{{8, 2, 128, 6}, 3, 1, 4, 4, 9, true, false}),
                     testing::Bool()));

// Each batch its own pieces, of sizes on both sides of what a call would carry itself.
TEST_F(OnDevice, BatchedCopiesPutEachPieceInItsPlaceAndNothingElse) {
  constexpr size_t kBytes = size_t{8} << 20, kGap = 64;
  Buffer<std::byte> pool(kBytes, Memory::kPinned);
  for (size_t i = 0; i < kBytes; ++i) pool.get()[i] = static_cast<std::byte>(random_());
  const Stream stream(cudaStreamNonBlocking);
  BatchedCopy batch;
  for (const int pieces : {0, 1, 3, 200}) {
    const Buffer<std::byte> cache = Poisoned<std::byte>(kBytes);
    std::vector<std::byte> expected(kBytes, std::byte{0xFF});
    batch.Clear();
    size_t to = 0;
    for (int i = 0; i < pieces; ++i) {
      const size_t bytes = std::array<size_t, 4>{64, 4096, 16384, 40960}[random_() % 4];
      const size_t from = random_() % (kBytes - bytes);
      batch.Add(cache.get() + to, pool.get() + from, bytes);
      std::memcpy(expected.data() + to, pool.get() + from, bytes);
      to += bytes + kGap;
    }
    batch.Run(stream);
    EXPECT_TRUE(ToHost(cache) == expected) << pieces << " pieces";
  }
}

TEST_F(OnDevice, RecallsOfNothingMoveNothing) {
  const auto cache = Poisoned<__nv_bfloat16>(1024);
  const PagedKv pages = HndPages(cache.get(), 1, 1, 64);
  MissedUnits missed;
  EXPECT_NO_THROW(ScatterMissed(cache.get(), missed, {}, pages, nullptr));
  missed.rows = 4;
  EXPECT_NO_THROW(ScatterMissed(cache.get(), missed, {}, pages, nullptr));
  missed.rows = 1 << 20;
  EXPECT_THROW(ScatterMissed(cache.get(), missed, {}, pages, nullptr), Error);
}

TEST_F(OnDevice, MovementRefusesHeadsThatAreNotWholeChunks) {
  const auto cache = Poisoned<__nv_bfloat16>(1024);
  const auto index = Poisoned<int32_t>(1);
  EXPECT_THROW(ScatterPages(cache.get(), index.get(), index.get(), 1, nullptr,
                            HndPages(cache.get(), 16, 1, 12), nullptr),
               Error);
}

TEST(HostGather, GathersWithAnyThreadsAndPlacesOfAnyShape) {
  constexpr int64_t kPlaces = 50, kMost = 32 << 20;
  std::mt19937 random(7);
  // Single rows; then rows apart, one after another and overlapping; those of an NHD page; some
  // that are stored past the caches; places of more than a thread takes at once.
  for (const PlaceShape& shape :
       {PlaceShape{1}, PlaceShape{48}, PlaceShape{100}, PlaceShape{8192},
        PlaceShape{256, 2, 123'456}, PlaceShape{100, 3, 100}, PlaceShape{100, 3, 40},
        PlaceShape{256, 64, 2048}, PlaceShape{4096, 2, 9000}, PlaceShape{2500, 60, 2501}}) {
    std::vector<char> pool(
        static_cast<size_t>(kPlaces * shape.row_bytes + (shape.rows - 1) * shape.stride));
    for (char& byte : pool) byte = static_cast<char>(random());
    for (const int64_t count : {0, 1, 2, 33, 3001}) {
      if (count * shape.bytes() > kMost) continue;
      std::vector<int64_t> places;
      std::vector<char> expected;
      for (int64_t i = 0; i < count; ++i) {
        places.push_back(random() % kPlaces);
        for (int64_t row = 0; row < shape.rows; ++row) {
          const auto at = pool.begin() + places.back() * shape.row_bytes + row * shape.stride;
          expected.insert(expected.end(), at, at + shape.row_bytes);
        }
      }
      expected.push_back('\x5A');
      for (const int threads : {1, 2, 5, 64}) {
        std::vector<char> out(expected.size(), '\x5A');
        HostGather(pool.data(), places.data(), count, shape, out.data(), threads);
        ASSERT_TRUE(out == expected)
            << count << " places of " << shape.rows << " x " << shape.row_bytes << " B, "
            << shape.stride << " B apart, " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::kernels
