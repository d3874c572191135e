// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/prediction_worker.h"

#include <thread>

namespace stallcast::gui {
namespace {

using Clock = std::chrono::steady_clock;

// A slider under the hand sends requests faster than this; the long part waits for it to rest.
constexpr std::chrono::milliseconds kRest{150};

SharedResult PredictNow(sim::Predictor& predictor, const sim::PredictRequest& request,
                        const QString& trace, const std::stop_token& stop) {
  const auto begin = Clock::now();
  auto result = std::make_shared<PredictionResult>();
  result->request = request;
  result->trace = trace;
  sim::PredictRequest quick = request;
  quick.prefill = false;
  quick.samples = 0;
  traces::Timeline timeline;
  result->prediction = predictor.Predict(quick, &timeline, stop);
  result->model = TimelineModel::Build(std::move(timeline), stop);
  result->log = predictor.Log(quick, stop);
  result->took = Clock::now() - begin;
  return result;
}

// False when it was asked to stop meanwhile.
bool Rest(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait_for(lock, stop, kRest, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

PredictionWorker::PredictionWorker(QObject* parent) : QObject(parent) {}
PredictionWorker::~PredictionWorker() = default;

void PredictionWorker::SetPredictor(std::shared_ptr<sim::Predictor> predictor,
                                    const QString& trace) {
  Cancel();
  predictor_ = std::move(predictor);
  trace_ = trace;
}

void PredictionWorker::Cancel() {
  ++latest_;
  job_.Cancel();
  SetBusy(false);
}

void PredictionWorker::SetBusy(bool busy) {
  if (std::exchange(busy_, busy) != busy) Q_EMIT BusyChanged(busy);
}

void PredictionWorker::Post(uint64_t ticket, std::function<void()> deliver) {
  QMetaObject::invokeMethod(
      this,
      [this, ticket, deliver = std::move(deliver)] {
        if (ticket == latest_) deliver();
      },
      Qt::QueuedConnection);
}

void PredictionWorker::Predict(const sim::PredictRequest& request) {
  if (!predictor_) return;
  const uint64_t ticket = ++latest_;
  SetBusy(true);
  const auto predict = [this, ticket, request, trace = trace_,
                        predictor = predictor_](const std::stop_token& stop) {
    const SharedResult result = PredictNow(*predictor, request, trace, stop);
    Post(ticket, [this, result] {
      SetBusy(false);
      Q_EMIT Predicted(result);
    });
    if (!Rest(stop)) return;
    sim::PredictRequest whole = request;
    whole.samples = kRefinedSamples;
    auto refined = std::make_shared<PredictionResult>();
    refined->request = request;
    refined->trace = trace;
    try {
      refined->prediction = predictor->Predict(whole, nullptr, stop);
    } catch (const Error& error) {
      Post(ticket, [this, error] { Q_EMIT NotRefined(error); });
      return;
    }
    refined->log = result->log;
    Post(ticket, [this, refined] { Q_EMIT Refined(refined); });
  };
  job_.Run(predict, [this, ticket](const Error& error) {
    Post(ticket, [this, error] {
      SetBusy(false);
      Q_EMIT Failed(error);
    });
  });
}

}  // namespace stallcast::gui
