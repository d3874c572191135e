#include "sim/shared_sweep.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "traces/common/error.h"

namespace stallcast::sim {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = 1ms;          // between looks for messages
constexpr auto kResultsEvery = 50ms;  // of a block
constexpr size_t kFirstBlock = 8, kLargestBlock = 10'000;
constexpr int kPatience = 10;  // silences that a helper bears of rank 0, which may wait for a disk

// The first byte of a message.
enum Tag : char {
  kHere = 'h',      // both ways, now and then
  kReady = 'r',     // a helper has done all that it was given
  kResults = 'p',   // of a helper
  kFailed = 'e',    // a helper predicts nothing more: why
  kBlock = 'b',     // for a helper: what is swept, and points
  kHome = 'q',      // for a helper
  kHomeAlone = 'Q'  // the same where a rank is lost
};

class Writer {
 public:
  explicit Writer(std::string& text) : text_(text) {}
  template <class T>
  void Plain(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void Text(const std::string& text) {
    Plain(static_cast<uint32_t>(text.size()));
    text_ += text;
  }

 private:
  std::string& text_;
};

class Reader {
 public:
  Reader(const std::string& text, size_t at) : text_(text), at_(at) {}
  bool done() const { return at_ == text_.size(); }
  template <class T>
  T Plain() {
    T value;
    std::memcpy(&value, Take(sizeof value), sizeof value);
    return value;
  }
  std::string Text() {
    const auto size = Plain<uint32_t>();
    return {Take(size), size};
  }

 private:
  const char* Take(size_t size) {
    if (size > text_.size() - at_) {
      throw Error("cut off", "a rank's message", "start all ranks from one build of stallcast");
    }
    return text_.data() + std::exchange(at_, at_ + size);
  }
  const std::string& text_;
  size_t at_;
};

void Write(Writer& writer, uint32_t point, const StoredPoint& stored) {
  writer.Plain(point);
  writer.Plain(stored.failed);
  writer.Plain(static_cast<uint32_t>(stored.texts.size()));
  for (const std::vector<std::string>& texts : stored.texts) {
    writer.Plain(static_cast<uint32_t>(texts.size()));
    for (const std::string& text : texts) writer.Text(text);
  }
  writer.Plain(static_cast<uint32_t>(stored.numbers.size()));
  for (const double number : stored.numbers) writer.Plain(number);
}

StoredPoint ReadPoint(Reader& reader) {
  StoredPoint stored;
  stored.failed = reader.Plain<bool>();
  stored.texts.resize(reader.Plain<uint32_t>());
  for (std::vector<std::string>& texts : stored.texts) {
    texts.resize(reader.Plain<uint32_t>());
    for (std::string& text : texts) text = reader.Text();
  }
  stored.numbers.resize(reader.Plain<uint32_t>());
  for (double& number : stored.numbers) number = reader.Plain<double>();
  return stored;
}

// Results come behind a tag and a hash of them.
constexpr size_t kHeader = 1 + sizeof(uint64_t);
uint64_t HashOfResults(const std::string& message) {
  return XXH3_64bits(message.data() + kHeader, message.size() - kHeader);
}
std::string ResultsMessage(const std::string& results) {
  std::string message(1, kResults);
  Writer(message).Plain(XXH3_64bits(results.data(), results.size()));
  return message + results;
}

// Ranks that have the same give the same results.
std::string IdentityOf(const Grid& grid, const StoredTrace& trace) {
  return grid.id() + trace.hash + ProgramHash();
}

// Rank 0's work on one set of points.
class Sharing {
 public:
  Sharing(Ranks& ranks, const SweepWork& work, const SharedSweepTimes& times,
          const std::function<void(const std::string&)>& lost)
      : ranks_(ranks),
        work_(work),
        times_(times),
        lost_(lost),
        identity_(IdentityOf(work.grid, work.trace)),
        todo_(work.points.rbegin(), work.points.rend()),
        finished_(work.grid.size()),
        helpers_(static_cast<size_t>(ranks.size())) {}

  // Returns the points that no helper is left for.
  std::vector<uint32_t> Run() {
    while (!work_.stop.stop_requested() && (!todo_.empty() || AnyGiven())) {
      if (std::ranges::none_of(Others(), [](const Helper& each) { return each.there; })) {
        return {todo_.rbegin(), todo_.rend()};
      }
      bool any = false;
      while (auto message = ranks_.Receive()) {
        Take(*message);
        any = true;
      }
      for (size_t i = 1; i < helpers_.size(); ++i) Serve(static_cast<int>(i));
      Beat();
      if (!any) std::this_thread::sleep_for(kPause);
    }
    return {};
  }

  bool all_there() const { return all_there_; }

