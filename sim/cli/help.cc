#include "sim/cli/help.h"

#include <algorithm>
#include <memory>

#include "sim/cli/screen.h"

namespace stallcast::cli {
namespace {

constexpr size_t kColumn = 30;      // where descriptions begin
constexpr size_t kMostWidth = 100;  // longer lines of prose are hard to read

// `left`, and from a column on `right` in as many lines as it takes.
std::string Row(const std::string& left, const std::string& right, size_t column) {
  // On a narrow screen what is told stands below.
  if (HelpWidth() < 2 * column) column = 6;
  const std::string text = "  " + left;
  const std::string indent(column, ' ');
  std::string lines = Wrap(right, HelpWidth() - column), row = text;
  row += text.size() + 2 > column ? "\n" + indent : std::string(column - text.size(), ' ');
  for (const char c : lines) {
    row += c;
    if (c == '\n') row += indent;
  }
  row.erase(row.find_last_not_of(" \n") + 1);
  return row + "\n";
}

// Types without their ranges, and one line a command: its examples are in its own help.
class Layout : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return Reflow(app->get_description(), HelpWidth());
  }

  std::string make_footer(const CLI::App* app) const override {
    return app->get_footer().empty() ? "" : "\n" + Reflow(app->get_footer(), HelpWidth());
  }

  std::string make_option(const CLI::Option* option, bool positional) const override {
    return Row(make_option_name(option, positional) + make_option_opts(option),
               make_option_desc(option), kColumn);
  }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    for (const CLI::App* of = app->get_parent(); of != nullptr; of = of->get_parent()) {
      name = of->get_name() + " " + name;
    }
    std::string usage = "\nUsage: " + name;
    if (!app->get_subcommands({}).empty()) return usage + " COMMAND [OPTIONS]\n";
    for (const CLI::Option* option :
         app->get_options([](const CLI::Option* o) { return o->get_positional(); })) {
      const std::string type = Type(*option);
      usage += option->get_required() ? " " + type : " [" + type + "]";
    }
    return usage + " [OPTIONS]\n";
  }

  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return positional ? Type(*option) : option->get_name(false, true);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_positional()) return "";
    std::string text = " " + Type(*option);
    if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
    return text;
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return Row(command->get_name(), FirstSentence(command->get_description()), 14);
  }

 private:
  static std::string Type(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
  }
};

}  // namespace

size_t HelpWidth() { return std::min(OutputScreen().width, kMostWidth); }

std::string FirstSentence(const std::string& text) {
  std::string sentence = text.substr(0, text.find("\n\n"));
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  if (const size_t stop = sentence.find(". "); stop != std::string::npos) sentence.resize(stop + 1);
  return sentence;
}

void UseHelpLayout(CLI::App& app) { app.formatter(std::make_shared<Layout>()); }

std::string HelpText(const CLI::App& app) {
  std::string text = app.help();
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace stallcast::cli
