// The processes that mpirun started together, and what they send each other.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace stallcast::sim {

/// One process, by its rank from 0. Only the thread that joined uses it.
class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns at once. A message to a lost process goes nowhere.
  virtual void Send(int to, std::string message) = 0;

  struct Message {
    int from;
    std::string text;
  };
  /// The next message that has come, if any, in the order of its sender.
  virtual std::optional<Message> Receive() = 0;
  /// Returns when all messages have gone, or after `longest`: false.
  virtual bool Drain(std::chrono::milliseconds longest) = 0;
  /// Waits for all ranks and ends what they share. Not where one is lost: it would wait for ever.
  virtual void Leave() = 0;
};

/// Joins the others of the launch. Null where there are none, or this build has no MPI.
std::unique_ptr<Ranks> JoinRanks();
}  // namespace stallcast::sim
