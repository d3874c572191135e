#include "tests/traces/mutate_import.h"

#include <sqlite3.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "traces/convert/perfetto_subset.pb.h"

namespace stallcast::traces {
namespace {

using Json = nlohmann::ordered_json;
using Random = std::minstd_rand;

constexpr size_t kMostParsed = size_t{1} << 20;
constexpr int kDeepest = 64;

size_t Below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

int64_t InterestingNumber(Random& random) {
  constexpr int64_t kNumbers[] = {0,
                                  1,
                                  -1,
                                  7,
                                  255,
                                  65'535,
                                  4'294'967'295,
                                  2'147'483'647,
                                  -2'147'483'648,
                                  9'223'372'036'854'775'807,
                                  1'790'857'026'000'000'000,
                                  1'728'000'000'000'000};
  return kNumbers[Below(random, std::size(kNumbers))];
}

std::string InterestingText(Random& random) {
  constexpr const char* kTexts[] = {"",
                                    "step 3",
                                    "layer 99999",
                                    "kernel",
                                    "cuda_sync",
                                    "ProfilerStep#1",
                                    "B",
                                    "E",
                                    "b",
                                    "e",
                                    "X",
                                    "s",
                                    "f",
                                    "M",
                                    "-1",
                                    "1e300",
                                    "0.0001",
                                    "NaN",
                                    "stream 7",
                                    "GPU 0",
                                    "thread_name",
                                    "process_name",
                                    "imported",
                                    "host",
                                    "stream",
                                    "Memcpy HtoD",
                                    "nccl",
                                    "[TP01] 7",
                                    "execute_context_0(0)"};
  return kTexts[Below(random, std::size(kTexts))];
}

Json InterestingValue(Random& random) {
  switch (Below(random, 6)) {
    case 0:
      return InterestingNumber(random);
    case 1:
      return InterestingText(random);
    case 2:
      return static_cast<double>(InterestingNumber(random)) * 0.001;
    case 3:
      return nullptr;
    case 4:
      return Json::array({1, Json::object()});
    default:
      return Json{{"local", "0x1"}, {"op", 1}};
  }
}

// A value somewhere in a tree, the tree itself not; null: there is none.
Json* SomeValue(Json* root, Random& random) {
  Json* at = root;
  for (int depth = 0; depth < kDeepest; ++depth) {
    if (!at->is_structured() || at->empty()) return depth == 0 ? nullptr : at;
    if (depth > 0 && Below(random, 4) == 0) return at;
    auto child = at->begin();
    std::advance(child, static_cast<std::ptrdiff_t>(Below(random, at->size())));
    at = &*child;
  }
  return at;
}

void ChangeJson(Json* root, Random& random) {
  Json* events =
      root->is_object() && root->contains("traceEvents") ? &(*root)["traceEvents"] : root;
  if (events->is_array() && !events->empty() && Below(random, 3) == 0) {
    const size_t at = Below(random, events->size()), other = Below(random, events->size());
    switch (Below(random, 4)) {
      case 0:
        events->erase(events->begin() + static_cast<std::ptrdiff_t>(at));
        break;
      case 1:
        events->push_back(Json((*events)[at]));
        break;
      case 2:
        std::swap((*events)[at], (*events)[other]);
        break;
      default:  // one event with members of another
        if ((*events)[at].is_object() && (*events)[other].is_object()) {
          const Json from = (*events)[other];
          (*events)[at].update(from);
        }
    }
    return;
  }
  if (Json* value = SomeValue(root, random)) {
    if (value->is_object() && !value->empty() && Below(random, 2) == 0) {
      auto member = value->begin();
      std::advance(member, static_cast<std::ptrdiff_t>(Below(random, value->size())));
      value->erase(member);
    } else {
      *value = InterestingValue(random);
    }
  }
}

std::optional<std::string> MutateJson(std::string_view file, Random& random) {
  // Whoever nests deeper than this would take the stack of a parser that recurses.
  int depth = 0;
  for (const char c : file) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepest) return std::nullopt;
  }
  Json root = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return std::nullopt;
  const size_t changes = 1 + Below(random, 4);
  for (size_t i = 0; i < changes; ++i) ChangeJson(&root, random);
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Sqlite {
 public:
  Sqlite() { sqlite3_open(":memory:", &database_); }
  ~Sqlite() { sqlite3_close(database_); }
  Sqlite(const Sqlite&) = delete;
  Sqlite& operator=(const Sqlite&) = delete;

  bool Load(std::string_view file) {
    auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(file.size()));
    if (copy == nullptr) return false;
    std::memcpy(copy, file.data(), file.size());
    const auto size = static_cast<sqlite3_int64>(file.size());
    return sqlite3_deserialize(database_, "main", copy, size, size,
                               SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) ==
           SQLITE_OK;
  }
  void Do(const std::string& sql) {
    sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  }
  std::vector<std::string> Texts(const std::string& sql) {
    std::vector<std::string> texts;
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database_, sql.c_str(), -1, &statement, nullptr) == SQLITE_OK) {
      while (texts.size() < 256 && sqlite3_step(statement) == SQLITE_ROW) {
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
        if (text != nullptr) texts.emplace_back(text);
      }
    }
    sqlite3_finalize(statement);
    return texts;
  }
  std::optional<std::string> Save() {
    sqlite3_int64 size = 0;
    unsigned char* bytes = sqlite3_serialize(database_, "main", &size, 0);
    if (bytes == nullptr) return std::nullopt;
    std::string file(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    sqlite3_free(bytes);
    return file;
  }

 private:
  sqlite3* database_ = nullptr;
};

