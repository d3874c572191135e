#include "sim/replay_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/common/factor.h"
#include "traces/step_spans.h"

namespace stallcast::sim {
namespace {

using traces::Timeline;

constexpr std::array<ReplayVerbInfo, 10> kVerbs = {{
    {ReplayVerb::kSet, "set", "SETTING VALUE", "a value of the machine, as a factor: link.h2d 2x"},
    {ReplayVerb::kScale, "scale", "FILTER FACTOR", "the time of ops"},
    {ReplayVerb::kRemove, "remove", "FILTER", "ops and their calls"},
    {ReplayVerb::kMove, "move", "FILTER STREAM",
     "ops to another stream, by a part of its name, or to a `new` one; they wait for what was "
     "ahead "
     "of them, and nothing waits for them but the end of the step"},
    {ReplayVerb::kBatch, "batch", "FILTER",
     "copies that follow one another into one call and copy"},
    {ReplayVerb::kZeroCopy, "zero-copy", "FILTER",
     "copies become kernels that read the host's memory, and hold no copy engine"},
    {ReplayVerb::kSplit, "split", "FILTER N",
     "ops and those that wait for them, in N chunks: each begins when the chunk it needs is there"},
    {ReplayVerb::kGraph, "graph", "FILTER",
     "the launches of a step as one CUDA graph: the calls, and the host's time between them, go"},
    {ReplayVerb::kUnwait, "unwait", "FILTER",
     "ops wait for no other stream; of a host's synchronisation (name=), it no longer waits"},
    {ReplayVerb::kReplace, "replace", "FILTER METHOD...",
     "ops of a role (kind=recall) take what a method is predicted to need for it: `replace "
     "kind=recall freekv model=llama-3.1-8b context=32K budget=2048`"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kSettings = {{
    {"link.h2d", "speed of copies to the GPU"},
    {"link.d2h", "speed of copies to the host"},
    {"link", "speed of copies both ways"},
    {"memory.bandwidth", "speed of the GPU's memory, as if it bound every kernel"},
    {"host.speed", "speed of host threads: calls, and the time between them"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kFields = {{
    {"kind", "recall, offload, gemm, ..., as --top and `info` have it"},
    {"role", "recall, offload, attention, ..."},
    {"name", "of the op: a part of it, or all of it in quotes"},
    {"lane", "of the stream or thread: a part of its name, or all of it in quotes"},
    {"layer", "a number or a range: 3, 3-7, 3-"},
    {"step", "a number or a range"},
    {"bytes", "that it moves: a number or a range"},
    {"start", "recorded, after its step's begin in us: a number or a range"},
}};

constexpr const char* kWhere = "--change";

// "2x", or "2" alone.
double FactorOf(std::string_view text, std::string_view whole) {
  constexpr double kMost = 1e6;
  const std::optional<double> factor =
      ParseFactor(text.ends_with('x') ? std::string(text) : fmt::format("{}x", text));
  if (!factor || *factor > kMost) {
    throw UsageError(fmt::format("'{}' is no factor", text), fmt::format("{} '{}'", kWhere, whole),
                     "give a number above 0, as 2x or 0.5");
  }
  return *factor;
}

// A condition on ops: one of the texts fits, or the number lies within.
struct Term {
  struct Text {
    std::string text;
    bool whole = false;  // in quotes: no part of a name fits
  };
  std::string_view field;
  std::vector<Text> texts;
  int64_t low = 0, high = 0;
};

// At `separator` outside quotes.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != separator || quoted) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// "3", "3-7" or "3-"; false: none of these.
bool ParseRange(std::string_view text, Term* term) {
  const char* at = text.data();
  const char* const stop = at + text.size();
  auto [next, error] = std::from_chars(at, stop, term->low);
  term->high = term->low;
  if (error == std::errc() && next != stop && *next == '-') {
    if (++next == stop) {
      term->high = std::numeric_limits<int64_t>::max();
    } else {
      const auto result = std::from_chars(next, stop, term->high);
      next = result.ptr;
      error = result.ec;
    }
  }
  return error == std::errc() && next == stop;
}

Term ParseTerm(std::string_view term, const std::string& where) {
  const size_t equals = term.find('=');
  const auto field = std::ranges::find(kFields, term.substr(0, equals),
                                       [](const auto& known) { return known.first; });
  if (equals == std::string_view::npos || field == kFields.end() || equals + 1 == term.size()) {
    std::string known;
    for (const auto& [name, help] : kFields) known += fmt::format("{}=, ", name);
    throw UsageError(fmt::format("'{}' is no term of a filter", term), where,
                     fmt::format("give all, or {}joined by commas", known));
  }
  Term parsed;
  parsed.field = field->first;
  const std::string_view value = term.substr(equals + 1);
  const std::set<std::string_view> texts = {"kind", "role", "name", "lane"};
  if (!texts.contains(parsed.field)) {
    if (!ParseRange(value, &parsed)) {
      throw UsageError(fmt::format("'{}' is no number or range", value), where,
                       "give 3, 3-7 or 3-");
    }
    return parsed;
  }
  for (const std::string_view text : Split(value, '|')) {
    const bool whole = text.size() > 1 && text.front() == '"' && text.back() == '"';
    if (text.empty() || (!whole && text.find('"') != std::string_view::npos)) {
      throw UsageError(fmt::format("'{}' is neither a part of a name nor one in quotes", text),
                       where, "give name=gemm, or name=\"the whole name\"");
    }
    parsed.texts.push_back(whole ? Term::Text{std::string(text.substr(1, text.size() - 2)), true}
                                 : Term::Text{std::string(text), false});
  }
  return parsed;
}

std::vector<Term> ParseFilter(const std::string& filter, std::string_view whole) {
  std::vector<Term> terms;
  if (filter == "all") return terms;
  const std::string where = fmt::format("{} '{}'", kWhere, whole);
  for (const std::string_view term : Split(filter, ',')) terms.push_back(ParseTerm(term, where));
  return terms;
}

class Filter {
 public:
  Filter(const ReplayChange& change, const ReplayPlan& plan)
      : t_(*plan.recording), plan_(plan), terms_(ParseFilter(change.filter, change.text)) {
    for (const Term& term : terms_) {
      std::vector<bool>& fits = fits_.emplace_back();
      if (term.field == "name") {
        for (const std::string& name : t_.names) fits.push_back(Holds(term, name));
      }
      if (term.field == "lane") {
        for (const traces::TimelineLane& lane : t_.lanes) fits.push_back(Holds(term, lane.name));
        for (const std::string& name : plan.new_lanes) fits.push_back(Holds(term, name));
      }
      if (term.field == "start") {
        for (const auto& [step, span] : traces::StepSpans(t_)) begins_[step] = span.start;
      }
    }
  }
  bool names() const {
    return std::ranges::any_of(terms_, [](const Term& term) { return term.field == "name"; });
  }

  bool Fits(const ReplayOp& op) const {
    const auto row = static_cast<size_t>(op.row);
    for (size_t i = 0; i < terms_.size(); ++i) {
      const Term& term = terms_[i];
      bool fits = true;
      if (term.field == "kind") fits = Is(term, plan_.kinds[op.kind]);
      if (term.field == "role") fits = Is(term, Name(t_.role[row]));
      if (term.field == "name") fits = fits_[i][t_.name[row]];
      if (term.field == "lane") fits = fits_[i][op.lane];
      if (term.field == "layer") fits = Within(term, t_.layer[row]);
      if (term.field == "step") fits = Within(term, t_.step[row]);
      if (term.field == "bytes") fits = Within(term, t_.bytes[row]);
      if (term.field == "start") fits = StartsWithin(term, row);
      if (!fits) return false;
    }
    return true;
  }

 private:
  static bool Is(const Term& term, std::string_view name) {
    return std::ranges::any_of(term.texts,
                               [&](const Term::Text& text) { return text.text == name; });
  }
  static bool Holds(const Term& term, const std::string& name) {
    return std::ranges::any_of(term.texts, [&](const Term::Text& text) {
      return text.whole ? name == text.text : name.find(text.text) != std::string::npos;
    });
  }
  static bool Within(const Term& term, int64_t value) {
    return value >= term.low && value <= term.high;
  }
  bool StartsWithin(const Term& term, size_t row) const {
    constexpr int64_t kMicrosecond = 1'000'000;
    const auto begin = begins_.find(t_.step[row]);
    return begin != begins_.end() &&
           Within(term, (t_.start[row] - begin->second).count() / kMicrosecond);
  }

  const Timeline& t_;
  const ReplayPlan& plan_;
  std::vector<Term> terms_;
  std::vector<std::vector<bool>> fits_;    // of each term: by name or lane
  std::map<int32_t, Picoseconds> begins_;  // of steps
};

int64_t Scaled(int64_t time, double factor) {
  const double scaled = static_cast<double>(time) * factor;
  return static_cast<int64_t>(std::clamp(scaled, 0.0, 4e18));
}

// The op's time; a copy that takes less moves less, as its link is no faster.
void ScaleOp(ReplayOp* op, double factor) {
  op->duration = Scaled(op->duration, factor);
  op->fixed = std::min(op->fixed, op->duration);
  if (op->way != CopyWay::kNone) op->moved = std::min(op->moved * factor, 1e6);
}

// Links beside their fixed time.
void ScaleCopy(ReplayOp* op, double rate) {
  op->duration = op->fixed + Scaled(op->duration - op->fixed, 1 / rate);
}

int64_t Set(const ReplayChange& change, ReplayPlan* plan) {
  int64_t matched = 0;
  for (ReplayOp& op : plan->ops) {
    const std::string& setting = change.filter;
    if (setting == "host.speed") {
      if (!op.host) continue;
      op.duration = Scaled(op.duration, 1 / change.value);
      if (op.behind >= 0) op.behind_lag = Scaled(op.behind_lag, 1 / change.value);
    } else if (setting == "memory.bandwidth") {
      if (op.host || op.engine) continue;
      constexpr int64_t kStart = 2'000'000;  // of a kernel, whatever it reads
      const int64_t start = std::min(kStart, op.duration);
      op.duration = start + Scaled(op.duration - start, 1 / change.value);
    } else {
      const bool to_gpu = op.way == CopyWay::kToGpu && setting != "link.d2h";
      const bool to_host = op.way == CopyWay::kToHost && setting != "link.h2d";
      if (!to_gpu && !to_host) continue;
      ScaleCopy(&op, change.value);
    }
    ++matched;
  }
  return matched;
}

// Takes an op off its stream: the next one follows the one before.
class Successors {
 public:
  explicit Successors(ReplayPlan* plan) : plan_(*plan), next_(plan->ops.size(), -1) {
    for (int64_t k = 0; k < std::ssize(plan_.ops); ++k) {
      const int64_t behind = plan_.ops[static_cast<size_t>(k)].behind;
      if (behind >= 0) next_[static_cast<size_t>(behind)] = k;
    }
  }
  void Unlink(int64_t k) {
    ReplayOp& op = plan_.ops[static_cast<size_t>(k)];
    const int64_t next = next_[static_cast<size_t>(k)];
    if (op.behind >= 0) next_[static_cast<size_t>(op.behind)] = next;
    if (next >= 0) {
      ReplayOp& after = plan_.ops[static_cast<size_t>(next)];
      after.behind = op.behind;
      after.behind_start = false;
      after.behind_lag = std::min(after.behind_lag, plan_.gap);
    }
  }

 private:
  ReplayPlan& plan_;
  std::vector<int64_t> next_;
};

// What an op waits for, replaced: at the end of the list of all.
void SetWaits(ReplayPlan* plan, ReplayOp* op, std::vector<ReplayWait> waits) {
  op->first_wait = static_cast<uint32_t>(plan->waits.size());
  op->waits = static_cast<uint32_t>(waits.size());
  plan->waits.insert(plan->waits.end(), waits.begin(), waits.end());
}
std::vector<ReplayWait> WaitsOf(const ReplayPlan& plan, const ReplayOp& op) {
  const auto begin = plan.waits.begin() + op.first_wait;
  return {begin, begin + op.waits};
}

void Move(ReplayPlan* plan, const std::vector<int64_t>& matched, const ReplayChange& change) {
  const Timeline& t = *plan->recording;
  std::optional<uint16_t> lane;
  if (change.argument != "new") {
    for (size_t i = 0; i < t.lanes.size(); ++i) {
      if (t.lanes[i].kind != traces::LaneKind::kStream ||
          t.lanes[i].name.find(change.argument) == std::string::npos) {
        continue;
      }
      lane = static_cast<uint16_t>(i);
      break;
    }
    if (!lane) {
      throw UsageError(fmt::format("no stream has '{}' in its name", change.argument),
                       fmt::format("{} '{}'", kWhere, change.text),
                       "`stallcast info` lists the lanes; `new` is a stream of its own");
    }
  }
  const bool fresh = !lane;
  if (fresh) {
    lane = static_cast<uint16_t>(t.lanes.size() + plan->new_lanes.size());
    plan->new_lanes.push_back(fmt::format("new stream {}", plan->new_lanes.size() + 1));
  }
  Successors successors(plan);
  const std::set<int64_t> moved(matched.begin(), matched.end());
  for (const int64_t k : matched) {
    ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    std::vector<ReplayWait> waits = WaitsOf(*plan, op);
    // It needs what was made ahead of it on its stream.
    if (op.behind >= 0 && !moved.contains(op.behind)) waits.push_back({op.behind, 2'000'000});
    SetWaits(plan, &op, std::move(waits));
    successors.Unlink(k);
  }
  // In order of their recorded begin, with those that are there.
  int64_t last = -1;
  for (int64_t k = 0; k < std::ssize(plan->ops); ++k) {
    ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    const bool here = moved.contains(k);
    if (!here && (op.host || op.lane != *lane)) continue;
    op.lane = *lane;
    if (here || (op.behind != last && last >= 0 && moved.contains(last))) {
      op.behind = last;
      op.behind_start = false;
      op.behind_lag = last < 0 ? 0 : plan->gap;
    }
    last = k;
  }
}

void Batch(ReplayPlan* plan, const std::vector<int64_t>& matched) {
  const std::set<int64_t> of(matched.begin(), matched.end());
  std::unordered_map<int64_t, int64_t> first;  // of the batch that an op is in
  for (const int64_t k : matched) {
    ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    if (op.behind < 0 || !of.contains(op.behind)) continue;
    const int64_t head = first.contains(op.behind) ? first.at(op.behind) : op.behind;
    ReplayOp& batch = plan->ops[static_cast<size_t>(head)];
    const Timeline& t = *plan->recording;
    const auto a = static_cast<size_t>(batch.row), b = static_cast<size_t>(op.row);
    if (t.step[a] != t.step[b] || t.layer[a] != t.layer[b]) continue;
    first[k] = head;
    batch.duration += op.duration - op.fixed;
    op.removed = true;
    op.duration = op.fixed = 0;
    op.behind_lag = 0;
    op.behind_start = false;
    op.engine = false;
    op.calls_kept = false;
  }
}

void Graph(ReplayPlan* plan, const std::vector<int64_t>& matched) {
  const Timeline& t = *plan->recording;
  struct Span {
    int64_t first = std::numeric_limits<int64_t>::max(), last = -1;  // calls
  };
  std::map<std::pair<uint16_t, int32_t>, Span> spans;  // by thread and step
  for (const int64_t k : matched) {
    const ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    if (op.call < 0) continue;
    const ReplayOp& call = plan->ops[static_cast<size_t>(op.call)];
    Span& span = spans[{call.lane, t.step[static_cast<size_t>(op.row)]}];
    span.first = std::min(span.first, op.call);
    span.last = std::max(span.last, op.call);
  }
  const int64_t gap =
      plan->machine.graph_gap.count() < 0 ? plan->gap : plan->machine.graph_gap.count();
  // What the graph launches follows in order on its streams, with the launch of the first.
  for (const int64_t k : matched) {
    ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    if (op.call < 0) continue;
    const ReplayOp& call = plan->ops[static_cast<size_t>(op.call)];
    op.call = spans.at({call.lane, t.step[static_cast<size_t>(op.row)]}).first;
    op.call_lag = std::min(op.call_lag, plan->launch);
    if (op.behind >= 0 && !op.behind_start) op.behind_lag = std::min(op.behind_lag, gap);
  }
  for (const auto& [key, span] : spans) {
    for (int64_t k = span.first + 1; k <= span.last; ++k) {
      ReplayOp& op = plan->ops[static_cast<size_t>(k)];
      if (!op.host || op.lane != key.first || op.sync) continue;
      op.duration = 0;
      op.behind_lag = 0;
      op.removed = true;
    }
  }
}

// All together take so many seconds a step.
void Replace(ReplayPlan* plan, const std::vector<int64_t>& matched, const ReplayChange& change) {
  if (change.value < 0) {
    throw Error("nothing was predicted of the method", fmt::format("{} '{}'", kWhere, change.text),
                "report this");
  }
  double all = 0;
  for (const int64_t k : matched) {
    all += static_cast<double>(plan->ops[static_cast<size_t>(k)].duration);
  }
  const auto steps = static_cast<double>(traces::StepSpans(*plan->recording).size());
  const double factor = all > 0 ? change.value * 1e12 * steps / all : 0;
  for (const int64_t k : matched) {
    ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    ScaleOp(&op, factor);
  }
}

void Split(ReplayPlan* plan, const std::vector<int64_t>& matched, int32_t chunks) {
  std::set<int64_t> of(matched.begin(), matched.end());
  for (const int64_t k : matched) plan->ops[static_cast<size_t>(k)].chunks = chunks;
  for (ReplayOp& op : plan->ops) {
    if (op.host || op.meeting >= 0) continue;
    bool needs = false;
    for (const ReplayWait& wait : WaitsOf(*plan, op)) needs |= of.contains(wait.op);
    if (needs) op.chunks = chunks;
  }
}

}  // namespace

std::span<const ReplayVerbInfo> ReplayVerbs() { return kVerbs; }
std::span<const std::pair<std::string_view, std::string_view>> ReplaySettings() {
  return kSettings;
}
std::span<const std::pair<std::string_view, std::string_view>> ReplayFields() { return kFields; }

ReplayChange ParseReplayChange(std::string_view text) {
  const auto trim = [](std::string_view part) {
    const size_t first = std::min(part.find_first_not_of(' '), part.size());
    return part.substr(first, part.find_last_not_of(' ') + 1 - first);
  };
  ReplayChange change;
  const std::string_view whole = trim(text);
  change.text = whole;
  std::vector<std::string> names;
  for (const ReplayVerbInfo& info : kVerbs) names.emplace_back(info.name);
  if (whole.empty()) {
    throw UsageError("an empty change", kWhere, "give one, as 'scale kind=offload 0.5'");
  }
  const std::string_view verb = whole.substr(0, whole.find(' '));
  CheckName("change", verb, names, kWhere);
  const ReplayVerbInfo& info = *std::ranges::find(kVerbs, verb, &ReplayVerbInfo::name);
  change.verb = info.verb;
  // Names hold blanks: the last word is the argument, if there is one, and the rest the filter.
  const std::string_view rest = trim(whole.substr(verb.size()));
  // A method has words of its own behind it, but its filter has no names.
  const bool has_argument = info.arguments.find(' ') != std::string_view::npos;
  const size_t blank = change.verb == ReplayVerb::kReplace ? rest.find(' ')
                       : has_argument                      ? rest.rfind(' ')
                                                           : rest.size();
  if (rest.empty() || blank == std::string_view::npos) {
    throw UsageError(fmt::format("'{}' is not complete", text), kWhere,
                     fmt::format("give {} {}", info.name, info.arguments));
  }
  change.filter = trim(rest.substr(0, blank));
  change.argument = trim(rest.substr(blank));
  switch (change.verb) {
    case ReplayVerb::kSet: {
      std::vector<std::string> settings;
      for (const auto& [name, help] : kSettings) settings.emplace_back(name);
      CheckName("setting", change.filter, settings, kWhere);
      change.value = FactorOf(change.argument, text);
      break;
    }
    case ReplayVerb::kScale:
      change.value = FactorOf(change.argument, text);
      break;
    case ReplayVerb::kReplace:
      change.value = -1;
      break;
    case ReplayVerb::kSplit:
      change.value = FactorOf(change.argument, text);
      if (change.value != static_cast<int>(change.value) || change.value > 64) {
        throw UsageError(fmt::format("'{}' is no number of chunks", change.argument), kWhere,
                         "give 1 to 64");
      }
      break;
    default:
      break;
  }
  if (change.verb != ReplayVerb::kSet) ParseFilter(change.filter, text);
  return change;
}

void RemoveOp(ReplayOp* op) {
  op->removed = true;
  op->engine = false;
  op->duration = op->fixed = 0;
  op->waits = 0;
  op->sync = false;
  op->calls_kept = false;
  op->meeting = -1;
  if (!op->host && op->behind >= 0) {
    op->behind_lag = 0;
    op->behind_start = false;
  }
}

int64_t Apply(const ReplayChange& change, ReplayPlan* plan) {
  const auto none = [&] {
    return Error(fmt::format("the change '{}' matches no op", change.text), kWhere,
                 "`stallcast replay FILE --top` names kinds and ops");
  };
  if (change.verb == ReplayVerb::kSet) {
    const int64_t set = Set(change, plan);
    if (set == 0) throw none();
    return set;
  }
  const Filter filter(change, *plan);
  const bool copies_only =
      change.verb == ReplayVerb::kBatch || change.verb == ReplayVerb::kZeroCopy;
  // Host ops take part where they are named, or do work themselves.
  const bool hosts =
      filter.names() && (change.verb == ReplayVerb::kRemove || change.verb == ReplayVerb::kScale ||
                         change.verb == ReplayVerb::kUnwait);
  std::vector<int64_t> matched;
  for (int64_t k = 0; k < std::ssize(plan->ops); ++k) {
    const ReplayOp& op = plan->ops[static_cast<size_t>(k)];
    if (op.removed || (op.host && !hosts)) continue;
    if (copies_only && op.way == CopyWay::kNone) continue;
    if (filter.Fits(op)) matched.push_back(k);
  }
  if (matched.empty()) throw none();
  switch (change.verb) {
    case ReplayVerb::kMove:
      Move(plan, matched, change);
      break;
    case ReplayVerb::kBatch:
      Batch(plan, matched);
      break;
    case ReplayVerb::kGraph:
      Graph(plan, matched);
      break;
    case ReplayVerb::kReplace:
      Replace(plan, matched, change);
      break;
    case ReplayVerb::kSplit:
      Split(plan, matched, static_cast<int32_t>(change.value));
      break;
    default:
      for (const int64_t k : matched) {
        ReplayOp& op = plan->ops[static_cast<size_t>(k)];
        if (change.verb == ReplayVerb::kScale) {
          ScaleOp(&op, change.value);
        }
        if (change.verb == ReplayVerb::kZeroCopy) {
          op.engine = false;
          ScaleCopy(&op, plan->machine.zero_copy);
        }
        if (change.verb == ReplayVerb::kUnwait) {
          op.waits = 0;
          op.sync = false;
        }
        if (change.verb == ReplayVerb::kRemove) RemoveOp(&op);
      }
  }
  return std::ssize(matched);
}

}  // namespace stallcast::sim
