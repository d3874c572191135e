#include "sim/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace stallcast::cli {
namespace {

// Up to the first full stop, on one line; ".kvt" does not end it.
std::string FirstSentence(const std::string& text) {
  std::string sentence = text.substr(0, text.find("\n\n"));
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  if (const size_t stop = sentence.find(". "); stop != std::string::npos) sentence.resize(stop + 1);
  return sentence;
}

// Types without their ranges, and one line a command: its examples are in its own help.
class Layout : public CLI::Formatter {
 public:
  Layout() { column_width(32); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    const bool command = app->get_parent() != nullptr;
    std::string usage = "\nUsage: " + (command ? app->get_parent()->get_name() + " " : "") + name;
    if (!command) return usage + " COMMAND [OPTIONS]\n";
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
    return fmt::format("  {:<10}{}\n", command->get_name(),
                       FirstSentence(command->get_description()));
  }

 private:
  static std::string Type(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
  }
};

}  // namespace

void UseHelpLayout(CLI::App& app) { app.formatter(std::make_shared<Layout>()); }

std::string HelpText(const CLI::App& app) {
  std::string text = app.help();
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace stallcast::cli