std::string Quoted(const std::string& text, char quote) {
  std::string quoted(1, quote);
  for (const char c : text) quoted += c == quote ? std::string(2, quote) : std::string(1, c);
  return quoted + quote;
}

std::optional<std::string> MutateSqlite(std::string_view file, Random& random) {
  Sqlite database;
  if (!database.Load(file)) return std::nullopt;
  const size_t changes = 1 + Below(random, 4);
  for (size_t i = 0; i < changes; ++i) {
    const auto tables = database.Texts("SELECT name FROM sqlite_master WHERE type = 'table'");
    if (tables.empty()) return std::nullopt;
    const std::string table = Quoted(tables[Below(random, tables.size())], '"');
    const auto columns = database.Texts("SELECT name FROM pragma_table_info(" +
                                        Quoted(table.substr(1, table.size() - 2), '\'') + ")");
    const std::string some = " WHERE rowid IN (SELECT rowid FROM " + table + " LIMIT 1 OFFSET " +
                             std::to_string(Below(random, 16)) + ")";
    switch (Below(random, 6)) {
      case 0:
        database.Do("DELETE FROM " + table + some);
        break;
      case 1:
        database.Do("INSERT INTO " + table + " SELECT * FROM " + table + " LIMIT 1 OFFSET " +
                    std::to_string(Below(random, 16)));
        break;
      case 2:
        database.Do("ALTER TABLE " + table + " RENAME TO " +
                    Quoted(table.substr(1, table.size() - 2) + "_V2", '"'));
        break;
      default:
        if (!columns.empty()) {
          const std::string value = Below(random, 3) == 0 ? Quoted(InterestingText(random), '\'')
                                    : Below(random, 8) == 0
                                        ? "NULL"
                                        : std::to_string(InterestingNumber(random));
          database.Do("UPDATE " + table + " SET " +
                      Quoted(columns[Below(random, columns.size())], '"') + " = " + value + some);
        }
    }
  }
  return database.Save();
}

