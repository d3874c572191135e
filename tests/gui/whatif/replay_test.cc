// SPDX-License-Identifier: GPL-3.0-or-later
// From what is pointed at to changes of a recording, and how they are written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "gui/whatif/fact_lines.h"
#include "gui/whatif/replay_filters.h"
#include "gui/whatif/replay_request.h"
#include "sim/timeline_summary.h"
#include "traces/common/error.h"
#include "traces/convert/import.h"

namespace stallcast::gui {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::StartsWith;

std::shared_ptr<const TimelineModel> Recording() {
  static const auto model = TimelineModel::Build(
      traces::Import(STALLCAST_SOURCE_DIR "/tests/sim/recordings/offloaded-8192.kvt")
          .trace.timelines.at(0));
  return model;
}

int64_t Matched(const std::string& filter) {
  traces::Timeline t = Recording()->timeline();
  traces::RestoreOrder(&t);
  const sim::ReplayChange change = sim::ParseReplayChange("scale " + filter + " 0.5");
  return sim::Replay(t, {}).Run(std::span(&change, 1)).changed;
}

TEST(ReplayFilters, TheTimelinesWordsChooseTheSameWork) {
  const auto pair = TimelinePair::Make({nullptr}, {Recording()});
  for (const char* words : {"role:recall", "role:recall,offload", "lane:\"stream 29\"", "memcpy",
                            "step:1", "role:offload step:1-2", "bytes>1MB"}) {
    const Filter filter(words);
    const FilterMask mask(filter, *pair, Side::kMeasured);
    int64_t chosen = 0;
    for (int64_t row = 0; row < Recording()->rows(); ++row) {
      const auto i = static_cast<size_t>(row);
      const bool work = sim::IsWork(Recording()->timeline(), row);
      const bool named = std::string(words) == "memcpy";  // calls take part where they are named
      const bool call = Recording()->IsCall(row) && Recording()->timeline().op[i] >= 0;
      if (mask.Matches(row) && (work || (named && call))) ++chosen;
    }
    EXPECT_EQ(Matched(ReplayFilterOf(filter, *Recording())), chosen) << words;
    EXPECT_GT(chosen, 0) << words;
  }
  for (const char* words : {"dur>1us", "-role:recall", "op:3", "residual>5%", "no_such_name"}) {
    EXPECT_THROW(ReplayFilterOf(Filter(words), *Recording()), Error) << words;
  }
}

TEST(ReplayFilters, AnOpsFilterIsOfItsWholeNameAndLane) {
  const traces::Timeline& t = Recording()->timeline();
  const auto pair = TimelinePair::Make({nullptr}, {Recording()});
  for (int64_t row = 0; row < Recording()->rows(); row += 97) {
    if (!sim::IsWork(t, row)) continue;
    MenuSubject subject;
    subject.op = OpRef{Side::kMeasured, row};
    const std::vector<ReplayTarget> targets = ReplayTargetsOf(*pair, subject);
    ASSERT_FALSE(targets.empty());
    const auto i = static_cast<size_t>(row);
    int64_t alike = 0;
    for (size_t k = 0; k < t.name.size(); ++k) {
      alike += t.name[k] == t.name[i] && t.lane[k] == t.lane[i] ? 1 : 0;
    }
    EXPECT_EQ(Matched(targets[0].filter), alike) << targets[0].filter;
  }
  EXPECT_EQ(ReplayFilterOf("a \"quoted\" name", "lane"), std::nullopt);
}

TEST(ReplayFilters, CompletionLeadsToAChange) {
  const RecordingWords words = WordsOf(*Recording());
  EXPECT_THAT(words.kinds, Contains(QStringLiteral("recall")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("sc"), words), ElementsAre(QStringLiteral("scale ")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("scale ki"), words),
              ElementsAre(QStringLiteral("scale kind=")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("scale kind=rec"), words),
              ElementsAre(QStringLiteral("scale kind=recall")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("scale kind=recall|off"), words),
              ElementsAre(QStringLiteral("scale kind=recall|offload")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("scale kind=recall,lane=29"), words),
              Contains(QStringLiteral("scale kind=recall,lane=\"GPU 0 stream 29\"")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("scale kind=recall 0"), words),
              ElementsAre(QStringLiteral("scale kind=recall 0.5")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("set host"), words),
              ElementsAre(QStringLiteral("set host.speed ")));
  EXPECT_THAT(CompletionsOf(QStringLiteral("nonsense x"), words), ElementsAre());
  // Following the first offer always ends at a change, whatever one begins with.
  const auto is_change = [](const QString& text) {
    try {
      sim::ParseReplayChange(text.toStdString());
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  for (const sim::ReplayVerbInfo& verb : sim::ReplayVerbs()) {
    QString text = QString::fromStdString(std::string(verb.name));
    for (int i = 0; i < 20 && !is_change(text); ++i) {
      const QStringList next = CompletionsOf(text, words);
      if (!next.isEmpty()) text = next.first();
      if (next.isEmpty() && !text.endsWith(' ')) text += ' ';
    }
    EXPECT_TRUE(is_change(text)) << text.toStdString();
  }
}

TEST(ReplayRequestJson, ComesBack) {
  ReplayRequest request;
  request.settings = {{"link.h2d", "2x"}, {"host.speed", "0.5x"}};
  request.changes = {{"graph all", false}, {"scale kind=recall 0.5", true}};
  EXPECT_EQ(ReplayRequestFromJson(ToJson(request)), request);
  EXPECT_THAT(request.Applied(),
              ElementsAre("set host.speed 0.5x", "set link.h2d 2x", "scale kind=recall 0.5"));
}

TEST(FactLinesView, NoLineBeginsOrEndsWithADot) {
  QStringList facts;
  for (int i = 1; i < 12; ++i) facts << QStringLiteral("fact %1").arg(QString(i, QLatin1Char('x')));
  FactLines lines;
  lines.SetFacts(facts);
  for (const int width : {60, 120, 200, 333, 800}) {
    lines.resize(width, 400);
    QStringList together;
    for (const QString& line : lines.text().split('\n')) {
      EXPECT_FALSE(line.trimmed().startsWith(QStringLiteral("·")) ||
                   line.trimmed().endsWith(QStringLiteral("·")))
          << line.toStdString();
      together << line.split(QStringLiteral(" · "));
    }
    EXPECT_EQ(together, facts) << width;
    EXPECT_LE(lines.fontMetrics().lineSpacing() * lines.text().count('\n'),
              lines.heightForWidth(width));
  }
}

}  // namespace
}  // namespace stallcast::gui
