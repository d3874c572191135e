// Writes the seeds of fuzz_reader and fuzz_import: make_corpus FOLDER IMPORT_FOLDER.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/traces/convert/import_files.h"
#include "tests/traces/sample.h"
#include "traces/convert/export.h"
#include "traces/format/trace_file.h"

namespace stallcast::traces {
namespace {

void Save(const std::filesystem::path& folder, const std::string& name,
          const std::vector<std::byte>& file) {
  std::ofstream(folder / (name + ".kvt"), std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
}

void MakeImportCorpus(const std::filesystem::path& folder) {
  ExportChromeJson(SampleTimeline(), folder / "ours.json");
  ExportPerfetto(SampleTimeline(), folder / "ours.pftrace");
  std::ofstream(folder / "kineto.json", std::ios::binary) << KinetoFile();
  std::ofstream(folder / "kineto.json.gz", std::ios::binary) << Gzipped(KinetoFile());
  std::ofstream(folder / "nsight.sqlite", std::ios::binary) << NsightSample();
}

// A finished file of what `fill` writes.
template <typename Fill>
std::vector<std::byte> File(const Fill& fill) {
  std::vector<std::byte> file;
  TraceWriter writer(&file, SampleInfo());
  fill(writer);
  writer.Finish();
  return file;
}

void WritePieces(TraceWriter& writer, DType dtype, const std::vector<int64_t>& firsts) {
  for (const int64_t first : firsts) {
    const TensorSpec spec = SampleSpec(TensorKind::kKey, dtype, 1, first, 4);
    writer.Write(spec, SampleTensor(spec).data);
  }
}

void MakeCorpus(const std::filesystem::path& folder) {
  const std::vector<std::byte> whole = SampleFile();
  Save(folder, "whole", whole);
  Save(folder, "cut_in_chunk", {whole.begin(), whole.begin() + std::ssize(whole) * 2 / 3});
  std::vector<std::byte> flipped = whole;
  flipped[whole.size() / 2] ^= std::byte{4};
  Save(folder, "flipped_bit", flipped);
  Save(folder, "nothing_but_info", File([](TraceWriter&) {}));
  Save(folder, "timeline", File([](TraceWriter& writer) { writer.Write(SampleTimeline()); }));
  Save(folder, "access_log", File([](TraceWriter& writer) { writer.Write(SampleLog()); }));
  Save(folder, "fp32_pieces", File([](TraceWriter& writer) {
         WritePieces(writer, DType::kFp32, {4, 0, 8});
       }));
  Save(folder, "gap_and_overlap", File([](TraceWriter& writer) {
         WritePieces(writer, DType::kFp16, {0, 2, 8, 8});
       }));
  Save(folder, "empty_tensor", File([](TraceWriter& writer) {
         writer.Write(SampleSpec(TensorKind::kGate, DType::kBf16, 0, 3, 0), {});
       }));
  Save(folder, "zeros", File([](TraceWriter& writer) {
         const TensorSpec spec = SampleSpec(TensorKind::kValue, DType::kBf16, 0, 0, 500);
         writer.Write(spec, std::vector<std::byte>(static_cast<size_t>(spec.bytes())));
       }));
}

}  // namespace
}  // namespace stallcast::traces

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  stallcast::traces::MakeCorpus(argv[1]);
  stallcast::traces::MakeImportCorpus(argv[2]);
}