void ChangePacket(perfetto::TracePacket* packet, Random& random) {
  const auto number = static_cast<uint64_t>(InterestingNumber(random));
  switch (Below(random, 9)) {
    case 0:
      packet->set_timestamp(number);
      break;
    case 1:
      packet->set_trusted_packet_sequence_id(static_cast<uint32_t>(number % 4));
      break;
    case 2:
      packet->set_sequence_flags(static_cast<uint32_t>(number % 4));
      break;
    case 3:
      packet->set_previous_packet_dropped(1);
      break;
    case 4:
      packet->mutable_track_event()->add_flow_ids(number % 4);
      break;
    case 5:
      packet->mutable_track_event()->set_type(
          static_cast<perfetto::TrackEvent::Type>(Below(random, 5)));
      packet->mutable_track_event()->set_track_uuid(number % 4);
      break;
    case 6: {
      auto* legacy = packet->mutable_track_event()->mutable_legacy_event();
      constexpr char kPhases[] = {'b', 'e', 'B', 'E', 'X', 'S', 'F', 'n'};
      legacy->set_phase(kPhases[Below(random, std::size(kPhases))]);
      legacy->set_global_id(number % 4);
      packet->mutable_track_event()->clear_type();
      break;
    }
    case 7:
      packet->mutable_track_descriptor()->set_parent_uuid(number % 4);
      packet->mutable_track_descriptor()->set_description("lane 0: stream, compute");
      break;
    default:
      packet->mutable_gpu_render_stage_event()->set_duration(number);
      packet->mutable_gpu_render_stage_event()->set_event_id(number % 4);
  }
}

std::optional<std::string> MutatePerfetto(std::string_view file, Random& random) {
  perfetto::Trace trace;
  if (!trace.ParseFromArray(file.data(), static_cast<int>(file.size()))) return std::nullopt;
  if (trace.packet_size() == 0) return std::nullopt;
  const size_t changes = 1 + Below(random, 4);
  for (size_t i = 0; i < changes && trace.packet_size() > 0; ++i) {
    const auto count = static_cast<size_t>(trace.packet_size());
    const auto at = static_cast<int>(Below(random, count));
    const auto other = static_cast<int>(Below(random, count));
    switch (Below(random, 5)) {
      case 0:
        trace.mutable_packet()->DeleteSubrange(at, 1);
        break;
      case 1:
        *trace.add_packet() = perfetto::TracePacket(trace.packet(at));
        break;
      case 2:
        trace.mutable_packet()->SwapElements(at, other);
        break;
      default:
        ChangePacket(trace.mutable_packet(at), random);
    }
  }
  return trace.SerializeAsString();
}

std::optional<std::string> Gunzip(std::string_view packed) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return std::nullopt;
  std::string bytes(kMostParsed, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  const int status = inflate(&stream, Z_FINISH);
  bytes.resize(bytes.size() - stream.avail_out);
  inflateEnd(&stream);
  return status == Z_STREAM_END ? std::optional(std::move(bytes)) : std::nullopt;
}

std::optional<std::string> Gzip(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  std::string packed(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int status = deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return status == Z_STREAM_END ? std::optional(std::move(packed)) : std::nullopt;
}

std::optional<std::string> MutatePlain(std::string_view file, Random& random) {
  if (file.empty()) return std::nullopt;
  if (file.starts_with("SQLite format 3")) return MutateSqlite(file, random);
  if (file[0] == '\x0a' && file.size() > 1) return MutatePerfetto(file, random);
  const size_t first = file.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (file[first] != '{' && file[first] != '[')) {
    return std::nullopt;
  }
  return MutateJson(file, random);
}

}  // namespace

std::optional<std::string> MutateImport(std::string_view file, uint32_t seed, size_t most) {
  if (file.size() > kMostParsed) return std::nullopt;
  Random random(seed);
  std::optional<std::string> mutated;
  if (file.starts_with("\x1f\x8b")) {
    const std::optional<std::string> plain = Gunzip(file);
    mutated = plain ? MutatePlain(*plain, random) : std::nullopt;
    if (mutated) mutated = Gzip(*mutated);
  } else {
    mutated = MutatePlain(file, random);
  }
  if (mutated && (mutated->size() > most || mutated->empty())) return std::nullopt;
  return mutated;
}

}  // namespace stallcast::traces
