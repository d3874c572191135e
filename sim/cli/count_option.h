// Options that take a whole number: "4", "2K", "1M".
#pragma once

#include <CLI/CLI.hpp>
#include <concepts>
#include <string>

namespace stallcast::cli {

/// `text` as ParseCount() reads it, within [least, most]; anything else: usage Error that names
/// `option`.
int64_t CountGiven(const std::string& text, const std::string& option, int64_t least, int64_t most);

/// Adds an option whose value goes to `value`.
template <std::integral T>
CLI::Option* AddCount(CLI::App& command, const std::string& name, T& value, const std::string& help,
                      int64_t least, int64_t most) {
  return command
      .add_option_function<std::string>(
          name,
          [&value, name, least, most](const std::string& text) {
            value = static_cast<T>(CountGiven(text, name, least, most));
          },
          help)
      ->type_name("N");
}

}  // namespace stallcast::cli
