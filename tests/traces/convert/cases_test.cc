// Small files that programs of others write, or that stand for a kind of what goes wrong with them
// (tests/traces/cases): each has one right value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/traces/convert/import_files.h"
#include "traces/common/error.h"
#include "traces/convert/export.h"
#include "traces/convert/kernel_kinds.h"
#include "traces/step_spans.h"

namespace stallcast::traces {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::filesystem::path Case(const std::string& name) {
  return std::filesystem::path(STALLCAST_SOURCE_DIR) / "tests/traces/cases" / name;
}

Timeline Read(const std::string& name, const std::string& step_range = "") {
  ImportOptions options;
  options.step_range = step_range;
  const ImportedTrace imported = Import(Case(name), options);
  EXPECT_EQ(imported.trace.timelines.size(), 1u);
  EXPECT_THAT(imported.report.problems, IsEmpty());
  return imported.trace.timelines.at(0);
}

std::vector<double> StepsUs(const Timeline& t) {
  std::vector<double> times;
  for (const auto& [step, span] : StepSpans(t)) {
    times.push_back(Seconds(span.end - span.start) * 1e6);
  }
  return times;
}

std::vector<double> DurationsUs(const Timeline& t, const std::string& name) {
  std::vector<double> times;
  for (size_t row = 0; row < t.start.size(); ++row) {
    if (t.names[t.name[row]] == name) times.push_back(Seconds(t.duration[row]) * 1e6);
  }
  return times;
}

std::vector<std::string> ComputeLanes(const Timeline& t) {
  std::vector<std::string> names;
  for (const TimelineLane& lane : t.lanes) {
    if (lane.compute) names.push_back(lane.name);
  }
  return names;
}

std::string Refusal(const std::string& name) {
  try {
    Import(Case(name));
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

TEST(CasesTest, TheComputeLaneIsNotTheBusierStreamOfCollectives) {
  const Timeline t = Read("compute_nccl.json");
  EXPECT_THAT(ComputeLanes(t), ElementsAre("GPU 0 stream 7"));
  EXPECT_THAT(StepsUs(t), ElementsAre(1000, 1000));
}

TEST(CasesTest, TheFirstStepBeginsBehindWhatWasThereBefore) {
  EXPECT_THAT(StepsUs(Read("first_step_backlog.json")), ElementsAre(1000, 1000, 1000));
}

TEST(CasesTest, StepsOfAServerAreCountedWhateverNumbersStandInTheirNames) {
  EXPECT_EQ(StepsUs(Read("steps_vllm.json")).size(), 6u);
  EXPECT_EQ(StepsUs(Read("steps_vllm.json", "execute_context")).size(), 6u);
}

TEST(CasesTest, RangesWithinStepsAreNone) {
  EXPECT_EQ(StepsUs(Read("steps_micro.json")).size(), 3u);
  EXPECT_EQ(StepsUs(Read("steps_micro.json", "micro_step")).size(), 12u);
}

TEST(CasesTest, ANameThatFitsNoRangeNamesThoseThereAre) {
  try {
    Read("steps_micro.json", "decode");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("ProfilerStep (3)"));
    EXPECT_THAT(error.what(), HasSubstr("micro_step (12)"));
  }
}

TEST(CasesTest, RanksInOneFileKeepTheirCorrelationsAndSteps) {
  const Timeline t = Read("ranks_same_correlation.json");
  EXPECT_THAT(ComputeLanes(t), ElementsAre("[TP00] GPU 0 stream 7", "[TP01] GPU 1 stream 7"));
  for (const std::string& lane : ComputeLanes(t)) {
    std::vector<int32_t> steps;
    for (size_t row = 0; row < t.start.size(); ++row) {
      if (t.lanes[t.lane[row]].name == lane) steps.push_back(t.step[row]);
    }
    EXPECT_THAT(steps, ElementsAre(0, 1, 2, 3)) << lane;
  }
}

TEST(CasesTest, BeginsAndEndsArePairedByTimeAndName) {
  EXPECT_THAT(DurationsUs(Read("order_end_before_begin.json"), "decode"), ElementsAre(20));
  EXPECT_THAT(DurationsUs(Read("order_end_before_begin.json"), "prefill"), ElementsAre(10));
  EXPECT_THAT(DurationsUs(Read("crossed_names.json"), "load"), ElementsAre(9));
  EXPECT_THAT(DurationsUs(Read("crossed_names.json"), "compute"), ElementsAre(9));
  EXPECT_THAT(DurationsUs(Read("async_id2.json"), "write"), ElementsAre(10, 20));
  EXPECT_THAT(DurationsUs(Read("perfetto_async_b_e.pftrace"), "prefetch"), ElementsAre(8));
  EXPECT_THAT(DurationsUs(Read("perfetto_async_b_e.pftrace"), "sync"), ElementsAre(2));
}

TEST(CasesTest, ProducersOfOtherNamesHaveStreamsThatCompute) {
  const Timeline old = Read("producer_old_kineto.json");
  EXPECT_THAT(ComputeLanes(old), ElementsAre("GPU 0 stream 7"));
  EXPECT_THAT(old.lanes, Each(testing::Field(&TimelineLane::kind, Not(LaneKind::kOther))));
  EXPECT_EQ(StepsUs(old).size(), 1u);
  int joined = 0;
  for (size_t row = 0; row < old.start.size(); ++row) {
    if (old.lanes[old.lane[row]].kind == LaneKind::kHost && old.op[row] >= 0) ++joined;
  }
  EXPECT_EQ(joined, 2);

  const Timeline npu = Read("producer_npu_strings.json");
  EXPECT_THAT(ComputeLanes(npu), ElementsAre("Stream 47 of Ascend Hardware"));
  EXPECT_THAT(DurationsUs(npu, "MatMulV2"), ElementsAre(12.34));
}

TEST(CasesTest, TablesOfAnyVersionAreRead) {
  for (const char* name : {"nsight_tables_v3.sqlite", "nsight_views.sqlite"}) {
    EXPECT_THAT(ComputeLanes(Read(name)), ElementsAre("GPU 0 stream 7")) << name;
  }
  const Timeline t = Read("nvprof.sqlite");
  double kernels = 0;
  for (const double us : DurationsUs(t, "gemm")) kernels += us;
  EXPECT_EQ(DurationsUs(t, "gemm").size(), 5u);
  EXPECT_NEAR(kernels, 4.5, 1e-9);
}

TEST(CasesTest, RefusalsHaveTheirTrueReason) {
  EXPECT_THAT(Refusal("nsight_cut.sqlite"), HasSubstr("cut off: 12288 of 24576 bytes"));
  EXPECT_THAT(Refusal("list_of_lists.json"), HasSubstr("JSON of another kind"));
  EXPECT_THAT(Refusal("list_of_results.json"), HasSubstr("JSON of another kind"));
  EXPECT_THAT(Refusal("xspace.pb"), HasSubstr("protobuf of another kind"));
  EXPECT_THAT(Refusal("trace.zip"), HasSubstr("ZIP archive"));
  EXPECT_THAT(Refusal("utf16.json"), HasSubstr("UTF-16"));
}

TEST(CasesTest, ACommaTooManyDoesNotTruncate) {
  const ImportedTrace imported = Import(Case("last_event_comma.json"));
  EXPECT_EQ(imported.trace.timelines.at(0).rows(), 2);
  EXPECT_FALSE(imported.report.truncated);
  EXPECT_EQ(imported.trace.info.machine(), "Some GPU");
}

// A copy that is called before the layer and runs within its range is not the layer's: neither in
// the recording nor in what is exported of it.
TEST(CasesTest, WhatIsExportedAndReadAgainKeepsItsNumbers) {
  const Timeline t = Read("roundtrip_layer.json");
  for (const auto write : {+[](const Timeline&of, const std::filesystem::path&path) {
                             ExportChromeJson(std::span(&of, 1), path);
                           },
                           +[](const Timeline&of, const std::filesystem::path&path) {
                             ExportPerfetto(std::span(&of, 1), path);
                           }}) {
    const Timeline again = ImportText(Written([&](const std::filesystem::path& path) {
                             write(t, path);
                           })).trace.timelines.at(0);
    EXPECT_EQ(again.layer, t.layer);
    EXPECT_EQ(again.op, t.op);
    EXPECT_EQ(again.role, t.role);
    EXPECT_EQ(again.lanes, t.lanes);
  }
}

TEST(CasesTest, WaitsOfNoStreamAreTheGpus) {
  const Timeline t = Read("waits_label.json");
  std::vector<std::string> names;
  for (const TimelineLane& lane : t.lanes) names.push_back(lane.name);
  EXPECT_THAT(names, ElementsAre("GPU 0 waits", "GPU 0 stream 1"));
}

TEST(CasesTest, WorkOverWorkOfOneStreamIsNoted) {
  EXPECT_THAT(Read("stream_overflow.json").notes,
              Contains(HasSubstr("GPU 0 stream 7: 2 slices begin before")));
}

TEST(KernelKindTest, NamesOfLibrariesTellWhatTheyDo) {
  const auto kind = [](const char* name) { return Name(KindOfKernel(name)); };
  EXPECT_EQ(kind("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT"), "gemm");
  EXPECT_EQ(kind("void cublasLt::splitKreduce_kernel<32, 16, int, float>"), "gemm");
  EXPECT_EQ(kind("Cijk_Alik_Bljk_BBS_BH_MT128x128x32"), "gemm");
  EXPECT_EQ(kind("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16"), "attention");
  EXPECT_EQ(kind("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>"),
            "attention");
  EXPECT_EQ(kind("void vllm::rms_norm_kernel<c10::BFloat16>"), "norm");
  EXPECT_EQ(kind("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>"), "norm");
  EXPECT_EQ(kind("void at::native::vectorized_elementwise_kernel<8, silu_kernel>"), "elementwise");
  EXPECT_EQ(kind("triton_poi_fused_add_mul_0"), "elementwise");
  EXPECT_EQ(kind("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"), "communication");
  EXPECT_EQ(kind("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>"), "communication");
  EXPECT_EQ(kind("void at::native::sbtopk::gatherTopK<float, unsigned int, 2>"), "top-k");
  EXPECT_EQ(kind("void at::native::reduce_kernel<512, 1, ArgMaxOps<float>>"), "top-k");
  EXPECT_EQ(kind("Memcpy HtoD (Pinned -> Device)"), "copy to GPU");
  EXPECT_EQ(kind("Memcpy DtoH (Device -> Pageable)"), "copy to host");
  EXPECT_EQ(kind("CopyDeviceToHost"), "copy to host");
  EXPECT_EQ(kind("Memcpy DtoD (Device -> Device)"), "rearrange");
  EXPECT_EQ(kind("MemcpyH2D"), "copy to GPU");
  EXPECT_EQ(kind("ours::(anonymous namespace)::ProductKernel(Scatter*, int)"), "gemm");
  EXPECT_EQ(kind("ours::(anonymous namespace)::Kernel(AttentionParams)"), "other");
  EXPECT_EQ(kind("void (anonymous namespace)::distribution_normal_kernel<float>"), "other");
}

}  // namespace
}  // namespace stallcast::traces
