// Reading timelines of each format, in rows a second; JSON beside nlohmann's SAX parser, which
// makes nothing of what it reads.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tests/scratch_folder.h"
#include "traces/convert/export.h"
#include "traces/convert/import.h"

namespace stallcast::traces {
namespace {

// STALLCAST_BENCH_ROWS=10000000 for the files that the goals are about.
int64_t Rows() {
  const char* rows = std::getenv("STALLCAST_BENCH_ROWS");
  return rows != nullptr ? std::atoll(rows) : 500'000;
}

// The files of all benchmarks.
const ScratchFolder& Folder() {
  static const ScratchFolder folder;
  return folder;
}

// As Kineto writes it: a launch, its kernel, and the two ends of the arrow between them; a range a
// thousand launches.
void WriteKineto(const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary);
  out << "{\n  \"schemaVersion\": 1,\n  \"traceEvents\": [\n";
  const int64_t launches = Rows() / 2;
  std::minstd_rand random(1);  // real times compress badly
  for (int64_t i = 0; i < launches; ++i) {
    const int64_t us = 4'351'046'388'622 + 9 * i;
    const auto nanoseconds = static_cast<int>(random() % 1000);
    if (i % 1000 == 0) {
      out << fmt::format(
          "  {{\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#{}\", "
          "\"pid\": 568, \"tid\": 568,\n    \"ts\": {}.000, \"dur\": 9000.000,\n    \"args\": {{\n"
          "      \"External id\": {},\"Ev Idx\": {}\n    }}\n  }},\n",
          i / 1000, us, i, i);
    }
    out << fmt::format(
        "  {{\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", "
        "\"pid\": 568, \"tid\": 568,\n    \"ts\": {0}.{4:03}, \"dur\": 3.{4:03},\n    \"args\": "
        "{{\n"
        "      \"External id\": 2, \"cbid\": 211, \"correlation\": {1}\n    }}\n  }},\n  {{\n"
        "    \"ph\": \"s\", \"id\": {1}, \"pid\": 568, \"tid\": 568, \"ts\": {0}.{4:03},\n"
        "    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  }},\n  {{\n    \"ph\": \"X\", \"cat\": "
        "\"kernel\", \"name\": \"void at::native::vectorized_elementwise_kernel_{2}<4, "
        "at::native::BinaryFunctor<float, float, float>, std::array<char*, 2ul> >(int)\", \"pid\": "
        "0, \"tid\": 7,\n    \"ts\": {0}.9{5:02}, \"dur\": {6}.{4:03},\n    \"args\": {{\n      "
        "\"External "
        "id\": 2,\n      \"queued\": 0, \"device\": 0, \"context\": 1,\n      \"stream\": 7, "
        "\"correlation\": {1},\n      \"registers per thread\": 254,\n      \"shared memory\": "
        "67584,\n      \"blocks per SM\": 3.878788,\n      \"warps per SM\": 31.030304,\n      "
        "\"grid\": [16, 32, 1],\n      \"block\": [256, 1, 1],\n      \"est. achieved occupancy "
        "%\": 0\n    }}\n  }},\n  {{\n    \"ph\": \"f\", \"id\": {1}, \"pid\": 0, \"tid\": 7, "
        "\"ts\": {0}.9{5:02},\n    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }}{3}\n",
        us, i + 1, i % 40, i + 1 == launches ? "" : ",", nanoseconds, nanoseconds % 100,
        nanoseconds % 8);
  }
  out << "  ],\n  \"traceName\": \"kineto.json\"\n}\n";
}

std::filesystem::path Kineto() {
  static const std::filesystem::path path = [] {
    const auto file = Folder() / fmt::format("kineto-{}.json", Rows());
    if (!std::filesystem::exists(file)) WriteKineto(file);
    return file;
  }();
  return path;
}

const Timeline& Sample() {
  static const Timeline timeline = std::move(Import(Kineto()).trace.timelines[0]);
  return timeline;
}

template <typename Write>
std::filesystem::path Written(const std::string& extension, const Write& write) {
  const auto file = Folder() / fmt::format("timeline-{}{}", Rows(), extension);
  if (!std::filesystem::exists(file)) write(file);
  return file;
}

void ReadRepeatedly(benchmark::State& state, const std::filesystem::path& file) {
  int64_t rows = 0;
  for (auto _ : state) {
    const ImportedTrace imported = Import(file);
    rows = imported.trace.timelines.at(0).rows();
    benchmark::DoNotOptimize(imported.trace.timelines.data());
  }
  state.SetItemsProcessed(state.iterations() * rows);
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(std::filesystem::file_size(file)));
}

void BM_Kineto(benchmark::State& state) { ReadRepeatedly(state, Kineto()); }
BENCHMARK(BM_Kineto)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_KinetoGzip(benchmark::State& state) {
  const auto file = Written(".json.gz", [](const std::filesystem::path& path) {
    const gzFile out = gzopen(path.c_str(), "wb6");
    std::ifstream in(Kineto(), std::ios::binary);
    std::string block(1 << 20, '\0');
    while (in.read(block.data(), std::ssize(block)), in.gcount() > 0) {
      gzwrite(out, block.data(), static_cast<unsigned>(in.gcount()));
    }
    gzclose(out);
  });
  ReadRepeatedly(state, file);
}
BENCHMARK(BM_KinetoGzip)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_KinetoNlohmannSaxAlone(benchmark::State& state) {
  struct Ignore : nlohmann::json_sax<nlohmann::json> {
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(size_t) override { return true; }
    bool key(string_t&) override { return true; }
    bool end_object() override { return true; }
    bool start_array(size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
      return false;
    }
  };
  for (auto _ : state) {
    std::ifstream in(Kineto(), std::ios::binary);
    Ignore ignore;
    benchmark::DoNotOptimize(nlohmann::json::sax_parse(in, &ignore));
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(std::filesystem::file_size(Kineto())));
}
BENCHMARK(BM_KinetoNlohmannSaxAlone)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Perfetto(benchmark::State& state) {
  ReadRepeatedly(state, Written(".pftrace", [](const std::filesystem::path& path) {
                   ExportPerfetto(Sample(), path);
                 }));
}
BENCHMARK(BM_Perfetto)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_ChromeOfOurs(benchmark::State& state) {
  ReadRepeatedly(state, Written(".json", [](const std::filesystem::path& path) {
                   ExportChromeJson(Sample(), path);
                 }));
}
BENCHMARK(BM_ChromeOfOurs)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Kvt(benchmark::State& state) {
  ReadRepeatedly(state, Written(".kvt", [](const std::filesystem::path& path) {
                   TraceWriter writer(path, {});
                   writer.Write(Sample());
                   writer.Finish();
                 }));
}
BENCHMARK(BM_Kvt)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace stallcast::traces

BENCHMARK_MAIN();
