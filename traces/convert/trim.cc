#include "traces/convert/trim.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "traces/common/error.h"

namespace stallcast::traces {
namespace {

bool Contains(const auto& values, auto value) {
  return std::ranges::find(values, value) != values.end();
}

// KV heads of a layer, by its keys or values; 0 where it has neither.
int KvHeads(const Trace& outline, int layer) {
  for (const TensorKind kind : {TensorKind::kKey, TensorKind::kValue}) {
    if (const Tensor* tensor = outline.Find(kind, layer)) return tensor->spec.heads;
  }
  return 0;
}

int64_t DecodeSteps(const Trace& outline) {
  if (outline.info.decode_steps() > 0) return outline.info.decode_steps();
  int64_t end = 0;
  for (const Tensor& tensor : outline.tensors) {
    if (tensor.spec.kind == TensorKind::kQuery) end = std::max(end, tensor.spec.end_token());
  }
  return end - outline.info.prompt_tokens();
}

void CheckAtMost(int64_t asked, int64_t there, const std::string& where, const char* option,
                 const char* of_what) {
  if (asked <= there) return;
  throw UsageError(fmt::format("the trace has {} {}", there, of_what), where,
                   fmt::format("use {} {} at most", option, there));
}

}  // namespace

proto::TraceInfo TrimmedInfo(const Trace& outline, const TrimSpec& spec, const std::string& where) {
  proto::TraceInfo info = outline.info;
  const std::vector<int> layers = outline.Layers();
  const int64_t steps = DecodeSteps(outline);
  if (layers.empty()) {
    throw Error("no layer has both queries and keys", where, "trim a trace with captured tensors");
  }
  if (info.prompt_tokens() < 1 || steps < 1) {
    throw Error("the trace does not say where its prompt ends and decoding begins", where,
                "trim a capture that was closed in order");
  }
  std::vector<std::string> cuts;
  for (const int layer : spec.layers) {
    if (Contains(layers, layer)) continue;
    throw UsageError(fmt::format("the trace has no layer {}", layer), where,
                     fmt::format("choose of {}", fmt::join(layers, ", ")));
  }
  if (!spec.layers.empty()) {
    cuts.push_back(
        fmt::format("layers {} of {}", fmt::join(spec.layers, ", "), fmt::join(layers, ", ")));
  }
  if (!spec.kv_heads.empty()) {
    for (const int layer : layers) {
      if (!spec.layers.empty() && !Contains(spec.layers, layer)) continue;
      const int heads = KvHeads(outline, layer);
      for (const int head : spec.kv_heads) {
        if (head >= 0 && head < heads) continue;
        throw UsageError(fmt::format("layer {} has no KV head {}", layer, head), where,
                         fmt::format("choose of 0 to {}", heads - 1));
      }
    }
    cuts.push_back(fmt::format("KV heads {}", fmt::join(spec.kv_heads, ", ")));
  }
  if (!spec.values) cuts.push_back("no values");
  CheckAtMost(spec.prompt_tokens, info.prompt_tokens(), where, "--prompt", "prompt tokens");
  CheckAtMost(spec.steps, steps, where, "--steps", "decode steps");
  if (spec.prompt_tokens > 0 && spec.prompt_tokens < info.prompt_tokens()) {
    cuts.push_back(fmt::format("the last {} of {} prompt tokens, without the sinks at its start",
                               spec.prompt_tokens, info.prompt_tokens()));
    info.set_prompt_tokens(spec.prompt_tokens);
  }
  info.set_decode_steps(spec.steps > 0 ? spec.steps : steps);
  if (info.decode_steps() < steps) {
    cuts.push_back(fmt::format("the first {} of {} decode steps", info.decode_steps(), steps));
  }
  if (!cuts.empty()) info.add_notes(fmt::format("trimmed: {}", fmt::join(cuts, "; ")));
  return info;
}

Tensor Trimmed(const Tensor& tensor, const TrimSpec& spec, const proto::TraceInfo& whole,
               int kv_heads) {
  Tensor out;
  out.spec = tensor.spec;
  const int64_t dropped =
      spec.prompt_tokens > 0 ? whole.prompt_tokens() - spec.prompt_tokens : int64_t{0};
  const int64_t begin = std::max(tensor.spec.first_token, dropped);
  const int64_t end = spec.steps > 0
                          ? std::min(tensor.spec.end_token(), whole.prompt_tokens() + spec.steps)
                          : tensor.spec.end_token();
  out.spec.first_token = begin - dropped;
  out.spec.tokens = std::max<int64_t>(end - begin, 0);
  // Of queries, and gates that are theirs, a group belongs to a KV head.
  const int group = kv_heads > 0 ? std::max(tensor.spec.heads / kv_heads, 1) : 1;
  std::vector<int> heads;
  for (int head = 0; head < tensor.spec.heads; ++head) {
    if (spec.kv_heads.empty() || Contains(spec.kv_heads, head / group)) heads.push_back(head);
  }
  out.spec.heads = static_cast<int32_t>(heads.size());
  if (out.spec.tokens == 0 || heads.empty()) return out;
  out.data.reserve(static_cast<size_t>(out.spec.bytes()));
  for (const int head : heads) {
    const auto rows = tensor.Rows(head, begin, out.spec.tokens);
    out.data.insert(out.data.end(), rows.begin(), rows.end());
  }
  return out;
}

std::vector<std::string> Trim(const std::filesystem::path& in, const TrimSpec& spec,
                              const std::filesystem::path& out,
                              const std::function<void(double share)>& progress) {
  ReadReport report;
  Trace outline = ReadTrace(in, {.tensors = false}, &report);
  for (const TensorSpec& tensor : report.tensors) outline.tensors.push_back({tensor, {}});
  const proto::TraceInfo info = TrimmedInfo(outline, spec, in.string());
  TraceWriter writer(out, info);
  std::vector<std::string> problems = report.problems;
  const std::vector<int> layers = spec.layers.empty() ? outline.Layers() : spec.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    ReadReport of_layer;
    const Trace part = ReadTrace(in, {.layers = {layers[i]}}, &of_layer);
    for (const std::string& problem : of_layer.problems) {
      if (!Contains(problems, problem)) problems.push_back(problem);
    }
    for (const Tensor& tensor : part.tensors) {
      if (!spec.values && tensor.spec.kind == TensorKind::kValue) continue;
      const Tensor left = Trimmed(tensor, spec, outline.info, KvHeads(outline, layers[i]));
      if (!left.data.empty()) writer.Write(left.spec, left.data);
    }
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(layers.size()));
  }
  writer.Finish();
  return problems;
}

}  // namespace stallcast::traces
