// Feeds the importers with files of any content; what they give must be timelines without a fault.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tests/traces/mutate_import.h"
#include "traces/common/error.h"
#include "traces/convert/import.h"

namespace {

using stallcast::traces::Import;
using stallcast::traces::ImportedTrace;
using stallcast::traces::ImportOptions;

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Three times in four a change that keeps the structure, else bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  if (seed % 4 != 0) {
    const std::string_view file(reinterpret_cast<const char*>(data), size);
    if (const std::optional<std::string> mutated =
            stallcast::traces::MutateImport(file, seed, most)) {
      std::memcpy(data, mutated->data(), mutated->size());
      return mutated->size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    ImportOptions options;
    if (size > 0 && data[size - 1] % 2 == 0) options.step_range = "aten::";
    const ImportedTrace imported = Import(std::as_bytes(std::span(data, size)), "fuzz", options);
    int64_t rows = 0;
    for (const auto& timeline : imported.trace.timelines) {
      Require(FirstFault(timeline).empty());
      rows += timeline.rows();
    }
    // A row of any format takes some bytes; of deflated ones, a thousandth.
    Require(rows <= static_cast<int64_t>(size) * 1100);
  } catch (const stallcast::Error&) {
    // Not a file of a known format.
  }
  return 0;
}
