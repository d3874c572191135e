// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/sweep_runner.h"

namespace stallcast::gui {

SweepRunner::SweepRunner(QObject* parent) : QObject(parent) {}
SweepRunner::~SweepRunner() = default;

void SweepRunner::Post(uint64_t ticket, std::function<void()> deliver) {
  QMetaObject::invokeMethod(
      this,
      [this, ticket, deliver = std::move(deliver)] {
        if (ticket == latest_) deliver();
      },
      Qt::QueuedConnection);
}

void SweepRunner::Run(std::shared_ptr<sim::Predictor> predictor,
                      std::vector<sim::GridPoint> points) {
  const uint64_t ticket = ++latest_;
  running_ = true;
  results_ = {};
  results_.predictions.resize(points.size());
  results_.points = points;
  const auto sweep = [this, ticket, predictor = std::move(predictor),
                      points = std::move(points)](const std::stop_token& stop) {
    const auto take = [&](sim::PointResult&& point) {
      auto shared = std::make_shared<sim::PointResult>(std::move(point));
      Post(ticket, [this, shared] {
        if (!shared->prediction) results_.problems.push_back(shared->problem);
        results_.predictions[shared->point] = std::move(shared->prediction);
        ++results_.finished;
        Q_EMIT Progressed(static_cast<int>(results_.finished),
                          static_cast<int>(results_.points.size()));
      });
    };
    sim::PredictAll(*predictor, points, take, {}, stop);
    Post(ticket, [this] {
      running_ = false;
      Q_EMIT Ended(false);
    });
  };
  job_.Run(sweep, [this, ticket](const Error& error) {
    Post(ticket, [this, error] {
      running_ = false;
      Q_EMIT Ended(false);
      Q_EMIT Failed(error);
    });
  });
}

void SweepRunner::Cancel() {
  if (!running_) return;
  ++latest_;
  job_.Cancel();
  running_ = false;
  Q_EMIT Ended(true);
}

}  // namespace stallcast::gui
