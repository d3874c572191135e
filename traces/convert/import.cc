#include "traces/convert/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <vector>

#include "traces/common/error.h"
#include "traces/convert/importers.h"
#include "traces/convert/input.h"
#include "traces/format/chunk.h"
#include "traces/format/source.h"

namespace stallcast::traces {
namespace {

constexpr int64_t kPeek = 512;  // a tar archive says so at byte 257

// The first bytes, decompressed.
std::string Beginning(const format::Source& source) {
  std::vector<std::byte> scratch;
  const std::span<const std::byte> bytes = source.Read(0, kPeek, &scratch);
  if (!convert::IsGzip(bytes)) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string begin(kPeek, '\0');
  begin.resize(convert::OpenInput(source)->Read(begin));
  return begin;
}

bool IsTrace(std::string_view begin) {
  return format::HasFileMagic(std::as_bytes(std::span(begin.data(), begin.size())));
}

// A packet: field 1, of a length.
bool BeginsAsPerfetto(std::string_view begin) { return begin.starts_with('\x0a'); }

// Refuses what is a trace only once it is unpacked or converted, by its true name.
void RefuseWrapped(std::string_view begin, bool gzip, const std::string& name) {
  using namespace std::string_view_literals;
  struct Wrapping {
    std::string_view magic, what, remedy;
  };
  constexpr Wrapping kWrappings[] = {
      {"PK\x03\x04"sv, "is a ZIP archive", "unzip it first"},
      {"PK\x05\x06"sv, "is an empty ZIP archive", "give the trace itself"},
      {"7z\xbc\xaf\x27\x1c"sv, "is a 7z archive", "unpack it first: 7z x"},
      {"\xfd"
       "7zXZ\0"sv,
       "is compressed by xz", "unpack it first: xz -d"},
      {"BZh"sv, "is compressed by bzip2", "unpack it first: bunzip2"},
      {"\x28\xb5\x2f\xfd"sv, "is compressed by zstd", "unpack it first: zstd -d"},
      {"\x04\x22\x4d\x18"sv, "is compressed by lz4", "unpack it first: lz4 -d"},
      {"Rar!"sv, "is a RAR archive", "unpack it first: unrar x"},
      {"\xff\xfe"sv, "is text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
      {"\xfe\xff"sv, "is text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
      {"{\0"sv, "is text in UTF-16", "convert it: iconv -f UTF-16LE -t UTF-8"},
      {"[\0"sv, "is text in UTF-16", "convert it: iconv -f UTF-16LE -t UTF-8"},
      {"\0{"sv, "is text in UTF-16", "convert it: iconv -f UTF-16BE -t UTF-8"},
      {"\0["sv, "is text in UTF-16", "convert it: iconv -f UTF-16BE -t UTF-8"},
  };
  for (const Wrapping& of : kWrappings) {
    if (begin.starts_with(of.magic)) {
      throw Error(std::string(of.what), name, std::string(of.remedy));
    }
  }
  constexpr size_t kTarMagic = 257;
  if (begin.size() > kTarMagic && begin.substr(kTarMagic).starts_with("ustar")) {
    throw Error("is a tar archive", name, "unpack it first: tar xf");
  }
  if (gzip && begin.starts_with("SQLite format 3\0"sv)) {
    throw Error("is a compressed SQLite file", name, "unpack it first: gunzip");
  }
  if (gzip && IsTrace(begin)) {
    throw Error("is a compressed .kvt", name, "unpack it first: gunzip");
  }
}

FileFormat Recognise(const format::Source& source, const std::string& name) {
  using namespace std::string_view_literals;
  const std::string bytes = Beginning(source);
  std::string_view begin = bytes;
  std::vector<std::byte> scratch;
  RefuseWrapped(begin, convert::IsGzip(source.Read(0, kPeek, &scratch)), name);
  if (begin.starts_with("SQLite format 3\0"sv)) return FileFormat::kNsightSqlite;
  if (BeginsAsPerfetto(begin)) {
    // A line feed, too, may begin JSON: a packet's second byte is its length, its third a tag.
    const size_t first = begin.find_first_not_of(" \t\r\n");
    const bool json =
        first != std::string_view::npos && (begin[first] == '{' || begin[first] == '[');
    if (!json) return FileFormat::kPerfetto;
  }
  if (begin.starts_with("\xef\xbb\xbf")) begin.remove_prefix(3);
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  if (begin.starts_with('{') || begin.starts_with('[')) return FileFormat::kChromeJson;
  if (name.ends_with(".nsys-rep") || name.ends_with(".qdrep")) {
    throw Error("is a report of Nsight Systems that only its own programs read", name,
                "export it: nsys export --type sqlite");
  }
  return FileFormat::kTrace;
}

ImportedTrace Import(const format::Source& source, const std::string& name,
                     const ImportOptions& options,
                     const std::function<Trace(ReadReport*)>& read_trace,
                     const std::function<convert::Database()>& open_database) {
  ImportedTrace imported;
  imported.format = Recognise(source, name);
  switch (imported.format) {
    case FileFormat::kTrace:
      try {
        imported.trace = read_trace(&imported.report);
      } catch (const Error& error) {
        // What does not begin as a .kvt may be meant as a file of another program.
        std::vector<std::byte> scratch;
        if (format::HasFileMagic(source.Read(0, kPeek, &scratch))) throw;
        throw Error(error.problem(), error.where(), convert::kFormatsRead);
      }
      return imported;
    case FileFormat::kChromeJson:
      convert::ImportChromeJson(convert::OpenInput(source).get(), name, options, &imported.trace,
                                &imported.report);
      break;
    case FileFormat::kPerfetto:
      convert::ImportPerfetto(convert::OpenInput(source).get(), name, options, &imported.trace,
                              &imported.report);
      break;
    case FileFormat::kNsightSqlite: {
      convert::Database database = open_database();
      convert::ImportNsight(&database, name, options, &imported.trace, &imported.report);
      break;
    }
  }
  for (Timeline& timeline : imported.trace.timelines) {
    // What is wrong with the file qualifies what is drawn from it.
    const std::vector<std::string>& problems = imported.report.problems;
    timeline.notes.insert(timeline.notes.end(), problems.begin(), problems.end());
  }
  if (options.strict && !imported.report.problems.empty()) {
    throw Error(fmt::format("{}", fmt::join(imported.report.problems, "; ")), name,
                "leave out --strict to use what is intact");
  }
  return imported;
}

}  // namespace

std::string_view Name(FileFormat format) {
  switch (format) {
    case FileFormat::kTrace:
      return "stallcast trace";
    case FileFormat::kChromeJson:
      return "Chrome JSON";
    case FileFormat::kPerfetto:
      return "Perfetto";
    case FileFormat::kNsightSqlite:
      return "Nsight Systems SQLite";
  }
  return "unknown";
}

ImportedTrace Import(const std::filesystem::path& path, const ImportOptions& options) {
  const std::unique_ptr<format::Source> source = format::OpenFile(path);
  return Import(
      *source, path.string(), options,
      [&](ReadReport* report) { return ReadTrace(path, options, report); },
      [&] { return convert::Database(path); });
}

ImportedTrace Import(std::span<const std::byte> file, const std::string& name,
                     const ImportOptions& options) {
  const std::unique_ptr<format::Source> source = format::InMemory(file);
  return Import(
      *source, name, options,
      [&](ReadReport* report) { return ReadTrace(file, name, options, report); },
      [&] { return convert::Database(file, name); });
}

namespace convert {

std::string StreamName(int64_t device, int64_t stream) {
  return fmt::format("GPU {} stream {}", device, stream);
}

int64_t StreamOrder(int64_t device, int64_t stream) {
  constexpr int64_t kBehindThreads = int64_t{1} << 62;
  constexpr int64_t kMost = (int64_t{1} << 20) - 1;
  return kBehindThreads + (std::clamp<int64_t>(device, 0, kMost) << 20) +
         std::clamp<int64_t>(stream, 0, kMost);
}

std::string MachineOf(const std::map<std::string, int>& devices) {
  std::string machine;
  for (const auto& [name, count] : devices) {
    machine += (machine.empty() ? "" : ", ") + (count > 1 ? std::to_string(count) + " x " : "");
    machine += name;
  }
  return machine;
}

std::string Counted(int64_t count, const std::string& what) {
  const bool hiss = what.ends_with('h') || what.ends_with('s');
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : hiss ? "es" : "s");
}

}  // namespace convert
}  // namespace stallcast::traces
