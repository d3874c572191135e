#include "kernels/executor/methods/wgkv_gate.h"

#include <algorithm>

#include "kernels/runtime/fill.h"
#include "kernels/runtime/upload.h"
#include "models/methods/common/rope.h"

namespace stallcast::kernels {
namespace {

std::vector<__nv_bfloat16> Narrow(std::span<const float> values) {
  std::vector<__nv_bfloat16> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(),
                 [](float x) { return __float2bfloat16(x); });
  return narrow;
}

Buffer<__nv_bfloat16> Random(int64_t count, float range, uint64_t seed) {
  Buffer<__nv_bfloat16> values(count);
  FillRandom(values.get(), count, range, seed, nullptr);
  return values;
}

}  // namespace

WgKvGate::WgKvGate(const DecodeRun& run, const methods::WgKvParams& params)
    : run_(run),
      params_(params),
      trained_(params.gate == methods::WgKvParams::Gate::kMlp),
      all_(run.rows() * run.input.model.layers),
      tokens_(run.trace->prompt_tokens() + run.trace->steps()) {
  for (int layer = 0; layer < run.input.model.layers; ++layer) layers_.push_back(MakeLayer(layer));
  workspace_ = Buffer<float>(GateMlpWorkspace(Weights(0)));
  Zero(workspace_);
  decided_ = Buffer<float>(run.rows());
  for (int i = 0; i < run.trace->layers(); ++i) sources_.push_back(MakeSource(i));
  FillLeaving();
}

WgKvGate::Layer WgKvGate::MakeLayer(int layer) const {
  const int64_t heads = run_.kv_heads(), d = run_.head_dim(), hidden = params_.expand * d;
  if (!trained_) {
    const auto seed = 6 * static_cast<uint64_t>(layer);
    return {Random(heads * hidden * 2 * d, 0.05F, seed),
            Random(heads * hidden, 0.1F, seed + 1),
            Random(heads * hidden, 0.1F, seed + 2),
            Random(heads, 0.1F, seed + 3),
            Random(d, 1, seed + 4),
            Random(d, 1, seed + 5)};
  }
  const int traced =
      run_.recorded_layers[static_cast<size_t>(run_.source_of[static_cast<size_t>(layer)])];
  const methods::GateWeights read = methods::ReadGate(params_, traced, run_.trace->kv_heads(), d);
  // Heads of the model are those of the trace, over and over.
  const auto spread = [&](const std::vector<float>& of_traced, int64_t each) {
    std::vector<float> all;
    for (int head = 0; head < run_.kv_heads(); ++head) {
      const auto from = of_traced.begin() + Traced(head) * each;
      all.insert(all.end(), from, from + each);
    }
    return Uploaded(Narrow(all));
  };
  return {spread(read.w1, hidden * 2 * d), spread(read.b1, hidden),
          spread(read.w2, hidden),         spread(read.b2, 1),
          Uploaded(Narrow(read.pre_norm)), Uploaded(Narrow(read.post_norm))};
}

GateWeights WgKvGate::Weights(int layer) const {
  const Layer& of = layers_[static_cast<size_t>(layer)];
  return {
      of.w1.get(),     of.b1.get(),       of.w2.get(),
      of.b2.get(),     of.pre_norm.get(), of.post_norm.get(),
      run_.kv_heads(), run_.head_dim(),   static_cast<int32_t>(params_.expand * run_.head_dim())};
}

WgKvGate::Source WgKvGate::MakeSource(int source) const {
  const methods::LayerTensors tensors = run_.Recorded(source);
  const int64_t d = run_.head_dim();
  Source made;
  made.admitted = methods::Admit(tensors, params_);
  for (const auto& flags : made.admitted) {
    std::vector<int32_t>& before = made.before.emplace_back(1, 0);
    for (const uint8_t flag : flags) before.push_back(before.back() + flag);
  }
  if (!trained_) {
    std::vector<float> mask;
    for (int head = 0; head < run_.kv_heads(); ++head) {
      const auto& flags = made.admitted[static_cast<size_t>(Traced(head))];
      mask.insert(mask.end(), flags.begin(), flags.end());
    }
    made.scores = Uploaded(mask);
    return made;
  }
  // The kernel decides, from the keys that a projection would have given.
  std::vector<__nv_bfloat16> before, after;
  std::vector<float> keys(static_cast<size_t>(tokens_ * d));
  for (int head = 0; head < run_.kv_heads(); ++head) {
    methods::ReadKeysBeforeRope(tensors, Traced(head), 0, tokens_, keys.data());
    const auto narrow = Narrow(keys);
    before.insert(before.end(), narrow.begin(), narrow.end());
    const __nv_bfloat16* rotated = run_.trace->Key(source, Traced(head), 0);
    after.insert(after.end(), rotated, rotated + tokens_ * d);
  }
  made.before_rope = Uploaded(before);
  const Buffer<__nv_bfloat16> rotated = Uploaded(after);
  made.scores = Buffer<float>(run_.kv_heads() * tokens_);
  const auto layer = std::find(run_.source_of.begin(), run_.source_of.end(), source);
  if (layer == run_.source_of.end()) return made;  // stands for no layer
  GateMlp(Weights(static_cast<int>(layer - run_.source_of.begin())),
          {made.before_rope.get(), tokens_ * d, d, 0}, {rotated.get(), tokens_ * d, d, 0},
          static_cast<int32_t>(tokens_), made.scores.get(), tokens_, 1, workspace_.get(), nullptr);
  Check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return made;
}

