// Every method's parameters: defaults, round trips, and one usage Error for each bad value.
#include <gtest/gtest.h>

#include <set>

#include "models/llm/model.h"
#include "models/methods/method.h"

namespace stallcast::methods {
namespace {

// Runs `make` and returns its usage Error, which must say where it is and what to do.
Error UsageErrorOf(const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_TRUE(error.usage()) << error.what();
    EXPECT_FALSE(error.where().empty()) << error.what();
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    return error;
  }
  ADD_FAILURE() << "accepted";
  return UsageError("", "", "");
}

TEST(Methods, AreDeclaredOnceAndWhole) {
  std::set<std::string> names;
  for (const MethodInfo& info : Methods()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_FALSE(info.title.empty());
    EXPECT_FALSE(info.summary.empty());
    EXPECT_EQ(info.summary.find('\n'), std::string::npos);
    for (const ParamSpec& spec : info.params) {
      SCOPED_TRACE(spec.name);
      EXPECT_FALSE(spec.help.empty());
      EXPECT_EQ(spec.help.find('\n'), std::string::npos);
      EXPECT_FALSE(spec.source.empty());
    }
    for (const auto& [preset, values] : info.presets) {
      EXPECT_TRUE(names.insert(preset).second);
      EXPECT_NO_THROW(MakeMethod(preset, {})) << preset;
    }
  }
}

TEST(Methods, DefaultsAndWrittenValuesAreAccepted) {
  for (const MethodInfo& info : Methods()) {
    SCOPED_TRACE(info.name);
    ParamValues defaults;
    for (const ParamSpec& spec : info.params) defaults[spec.name] = spec.default_value;
    const auto params = MakeMethod(info.name, {}).method->Params(false);
    EXPECT_EQ(ParamValues(params.begin(), params.end()), defaults);
    EXPECT_EQ(MakeMethod(info.name, defaults).method->Params(false), params);
    const auto selection = MakeMethod(info.name, {}).method->Params(true);
    for (const ParamSpec& spec : info.params) {
      EXPECT_EQ(selection.contains(spec.name), spec.affects == Affects::kSelection) << spec.name;
    }
  }
}

TEST(Methods, ValuesOverridePresets) {
  const NamedMethod preset = MakeMethod("arkvale-freekv", {{"window", "256"}});
  EXPECT_EQ(preset.name, "arkvale-freekv");
  EXPECT_EQ(preset.info->name, "arkvale");
  const auto params = preset.method->Params(false);
  EXPECT_EQ(params.at("variant"), "freekv");
  EXPECT_EQ(params.at("sink"), "512");
  EXPECT_EQ(params.at("window"), "256");
  EXPECT_EQ(preset.method->DenseLayers(), 1);
}

TEST(Methods, RefuseEveryBadValueOfEveryParameter) {
  for (const MethodInfo& info : Methods()) {
    for (const ParamSpec& spec : info.params) {
      std::vector<std::string> bad{"", " ", "nonsense", "1 2", "\xff\xfe"};
      const bool number =
          spec.type == ParamSpec::Type::kInteger || spec.type == ParamSpec::Type::kReal;
      if (number) {
        bad.insert(bad.end(), {"nan", "inf", "-inf", "1e999", "-1e300", "99999999999999999999",
                               "128GB", "2q", "0x10", "1,5", "+-1", WriteNumber(spec, spec.min - 1),
                               WriteNumber(spec, spec.max + 1)});
      }
      if (spec.type == ParamSpec::Type::kInteger) bad.insert(bad.end(), {"64.5", "1e-3"});
      if (spec.type == ParamSpec::Type::kFlag) bad.insert(bad.end(), {"2", "yes please"});
      for (const std::string& value : bad) {
        SCOPED_TRACE(info.name + " " + spec.name + "=" + value);
        const Error error = UsageErrorOf([&] { MakeMethod(info.name, {{spec.name, value}}); });
        EXPECT_NE(std::string(error.what()).find(spec.name), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Methods, UnknownNamesListTheKnownOnes) {
  Error error = UsageErrorOf([] { MakeMethod("frekv", {}); });
  EXPECT_NE(error.remedy().find("freekv"), std::string::npos);
  EXPECT_NE(error.remedy().find("arkvale-freekv"), std::string::npos);
  error = UsageErrorOf([] { MakeMethod("freekv", {{"taw", "0.8"}}); });
  EXPECT_NE(error.remedy().find("tau"), std::string::npos);
  UsageErrorOf([] { MakeMethod("full", {{"budget", "2048"}}); });
}

TEST(Methods, RefuseBudgetsThatCannotBe) {
  const struct {
    const char* method;
    ParamValues values;
    const char* says;
  } cases[] = {
      {"freekv", {{"budget", "1024"}}, "sink, window and one page"},
      {"freekv", {{"budget", "2000"}}, "whole number of 32-token pages"},
      {"freekv", {{"page", "48"}}, "whole number of 48-token pages"},
      {"freekv", {{"sink", "500"}}, "sink of 500"},
      {"freekv", {{"window", "511"}}, "window of 511"},
      {"arkvale", {{"budget", "128"}}, "sink, window and one page"},
      {"arkvale", {{"sink", "40"}}, "sink of 40"},
      {"arkvale", {{"topk", "65"}}, "top-k"},
      {"arkvale", {{"topk", "3"}}, "no page beside"},
      {"quest", {{"budget", "16"}}, "one to choose"},
      {"quest", {{"budget", "100"}}, "whole number of 16-token pages"},
      {"hisparse", {{"buffer", "1024"}}, "cannot hold the 2048"},
      {"hisparse", {{"buffer", "4100"}}, "whole number of 16-token pages"},
      {"hisparse", {{"budget", "16"}}, "one to choose"},
      {"snapkv", {{"budget", "32"}}, "the window and one token"},
      {"snapkv", {{"kernel", "4"}}, "no middle"},
      {"h2o", {{"recent", "2048"}}, "the recent tokens and one"},
      {"raas", {{"budget", "16"}}, "one to keep"},
      {"rkv", {{"window", "2048"}}, "the window and one token"},
      {"rkv", {{"kernel", "8"}}, "no middle"},
      {"retroinfer", {{"retrieval", "0.9"}}, "more than all clusters"},
      {"magicpig", {{"tables", "1"}}, "no token can meet"},
      {"pqcache", {{"cache", "1000"}}, "whole number of 128-token pages"},
      {"clusterkv", {{"budget", "16"}}, "the sink and one token"},
      {"sparq", {{"budget", "128"}}, "the window and one token"},
      {"twilight", {{"base", "100"}}, "whole number of 16-token pages"},
      {"streaming", {{"budget", "4"}}, "sink and one token"},
      {"prkv", {{"budget", "64"}}, "window and one page"},
      {"prkv", {{"budget", "1000"}}, "whole number of 32-token pages"},
      {"prkv", {{"window", "65"}}, "window of 65"},
      {"louiskv", {{"budget", "335"}}, "sink, window and one cluster"},
      {"louiskv", {{"cluster", "4096"}}, "sink, window and one cluster"},
      {"louiskv", {{"window", "2048"}}, "sink, window and one cluster"},
  };
  for (const auto& c : cases) {
    const Error error = UsageErrorOf([&] { MakeMethod(c.method, c.values); });
    EXPECT_NE(error.problem().find(c.says), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(MakeMethod("freekv", {{"budget", "1056"}}));
  EXPECT_NO_THROW(MakeMethod("arkvale", {{"topk", "4"}}));
  EXPECT_NO_THROW(MakeMethod("louiskv", {{"budget", "336"}, {"tau", "-1"}}));
}

TEST(Methods, RefuseToLeaveNoLayerToSelectIn) {
  llm::Model model;
  model.title = "tiny";
  model.layers = 6;
  for (const char* name :
       {"quest", "hisparse", "arkvale", "freekv", "louiskv", "prkv", "snapkv", "h2o", "raas", "rkv",
        "retroinfer", "pqcache", "magicpig", "clusterkv", "sparq", "twilight"}) {
    MakeMethod(name, {{"dense_layers", "5"}}).method->Check(model, 1000);
    UsageErrorOf([&] { MakeMethod(name, {{"dense_layers", "6"}}).method->Check(model, 1000); });
  }
}

TEST(Methods, PrkvNeedsAPromptAsLongAsItsWindow) {
  llm::Model model;
  model.layers = 6;
  const auto prkv = MakeMethod("prkv", {}).method;
  prkv->Check(model, 64);
  const Error error = UsageErrorOf([&] { prkv->Check(model, 63); });
  EXPECT_NE(error.problem().find("shorter than the observation window"), std::string::npos);
}

}  // namespace
}  // namespace stallcast::methods
