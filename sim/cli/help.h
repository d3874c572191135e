// How help is laid out.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace stallcast::cli {

/// Gives `app` and the commands added to it later the layout of HelpText().
void UseHelpLayout(CLI::App& app);

/// The help of the program or of one command: a sentence, examples, usage, options by group.
std::string HelpText(const CLI::App& app);

/// Characters a line of help: those of the screen, unless that is very wide.
size_t HelpWidth();

/// Up to the first full stop and blank, on one line: ".kvt" does not end it.
std::string FirstSentence(const std::string& text);

/// Text up to the end of its first line.
std::string FirstLine(const std::string& text);

}  // namespace stallcast::cli
