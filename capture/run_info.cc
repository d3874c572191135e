#include "capture/run_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

namespace stallcast::capture {
namespace {

// The rest of the first line that begins with `key`, after colon and blanks.
std::string Field(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t:", key.size());
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  ...": the word that is a version.
std::string DriverVersion() {
  std::istringstream words(Field("/proc/driver/nvidia/version", "NVRM version"));
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789.") == std::string::npos &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

// Of the first GPU.
std::string GpuModel() {
  std::error_code error;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    return Field((gpu.path() / "information").c_str(), "Model");
  }
  return "";
}

}  // namespace

std::string CommandLine() {
  std::ifstream in("/proc/self/cmdline");
  std::string command;
  for (std::string word; std::getline(in, word, '\0');) {
    if (word.starts_with('/')) word = std::filesystem::path(word).filename().string();
    command += (command.empty() ? "" : " ") + word;
  }
  // It goes into one line of text that must be UTF-8, and an argument may be a whole program.
  constexpr size_t kLongest = 100;
  if (command.size() > kLongest) command.replace(kLongest, std::string::npos, "...");
  for (char& c : command) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = ' ';
  }
  return command;
}

traces::proto::TraceInfo RunInfo() {
  traces::proto::TraceInfo info;
  const std::string processor =
      fmt::format("{}, {} processors", Field("/proc/cpuinfo", "model name"),
                  std::thread::hardware_concurrency());
  const std::string gpu = GpuModel();
  info.set_machine(gpu.empty() ? processor : gpu + "; " + processor);
  info.set_created(fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()))));
  info.set_provenance("recorded while it ran: " + CommandLine());
  if (const std::string driver = DriverVersion(); !driver.empty()) {
    (*info.mutable_software())["driver"] = driver;
  }
  return info;
}

}  // namespace stallcast::capture
