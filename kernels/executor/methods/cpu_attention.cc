// Attention on the CPU: keys and values in host memory, attended by host threads.
#include <oneapi/tbb/parallel_for.h>

#include <cstring>
#include <vector>

#include "kernels/attention/host_attention.h"
#include "kernels/executor/bind_by_kind.h"
#include "kernels/executor/device_table.h"
#include "kernels/executor/methods/binders.h"
#include "models/methods/cpu_attention/params.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

// The pool of a layer is [row][key, value][token][head_dim]. The GPU has one token a sequence: the
// new one, which goes to the host with the queries.
class CpuAttentionBinder : public CacheBinder {
 public:
  CpuAttentionBinder(const DecodeRun& run, const methods::CpuAttentionParams& params) : run_(run) {
    if (params.gpu_tokens > 0) {
      throw UsageError("merging what GPU and host attended is predicted only", "gpu_tokens",
                       "run it with -p gpu_tokens=0");
    }
    const int64_t batch = run.batch(), heads = run.kv_heads(), dim = run.head_dim();
    capacity_ = run.LongestContext();
    const int64_t elements = run.input.model.layers * run.rows() * 2 * capacity_ * dim;
    pool_ = reinterpret_cast<uint16_t*>(run.pool->Get(elements * kElement));
    for (int layer = 0; layer < run.input.model.layers; ++layer) {
      new_token_.emplace_back(batch * 2 * heads * dim);
    }
    host_query_ = Buffer<uint16_t>(batch * heads * run.group() * dim, Memory::kPinned);
    host_output_ = Buffer<uint16_t>(host_query_.size(), Memory::kPinned);
    host_token_ = Buffer<uint16_t>(batch * 2 * heads * dim, Memory::kPinned);
    slot_ = StepTable(1, batch, 1, [](int, int64_t sequence, int64_t) { return sequence; });
    place_ = StepTable(1, batch, 1, [](int, int64_t, int64_t) { return 0; });
    FillPool();
  }

  Append AppendAt(int /*step*/, int layer) override {
    return {
        NhdPages(new_token_[static_cast<size_t>(layer)].get(), 1, run_.kv_heads(), run_.head_dim()),
        slot_.At(0),
        place_.At(0),
        {}};
  }

  OpWork Bind(const plan::Op& op, const LayerIo& io) override {
    const int layer = op.layer;
    return BindByKind(
        "cpu-attention", op,
        [&](const plan::Copy& copy) -> OpWork {
          if (copy.direction == plan::Direction::kHostToDevice) {
            return Transfer(io.output, host_output_.get(), host_output_.bytes(),
                            cudaMemcpyHostToDevice);
          }
          if (op.purpose == plan::Purpose::kOffloadFilled) {
            return Transfer(host_token_.get(), new_token_[static_cast<size_t>(layer)].get(),
                            host_token_.bytes(), cudaMemcpyDeviceToHost);
          }
          return Transfer(host_query_.get(), io.query, host_query_.bytes(), cudaMemcpyDeviceToHost);
        },
        [&](const plan::HostAttention& attention) -> OpWork {
          return [this, step = op.step, layer, threads = attention.threads](cudaStream_t) {
            AppendToPool(step, layer);
            Attend(step, layer, threads);
          };
        });
  }

  // The pool keeps the prompt, and new tokens are written to it again.
  void Reset(std::span<const LayerIo> /*last*/) override {}
  void Clear() override {
    ZeroBytes(reinterpret_cast<std::byte*>(pool_),
              run_.input.model.layers * run_.rows() * 2 * RowElements() * kElement);
  }

 private:
  static constexpr Bytes kElement = 2;

  static OpWork Transfer(void* to, const void* from, Bytes bytes, cudaMemcpyKind kind) {
    return [=](cudaStream_t stream) {
      Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream), "cudaMemcpyAsync");
    };
  }

  int64_t RowElements() const { return capacity_ * run_.head_dim(); }
  /// Keys, or values, of a row.
  uint16_t* Pool(int layer, int row, int kv) const {
    return pool_ + ((int64_t{layer} * run_.rows() + row) * 2 + kv) * RowElements();
  }

  void FillPool() {
    const TraceTensors& trace = *run_.trace;
    tbb::parallel_for(0, run_.input.model.layers * run_.rows(), [&](int at) {
      const int layer = at / run_.rows(), row = at % run_.rows();
      const int source = run_.source_of[static_cast<size_t>(layer)];
      const int head = row % run_.kv_heads() % trace.kv_heads();
      const auto bytes =
          static_cast<size_t>(run_.Context(-1, row / run_.kv_heads()) * run_.head_dim() * kElement);
      std::memcpy(Pool(layer, row, 0), trace.Key(source, head, 0), bytes);
      std::memcpy(Pool(layer, row, 1), trace.Value(source, head, 0), bytes);
    });
  }

  // The new token came as [sequence][key, value][head][dim].
  void AppendToPool(int step, int layer) const {
    const int64_t dim = run_.head_dim();
    for (int row = 0; row < run_.rows(); ++row) {
      const int sequence = row / run_.kv_heads(), head = row % run_.kv_heads();
      const int64_t token = run_.Context(step, sequence) - 1;
      for (int kv = 0; kv < 2; ++kv) {
        const uint16_t* from =
            host_token_.get() + ((int64_t{sequence} * 2 + kv) * run_.kv_heads() + head) * dim;
        std::memcpy(Pool(layer, row, kv) + token * dim, from, static_cast<size_t>(dim * kElement));
      }
    }
  }

  void Attend(int step, int layer, int threads) const {
    std::vector<const uint16_t*> keys, values;
    std::vector<int64_t> tokens;
    for (int row = 0; row < run_.rows(); ++row) {
      keys.push_back(Pool(layer, row, 0));
      values.push_back(Pool(layer, row, 1));
      tokens.push_back(run_.Context(step, row / run_.kv_heads()));
    }
    HostAttention({.query = host_query_.get(),
                   .keys = keys,
                   .values = values,
                   .tokens = tokens,
                   .group = run_.group(),
                   .head_dim = run_.head_dim(),
                   .scale = run_.trace->softmax_scale(),
                   .output = host_output_.get()},
                  threads);
  }

  const DecodeRun& run_;
  int64_t capacity_ = 0;      // tokens of a row
  uint16_t* pool_ = nullptr;  // [layer][row][key, value][token][head_dim]
  std::vector<Buffer<__nv_bfloat16>> new_token_;
  Buffer<uint16_t> host_query_, host_output_, host_token_;
  StepTable slot_, place_;
};

}  // namespace

const MethodBinder kCpuAttention{"cpu-attention",
                                 Make<CpuAttentionBinder, methods::CpuAttentionParams>};

}  // namespace stallcast::kernels
