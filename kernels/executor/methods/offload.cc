// Full offload: the cache in pinned memory, a layer's buffer on the GPU filled ahead of its use.
#include "kernels/executor/attention_launcher.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "models/methods/offload/params.h"

namespace stallcast::kernels {
namespace {

// Pool and buffers lie token by token, [token][sequence][k, v][kv_head][head_dim], so that what is
// copied is one stretch. As pages of kPage tokens: slot page * kPage * batch + sequence.
class OffloadBinder : public CacheBinder {
 public:
  OffloadBinder(const DecodeRun& run, const methods::OffloadParams& params)
      : run_(run),
        buffers_(static_cast<int>(params.buffers(run.input.model.layers))),
        attention_(run) {
    pages_ = static_cast<int32_t>((run.LongestContext() + kPage - 1) / kPage);
    layer_bytes_ = int64_t{pages_} * kPage * TokenBytes();
    pool_ = run.pool->Get(layer_bytes_ * run.input.model.layers);
    for (int i = 0; i < buffers_; ++i) {
      data_.emplace_back(layer_bytes_ / static_cast<int64_t>(sizeof(__nv_bfloat16)));
    }
    const auto slot = [&](int64_t token, int64_t sequence) {
      return token / kPage * kPage * run.batch() + sequence;
    };
    std::vector<int32_t> table;
    for (int row = 0; row < run.rows(); ++row) {
      for (int64_t page = 0; page < pages_; ++page) {
        table.push_back(static_cast<int32_t>(slot(page * kPage, row / run.kv_heads())));
      }
    }
    table_ = Uploaded(table);
    std::vector<int32_t> page_slots;
    for (int64_t sequence = 0; sequence < run.batch(); ++sequence) {
      for (int64_t page = 0; page < pages_; ++page) {
        page_slots.push_back(static_cast<int32_t>(slot(page * kPage, sequence)));
      }
    }
    page_slots_ = Uploaded(page_slots);
    tokens_ = StepTable(run.input.steps, run.rows(), 1,
                        [&](int step, int64_t, int64_t) { return run.Context(step, 0); });
    slot_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t sequence, int64_t) {
      return slot(run.Context(step, 0) - 1, sequence);
    });
    place_ = StepTable(run.input.steps, run.batch(), 1, [&](int step, int64_t, int64_t) {
      return (run.Context(step, 0) - 1) % kPage;
    });
    FillPool();
  }

  Append AppendAt(int step, int layer) override {
    return {BufferOf(Visit(step, layer)), slot_.At(step), place_.At(step), {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    return BindByKind(
        "offload", op,
        [&](const plan::DecodeAttention&) {
          const PageTable pages{table_.get(), tokens_.At(op.step), pages_,
                                static_cast<int32_t>(run_.Context(op.step, 0))};
          return attention_.Over(BufferOf(Visit(op.step, op.layer)), pages, io);
        },
        [&](const plan::Copy& copy) {
          if (op.purpose == plan::Purpose::kBringRecalled) {
            const int64_t visit = fetches_++;
            return Transfer(visit, 0, copy.piece_bytes, cudaMemcpyHostToDevice);
          }
          return Transfer(Visit(op.step, op.layer), (run_.Context(op.step, 0) - 1) * TokenBytes(),
                          copy.piece_bytes, cudaMemcpyDeviceToHost);
        });
  }

  PromptKv PromptAt(int layer) override {
    for (int i = static_cast<int>(prompt_.size()); i < run_.input.model.layers; ++i) {
      prompt_.emplace_back(data_.front().size());
    }
    return {TokenPages(prompt_[static_cast<size_t>(layer)].get()), page_slots_.get(), pages_};
  }

  OpWork BindPrefill(const plan::Op& op, const PrefillIo& /*io*/) override {
    return BindByKind("offload", op, [&](const plan::Copy& copy) -> OpWork {
      return [to = pool_ + op.layer * layer_bytes_, from = PromptAt(op.layer).cache.data,
              bytes = static_cast<size_t>(copy.piece_bytes)](cudaStream_t stream) {
        Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
      };
    });
  }

  void Clear() override { ZeroBytes(pool_, layer_bytes_ * run_.input.model.layers); }

  // The pool keeps the prompt, and new tokens are written to it again.
  void Reset(std::span<const LayerIo> /*last*/) override {}

 private:
  static constexpr int32_t kPage = 32;

  Bytes TokenBytes() const { return run_.batch() * run_.input.model.KvBytesPerTokenLayer(); }
  int64_t Visit(int step, int layer) const {
    return int64_t{step} * run_.input.model.layers + layer;
  }
  PagedKv BufferOf(int64_t visit) const {
    return TokenPages(data_[static_cast<size_t>(visit % buffers_)].get());
  }
  PagedKv TokenPages(__nv_bfloat16* data) const {
    const int64_t plane = int64_t{run_.kv_heads()} * run_.head_dim();
    return {
        data,  2 * plane,       plane,          int64_t{run_.batch()} * 2 * plane, run_.head_dim(),
        kPage, run_.kv_heads(), run_.head_dim()};
  }
  // `bytes` from `offset` on between the pool's layer of a visit and its buffer.
  OpWork Transfer(int64_t visit, int64_t offset, Bytes bytes, cudaMemcpyKind kind) const {
    std::byte* host = pool_ + visit % run_.input.model.layers * layer_bytes_ + offset;
    auto* device = reinterpret_cast<std::byte*>(BufferOf(visit).data) + offset;
    const bool down = kind == cudaMemcpyHostToDevice;
    return [to = down ? device : host, from = down ? host : device, bytes,
            kind](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream), "cudaMemcpyAsync");
    };
  }
  void FillPool() {
    for (int layer = 0; layer < run_.input.model.layers; ++layer) {
      for (int sequence = 0; sequence < run_.batch(); ++sequence) {
        FillTokens(run_.Source(layer), 0, run_.Context(-1, 0), BufferOf(layer),
                   table_.get() + int64_t{sequence} * run_.kv_heads() * pages_, nullptr);
      }
      Transfer(layer, 0, run_.Context(-1, 0) * TokenBytes(), cudaMemcpyDeviceToHost)(nullptr);
    }
    Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  const DecodeRun& run_;
  int buffers_;
  AttentionLauncher attention_;
  int32_t pages_ = 0;
  Bytes layer_bytes_ = 0;
  std::byte* pool_ = nullptr;
  std::vector<Buffer<__nv_bfloat16>> data_;
  std::vector<Buffer<__nv_bfloat16>> prompt_;  // by layer, in prefill
  Buffer<int32_t> table_;                      // [row][page]
  Buffer<int32_t> page_slots_;                 // [sequence][page]
  StepTable tokens_, slot_, place_;
  int64_t fetches_ = 0;
};

}  // namespace

const MethodBinder kOffload{"offload", Make<OffloadBinder, methods::OffloadParams>};

}  // namespace stallcast::kernels
