// A locale that writes one half as 0,5, as toolkits of desktop programs set the user's.
#pragma once

#include <clocale>
#include <string>

namespace stallcast {

/// In force for its lifetime, where such a locale is installed.
class CommaLocale {
 public:
  CommaLocale() {
    for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "ru_RU.UTF-8"}) {
      if (std::setlocale(LC_NUMERIC, name) != nullptr) return;
    }
  }
  ~CommaLocale() { std::setlocale(LC_NUMERIC, before_.c_str()); }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

  bool found() const { return *std::localeconv()->decimal_point == ','; }

 private:
  std::string before_ = std::setlocale(LC_NUMERIC, nullptr);
};

}  // namespace stallcast
