// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/truth.h"

#include <algorithm>

namespace stallcast::gui {
namespace {

using Weight = Truth::Weight;

struct Kind {
  const char* name;
  Weight weight;
};
constexpr Kind kKinds[] = {{"does not fit", Weight::kLoss},   {"projected", Weight::kLimit},
                           {"synthetic", Weight::kLimit},     {"derived", Weight::kLimit},
                           {"extrapolated", Weight::kLimit},  {"overridden", Weight::kChoice},
                           {"not predicted", Weight::kLimit}, {"not counted", Weight::kLimit},
                           {"dropped", Weight::kLoss},        {"zero stamps", Weight::kLoss},
                           {"truncated", Weight::kLoss},      {"damaged", Weight::kLoss}};

}  // namespace

void Truths::Add(const QString& name, Weight weight, const QString& line) {
  for (const Truth& truth : truths_) {
    if (truth.lines.contains(line)) return;
  }
  auto found =
      std::find_if(truths_.begin(), truths_.end(), [&](const Truth& t) { return t.name == name; });
  if (found == truths_.end()) {
    truths_.push_back({name, weight, {}});
    found = truths_.end() - 1;
  }
  found->lines << line;
}

void Truths::AddNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    const QString text = QString::fromStdString(note);
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) {
      return text.startsWith(QLatin1String(k.name));
    });
    if (kind != std::end(kKinds)) {
      Add(QLatin1String(kind->name), kind->weight, text);
    } else {
      Add(QStringLiteral("note"), Weight::kLimit, text);
    }
  }
}

void Truths::AddMatching(const TimelinePair& pair) {
  if (pair.unlike() > 0) {
    Add(QStringLiteral("different plans"), Weight::kLimit,
        QStringLiteral("%1 of %2 ops with the same number are for something else: the two sides do "
                       "not run one plan. Choose the method and values of the recording")
            .arg(pair.unlike())
            .arg(pair.matched()));
  }
  if (pair.lent_waits()) {
    Add(QStringLiteral("waits of the plan"), Weight::kLimit,
        QStringLiteral(
            "the recording holds no waits: its arrows and causes are those of the plan"));
  }
}

void Truths::AddRecording() {
  Add(QStringLiteral("recorded"), Weight::kLimit,
      QStringLiteral("recording made the measured run's calls and copies slower: switch on "
                     "\"recorded\" among the what-ifs to predict that too"));
}

void Truths::AddFailed(const QString& why) {
  Add(QStringLiteral("former values"), Weight::kLoss,
      QStringLiteral(
          "the timeline is of the values before, as those chosen cannot be predicted: ") +
          why);
}

void Truths::AddReport(const traces::ReadReport& report, const QString& file) {
  const auto say = [&](const char* name, const QString& what) {
    Add(QLatin1String(name), Weight::kLoss, QStringLiteral("%1: %2").arg(file, what));
  };
  if (report.dropped > 0) {
    say("dropped", QStringLiteral("%1 records were lost while recording").arg(report.dropped));
  }
  if (report.zero_stamps > 0) {
    say("zero stamps", QStringLiteral("%1 records have no time").arg(report.zero_stamps));
  }
  const char* kind = report.truncated ? "truncated" : "damaged";
  for (const std::string& problem : report.problems) say(kind, QString::fromStdString(problem));
}

std::vector<Truth> Truths::List() const {
  std::vector<Truth> sorted = truths_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Truth& a, const Truth& b) { return a.weight < b.weight; });
  return sorted;
}

}  // namespace stallcast::gui
