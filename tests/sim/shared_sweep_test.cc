// The ranks are threads here, so that one can be lost at a known point.
#include "sim/shared_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/scratch_folder.h"
#include "tests/sim/small_trace.h"
#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;

struct Post {
  explicit Post(int ranks) : boxes(static_cast<size_t>(ranks)) {}
  std::mutex mutex;
  std::vector<std::deque<Ranks::Message>> boxes;
  int left = 0;
};

class ThreadRanks : public Ranks {
 public:
  ThreadRanks(Post& post, int rank) : post_(post), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(post_.boxes.size()); }
  void Send(int to, std::string message) override {
    const std::lock_guard lock(post_.mutex);
    post_.boxes[static_cast<size_t>(to)].push_back({rank_, std::move(message)});
  }
  std::optional<Message> Receive() override {
    const std::lock_guard lock(post_.mutex);
    auto& box = post_.boxes[static_cast<size_t>(rank_)];
    if (box.empty()) return std::nullopt;
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }
  bool Drain(std::chrono::milliseconds) override { return true; }
  void Leave() override {
    const std::lock_guard lock(post_.mutex);
    ++post_.left;
  }

 private:
  Post& post_;
  int rank_;
};

class SharedSweepTest : public testing::Test {
 protected:
  void SetUp() override { WriteSmallTrace(trace()); }
  fs::path trace() const { return folder_ / "t.kvt"; }

  static std::shared_ptr<const Grid> GridOf(const std::vector<std::string>& budgets) {
    PredictRequest base;
    base.method = "freekv";
    base.context = 2048;
    base.prefill = false;
    return std::make_shared<const Grid>(base, std::vector<Axis>{{"budget", budgets},
                                                                {"link.h2d", {"25GB/s", "50GB/s"}},
                                                                {"batch", {"1", "2", "3", "4"}}});
  }
  std::shared_ptr<const Grid> TheGrid() const { return GridOf({"64", "1280", "1536"}); }
  SweepInputs Inputs() const { return {std::make_shared<Predictor>(trace()), TheGrid()}; }

  // All values by row, but for the time.
  static std::vector<std::vector<ResultStore::Value>> RowsOf(const fs::path& file) {
    ResultStore::Rows rows = ResultStore(file, false).Read();
    for (auto& row : rows.rows) row[rows.Column("finished")] = {};
    return rows.rows;
  }

  std::vector<std::vector<ResultStore::Value>> Alone() const {
    const fs::path file = folder_ / "alone.sqlite";
    {
      ResultStore store(file, true);
      Predictor predictor(trace());
      Sweep(predictor, *TheGrid(), store, false);
    }
    return RowsOf(file);
  }

  // Rank 0's sweep; what it tells of lost ranks.
  std::vector<std::string> Lead(Post& post, SweepCounts* counts = nullptr) const {
    std::vector<std::string> lost;
    ThreadRanks ranks(post, 0);
    SweepLeader leader(
        ranks, [&](const std::string& why) { lost.push_back(why); }, kTimes);
    Predictor predictor(trace());
    ResultStore store(shared(), true);
    const SweepCounts found =
        Sweep(predictor, *TheGrid(), store, false, {}, {},
              [&](Predictor& p, const SweepWork& work) { leader.Predict(p, work); });
    if (counts) *counts = found;
    return lost;
  }
  std::jthread Help(Post& post, int rank, const std::function<SweepInputs()>& open) const {
    return std::jthread([&post, rank, open] {
      ThreadRanks ranks(post, rank);
      HelpSweep(ranks, open, kTimes);
    });
  }
  // Takes a block, and is not heard of again.
  static std::jthread Vanish(Post& post, int rank) {
    return std::jthread([&post, rank] {
      ThreadRanks ranks(post, rank);
      ranks.Send(0, "r");
      while (true) {
        const auto message = ranks.Receive();
        if (message && message->text.starts_with('b')) return;
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  fs::path shared() const { return folder_ / "shared.sqlite"; }

  static constexpr SharedSweepTimes kTimes{.beat = 20ms, .silence = 600ms, .block = 50ms};
  ScratchFolder folder_;
};

TEST_F(SharedSweepTest, GivesWhatOneProcessGives) {
  for (const int helpers : {1, 2, 5}) {
    SCOPED_TRACE(helpers);
    fs::remove(shared());
    Post post(helpers + 1);
    SweepCounts counts;
    {
      std::vector<std::jthread> threads;
      for (int i = 1; i <= helpers; ++i) threads.push_back(Help(post, i, [&] { return Inputs(); }));
      EXPECT_TRUE(Lead(post, &counts).empty());
    }
    EXPECT_EQ(counts.done, 16);
    EXPECT_EQ(counts.failed, 8);  // budget 64 is too small
    EXPECT_EQ(post.left, helpers + 1);
    EXPECT_EQ(RowsOf(shared()), Alone());
  }
}

TEST_F(SharedSweepTest, PredictsAgainWhatALostRankHad) {
  Post post(3);
  std::vector<std::string> lost;
  {
    const std::jthread good = Help(post, 1, [&] { return Inputs(); });
    const std::jthread bad = Vanish(post, 2);
    lost = Lead(post);
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0], HasSubstr("rank 2"));
  EXPECT_EQ(RowsOf(shared()), Alone());
  EXPECT_EQ(post.left, 0);  // nobody waits for the lost rank
}

TEST_F(SharedSweepTest, GoesOnAloneWhereAllOthersAreLost) {
  Post post(3);
  {
    const std::jthread one = Vanish(post, 1), other = Vanish(post, 2);
    EXPECT_EQ(Lead(post).size(), 3u);
  }
  EXPECT_EQ(RowsOf(shared()), Alone());
}

TEST_F(SharedSweepTest, TakesNoResultsOfAnotherGrid) {
  Post post(3);
  std::vector<std::string> lost;
  {
    const std::jthread good = Help(post, 1, [&] { return Inputs(); });
    const std::jthread other = Help(post, 2, [&] {
      return SweepInputs{std::make_shared<Predictor>(trace()), GridOf({"64", "1280", "1600"})};
    });
    lost = Lead(post);
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(lost[0], HasSubstr("another than rank 0's"));
  EXPECT_EQ(RowsOf(shared()), Alone());
}

TEST_F(SharedSweepTest, TellsWhyARankCannotHelp) {
  Post post(2);
  std::vector<std::string> lost;
  {
    const std::jthread bad = Help(post, 1, []() -> SweepInputs {
      throw Error("no such file", "t.kvt", "copy it to all machines");
    });
    lost = Lead(post);
  }
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_THAT(lost[0], HasSubstr("no such file"));
  EXPECT_EQ(RowsOf(shared()), Alone());
}

}  // namespace
}  // namespace stallcast::sim
