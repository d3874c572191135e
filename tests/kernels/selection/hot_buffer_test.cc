// The buffer on the GPU beside the policy's: the same units come, and all are where the table says.
#include "kernels/selection/hot_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "kernels/runtime/upload.h"
#include "models/methods/common/unit_buffer.h"
#include "tests/kernels/on_device.h"

namespace stallcast::kernels {
namespace {

using methods::Replacement;

class HotBufferTest : public OnDevice, public testing::WithParamInterface<Replacement> {};

TEST_P(HotBufferTest, HoldsWhatThePolicyHolds) {
  constexpr int32_t kRows = 5, kSlots = 70, kUsed = 33, kSteps = 60, kFilled = 200;
  std::mt19937 random(3);
  std::vector<methods::UnitBuffer> policy;
  std::vector<int32_t> unit, time;
  for (int row = 0; row < kRows; ++row) {
    policy.emplace_back(kSlots, GetParam(), 0);
    policy.back().Fill(kFilled);
    for (int32_t i = kFilled - kSlots; i < kFilled; ++i) {
      unit.push_back(i);
      time.push_back(i - kFilled);
    }
  }
  Buffer<int32_t> units = Uploaded(unit), times = Uploaded(time);
  Buffer<int32_t> missed_unit(kRows * kUsed), missed_slot(kRows * kUsed), missed(kRows);
  Buffer<int32_t> written_slot(kRows), table(kRows * (kUsed + 1));
  std::vector<std::map<int32_t, int32_t>> in_slot(kRows);  // slot: unit
  for (int row = 0; row < kRows; ++row) {
    for (int32_t i = 0; i < kSlots; ++i) in_slot[static_cast<size_t>(row)][i] = unit[static_cast<size_t>(i)];
  }
  const Buffer<int32_t> newest = Uploaded(std::vector<int32_t>(kRows, kSlots));
  int32_t complete = kFilled;
  for (int step = 0; step < kSteps; ++step) {
    const bool writes = step % 4 == 3;
    const int32_t written = writes ? complete++ : -1;
    std::vector<int32_t> ids;
    for (int row = 0; row < kRows; ++row) {
      // Mostly what was used before, so that uses count; at times what was just written.
      std::set<int32_t> chosen;
      if (writes && row % 2 == 0) chosen.insert(written);
      while (std::ssize(chosen) < kUsed) {
        const int32_t most = random() % 3 == 0 ? complete : 60;
        chosen.insert(static_cast<int32_t>(random() % static_cast<uint32_t>(most)));
      }
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    const Buffer<int32_t> device_ids = Uploaded(ids);
    const Buffer<int32_t> device_written = Uploaded(std::vector<int32_t>(kRows, written));
    UseHotBuffer({kSlots, units.get(), times.get(), GetParam() == Replacement::kLru},
                 {.ids = device_ids.get(),
                  .written = device_written.get(),
                  .newest = newest.get(),
                  .k = kUsed,
                  .time = step,
                  .missed_unit = missed_unit.get(),
                  .missed_slot = missed_slot.get(),
                  .missed = missed.get(),
                  .written_slot = written_slot.get(),
                  .table = table.get()},
                 kRows, nullptr);
    const auto came = Downloaded(missed_unit), to = Downloaded(missed_slot);
    const auto count = Downloaded(missed), wrote = Downloaded(written_slot);
    const auto slots = Downloaded(table), held = Downloaded(units);
    for (int row = 0; row < kRows; ++row) {
      const auto r = static_cast<size_t>(row);
      std::vector<uint32_t> used(ids.begin() + row * kUsed, ids.begin() + (row + 1) * kUsed), news;
      if (writes) news.push_back(static_cast<uint32_t>(written));
      const std::vector<uint32_t> expected = policy[r].Use(step, used, news);
      const std::vector<uint32_t> found(came.begin() + row * kUsed,
                                        came.begin() + row * kUsed + count[r]);
      ASSERT_EQ(found, expected) << "step " << step << " row " << row;
      for (int32_t i = 0; i < count[r]; ++i) {
        in_slot[r][to[static_cast<size_t>(row * kUsed + i)]] =
            came[static_cast<size_t>(row * kUsed + i)];
      }
      ASSERT_EQ(wrote[r] >= 0, writes);
      if (writes) in_slot[r][wrote[r]] = written;
      for (int32_t i = 0; i < kSlots; ++i) {
        ASSERT_EQ(held[static_cast<size_t>(row * kSlots + i)], in_slot[r][i]);
      }
      for (int32_t i = 0; i < kUsed; ++i) {
        const int32_t slot = slots[static_cast<size_t>(row * (kUsed + 1) + i)];
        ASSERT_EQ(in_slot[r][slot], ids[static_cast<size_t>(row * kUsed + i)]);
      }
      EXPECT_EQ(slots[static_cast<size_t>(row * (kUsed + 1) + kUsed)], kSlots);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, HotBufferTest,
                         testing::Values(Replacement::kLru, Replacement::kFifo));

class MovePagesTest : public OnDevice {};

TEST_F(MovePagesTest, MovesEachRowsOwnHead) {
  constexpr int32_t kHeads = 2, kTokens = 3, kDim = 16, kSlots = 4, kSequences = 2;
  std::vector<__nv_bfloat16> data(size_t{kSequences} * kSlots * 2 * kTokens * kHeads * kDim);
  for (size_t i = 0; i < data.size(); ++i) data[i] = __float2bfloat16(static_cast<float>(i % 251));
  Buffer<__nv_bfloat16> device = Uploaded(data);
  const PagedKv cache = NhdPages(device.get(), kTokens, kHeads, kDim);
  const std::vector<int32_t> from{3, 3, 2, 2}, to{0, -1, 1, 0};
  MovePages(cache, Uploaded(from).get(), Uploaded(to).get(), kSlots, kSequences * kHeads, nullptr);
  const auto moved = Downloaded(device);
  for (int64_t slot = 0; slot < kSequences * kSlots; ++slot) {
    for (int64_t kv = 0; kv < 2; ++kv) {
      for (int64_t token = 0; token < kTokens; ++token) {
        for (int64_t head = 0; head < kHeads; ++head) {
          const auto row = static_cast<size_t>(slot / kSlots * kHeads + head);
          const int64_t source =
              to[row] == slot % kSlots ? slot / kSlots * kSlots + from[row] : slot;
          const auto at = [&](int64_t page) {
            return static_cast<size_t>(page * cache.slot_stride + kv * cache.kv_stride +
                                       token * cache.token_stride + head * cache.head_stride);
          };
          for (size_t i = 0; i < kDim; ++i) {
            ASSERT_EQ(__bfloat162float(moved[at(slot) + i]),
                      __bfloat162float(data[at(source) + i]));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace stallcast::kernels
