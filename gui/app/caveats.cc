// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/caveats.h"

#include <algorithm>

namespace stallcast::gui {
namespace {

using Weight = Caveat::Weight;

struct Kind {
  const char* name;
  Weight weight;
};
constexpr Kind kKinds[] = {{"does not fit", Weight::kLoss},    {"projected", Weight::kLimit},
                           {"synthetic", Weight::kLimit},      {"derived", Weight::kLimit},
                           {"extrapolated", Weight::kLimit},   {"overridden", Weight::kChoice},
                           {"change", Weight::kChoice},        {"not predicted", Weight::kLimit},
                           {"predicted only", Weight::kLimit}, {"attention mass", Weight::kLimit},
                           {"dropped", Weight::kLoss},         {"zero stamps", Weight::kLoss},
                           {"truncated", Weight::kLoss},       {"damaged", Weight::kLoss}};

// Of a note that says its kind before a colon, that; of another, its first words.
QString NameOf(const QString& note) {
  constexpr qsizetype kMost = 24, kWords = 3;
  const qsizetype colon = note.indexOf(QStringLiteral(": "));
  if (colon > 0 && colon <= kMost) return note.left(colon);
  const QStringList words = note.split(' ', Qt::SkipEmptyParts);
  return words.mid(0, kWords).join(' ') + (words.size() > kWords ? QStringLiteral("…") : QString());
}

}  // namespace

void Caveats::Add(const QString& name, Weight weight, const QString& line) {
  for (const Caveat& caveat : caveats_) {
    if (caveat.lines.contains(line)) return;
  }
  auto found = std::find_if(caveats_.begin(), caveats_.end(),
                            [&](const Caveat& t) { return t.name == name; });
  if (found == caveats_.end()) {
    caveats_.push_back({name, weight, {}});
    found = caveats_.end() - 1;
  }
  found->lines << line;
}

void Caveats::AddNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    const QString text = QString::fromStdString(note);
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) {
      return text.startsWith(QLatin1String(k.name));
    });
    if (kind != std::end(kKinds)) {
      Add(QLatin1String(kind->name), kind->weight, text);
    } else {
      Add(NameOf(text), Weight::kLimit, text);
    }
  }
}

void Caveats::AddMatching(const TimelinePair& pair) {
  if (pair.both() && pair.matched() == 0 &&
      pair.model(Side::kMeasured)->timeline().origin == traces::Timeline::Origin::kImported) {
    Add(QStringLiteral("not matched"), Weight::kLimit,
        QStringLiteral("the recording is another program's: its ops do not say which of the plan "
                       "they are, so there are no twins and no residuals"));
  }
  if (pair.unlike() > 0) {
    Add(QStringLiteral("different plans"), Weight::kLimit,
        QStringLiteral("%1 of %2 ops with the same number are for something else: the two sides do "
                       "not run one plan. Choose the method and values of the recording")
            .arg(pair.unlike())
            .arg(pair.matched()));
  }
  if (pair.lent_waits()) {
    Add(QStringLiteral("planned waits"), Weight::kLimit,
        QStringLiteral(
            "the recording holds no waits: its arrows and causes are those of the plan"));
  }
}

void Caveats::AddRecording() {
  Add(QStringLiteral("recorded"), Weight::kLimit,
      QStringLiteral("recording made the measured run's calls and copies slower: switch on "
                     "\"recorded\" among the what-ifs to predict that too"));
}

void Caveats::AddFailed(const QString& why) {
  Add(QStringLiteral("former values"), Weight::kLoss,
      QStringLiteral(
          "the timeline is of the values before, as those chosen cannot be predicted: ") +
          why);
}

void Caveats::AddCutStep() {
  Add(QStringLiteral("cut step"), Weight::kLoss,
      QStringLiteral("the file ends within its last step, which charts leave out"));
}

void Caveats::AddReport(const traces::ReadReport& report, const QString& file) {
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

std::vector<Caveat> Caveats::List() const {
  std::vector<Caveat> sorted = caveats_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Caveat& a, const Caveat& b) { return a.weight < b.weight; });
  return sorted;
}

}  // namespace stallcast::gui
