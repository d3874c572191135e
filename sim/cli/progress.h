// How far a command is: a bar on a terminal, or for another program.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>

namespace stallcast::cli {

/// One line on standard error, only where that is a terminal, and only for work that has lasted a
/// second. Thread safe.
class Progress {
 public:
  using Listener = std::function<void(const std::string& what, double share)>;
  enum Form {
    kBar,
    kLines  ///< one every ten seconds where standard error is no terminal, as under mpirun
  };
  explicit Progress(Form form = kBar);
  /// Tells `listener` each update, from any thread, and draws nothing.
  explicit Progress(Listener listener);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `share` of the whole is done, `what` is at hand. One well below the last starts a new bar.
  void Update(const std::string& what, double share);
  /// Takes the bar away.
  void Clear();

 private:
  using Clock = std::chrono::steady_clock;
  Listener listener_;
  std::mutex mutex_;
  bool terminal_ = false;
  bool lines_ = false;
  bool drawn_ = false;
  double share_ = 2;  ///< of the last update; at first above any
  Clock::time_point start_, last_;
};

}  // namespace stallcast::cli
