#include "traces/convert/export.h"

namespace stallcast::traces {

void ExportPerfetto(const Timeline& timeline, const std::filesystem::path& path) {
  ExportPerfetto(std::span(&timeline, 1), path);
}

void ExportChromeJson(const Timeline& timeline, const std::filesystem::path& path) {
  ExportChromeJson(std::span(&timeline, 1), path);
}

void ExportCsv(const Timeline& timeline, const std::filesystem::path& path) {
  ExportCsv(std::span(&timeline, 1), path);
}

}  // namespace stallcast::traces
