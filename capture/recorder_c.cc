#include "capture/recorder_c.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "capture/c_abi.h"
#include "capture/tensor_recorder.h"
#include "traces/common/error.h"
#include "traces/format/trace_file.h"

using stallcast::capture::RecorderOptions;
using stallcast::capture::SourceRows;
using stallcast::capture::TensorRecorder;
using stallcast::traces::DType;
using stallcast::traces::TensorKind;
using stallcast::traces::TensorSpec;
namespace proto = stallcast::traces::proto;
using stallcast::UsageError;
using stallcast::capture::Guarded;
using stallcast::capture::LastError;
using stallcast::capture::NotNull;
using stallcast::capture::Text;

std::string& stallcast::capture::LastError() {
  thread_local std::string text;
  return text;
}

struct stallcast_recorder {
  stallcast_recorder(const char* path, const proto::TraceInfo& info, const RecorderOptions& options)
      : recorder(path, info, options) {}

  TensorRecorder recorder;
};

namespace {

void AddPairs(const stallcast_pair* pairs, google::protobuf::Map<std::string, std::string>* out) {
  for (; pairs && pairs->name; ++pairs) (*out)[pairs->name] = Text(pairs->value);
}

proto::TraceInfo ToProto(const stallcast_trace_info& info, const char* function) {
  for (const auto& [name, value] : {std::pair{"hidden", info.hidden},
                                    {"intermediate", info.intermediate},
                                    {"vocabulary", info.vocabulary}}) {
    if (value < 0) {
      throw UsageError(fmt::format("{} is {}", name, value), function, "give the model's, or 0");
    }
  }
  for (const auto& [name, value] : {std::pair{"rope_theta", info.rope_theta},
                                    {"rope_attention_scaling", info.rope_attention_scaling},
                                    {"softmax_scale", info.softmax_scale}}) {
    if (!std::isfinite(value) || value < 0) {
      throw UsageError(fmt::format("{} is {}", name, value), function, "give the model's, or 0");
    }
  }
  proto::TraceInfo out;
  proto::Model& model = *out.mutable_model();
  model.set_name(Text(info.model_name));
  model.set_layers(info.layers);
  model.set_query_heads(info.query_heads);
  model.set_kv_heads(info.kv_heads);
  model.set_head_dim(info.head_dim);
  model.set_hidden(info.hidden);
  model.set_intermediate(info.intermediate);
  model.set_vocabulary(info.vocabulary);
  model.set_softmax_scale(info.softmax_scale);
  proto::Rope& rope = *model.mutable_rope();
  rope.set_theta(info.rope_theta);
  rope.set_type(Text(info.rope_type));
  rope.set_attention_scaling(info.rope_attention_scaling);
  if (info.inverse_frequencies) {
    if (info.inverse_frequency_count < 1 || info.inverse_frequency_count > info.head_dim) {
      throw UsageError(fmt::format("{} inverse frequencies for head dimension {}",
                                   info.inverse_frequency_count, info.head_dim),
                       function, "give half as many as rotated dimensions, or a null pointer");
    }
    for (int i = 0; i < info.inverse_frequency_count; ++i) {
      if (!std::isfinite(info.inverse_frequencies[i])) {
        throw UsageError(fmt::format("inverse frequency {} is not finite", i), function,
                         "give the model's own, or a null pointer");
      }
      rope.add_inverse_frequencies(info.inverse_frequencies[i]);
    }
  }
  out.set_machine(Text(info.machine));
  out.set_provenance(Text(info.provenance));
  out.set_created(Text(info.created));
  AddPairs(info.software, out.mutable_software());
  AddPairs(info.parameters, out.mutable_parameters());
  return out;
}

proto::Attention ToProto(const stallcast_attention& attention, const char* function) {
  const auto fail = [&](const char* what) {
    throw UsageError(what, function, "give what the layer computes, or 0");
  };
  if (attention.window < 0 || attention.chunk < 0 || attention.query_heads < 0 ||
      attention.kv_heads < 0 || attention.head_dim < 0 || attention.sink_count < 0) {
    fail("a negative number");
  }
  if (!(attention.soft_cap >= 0 && attention.softmax_scale >= 0) ||
      !std::isfinite(attention.soft_cap) || !std::isfinite(attention.softmax_scale)) {
    fail("a cap or scale that is negative or not finite");
  }
  proto::Attention out;
  out.set_window(attention.window);
  out.set_chunk(attention.chunk);
  out.set_soft_cap(attention.soft_cap);
  out.set_softmax_scale(attention.softmax_scale);
  out.set_query_heads(attention.query_heads);
  out.set_kv_heads(attention.kv_heads);
  out.set_head_dim(attention.head_dim);
  out.set_absent(attention.absent != 0);
  for (int i = 0; i < attention.sink_count; ++i) {
    if (std::isnan(attention.sinks[i])) fail("a sink that is not a number");
    out.add_sinks(attention.sinks[i]);
  }
  return out;
}

}  // namespace

