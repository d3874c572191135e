#include "traces/convert/categories.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <map>
#include <string>

namespace stallcast::traces::convert {
namespace {

using Table = std::map<std::string, Category, std::less<>>;

Table MakeTable() {
  Table table;
  const auto add = [&](std::initializer_list<const char*> names, Category category) {
    for (const char* name : names) table[name] = category;
  };
  add({"kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset",
       "kernel_dispatch", "memory_copy", "mtia_ccp_events", "hpu_op", "gpu_op"},
      {SliceKind::kRun, Role::kOther, false});
  add({"cuda_runtime", "cuda_driver", "runtime", "driver", "mtia_runtime", "xpu_runtime",
       "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "glow_runtime", "hip_runtime",
       "hip_api", "hip_runtime_api", "cuda_api"},
      {SliceKind::kCall, Role::kHost, true});
  add({"cpu_op", "operator", "python_function", "cpu_instant_event"},
      {SliceKind::kPlain, Role::kHost, true});
  add({"user_annotation"}, {SliceKind::kRange, Role::kOther, true});
  add({"gpu_user_annotation"}, {SliceKind::kRunRange, Role::kOther, false});
  add({"cuda_sync"}, {SliceKind::kRunRange, Role::kSync, false});
  for (int role = 0; role < kRoles; ++role) {
    const auto value = static_cast<Role>(role);
    table[std::string(Name(value))] = {SliceKind::kPlain, value, false};
  }
  return table;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool HasAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace

const Category* FindCategory(std::string_view name) {
  static const Table table = MakeTable();
  auto known = table.find(name);
  if (known == table.end()) known = table.find(Lower(name));
  return known == table.end() ? nullptr : &known->second;
}

bool NamesStream(std::string_view process, std::string_view thread) {
  const std::string of = Lower(process), name = Lower(thread);
  const bool device = HasAny(of, {"gpu", "npu", "ascend", "device", "tpu", "mtia", "xpu", "hip"});
  if (name.empty()) {  // rpd names the process alone
    return of.starts_with("gpu") && of.find_first_of("0123456789") != std::string::npos;
  }
  if (HasAny(name, {"annotation", "module", "steps", "framework", "source"})) return false;
  const bool stream = HasAny(name, {"stream", "queue"});
  const bool numbered =
      name.starts_with("stream") && name.find_first_of("0123456789") != std::string::npos;
  return (device && stream) || numbered;
}

}  // namespace stallcast::traces::convert
