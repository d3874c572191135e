// Recall of ParisKV's stages beside k-means centroids learnt from the first keys, on the shipped
// traces and on keys with drift: the comparison of the paper's figures 1 and 10.
#include <cstdio>
#include <filesystem>
#include <string>

#include "models/methods/layer_tensors.h"
#include "sim/synth.h"
#include "tests/models/methods/centroid_recall.h"
#include "tests/models/methods/samples.h"
#include "tests/scratch_folder.h"

namespace stallcast::methods {
namespace {

constexpr int64_t kSink = 128, kLocal = 512;
constexpr int kQueryStride = 16;  // every 16th decode step

// The retrieval region and the group-mean queries of one KV head.
recall::Keys KeysOf(const LayerTensors& tensors, int head) {
  const int64_t end = tensors.prompt_tokens() - kLocal;
  recall::Keys keys{.dim = tensors.head_dim(), .keys = {}, .queries = {}};
  keys.keys.resize(static_cast<size_t>((end - kSink) * keys.dim));
  tensors.ReadKeys(head, kSink, end - kSink, keys.keys.data());
  for (int step = 0; step < tensors.steps(); step += kQueryStride) {
    for (int i = 0; i < keys.dim; ++i) {
      float sum = 0;
      for (int g = 0; g < tensors.group(); ++g) {
        sum += tensors.Query(head * tensors.group() + g, tensors.prompt_tokens() + step)[i];
      }
      keys.queries.push_back(sum / static_cast<float>(tensors.group()));
    }
  }
  return keys;
}

void Row(const std::string& keys, const char* centroids, const recall::Found& found) {
  std::printf("%-28s  %-26s  %7.1f %%  %10.1f %%  %7.1f %%\n", keys.c_str(), centroids,
              100 * found.coarse, 100 * found.candidates, 100 * found.final);
}

void Compare(const std::string& name, const std::vector<recall::Keys>& heads, int64_t prefill) {
  using recall::Centroids;
  const auto mean = [&](const recall::Setup& setup) {
    recall::Found sum;
    for (const recall::Keys& keys : heads) {
      const recall::Found found = recall::Of(keys, setup);
      const auto count = static_cast<double>(heads.size());
      sum.coarse += found.coarse / count;
      sum.candidates += found.candidates / count;
      sum.final += found.final / count;
    }
    return sum;
  };
  const int64_t all = heads.front().tokens();
  Row(name, "signs, rotated (ParisKV)", mean({.centroids = Centroids::kSigns}));
  Row(name, "signs, not rotated", mean({.centroids = Centroids::kPlain}));
  Row(name, "k-means of all keys", mean({.centroids = Centroids::kLearnt, .learn = all}));
  Row(name, ("k-means of first " + std::to_string(prefill)).c_str(),
      mean({.centroids = Centroids::kLearnt, .learn = prefill}));
}

void Run() {
  std::printf("%-28s  %-26s  %9s  %12s  %9s\n", "keys", "centroids", "coarse", "candidates",
              "final");
  for (const std::filesystem::path& path : Samples()) {
    const traces::Trace trace = traces::ReadTrace(path);
    for (const int layer : trace.Layers()) {
      const LayerTensors tensors(trace, layer);
      std::vector<recall::Keys> heads;
      for (int head = 0; head < tensors.kv_heads(); ++head) heads.push_back(KeysOf(tensors, head));
      Compare(path.stem().string() + " layer " + std::to_string(layer), heads, 1024);
    }
  }
  const ScratchFolder folder;
  const std::filesystem::path file = folder / "drift.kvt";
  for (const double drift : {0.0, 10.0, 30.0}) {
    sim::SynthSpec spec;
    spec.model.layers = 1;
    spec.model.query_heads = 8;
    spec.model.kv_heads = 2;
    spec.model.head_dim = 128;
    spec.layers = 1;
    spec.drift_degrees = drift;
    {
      traces::TraceWriter writer(file, sim::SynthInfo(spec));
      sim::Synthesize(spec, writer);
      writer.Finish();
    }
    const traces::Trace trace = traces::ReadTrace(file);
    const LayerTensors tensors(trace, 0);
    Compare("synth, drift " + std::to_string(static_cast<int>(drift)) + " deg/1K",
            {KeysOf(tensors, 0), KeysOf(tensors, 1)}, 1024);
  }
  Compare("mean turning half a circle", {recall::DriftingKeys(128, 16'384, 3)}, 1024);
}

}  // namespace
}  // namespace stallcast::methods

int main() { stallcast::methods::Run(); }
