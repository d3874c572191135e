// SPDX-License-Identifier: GPL-3.0-or-later
// Runs a sweep beside the window.
#pragma once

#include <QObject>
#include <memory>
#include <vector>

#include "gui/whatif/latest_job.h"
#include "sim/sweep.h"

namespace stallcast::gui {

/// Points asked for and what came of each so far.
struct SweepResults {
  std::vector<sim::GridPoint> points;
  std::vector<std::optional<sim::Prediction>> predictions;  ///< one a point
  std::vector<std::string> problems;                        ///< "point: why"
  size_t finished = 0;
};

/// Signals come in the thread of this object.
class SweepRunner : public QObject {
  Q_OBJECT

 public:
  explicit SweepRunner(QObject* parent = nullptr);
  ~SweepRunner() override;

  /// Supersedes a sweep under way.
  void Run(std::shared_ptr<sim::Predictor> predictor, std::vector<sim::GridPoint> points);
  void Cancel();
  bool running() const { return running_; }
  const SweepResults& results() const { return results_; }

 Q_SIGNALS:
  void Progressed(int finished, int total);
  void Ended(bool cancelled);
  /// The sweep as a whole, after Ended(); a point that cannot be predicted is among its problems.
  void Failed(const stallcast::Error& error);

 private:
  void Post(uint64_t ticket, std::function<void()> deliver);

  SweepResults results_;
  uint64_t latest_ = 0;
  bool running_ = false;
  LatestJob job_;  // last: stops before the rest goes
};

}  // namespace stallcast::gui