 private:
  struct Helper {
    bool there = true;
    bool failed = false;  // it says so itself, and that it is there
    bool ready = false;
    Clock::time_point heard = Clock::now(), began;
    size_t block = kFirstBlock;
    std::vector<uint32_t> given;  // and not yet come back
  };

  std::span<Helper> Others() { return std::span(helpers_).subspan(1); }
  bool AnyGiven() {
    return std::ranges::any_of(Others(), [](const Helper& each) { return !each.given.empty(); });
  }

  void Take(const Ranks::Message& message) {
    Helper& helper = helpers_[static_cast<size_t>(message.from)];
    const char tag = message.text.empty() ? char{kHere} : message.text.front();
    if (tag == kFailed) {
      return Lose(message.from, message.text.substr(1), /*silent=*/false);
    }
    helper.heard = Clock::now();
    helper.there = !helper.failed;  // perhaps again
    if (tag == kResults) {
      Reader reader(message.text, 1);
      // A rank that dies while it sends may leave anything; its points are handed out again.
      if (message.text.size() < kHeader ||
          reader.Plain<uint64_t>() != HashOfResults(message.text)) {
        return;
      }
      while (!reader.done()) {
        const auto point = reader.Plain<uint32_t>();
        StoredPoint stored = ReadPoint(reader);
        std::erase(helper.given, point);
        // One that was lost and found may be late.
        if (point >= finished_.size() || finished_[point]) continue;
        finished_[point] = true;
        work_.done(point, std::move(stored));
      }
    } else if (tag == kReady) {
      helper.ready = true;
      const auto took = Clock::now() - helper.began;
      if (took < times_.block / 2) helper.block = std::min(helper.block * 2, kLargestBlock);
      if (took > times_.block * 2) helper.block = std::max<size_t>(helper.block / 2, 1);
    }
  }

  // Gives a helper that waits its next block, or notes that it is lost.
  void Serve(int rank) {
    Helper& helper = helpers_[static_cast<size_t>(rank)];
    if (!helper.there) return;
    if (Clock::now() - helper.heard > times_.silence) {
      return Lose(
          rank,
          fmt::format("has said nothing for {} s",
                      std::chrono::duration_cast<std::chrono::seconds>(times_.silence).count()),
          /*silent=*/true);
    }
    if (!helper.ready) return;
    // Towards the end blocks get smaller, so that all helpers end together.
    const size_t most = std::clamp<size_t>(todo_.size() / (2 * helpers_.size()), 1, helper.block);
    todo_.insert(todo_.end(), helper.given.rbegin(), helper.given.rend());  // in case
    helper.given.clear();
    while (!todo_.empty() && helper.given.size() < most) {
      const uint32_t point = todo_.back();
      todo_.pop_back();
      if (finished_[point] || (work_.wanted && !work_.wanted(point))) continue;
      helper.given.push_back(point);
    }
    if (helper.given.empty()) return;
    std::string message(1, kBlock);
    Writer writer(message);
    writer.Text(identity_);
    for (const uint32_t point : helper.given) writer.Plain(point);
    ranks_.Send(rank, std::move(message));
    helper.ready = false;
    helper.began = Clock::now();
  }

  void Lose(int rank, const std::string& why, bool silent) {
    Helper& helper = helpers_[static_cast<size_t>(rank)];
    if (!helper.there) return;
    helper.there = false;
    helper.failed = !silent;
    all_there_ = all_there_ && !silent;
    lost_(fmt::format("rank {} is lost ({}); others predict its {} points", rank, why,
                      helper.given.size()));
    todo_.insert(todo_.end(), helper.given.rbegin(), helper.given.rend());
    helper.given.clear();
  }

  void Beat() {
    if (Clock::now() - beaten_ < times_.beat) return;
    beaten_ = Clock::now();
    for (size_t i = 1; i < helpers_.size(); ++i) {
      if (helpers_[i].there) ranks_.Send(static_cast<int>(i), std::string(1, kHere));
    }
  }

  Ranks& ranks_;
  const SweepWork& work_;
  const SharedSweepTimes& times_;
  const std::function<void(const std::string&)>& lost_;
  std::string identity_;
  std::vector<uint32_t> todo_;  // from its end
  std::vector<bool> finished_;
  std::vector<Helper> helpers_;  // by rank; the first is rank 0's own
  Clock::time_point beaten_;
  bool all_there_ = true;
};

// A thread of a helper that predicts while another one talks to rank 0.
class Worker {
 public:
  explicit Worker(const std::function<SweepInputs()>& open)
      : thread_([this, open] { Work(open); }) {}
  ~Worker() {
    stop_.request_stop();
    wake_.notify_all();
  }

