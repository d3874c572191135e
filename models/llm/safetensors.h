// Reads weights from a safetensors file: a JSON header of names, types and offsets, then raw data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace stallcast::llm {

/// A tensor widened to float.
struct WeightTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// The tensors of a file; those of type BF16, F16 and F32 can be read. Anything that does not
/// add up (sizes, offsets, types) is an Error naming the file and the tensor.
class SafeTensors {
 public:
  explicit SafeTensors(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const;
  WeightTensor Read(const std::string& name) const;

 private:
  struct Entry {
    std::string type;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // in the file
  };
  std::filesystem::path path_;
  std::map<std::string, Entry> entries_;
};

}  // namespace stallcast::llm