void WgKvGate::FillLeaving() {
  std::vector<std::vector<float>> scores;
  for (const Source& source : sources_) {
    scores.push_back(Downloaded(source.scores.get(), source.scores.size()));
  }
  std::vector<float> leaving;
  for (int64_t column = 0; column < run_.input.steps + params_.window; ++column) {
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      const auto& of = scores[static_cast<size_t>(run_.source_of[static_cast<size_t>(layer)])];
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        const int64_t token = run_.Context(static_cast<int>(column), sequence) - 1 - params_.window;
        for (int64_t head = 0; head < run_.kv_heads(); ++head) {
          // The kernel fills in what the trace does not reach.
          leaving.push_back(token < tokens_ ? of[static_cast<size_t>(head * tokens_ + token)] : 0);
        }
      }
    }
  }
  leaving_ = Uploaded(leaving);
}

std::vector<uint32_t> WgKvGate::Expected(int layer, int head, int64_t tokens) const {
  const auto& flags = Of(layer).admitted[static_cast<size_t>(Traced(head))];
  std::vector<uint32_t> admitted;
  for (int64_t token = 0; token < tokens; ++token) {
    if (flags[static_cast<size_t>(token)] != 0) admitted.push_back(static_cast<uint32_t>(token));
  }
  return admitted;
}

int32_t WgKvGate::CountAdmitted(int layer, int head, int64_t tokens) const {
  return Of(layer).before[static_cast<size_t>(Traced(head))][static_cast<size_t>(tokens)];
}

const float* WgKvGate::Scores(int layer, int head) const {
  return Of(layer).scores.get() + head * tokens_;
}

OpWork WgKvGate::Decode(const plan::Op& op, const TokenView& keys) const {
  TokenView before = keys;
  float* scores = decided_.get();
  if (trained_) {
    // Sequence b is b * stagger tokens further.
    const int64_t d = run_.head_dim();
    before = {Of(op.layer).before_rope.get() + (run_.Context(op.step, 0) - 1) * d, tokens_ * d,
              run_.stagger * d, 0};
    scores = leaving_.get() + (params_.window + op.step) * int64_t{all_} +
             int64_t{op.layer} * run_.rows();
  }
  return [this, layer = op.layer, before, keys, scores](cudaStream_t stream) {
    GateMlp(Weights(layer), before, keys, run_.batch(), scores, 1, run_.kv_heads(),
            workspace_.get(), stream);
  };
}

OpWork WgKvGate::Prefill(const plan::Op& op, const TokenView& keys) {
  const int64_t prompt = run_.input.prompt_tokens, d = run_.head_dim();
  if (prompt_scores_.size() == 0) prompt_scores_ = Buffer<float>(run_.rows() * prompt);
  return [this, layer = op.layer, keys, prompt, d](cudaStream_t stream) {
    for (int sequence = 0; sequence < run_.batch(); ++sequence) {
      TokenView after = keys;
      after.data += int64_t{sequence} * run_.kv_heads() * keys.row_stride;
      TokenView before = after;
      if (trained_) before = {Of(layer).before_rope.get(), tokens_ * d, d, 0};
      GateMlp(Weights(layer), before, after, static_cast<int32_t>(prompt),
              prompt_scores_.get() + int64_t{sequence} * run_.kv_heads() * prompt, prompt, 1,
              workspace_.get(), stream);
    }
  };
}

const float* WgKvGate::PromptScores(int layer, int sequence) const {
  return trained_
             ? prompt_scores_.get() + int64_t{sequence} * run_.kv_heads() * run_.input.prompt_tokens
             : Of(layer).scores.get();
}

}  // namespace stallcast::kernels
