// stallcast completion
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "models/papers/paper.h"
#include "sim/cli/commands.h"
#include "sim/cli/help.h"
#include "sim/cli/output.h"
#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/samples.h"

namespace stallcast::cli {
namespace {

// What an option or a positional takes: words that are known, else files.
std::vector<std::string> ValuesOf(const std::string& option) {
  static const std::map<std::string, std::vector<std::string>> values = [] {
    std::vector<std::string> methods = sim::MethodNames(), papers, samples;
    for (const papers::Paper& paper : papers::ShippedPapers()) papers.push_back(paper.name);
    for (const traces::Sample& sample : traces::Samples()) {
      samples.push_back(fmt::format("sample:{}", sample.name));
    }
    std::map<std::string, std::vector<std::string>> known = {
        {"--parameters", methods},
        {"--model", llm::ModelNames()},
        {"--machine", hardware::ProfileNames()},
        {"--base", hardware::ProfileNames()},
        {"--from", hardware::ProfileNames()},
        {"--paper", papers},
        {"--format", {"table", "json", "csv"}},
        {"--by", {"kind", "role", "layer"}},
        {"--as", {"pftrace", "json", "csv", "kvt"}},
        {"--objective", {"tokens/s", "step", "cost"}},
        {"--sort", {"time", "tokens", "mass", "gpu", "host", "exposed", "recall", "prefill"}},
        {"trace", samples}};
    methods.emplace_back("all");
    known["--method"] = methods;
    return known;
  }();
  const auto found = values.find(option);
  return found == values.end() ? std::vector<std::string>{} : found->second;
}

// The longest name, by which ValuesOf() knows it.
std::string NameOf(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  const std::vector<std::string>& names = option.get_lnames();
  return names.empty() ? "-" + option.get_snames().front() : "--" + names.front();
}

std::vector<std::string> AllNames(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command);
  return commands;
}

// A case of each option that takes a value, then the options and what stands alone.
std::string BashCommand(const CLI::App& command) {
  std::string text = fmt::format("    {})\n      case \"$previous\" in\n", command.get_name());
  std::vector<std::string> options;
  std::string positional;
  for (const CLI::Option* option : command.get_options({})) {
    const std::vector<std::string> names = AllNames(*option);
    if (option->get_positional()) {
      const std::vector<std::string> words = ValuesOf(NameOf(*option));
      if (positional.empty()) positional = fmt::format("{}", fmt::join(words, " "));
      continue;
    }
    options.insert(options.end(), names.begin(), names.end());
    if (!TakesValue(*option)) continue;
    text += fmt::format("        {}) _stallcast_values \"{}\"; return ;;\n", fmt::join(names, "|"),
                        fmt::join(ValuesOf(NameOf(*option)), " "));
  }
  for (const CLI::App* nested : CommandsOf(command)) {
    positional += (positional.empty() ? "" : " ") + nested->get_name();
  }
  return text + fmt::format("      esac\n      _stallcast_words \"{}\" \"{}\" ;;\n",
                            fmt::join(options, " "), positional);
}

std::string Bash(const CLI::App& app) {
  std::string text = R"(# Completion of stallcast for bash: source <(stallcast completion bash)
# Words of the list given that begin with what was typed after the last comma, else files. What
# readline takes for a word of its own, behind a colon, is what it wants back.
_stallcast_values() {
  local begun="" last=$typed
  [[ $typed == *,* ]] && begun=${typed%,*}, && last=${typed##*,}
  if [[ -n $1 ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$begun" -W "$1" -- "$last")
  fi
  if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$typed")
  fi
  if [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${typed%:*}:"}")
  fi
}

_stallcast_words() {
  if [[ $typed == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$typed")
  else
    _stallcast_values "$2"
  fi
}

_stallcast() {
  local line=${COMP_LINE:0:COMP_POINT}
  local typed=${line##* } rest command previous
  rest=${line% *}
  previous=${rest##* }
  read -r _ command _ <<< "$line"
  COMPREPLY=()
  case "$command" in
)";
  for (const CLI::App* command : CommandsOf(app)) text += BashCommand(*command);
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  return text + fmt::format(
                    "    *) mapfile -t COMPREPLY < <(compgen -W \"{} --help --version\" -- "
                    "\"$typed\") ;;\n  esac\n}}\ncomplete -F _stallcast stallcast\n",
                    fmt::join(names, " "));
}

// Inside single quotes and brackets of an _arguments specification.
std::string ZshText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string ZshAction(const CLI::Option& option) {
  const std::vector<std::string> words = ValuesOf(NameOf(option));
  const std::string type =
      ZshText(option.get_type_name().empty() ? "VALUE" : option.get_type_name());
  if (words.empty()) return fmt::format(":{}:_files", type);
  std::vector<std::string> escaped;
  for (const std::string& word : words) escaped.push_back(ZshText(word));
  // A trace may also be a file.
  if (option.get_positional()) {
    return fmt::format(":{0}:_alternative \"words\\:{0}\\:({1})\" \"files\\:file\\:_files\"", type,
                       fmt::join(words, " "));
  }
  return fmt::format(":{}:_values -s , {} {}", type, type, fmt::join(escaped, " "));
}

std::string Zsh(const CLI::App& app) {
  std::string text =
      "#compdef stallcast\n"
      "# Completion of stallcast for zsh: stallcast completion zsh > ~/.zfunc/_stallcast\n"
      "_stallcast() {\n  local -a commands=(\n";
  for (const CLI::App* command : CommandsOf(app)) {
    text += fmt::format("    '{}:{}'\n", command->get_name(),
                        ZshText(FirstSentence(command->get_description())));
  }
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CLI::App* command : CommandsOf(app)) {
    text += fmt::format("    {})\n      _arguments", command->get_name());
    for (const CLI::Option* option : command->get_options({})) {
      if (option->get_positional()) {
        text += fmt::format(" \\\n        ':{}'", ZshAction(*option).substr(1));
        continue;
      }
      for (const std::string& name : AllNames(*option)) {
        text += fmt::format(" \\\n        '*{}[{}]{}'", name, ZshText(option->get_description()),
                            TakesValue(*option) ? ZshAction(*option) : "");
      }
    }
    text += "\n      ;;\n";
  }
  return text + "  esac\n}\n_stallcast \"$@\"\n";
}

}  // namespace

void AddCompletion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* sub = app.add_subcommand("completion", "Print completion for bash or zsh");
  sub->description(R"(Prints what makes a shell complete commands, options and names.

Examples:
  source <(stallcast completion bash)
      for this shell; in ~/.bashrc for all
  stallcast completion zsh > ~/.zfunc/_stallcast
      with fpath+=(~/.zfunc) before compinit in ~/.zshrc)");
  sub->add_option("shell", *shell, "bash or zsh")->required()->type_name("SHELL");
  sub->callback([&app, shell] {
    if (*shell != "bash" && *shell != "zsh") {
      throw UsageError("there is no completion for '" + *shell + "'", "completion",
                       "choose bash or zsh");
    }
    Print(*shell == "bash" ? Bash(app) : Zsh(app));
  });
}

}  // namespace stallcast::cli
