// A sweep over several processes: rank 0 hands out blocks of points and is the only one that writes
// the file; the others predict.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "sim/ranks.h"
#include "sim/sweep.h"

namespace stallcast::sim {

struct SharedSweepTimes {
  std::chrono::milliseconds beat{1'000};      ///< each rank says so often that it is there
  std::chrono::milliseconds silence{10'000};  ///< a rank that says nothing for so long is lost
  std::chrono::milliseconds block{1'000};     ///< that a block of points should take
};

/// Rank 0's part.
class SweepLeader {
 public:
  /// `lost` is told of each rank that is lost, and why.
  SweepLeader(Ranks& ranks, std::function<void(const std::string&)> lost,
              const SharedSweepTimes& times = {});
  /// Sends the others home.
  ~SweepLeader();
  SweepLeader(const SweepLeader&) = delete;
  SweepLeader& operator=(const SweepLeader&) = delete;

  /// Has the others predict the points, each once; those of a lost rank are handed out again. Where
  /// no other rank is left, predicts the rest itself.
  void Predict(Predictor& predictor, const SweepWork& work);

 private:
  Ranks& ranks_;
  std::function<void(const std::string&)> lost_;
  SharedSweepTimes times_;
  bool all_there_ = true;
};

/// What a point is predicted from.
struct SweepInputs {
  std::shared_ptr<Predictor> predictor;
  std::shared_ptr<const Grid> grid;
};

enum class SentHome {
  kTogether,  ///< all ranks are there, and have left
  kAlone,     ///< one is lost: this process ends by itself
  kNotAtAll   ///< rank 0 has fallen silent
};
/// The others' part: predicts what rank 0 asks for, until that sends it home. Where `open` or
/// anything else fails, rank 0 is told why.
SentHome HelpSweep(Ranks& ranks, const std::function<SweepInputs()>& open,
                   const SharedSweepTimes& times = {});

}  // namespace stallcast::sim