  void Give(std::string block) {
    const std::lock_guard lock(mutex_);
    block_ = std::move(block);
    wake_.notify_all();
  }

  struct News {
    std::string results;
    bool ready = false;
    std::optional<std::string> problem;
  };
  /// Nothing while it works, but where `meanwhile`.
  News Take(bool meanwhile) {
    const std::lock_guard lock(mutex_);
    return meanwhile || news_.ready || news_.problem ? std::exchange(news_, {}) : News();
  }

 private:
  void Work(const std::function<SweepInputs()>& open) {
    try {
      const SweepInputs inputs = open();
      Tell([](News& news) { news.ready = true; });
      while (auto block = Next()) {
        Predict(inputs, *block);
        Tell([](News& news) { news.ready = true; });
      }
    } catch (const std::exception& error) {
      Tell([&](News& news) { news.problem = error.what(); });
    }
  }

  void Predict(const SweepInputs& inputs, const std::string& block) {
    SweepWork work{.grid = *inputs.grid,
                   .trace = {inputs.predictor->key(), inputs.predictor->path().string()},
                   .points = {},
                   .done = {},
                   .wanted = {},
                   .stop = stop_.get_token()};
    Reader reader(block, 1);
    if (reader.Text() != IdentityOf(work.grid, work.trace)) {
      throw Error("its grid, trace or program is another than rank 0's", "",
                  "give all ranks the same files and the same build of stallcast");
    }
    while (!reader.done()) work.points.push_back(reader.Plain<uint32_t>());
    work.done = [&](uint32_t point, StoredPoint&& stored) {
      Tell([&](News& news) {
        Writer writer(news.results);
        Write(writer, point, stored);
      });
    };
    PredictHere(*inputs.predictor, work);
  }

  void Tell(const auto& add) {
    const std::lock_guard lock(mutex_);
    add(news_);
  }

  // None: the work is over.
  std::optional<std::string> Next() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, stop_.get_token(), [&] { return block_.has_value(); });
    if (stop_.stop_requested()) return std::nullopt;
    return std::exchange(block_, std::nullopt);
  }

  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::optional<std::string> block_;
  News news_;
  std::jthread thread_;  // begins last, ends first
};

}  // namespace

SweepLeader::SweepLeader(Ranks& ranks, std::function<void(const std::string&)> lost,
                         const SharedSweepTimes& times)
    : ranks_(ranks), lost_(std::move(lost)), times_(times) {}

SweepLeader::~SweepLeader() {
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.Send(rank, std::string(1, all_there_ ? kHome : kHomeAlone));
  }
  ranks_.Drain(all_there_ ? times_.silence : times_.beat);
  if (all_there_) ranks_.Leave();
}

void SweepLeader::Predict(Predictor& predictor, const SweepWork& work) {
  // First, with all cores of this machine, so that others on it find the logs in the cache.
  ReplayAll(predictor, work.List(), work.stop);
  Sharing sharing(ranks_, work, times_, lost_);
  SweepWork rest = work;
  rest.points = sharing.Run();
  all_there_ = all_there_ && sharing.all_there();
  if (!rest.points.empty()) {
    lost_(fmt::format("rank 0 predicts the last {} points alone", rest.points.size()));
    PredictHere(predictor, rest);
  }
}

SentHome HelpSweep(Ranks& ranks, const std::function<SweepInputs()>& open,
                   const SharedSweepTimes& times) {
  Worker worker(open);
  std::optional<Clock::time_point> heard;  // of rank 0, which may first work alone for long
  Clock::time_point beaten, sent;
  while (true) {
    while (auto message = ranks.Receive()) {
      heard = Clock::now();
      const char tag = message->text.empty() ? char{kHere} : message->text.front();
      if (tag == kHomeAlone) return SentHome::kAlone;
      if (tag == kHome) {
        ranks.Drain(times.silence);
        ranks.Leave();
        return SentHome::kTogether;
      }
      if (tag == kBlock) worker.Give(std::move(message->text));
    }
    const Clock::time_point now = Clock::now();
    if (heard && now - *heard > times.silence * kPatience) return SentHome::kNotAtAll;
    if (now - beaten > times.beat) {
      beaten = now;
      ranks.Send(0, std::string(1, kHere));
    }
    const bool meanwhile = now - sent > kResultsEvery;
    if (meanwhile) sent = now;
    const Worker::News news = worker.Take(meanwhile);
    if (!news.results.empty()) ranks.Send(0, ResultsMessage(news.results));
    if (news.ready) ranks.Send(0, std::string(1, kReady));
    if (news.problem) ranks.Send(0, char{kFailed} + *news.problem);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace stallcast::sim
