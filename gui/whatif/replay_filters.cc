// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/replay_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "gui/timeline/words.h"
#include "sim/timeline_summary.h"
#include "traces/common/error.h"

namespace stallcast::gui {
namespace {

std::string Joined(const std::set<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "|") + text;
  return joined;
}

std::optional<std::string> Quoted(const std::string& name) {
  if (name.empty() || name.find('"') != std::string::npos) return std::nullopt;
  return fmt::format("\"{}\"", name);
}

// Where `word`, in lower case, stands in `name`.
size_t Find(const std::string& name, const std::string& word) {
  const auto at = std::ranges::search(name, word, [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  });
  return at.empty() && !word.empty() ? std::string::npos
                                     : static_cast<size_t>(at.begin() - name.begin());
}

Error NoCounterpart(const char* what) {
  return UsageError(fmt::format("a change has no filter for {}", what), "the timeline's filter",
                    "use name, role:, lane:, layer:, step: and bytes> or bytes<");
}

// "3-7", "3-" or "3", of numbers that are none below 0.
std::string RangeText(double least, double most) {
  const double low = std::ceil(std::max(0.0, least));
  if (!std::isfinite(most)) return fmt::format("{:.0f}-", low);
  const double high = std::floor(most);
  return low == high ? fmt::format("{:.0f}", low) : fmt::format("{:.0f}-{:.0f}", low, high);
}

// As they are written in the recording: a change heeds capital letters, the timeline does not.
std::string NameTerm(const std::string& word, const TimelineModel& model) {
  std::set<std::string> spelled, whole;
  for (const std::string& name : model.timeline().names) {
    const size_t at = Find(name, word);
    if (at == std::string::npos) continue;
    spelled.insert(name.substr(at, word.size()));
    if (const auto quoted = Quoted(name)) whole.insert(*quoted);
  }
  const bool plain = word.find_first_of(",|\"") == std::string::npos;
  const std::set<std::string>& texts = plain ? spelled : whole;
  if (texts.empty()) throw NoCounterpart("a name that no op has");
  return "name=" + Joined(texts);
}

std::string LaneTerm(const std::string& word, const TimelineModel& model) {
  std::set<std::string> lanes;
  for (const traces::TimelineLane& lane : model.timeline().lanes) {
    const bool fits = Find(lane.name, word) != std::string::npos ||
                      std::string(traces::Name(lane.kind)).find(word) != std::string::npos;
    const auto quoted = Quoted(lane.name);
    if (fits && quoted) lanes.insert(*quoted);
  }
  if (lanes.empty()) throw NoCounterpart("a lane that is not there");
  return "lane=" + Joined(lanes);
}

std::string TermOf(const Filter::Term& term, const TimelineModel& model) {
  using Kind = Filter::Term::Kind;
  if (term.negate) throw NoCounterpart("a word with a minus");
  switch (term.kind) {
    case Kind::kName:
      return NameTerm(term.text, model);
    case Kind::kLane:
      return LaneTerm(term.text, model);
    case Kind::kRole: {
      std::set<std::string> roles;
      for (int r = 0; r < traces::kRoles; ++r) {
        if ((term.roles >> r & 1) != 0) {
          roles.insert(std::string(traces::Name(static_cast<traces::Role>(r))));
        }
      }
      return "role=" + Joined(roles);
    }
    case Kind::kStep:
      return "step=" + RangeText(term.least, term.most);
    case Kind::kLayer:
      return "layer=" + RangeText(term.least, term.most);
    case Kind::kBytes:
      return "bytes=" + RangeText(term.least, term.most);
    case Kind::kOp:
      throw NoCounterpart("op numbers");
    case Kind::kDuration:
      throw NoCounterpart("durations");
    case Kind::kResidual:
      throw NoCounterpart("residuals");
  }
  return {};
}

bool IsCopy(traces::Role role) {
  return role == traces::Role::kRecall || role == traces::Role::kOffload;
}

void AddOp(const TimelinePair& pair, OpRef op, std::vector<ReplayTarget>* targets) {
  const TimelineModel& model = *pair.model(op.side);
  const traces::Timeline& t = model.timeline();
  const auto row = static_cast<size_t>(op.row);
  const bool copies = IsCopy(t.role[row]), device = !model.IsCall(op.row);
  if (const auto filter = ReplayFilterOf(model.NameOf(op.row), t.lanes[t.lane[row]].name)) {
    targets->push_back({QStringLiteral("Change All \u201c%1\u201d of This Lane")
                            .arg(ShortName(model.NameOf(op.row)).left(40)),
                        *filter, copies, device});
  }
  if (device && sim::IsWork(t, op.row)) {
    const std::string kind = sim::KindOfRow(t, op.row);
    targets->push_back(
        {QStringLiteral("Change All of Kind %1").arg(Text(kind)), "kind=" + kind, copies, device});
  }
}

// Ops that begin in the area: of a part of a step in every step, else of whole steps.
void AddArea(const TimelineModel& model, const MenuSubject::Area& area,
             std::vector<ReplayTarget>* targets) {
  const traces::Timeline& t = model.timeline();
  std::set<std::string> lanes;
  for (const int32_t lane : area.lanes) {
    const traces::TimelineLane& of = t.lanes[static_cast<size_t>(lane)];
    const auto quoted = Quoted(of.name);
    if (of.kind != traces::LaneKind::kHost && of.kind != traces::LaneKind::kOther && quoted) {
      lanes.insert(*quoted);
    }
  }
  std::vector<const TimelineModel::Step*> steps;
  for (const TimelineModel::Step& step : model.steps()) {
    if (step.begin < area.end && step.end > area.begin) steps.push_back(&step);
  }
  if (lanes.empty() || steps.empty()) return;
  const std::string lane = ",lane=" + Joined(lanes);
  if (steps.size() > 1) {
    const int first = steps.front()->step, last = steps.back()->step;
    targets->push_back({QStringLiteral("Change Steps %1 to %2 of These Lanes").arg(first).arg(last),
                        fmt::format("step={}-{}{}", first, last, lane)});
    return;
  }
  const auto micro = [&](Picoseconds time) {
    return std::max<int64_t>(0, (time - steps[0]->begin).count() / 1'000'000);
  };
  const std::string within = fmt::format("start={}-{}{}", micro(area.begin), micro(area.end), lane);
  targets->push_back({QStringLiteral("Change the Area in Every Step"), within});
  targets->push_back({QStringLiteral("Change the Area in Step %1").arg(steps[0]->step),
                      fmt::format("step={},{}", steps[0]->step, within)});
}

QStringList Sorted(const std::set<std::string>& names) {
  QStringList list;
  for (const std::string& name : names) list << QString::fromStdString(name);
  return list;
}

// Of `from` those that hold what is typed, behind `before`; whole names stand in quotes.
QStringList Fitting(const QString& before, const QString& typed, const QStringList& from,
                    bool quoted) {
  constexpr qsizetype kMost = 50;
  QString part = typed;
  part.remove('"');
  QStringList fitting;
  for (const QString& text : from) {
    if (!text.contains(part, Qt::CaseInsensitive) || text.contains('"')) continue;
    const QString whole = before + (quoted ? '"' + text + '"' : text);
    if (whole != before + typed) fitting << whole;
    if (fitting.size() == kMost) break;
  }
  return fitting;
}

QStringList Beginning(const QString& before, const QString& typed, const QStringList& from) {
  QStringList fitting;
  for (const QString& text : from) {
    if (text.startsWith(typed) && text != typed) fitting << before + text;
  }
  return fitting;
}

// Place behind the last of `separators` outside quotes.
qsizetype LastPart(const QString& text, const QString& separators) {
  bool quoted = false;
  qsizetype part = 0;
  for (qsizetype i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (!quoted && separators.contains(text[i])) part = i + 1;
  }
  return part;
}

QString From(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

QStringList Arguments(sim::ReplayVerb verb) {
  switch (verb) {
    case sim::ReplayVerb::kSet:
      return {QStringLiteral("2x"), QStringLiteral("0.5x")};
    case sim::ReplayVerb::kScale:
      return {QStringLiteral("0.5"), QStringLiteral("2")};
    case sim::ReplayVerb::kMove:
      return {QStringLiteral("new")};
    case sim::ReplayVerb::kSplit:
      return {QStringLiteral("2"), QStringLiteral("4")};
    case sim::ReplayVerb::kReplace:
      return {QStringLiteral("freekv model=llama-3.1-8b context=32K")};
    default:
      return {};
  }
}

QStringList TermsOf(const QString& before, const QString& term, const RecordingWords& words) {
  const qsizetype equals = term.indexOf('=');
  if (equals < 0) {
    QStringList fields;
    for (const auto& [name, help] : sim::ReplayFields()) fields << From(name) + '=';
    if (before.endsWith(' ')) fields << QStringLiteral("all");
    return Beginning(before, term, fields);
  }
  const QString field = term.left(equals);
  const qsizetype last = LastPart(term, QStringLiteral("=|"));
  const QString head = before + term.left(last), typed = term.mid(last);
  if (field == QLatin1String("kind")) return Fitting(head, typed, words.kinds, false);
  if (field == QLatin1String("role")) return Fitting(head, typed, words.roles, false);
  if (field == QLatin1String("name")) return Fitting(head, typed, words.names, true);
  if (field == QLatin1String("lane")) return Fitting(head, typed, words.lanes, true);
  return {};
}

}  // namespace

std::optional<std::string> ReplayFilterOf(const std::string& name, const std::string& lane) {
  const auto quoted_name = Quoted(name), quoted_lane = Quoted(lane);
  if (!quoted_name || !quoted_lane) return std::nullopt;
  return fmt::format("name={},lane={}", *quoted_name, *quoted_lane);
}

std::string ReplayFilterOf(const Filter& filter, const TimelineModel& model) {
  std::string text;
  for (const Filter::Term& term : filter.terms()) {
    text += (text.empty() ? "" : ",") + TermOf(term, model);
  }
  return text.empty() ? "all" : text;
}

std::vector<ReplayTarget> ReplayTargetsOf(const TimelinePair& pair, const MenuSubject& subject) {
  std::vector<ReplayTarget> targets;
  if (subject.op) AddOp(pair, *subject.op, &targets);
  // Times of an area are those of the recording.
  const auto& area = subject.areas[static_cast<size_t>(Side::kMeasured)];
  if (area) AddArea(*pair.model(Side::kMeasured), *area, &targets);
  return targets;
}

std::vector<sim::ReplayVerbInfo> ReplayVerbsFor(const ReplayTarget& target) {
  using sim::ReplayVerb;
  std::vector<sim::ReplayVerbInfo> verbs;
  for (const sim::ReplayVerbInfo& info : sim::ReplayVerbs()) {
    const bool of_copies = info.verb == ReplayVerb::kBatch || info.verb == ReplayVerb::kZeroCopy;
    const bool of_host = info.verb == ReplayVerb::kScale || info.verb == ReplayVerb::kRemove ||
                         info.verb == ReplayVerb::kUnwait;
    if (info.verb == ReplayVerb::kSet || info.verb == ReplayVerb::kReplace ||
        (of_copies && !target.copies) || (!of_host && !target.device)) {
      continue;
    }
    verbs.push_back(info);
  }
  return verbs;
}

RecordingWords WordsOf(const TimelineModel& recording) {
  const traces::Timeline& t = recording.timeline();
  std::set<std::string> kinds, roles, names, lanes;
  std::set<std::pair<uint32_t, traces::Role>> seen;
  for (int64_t row = 0; row < t.rows(); ++row) {
    const auto i = static_cast<size_t>(row);
    if (!seen.emplace(t.name[i], t.role[i]).second) continue;
    names.insert(t.names[t.name[i]]);
    if (recording.IsCall(row) || !sim::IsWork(t, row)) continue;
    kinds.insert(sim::KindOfRow(t, row));
    roles.insert(std::string(traces::Name(t.role[i])));
  }
  for (const traces::TimelineLane& lane : t.lanes) {
    if (lane.kind != traces::LaneKind::kOther) lanes.insert(lane.name);
  }
  return {Sorted(kinds), Sorted(roles), Sorted(names), Sorted(lanes)};
}

QStringList CompletionsOf(const QString& text, const RecordingWords& words) {
  const qsizetype blank = text.indexOf(' ');
  if (blank < 0) {
    QStringList verbs;
    for (const sim::ReplayVerbInfo& info : sim::ReplayVerbs()) verbs << From(info.name) + ' ';
    return Beginning({}, text, verbs);
  }
  const QString verb = text.left(blank);
  const auto known =
      std::ranges::find(sim::ReplayVerbs(), verb.toStdString(), &sim::ReplayVerbInfo::name);
  if (known == sim::ReplayVerbs().end()) return {};
  const qsizetype last = LastPart(text, QStringLiteral(" "));
  const qsizetype filter_end = last > 0 ? LastPart(text.left(last - 1), QStringLiteral(" ")) : 0;
  if (filter_end > blank + 1) return {};  // the argument is there
  if (last > blank + 1) return Beginning(text.left(last), text.mid(last), Arguments(known->verb));
  const QString before = text.left(blank + 1);
  if (known->verb == sim::ReplayVerb::kSet) {
    QStringList settings;
    for (const auto& [name, help] : sim::ReplaySettings()) settings << From(name) + ' ';
    return Beginning(before, text.mid(last), settings);
  }
  const qsizetype term = std::max(blank + 1, LastPart(text, QStringLiteral(",")));
  return TermsOf(text.left(term), text.mid(term), words);
}

}  // namespace stallcast::gui