int stallcast_abi_version(void) { return STALLCAST_ABI_VERSION; }

const char* stallcast_last_error(void) { return LastError().c_str(); }

int stallcast_recorder_open(const char* path, const stallcast_trace_info* info,
                            const stallcast_recorder_options* options, stallcast_recorder** out) {
  return Guarded(__func__, [&] {
    NotNull(out, "out", "stallcast_recorder_open") = nullptr;
    NotNull(path, "path", "stallcast_recorder_open");
    NotNull(info, "info", "stallcast_recorder_open");
    RecorderOptions chosen;
    if (options) {
      chosen = {options->query_window, options->chunk_tokens, options->queue_bytes};
    }
    *out = new stallcast_recorder(path, ToProto(*info, "stallcast_recorder_open"), chosen);
  });
}

int stallcast_recorder_write(stallcast_recorder* recorder, const stallcast_rows* rows) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_write");
    NotNull(rows, "rows", "stallcast_recorder_write");
    // Out-of-range codes must not wrap into valid ones before the recorder checks them.
    const auto code = [](int32_t value) {
      return static_cast<uint8_t>(value < 0 || value > 255 ? 0 : value);
    };
    SourceRows source;
    source.spec = {.kind = static_cast<TensorKind>(code(rows->kind)),
                   .dtype = static_cast<DType>(code(rows->dtype)),
                   .layer = rows->layer,
                   .heads = rows->heads,
                   .head_dim = rows->head_dim,
                   .first_token = rows->first_token,
                   .tokens = rows->tokens};
    source.data = static_cast<const std::byte*>(rows->data);
    source.head_stride = rows->head_stride;
    source.token_stride = rows->token_stride;
    recorder->recorder.Record(source);
  });
}

int stallcast_recorder_set_attention(stallcast_recorder* recorder, int32_t layer,
                                     const stallcast_attention* attention) {
  return Guarded(__func__, [&] {
    constexpr const char* kFunction = "stallcast_recorder_set_attention";
    NotNull(recorder, "recorder", kFunction);
    NotNull(attention, "attention", kFunction);
    if (attention->sink_count > 0) NotNull(attention->sinks, "sinks", kFunction);
    recorder->recorder.Describe([&](proto::TraceInfo& info) {
      proto::Model& model = *info.mutable_model();
      if (layer < 0 || layer >= model.layers()) {
        throw UsageError(fmt::format("layer {} of a model of {} layers", layer, model.layers()),
                         kFunction, fmt::format("give 0 to {}", model.layers() - 1));
      }
      while (model.attention_size() < model.layers()) model.add_attention();
      *model.mutable_attention(layer) = ToProto(*attention, kFunction);
    });
  });
}

