// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/prediction_worker.h"

#include <algorithm>
#include <thread>

#include "models/hardware/profile.h"

namespace stallcast::gui {
namespace {

using Clock = std::chrono::steady_clock;

// A slider under the hand sends requests faster than this; the long part waits for it to rest.
constexpr std::chrono::milliseconds kRest{150};
// The two used last, which the window holds too, are kept whatever they take.
constexpr size_t kMostKept = 8, kLeastKept = 2;
constexpr int64_t kMostKeptBytes = int64_t{1} << 30;

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
  kept_.clear();
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

PredictionWorker::Written PredictionWorker::WhenWritten(const sim::PredictRequest& request) {
  try {
    std::error_code no_file;  // a model may be known by its name
    return {std::filesystem::last_write_time(hardware::ProfilePath(request.machine)),
            std::filesystem::last_write_time(request.model, no_file)};
  } catch (const std::exception&) {  // predicting says what is wrong with the machine
    return {};
  }
}

PredictionWorker::Kept* PredictionWorker::FindKept(const sim::PredictRequest& request) {
  const auto found = std::ranges::find(
      kept_, request, [](const Kept& kept) -> const auto& { return kept.predicted->request; });
  if (found == kept_.end()) return nullptr;
  std::rotate(kept_.begin(), found, found + 1);
  return &kept_.front();
}

void PredictionWorker::Keep(const Kept& kept) {
  if (Kept* known = FindKept(kept.predicted->request)) {
    *known = kept;
  } else {
    kept_.push_front(kept);
  }
  int64_t bytes = 0;
  size_t fitting = 0;
  while (fitting < std::min(kept_.size(), kMostKept)) {
    bytes += kept_[fitting].predicted->model->MemoryBytes();
    if (fitting >= kLeastKept && bytes > kMostKeptBytes) break;
    ++fitting;
  }
  kept_.resize(fitting);
}

void PredictionWorker::Predict(const sim::PredictRequest& request) {
  if (!predictor_) return;
  const uint64_t ticket = ++latest_;
  SetBusy(true);
  const Written written = WhenWritten(request);
  SharedResult known;
  if (const Kept* kept = FindKept(request); kept && kept->written == written) {
    known = kept->predicted;
    Post(ticket, [this, known] {
      SetBusy(false);
      Q_EMIT Predicted(known);
    });
    if (kept->refined) {
      Post(ticket, [this, refined = kept->refined] { Q_EMIT Refined(refined); });
      job_.Cancel();
      return;
    }
  }
  const auto predict = [this, ticket, request, written, known, samples = samples_, trace = trace_,
                        predictor = predictor_](const std::stop_token& stop) {
    const SharedResult result = known ? known : PredictNow(*predictor, request, trace, stop);
    if (!known) {
      Post(ticket, [this, written, result] {
        Keep({written, result, nullptr});
        SetBusy(false);
        Q_EMIT Predicted(result);
      });
    }
    if (!Rest(stop)) return;
    sim::PredictRequest whole = request;
    whole.samples = samples;
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
    Post(ticket, [this, written, result, refined] {
      Keep({written, result, refined});
      Q_EMIT Refined(refined);
    });
  };
  job_.Run(predict, [this, ticket](const Error& error) {
    Post(ticket, [this, error] {
      SetBusy(false);
      Q_EMIT Failed(error);
    });
  });
}

}  // namespace stallcast::gui
