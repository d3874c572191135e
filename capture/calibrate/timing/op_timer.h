// What the executor itself takes for an op: each one's look-up and dispatch come between its calls.
#pragma once

#include <memory>

namespace stallcast::capture {

class OpTimer {
 public:
  OpTimer();
  ~OpTimer();
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

  /// Seconds an op beside its calls, now, on the calling thread's core: of steps of ops that launch
  /// an empty kernel each, less steps of one op that launches as many, in turn; 0 where that is
  /// less than nothing. Takes a twentieth of a second.
  double Seconds();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stallcast::capture