int stallcast_recorder_set_experts(stallcast_recorder* recorder, const stallcast_experts* experts) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_set_experts");
    NotNull(experts, "experts", "stallcast_recorder_set_experts");
    if (experts->count < 1 || experts->per_token < 1 || experts->per_token > experts->count ||
        experts->intermediate < 0) {
      throw UsageError(fmt::format("{} experts, {} a token, of {} elements", experts->count,
                                   experts->per_token, experts->intermediate),
                       "stallcast_recorder_set_experts", "give the router's numbers");
    }
    recorder->recorder.Describe([&](proto::TraceInfo& info) {
      proto::Experts& out = *info.mutable_model()->mutable_experts();
      out.set_count(experts->count);
      out.set_per_token(experts->per_token);
      out.set_intermediate(experts->intermediate);
    });
  });
}

int stallcast_recorder_set_expert_use(stallcast_recorder* recorder, int32_t layer, int32_t count,
                                      const int64_t* prompt, const int64_t* decode) {
  return Guarded(__func__, [&] {
    constexpr const char* kFunction = "stallcast_recorder_set_expert_use";
    NotNull(recorder, "recorder", kFunction);
    NotNull(prompt, "prompt", kFunction);
    NotNull(decode, "decode", kFunction);
    recorder->recorder.Describe([&](proto::TraceInfo& info) {
      if (count < 1 || layer < 0 || layer >= info.model().layers()) {
        throw UsageError(fmt::format("{} experts in layer {}", count, layer), kFunction,
                         "give a layer of the model and its experts");
      }
      auto& uses = *info.mutable_expert_use();
      auto use = std::ranges::find(uses, layer, &proto::ExpertUse::layer);
      proto::ExpertUse& out = use == uses.end() ? *uses.Add() : *use;
      out.set_layer(layer);
      out.mutable_prompt()->Assign(prompt, prompt + count);
      out.mutable_decode()->Assign(decode, decode + count);
    });
  });
}

int stallcast_recorder_begin_decode(stallcast_recorder* recorder, int64_t prompt_tokens) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_begin_decode")
        .recorder.BeginDecode(prompt_tokens);
  });
}

int stallcast_recorder_set_parameter(stallcast_recorder* recorder, const char* name,
                                     const char* value) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_set_parameter");
    NotNull(name, "name", "stallcast_recorder_set_parameter");
    recorder->recorder.SetParameter(name, Text(value));
  });
}

int stallcast_recorder_flush(stallcast_recorder* recorder) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_flush").recorder.Flush();
  });
}

int stallcast_recorder_close(stallcast_recorder* recorder) {
  return Guarded(__func__, [&] {
    NotNull(recorder, "recorder", "stallcast_recorder_close").recorder.Finish();
  });
}

void stallcast_recorder_free(stallcast_recorder* recorder) { delete recorder; }

int stallcast_trace_read(const char* path, stallcast_rows* rows, void* out, int64_t out_bytes) {
  return Guarded(__func__, [&] {
    NotNull(path, "path", "stallcast_trace_read");
    NotNull(rows, "rows", "stallcast_trace_read");
    stallcast::traces::ReadOptions options;
    options.layers = {rows->layer};
    const auto trace = stallcast::traces::ReadTrace(path, options);
    const auto* tensor = rows->kind >= STALLCAST_QUERY && rows->kind <= STALLCAST_GATE
                             ? trace.Find(static_cast<TensorKind>(rows->kind), rows->layer)
                             : nullptr;
    if (!tensor) {
      throw UsageError(fmt::format("no tensor of kind {} and layer {}", rows->kind, rows->layer),
                       path, "ask for one that was recorded");
    }
    const TensorSpec& spec = tensor->spec;
    if (out) {
      if (out_bytes != spec.bytes()) {
        throw UsageError(fmt::format("{} bytes of room for {} bytes", out_bytes, spec.bytes()),
                         path, "call with a null `out` first to learn the size");
      }
      std::memcpy(out, tensor->data.data(), tensor->data.size());
    }
    rows->dtype = static_cast<int32_t>(spec.dtype);
    rows->heads = spec.heads;
    rows->head_dim = spec.head_dim;
    rows->first_token = spec.first_token;
    rows->tokens = spec.tokens;
    rows->head_stride = spec.tokens * spec.head_dim;
    rows->token_stride = spec.head_dim;
    rows->data = out;
  });
}
