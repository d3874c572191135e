// Changes to files of other programs that keep their structure: what is damaged is a value, a row
// or a field, not the syntax, so that what is behind the parsers is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stallcast::traces {

/// `file` with one to four changes that the seed chooses, or nothing where it is of no format that
/// is known or would be longer than `most`. JSON: values, members and events; SQLite: cells, rows
/// and the names of tables; Perfetto: fields of packets. Gzip: what is in it.
std::optional<std::string> MutateImport(std::string_view file, uint32_t seed, size_t most);

}  // namespace stallcast::traces
