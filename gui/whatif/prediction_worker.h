// SPDX-License-Identifier: GPL-3.0-or-later
// Predicts again whenever a control moves, beside the window.
#pragma once

#include <QObject>
#include <QString>
#include <array>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>

#include "gui/timeline/timeline_model.h"
#include "gui/whatif/latest_job.h"
#include "sim/predict.h"
#include "traces/common/error.h"

namespace stallcast::gui {

/// A prediction as the window shows it.
struct PredictionResult {
  sim::PredictRequest request;  ///< as asked for
  QString trace;                ///< path of the file that it was predicted from
  sim::Prediction prediction;
  std::shared_ptr<const TimelineModel> model;
  std::shared_ptr<const traces::AccessLog> log;  ///< null: the method selects nothing
  std::chrono::nanoseconds took{0};
};
using SharedResult = std::shared_ptr<const PredictionResult>;

/// Samples from which the refined prediction takes its quantiles, where nobody asks for others.
inline constexpr int32_t kRefinedSamples = 48;

/// Signals come in the thread of this object. Of a request that was superseded none comes any more.
class PredictionWorker : public QObject {
  Q_OBJECT

 public:
  explicit PredictionWorker(QObject* parent = nullptr);
  ~PredictionWorker() override;

  /// The trace to predict from, and its path; null: none. Cancels what is under way.
  void SetPredictor(std::shared_ptr<sim::Predictor> predictor, const QString& trace = {});
  const std::shared_ptr<sim::Predictor>& predictor() const { return predictor_; }

  /// Predicts at once without what takes long (prefill, samples), with the timeline; then, unless
  /// superseded, with them. What was predicted lately is not predicted again. Does nothing without
  /// a predictor.
  void Predict(const sim::PredictRequest& request);
  void Cancel();
  /// From how many samples the refined prediction takes its quantiles; first kRefinedSamples.
  void SetSamples(int32_t samples) { samples_ = samples; }
  bool busy() const { return busy_; }

 Q_SIGNALS:
  void Predicted(stallcast::gui::SharedResult result);
  /// The same prediction with prefill and quantiles; no timeline.
  void Refined(stallcast::gui::SharedResult result);
  /// What was predicted holds, but prefill or quantiles cannot be.
  void NotRefined(const stallcast::Error& error);
  void Failed(const stallcast::Error& error);
  void BusyChanged(bool busy);

 private:
  // When the files of the machine and the model were written.
  using Written = std::array<std::filesystem::file_time_type, 2>;
  static Written WhenWritten(const sim::PredictRequest& request);

  // For whoever takes a change back: predictions of this trace.
  struct Kept {
    Written written;
    SharedResult predicted, refined;  // refined: null until it is there
  };
  void Keep(const Kept& kept);
  // Of this request, and the last one used from now on; null: there is none.
  Kept* FindKept(const sim::PredictRequest& request);

  void Post(uint64_t ticket, std::function<void()> deliver);
  void SetBusy(bool busy);

  std::shared_ptr<sim::Predictor> predictor_;
  QString trace_;
  std::deque<Kept> kept_;  // the last one used first
  uint64_t latest_ = 0;
  int32_t samples_ = kRefinedSamples;
  bool busy_ = false;
  LatestJob job_;  // last: stops before the rest goes
};

}  // namespace stallcast::gui
