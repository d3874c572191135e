// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/replay_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "models/hardware/profile.h"
#include "sim/predict.h"
#include "sim/replay_method.h"

namespace stallcast::gui {
namespace {

using Clock = std::chrono::steady_clock;

ReplayFigures FiguresOf(sim::Replayed& replayed) {
  return {std::move(replayed.summary), std::move(replayed.critical), replayed.ceiling};
}

}  // namespace

double ReplayedRecording::ReplayError() const {
  return recorded.step.count() > 0 ? Seconds(unchanged.summary.step) / Seconds(recorded.step) - 1
                                   : 0;
}

// Made by the first job; later ones take it.
struct ReplayWorker::Opened {
  Opened(Model of, std::string named) : recording(std::move(of)), machine(std::move(named)) {}

  void Open(const std::stop_token& stop) {
    if (whole) return;
    if (!replay) {
      if (recording->rows() > kMostRows) {
        throw Error(fmt::format("has more than {} rows", kMostRows), recording->timeline().title,
                    "`stallcast replay` takes it");
      }
      timeline = recording->timeline();
      timeline.flows = recording->ops().Flows();
      traces::RestoreOrder(&timeline);  // tracks stand one behind the other in a model
      one_step = sim::TakeAsOneStep(&timeline);
      const auto profile = hardware::FindProfile(sim::MachineOfRecording(machine));
      replay = std::make_unique<sim::Replay>(timeline, sim::MakeReplayMachine(profile));
    }
    auto made = std::make_shared<ReplayedRecording>();
    made->recording = recording;
    made->words = WordsOf(*recording);
    made->recorded = sim::Summarize(timeline);
    unchanged = replay->Run({}, stop);
    made->model = ModelOf(std::exchange(unchanged.timeline, {}), {}, stop);
    made->unchanged = {unchanged.summary, unchanged.critical, unchanged.ceiling};
    if (one_step) {
      made->notes.emplace_back(
          "one step: no steps are known, and the whole recording is taken as one");
    }
    for (const std::string& note : replay->notes()) made->notes.push_back("replay: " + note);
    whole = std::move(made);
  }

  Model ModelOf(traces::Timeline made, const std::vector<std::string>& changes,
                const std::stop_token& stop) const {
    if (one_step) std::ranges::fill(made.step, -1);
    made.title = fmt::format("replay of {}", timeline.title);
    for (const std::string& change : changes) made.notes.push_back("change: " + change);
    return TimelineModel::Build(std::move(made), stop);
  }

  SharedReplay Run(const ReplayRequest& request, const std::stop_token& stop) const {
    const auto begin = Clock::now();
    auto result = std::make_shared<ReplayResult>();
    result->request = request;
    result->of = whole;
    result->figures = whole->unchanged;
    std::vector<sim::ReplayChange> changes;
    const std::vector<std::string> applied = request.Applied();
    std::vector<std::string> noted = applied;
    for (std::string& text : noted) {
      sim::ReplayChange& change = changes.emplace_back(sim::ParseReplayChange(text));
      sim::PredictReplacement(&change, sim::MachineOfRecording(machine), stop);
      if (!change.note.empty()) text += fmt::format(" ({})", change.note);
    }
    for (size_t i = 1; i <= changes.size(); ++i) {
      sim::Replayed replayed = replay->Run(std::span(changes).first(i), stop);
      const Picoseconds before = result->figures.summary.step;
      result->effects.push_back({replayed.summary.step - before, replayed.changed});
      result->figures = FiguresOf(replayed);
      if (i == changes.size()) {
        result->model = ModelOf(std::move(replayed.timeline), noted, stop);
      }
    }
    result->took = Clock::now() - begin;
    return result;
  }

  const Model recording;
  const std::string machine;
  traces::Timeline timeline;
  bool one_step = false;
  std::unique_ptr<sim::Replay> replay;
  sim::Replayed unchanged;  // without its timeline
  std::shared_ptr<const ReplayedRecording> whole;
  SharedTop top;
};

ReplayWorker::ReplayWorker(QObject* parent) : QObject(parent) {}
ReplayWorker::~ReplayWorker() = default;

void ReplayWorker::SetRecording(const Model& recording, const std::string& machine) {
  Cancel();
  recording_ = recording;
  opened_ = recording ? std::make_shared<Opened>(recording, machine) : nullptr;
}

void ReplayWorker::Cancel() {
  ++latest_;
  job_.Cancel();
  SetBusy(false);
}

void ReplayWorker::SetBusy(bool busy) {
  if (std::exchange(busy_, busy) != busy) Q_EMIT BusyChanged(busy);
}

void ReplayWorker::Post(uint64_t ticket, std::function<void()> deliver) {
  QMetaObject::invokeMethod(
      this,
      [this, ticket, deliver = std::move(deliver)] {
        if (ticket == latest_) deliver();
      },
      Qt::QueuedConnection);
}

void ReplayWorker::Run(const ReplayRequest& request) {
  if (!opened_) return;
  const uint64_t ticket = ++latest_;
  SetBusy(true);
  const auto replay = [this, ticket, request, opened = opened_](const std::stop_token& stop) {
    try {
      opened->Open(stop);
    } catch (const Error& error) {
      Post(ticket, [this, error] {
        SetBusy(false);
        Q_EMIT NotReplayable(error);
      });
      return;
    }
    const SharedReplay result = opened->Run(request, stop);
    Post(ticket, [this, result] { Q_EMIT Replayed(result); });
    if (!opened->top) {
      opened->top = std::make_shared<const std::vector<sim::ReplayTop>>(
          opened->replay->Top(kTop, opened->unchanged, stop));
    }
    Post(ticket, [this, top = opened->top] {
      SetBusy(false);
      Q_EMIT Ranked(top);
    });
  };
  job_.Run(replay, [this, ticket](const Error& error) {
    Post(ticket, [this, error] {
      SetBusy(false);
      Q_EMIT Failed(error);
    });
  });
}

}  // namespace stallcast::gui
