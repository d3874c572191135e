#include "capture/calibrate/measure_beside_product.h"

#include <algorithm>
#include <cmath>

#include "capture/calibrate/kernel_probe.h"
#include "capture/calibrate/scattered_gather.h"
#include "kernels/decoder/decoder.h"
#include "models/plan/work.h"

namespace stallcast::capture {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int64_t kInner = 4096;
// So many that a product runs for 0.2 ms: what others find between two of them hardly counts.
constexpr int64_t kWeights = int64_t{448} << 20;
constexpr int kTrain = 24, kTrials = 5;

// Products of one row that stream weights for longer than a train of what is timed beside them, 20
// us an item, and the calls for it.
class Products {
 public:
  explicit Products(Stopwatch& watch) {
    for (const kernels::Buffer<Bf16>* buffer : {&weights_, &input_}) {
      kernels::Check(cudaMemset(buffer->get(), 0, static_cast<size_t>(buffer->bytes())),
                     "cudaMemset");
    }
    Run(1, watch.other());  // chooses how
    watch.Finish();
  }
  void operator()(cudaStream_t stream) {
    constexpr int kOutlast = 12;
    Run(kOutlast, stream);
  }

 private:
  void Run(int count, cudaStream_t stream) {
    for (int i = 0; i < count; ++i) {
      gemm_.Run(input_.get(), weights_.get(), output_.get(), 1, kWeights / kInner, kInner, stream);
    }
  }

  const kernels::Buffer<Bf16> weights_{kWeights}, input_{kInner};
  kernels::Buffer<Bf16> output_{kWeights / kInner};
  kernels::Gemm gemm_;
};

// What an item of a train takes longer beside them.
template <class Work>
double LongerBeside(Stopwatch& watch, Products& products, const Work& work) {
  const double alone = watch.Period(kTrain, work, kTrials);
  const double longer = watch.LongerBeside([&](cudaStream_t stream) { products(stream); }, alone,
                                           kTrain, work, kTrials);
  return std::isfinite(longer) ? std::max(longer, 0.0) : 0;
}

PiecesBesideProduct MeasurePieces(Stopwatch& watch, const CopyEnds& ends, Products& products) {
  int at = 0;
  const auto longer = [&](bool to_device) {
    return LongerBeside(watch, products, [&](int) {
      ends.CopyPage(at++, CopyEnds::kPage, to_device, watch.stream());
    });
  };
  return {.h2d = longer(true), .d2h = longer(false)};
}

}  // namespace

PiecesBesideProduct MeasurePiecesBesideProduct(Stopwatch& watch, const CopyEnds& ends) {
  Products products(watch);
  return MeasurePieces(watch, ends, products);
}

void MeasureBesideProduct(Stopwatch& watch, const CopyEnds& ends, const LayerPools& pools,
                          hardware::Profile& profile) {
  constexpr int kTurns = 21, kPageTokens = 32;
  constexpr int kGathers = 4, kBlocks = 4, kFew = 4, kMany = 12;  // rounds of so many blocks
  Products products(watch);
  // Two pages of 32 tokens, to their slots.
  const Prepared scatter = LayoutProbe(2, kPageTokens, 128).prepare();
  const auto scatters = [&](int i) { scatter.launch(i, watch.stream()); };
  // Pages that were not read before, as recalls read them.
  const ScatteredGather gather({pools.Pool(0, 0), static_cast<size_t>(pools.bytes())},
                               ends.device.get(), kPageTokens, /*rows=*/false, CopyEnds::kPool);
  int next = 0;
  const auto gathers = [&](int rounds) {
    const auto pieces = static_cast<int32_t>(rounds * kBlocks * plan::ZeroCopyGather::kBytesABlock /
                                             static_cast<int64_t>(gather.piece_bytes()));
    return [&, pieces](int) {
      gather.Run(kBlocks, pieces, watch.stream(), next);
      next += pieces;
      if (next + pieces > gather.pieces()) next = 0;
    };
  };
  profile.product_holds_kernel = LongerBeside(watch, products, scatters);
  const PiecesBesideProduct pieces = MeasurePieces(watch, ends, products);
  profile.product_holds_h2d_piece = pieces.h2d;
  profile.product_holds_d2h_piece = pieces.d2h;
  const double few_alone = watch.Period(kGathers, gathers(kFew), kTrials);
  const double many_alone = watch.Period(kGathers, gathers(kMany), kTrials);
  // In turn: five of each at a time gave one of three calibrations a third of the others' time.
  const auto gather_time = [&](int rounds) {
    products(watch.other());
    return watch.PeriodWhileBusy(kGathers, gathers(rounds));
  };
  const double rounds_beside = Stopwatch::Median(kTurns, [&] {
    const double few = gather_time(kFew), many = gather_time(kMany);
    return std::isfinite(few) ? many - few : INFINITY;
  });
  const double round = (rounds_beside - (many_alone - few_alone)) / (kMany - kFew);
  profile.product_holds_round = std::isfinite(round) ? std::max(round, 0.0) : 0;
}

}  // namespace stallcast::capture
