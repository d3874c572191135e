#include "models/llm/safetensors.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "traces/common/error.h"
#include "traces/tensor.h"

namespace stallcast::llm {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;  // as the format's own readers have it
constexpr char kRemedy[] = "is this a whole safetensors file?";

int64_t ElementBytes(const std::string& type) {
  return type == "F32" ? 4 : type == "BF16" || type == "F16" ? 2 : 0;
}

}  // namespace

SafeTensors::SafeTensors(std::filesystem::path path) : path_(std::move(path)) {
  const auto fail = [this](const std::string& what) { throw Error(what, path_.string(), kRemedy); };
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path_, error));
  if (error) throw Error("cannot read: " + error.message(), path_.string(), "check the path");
  std::ifstream file(path_, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  if (!file || header_bytes > kMaxHeader ||
      static_cast<int64_t>(header_bytes) > file_bytes - int64_t{sizeof(header_bytes)}) {
    fail("the header does not fit the file");
  }
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  const int64_t data = static_cast<int64_t>(sizeof(header_bytes) + header_bytes);
  const Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file || !header.is_object()) fail("the header is not JSON");
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      Entry entry{.type = value.at("dtype").get<std::string>(),
                  .shape = value.at("shape").get<std::vector<int64_t>>()};
      const auto offsets = value.at("data_offsets").get<std::vector<int64_t>>();
      if (offsets.size() != 2 || offsets[0] < 0 || offsets[1] < offsets[0] ||
          offsets[1] > file_bytes - data) {
        fail(fmt::format("tensor {} lies outside the file", name));
      }
      entry.begin = data + offsets[0];
      entry.end = data + offsets[1];
      entries_.emplace(name, std::move(entry));
    } catch (const Json::exception&) {
      fail(fmt::format("tensor {} lacks its type, shape or offsets", name));
    }
  }
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

WeightTensor SafeTensors::Read(const std::string& name) const {
  const std::string where = fmt::format("{}, tensor {}", path_.string(), name);
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error("there is no such tensor", where, kRemedy);
  const Entry& entry = found->second;
  const int64_t bytes = ElementBytes(entry.type);
  if (bytes == 0) {
    throw Error(fmt::format("its type is {}", entry.type), where, "store BF16, F16 or F32");
  }
  const int64_t most = (entry.end - entry.begin) / bytes;
  int64_t elements = 1;
  for (const int64_t extent : entry.shape) {
    if (extent < 0 || (extent > 0 && elements > most / extent)) {
      throw Error("its shape is larger than its data", where, kRemedy);
    }
    elements *= extent;
  }
  if (elements * bytes != entry.end - entry.begin) {
    throw Error("its shape and its data differ in size", where, kRemedy);
  }
  std::vector<char> raw(static_cast<size_t>(elements * bytes));
  std::ifstream file(path_, std::ios::binary);
  file.seekg(entry.begin);
  file.read(raw.data(), static_cast<std::streamsize>(raw.size()));
  if (!file) throw Error("cannot read its data", where, kRemedy);
  WeightTensor tensor{entry.shape, std::vector<float>(static_cast<size_t>(elements))};
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    if (bytes == 4) {
      std::memcpy(&tensor.values[i], raw.data() + 4 * i, 4);
      continue;
    }
    uint16_t bits;
    std::memcpy(&bits, raw.data() + 2 * i, 2);
    tensor.values[i] = entry.type == "F16" ? traces::FromFp16(bits) : traces::FromBf16(bits);
  }
  return tensor;
}

}  // namespace stallcast::llm
