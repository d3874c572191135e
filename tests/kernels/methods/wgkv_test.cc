// WG-KV's kernels against double precision.
#include "kernels/methods/wgkv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "tests/kernels/on_device.h"
#include "traces/common/error.h"

namespace stallcast::kernels {
namespace {

using WgKv = OnDevice;

double At(const std::vector<__nv_bfloat16>& values, int64_t i) {
  return __bfloat162float(values[static_cast<size_t>(i)]);
}

TEST_F(WgKv, GateIsThePapersMlp) {
  for (const int dim : {64, 128}) {
    for (const int tokens : {1, 3, 8, 9, 200}) {
      const int heads = 3, hidden = 4 * dim;
      const auto w1 = RandomBf16(random_, int64_t{heads} * hidden * 2 * dim, 0.1f);
      const auto b1 = RandomBf16(random_, int64_t{heads} * hidden, 0.3f);
      const auto w2 = RandomBf16(random_, int64_t{heads} * hidden, 0.1f);
      const auto b2 = RandomBf16(random_, heads, 0.3f), norm = RandomBf16(random_, dim);
      // Keys before RoPE in a fused projection, after it in a cache.
      const auto before = RandomBf16(random_, int64_t{tokens} * heads * dim, 3);
      const auto after = RandomBf16(random_, int64_t{tokens} * heads * 2 * dim, 3);
      const auto d_w1 = Uploaded(w1), d_b1 = Uploaded(b1), d_w2 = Uploaded(w2), d_b2 = Uploaded(b2);
      const auto d_norm = Uploaded(norm), d_before = Uploaded(before), d_after = Uploaded(after);
      auto scores = Poisoned<float>(int64_t{heads} * (tokens + 5));
      const GateWeights weights{d_w1.get(), d_b1.get(), d_w2.get(), d_b2.get(), d_norm.get(),
                                nullptr,    heads,      dim,        hidden};
      const auto workspace =
          Uploaded(std::vector<float>(static_cast<size_t>(GateMlpWorkspace(weights))));
      for (int launch = 0; launch < 2; ++launch) {  // the first leaves the workspace ready
        GateMlp(weights, {d_before.get(), dim, int64_t{heads} * dim, 0},
                {d_after.get(), int64_t{tokens} * 2 * dim, int64_t{2} * dim, dim}, tokens,
                scores.get(), tokens + 5, 1, workspace.get(), nullptr);
      }
      const auto got = ToHost(scores);
      for (int h = 0; h < heads; ++h) {
        for (int t = tokens; t < tokens + 5; ++t) {
          EXPECT_TRUE(std::isnan(got[h * (tokens + 5) + t])) << "behind the last";
        }
        // All of a few; of many one in seven, and the last ones.
        for (int t = 0; t < tokens; t = tokens < 16 ? t + 1 : t + 7 < tokens ? t + 7 : t + 1) {
          std::vector<double> input;
          for (const bool rotated : {false, true}) {
            double squares = 0;
            const auto key = [&](int i) {
              return rotated ? At(after, (int64_t{h} * tokens + t) * 2 * dim + i)
                             : At(before, (int64_t{t} * heads + h) * dim + i);
            };
            for (int i = 0; i < dim; ++i) squares += key(i) * key(i);
            for (int i = 0; i < dim; ++i) {
              const double x =
                  key(i) / std::sqrt(squares / dim + 1e-6) * (rotated ? 1 : At(norm, i));
              input.push_back(__bfloat162float(__float2bfloat16(static_cast<float>(x))));
            }
          }
          double sum = At(b2, h);
          for (int j = 0; j < hidden; ++j) {
            double x = At(b1, h * hidden + j);
            for (int i = 0; i < 2 * dim; ++i) {
              x += At(w1, (int64_t{h} * hidden + j) * 2 * dim + i) * input[static_cast<size_t>(i)];
            }
            sum += x * std::erfc(-x / std::sqrt(2.0)) / 2 * At(w2, h * hidden + j);
          }
          // An input next to a rounding edge may round the other way.
          ASSERT_NEAR(got[h * (tokens + 5) + t], 1 / (1 + std::exp(-sum)), 2e-3)
              << dim << " " << tokens << " " << h << " " << t;
        }
      }
    }
  }
}

TEST_F(WgKv, AdmittedTokensGoToTheirPagesInOrder) {
  constexpr int kPage = 16, kLead = 16;  // a window of one page
  for (const int dim : {64, 128}) {
    for (const int tokens : {1, 5, 1'024, 3'333}) {
      const int rows = 5, max_pages = (tokens + 40) / kPage + 2;
      const auto kv = RandomBf16(random_, int64_t{tokens} * rows * 2 * dim);
      const auto d_kv = Uploaded(kv);
      std::vector<float> scores;
      scores.reserve(static_cast<size_t>(rows) * tokens);
      for (int i = 0; i < rows * tokens; ++i) scores.push_back(static_cast<float>(random_() % 4));
      for (int t = 0; t < tokens; ++t) scores[t] = 0, scores[tokens + t] = 9;  // none, all
      const std::vector<int32_t> before{0, 3, 16, 31, 33};
      std::vector<int32_t> table;
      for (int i = 0; i < rows * max_pages; ++i) table.push_back(i);
      std::shuffle(table.begin(), table.end(), random_);
      const auto d_scores = Uploaded(scores);
      const auto d_table = Uploaded(table);
      auto d_lengths = Uploaded(before);
      auto pages = Poisoned<__nv_bfloat16>(int64_t{rows} * max_pages * 2 * kPage * dim);
      auto columns = Poisoned<int32_t>(int64_t{rows} * tokens);
      auto admitted = Poisoned<uint8_t>(int64_t{rows} * tokens);
      const Buffer<int32_t> workspace(AdmitWorkspace(rows, tokens));
      auto counts = Poisoned<int32_t>(rows), begun = Poisoned<int32_t>(rows);
      auto last_whole = Poisoned<int32_t>(rows);
      const PagedKv cache = HndPages(pages.get(), kPage, 1, dim);
      Admit({d_kv.get(), int64_t{2} * dim, int64_t{rows} * 2 * dim, dim}, d_scores.get(), tokens,
            rows, tokens, 2.0f, cache, d_table.get(), max_pages, d_lengths.get(),
            {columns.get(), admitted.get(), counts.get(), tokens}, workspace.get(), nullptr,
            {begun.get(), last_whole.get(), kLead});
      const auto got = ToHost(pages);
      const auto got_lengths = ToHost(d_lengths), got_columns = ToHost(columns);
      const auto got_admitted = ToHost(admitted);
      for (int row = 0; row < rows; ++row) {
        int count = 0;
        for (int t = 0; t < tokens; ++t) {
          const bool keep = scores[int64_t{row} * tokens + t] >= 2;
          ASSERT_EQ(got_admitted[int64_t{row} * tokens + t], keep ? 1 : 0);
          if (!keep) continue;
          ASSERT_EQ(got_columns[int64_t{row} * tokens + count], t);
          const int place = before[row] + count++;
          const int64_t slot = table[row * max_pages + place / kPage];
          for (int d = 0; d < 2 * dim; d += 13) {
            const int64_t at = slot * cache.slot_stride + d / dim * cache.kv_stride +
                               int64_t{place % kPage} * dim + d % dim;
            ASSERT_EQ(Bits(got[at]), Bits(kv[(int64_t{t} * rows + row) * 2 * dim + d]));
          }
        }
        const int length = before[row] + count, behind = length - kLead;
        ASSERT_EQ(got_lengths[row], length);
        ASSERT_EQ(ToHost(counts)[row], count);
        if (behind < 0) continue;
        ASSERT_EQ(ToHost(begun)[row], (behind + kPage - 1) / kPage);
        ASSERT_EQ(ToHost(last_whole)[row], behind / kPage - 1);
      }
    }
  }
}

TEST_F(WgKv, SelectedPagesAreAttendedBehindTheWindow) {
  constexpr int kPage = 16, kLead = 3, kMaxPages = 20, kChosen = 6;
  // Rows with more pages than are chosen, the last one partial or whole, and with fewer or none.
  const std::vector<int32_t> admitted{150, 160, 37, 16, 0};
  const auto rows = static_cast<int32_t>(admitted.size());
  std::vector<int32_t> table, ids, lengths, begun;
  for (int32_t i = 0; i < rows * kMaxPages; ++i) table.push_back(1'000 - i);
  for (const int32_t tokens : admitted) {
    const int32_t pages = (tokens + kPage - 1) / kPage;
    lengths.push_back(kLead * kPage + tokens);
    begun.push_back(pages);
    // As top-k gives them: ascending, and pages that a row does not have behind all it has.
    std::vector<int32_t> chosen;
    for (int32_t id = std::max(0, pages - kChosen); std::ssize(chosen) < kChosen; ++id) {
      chosen.push_back(id);
    }
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  ids[0] = 1;  // not only the last ones
  const auto d_table = Uploaded(table), d_ids = Uploaded(ids), d_lengths = Uploaded(lengths);
  const auto d_begun = Uploaded(begun);
  auto attended = Poisoned<int32_t>(int64_t{rows} * (kLead + kChosen));
  auto tokens = Poisoned<int32_t>(rows);
  AttendSelected(d_ids.get(), rows, kChosen, d_table.get(), kMaxPages, kLead, kPage,
                 d_lengths.get(), d_begun.get(), attended.get(), tokens.get(), nullptr);
  const auto got = ToHost(attended), got_tokens = ToHost(tokens);
  for (int32_t row = 0; row < rows; ++row) {
    const int32_t present = std::min(kChosen, begun[row]);
    const int32_t missing = begun[row] * kPage - admitted[row];
    EXPECT_EQ(got_tokens[row], (kLead + present) * kPage - missing) << row;
    for (int32_t i = 0; i < kLead + present; ++i) {
      const int32_t page = i < kLead ? i : kLead + ids[row * kChosen + i - kLead];
      EXPECT_EQ(got[row * (kLead + kChosen) + i], table[row * kMaxPages + page]) << row << " " << i;
    }
  }
}

struct SlashShape {
  int sequences, tokens, window, kv_heads, group, density;  // of 8
};

TEST_F(WgKv, VerticalSlashAttentionSeesExactlyTheMask) {
  constexpr int kDim = 128;
  for (const SlashShape& s : {SlashShape{1, 1'000, 64, 2, 2, 2},
                              {1, 700, 256, 1, 4, 2},
                              {2, 333, 1, 1, 1, 4},
                              {1, 130, 300, 1, 2, 0},
                              {1, 1, 5, 1, 1, 8},
                              {1, 515, 17, 2, 1, 0},
                              {1, 640, 100, 1, 1, 8}}) {
    SCOPED_TRACE(testing::Message() << s.tokens << " " << s.window << " " << s.density);
    const int rows = s.sequences * s.kv_heads, heads = s.kv_heads * s.group;
    const auto query = RandomBf16(random_, int64_t{s.sequences} * s.tokens * heads * kDim);
    const auto kv = RandomBf16(random_, int64_t{rows} * s.tokens * 2 * kDim);
    std::vector<uint8_t> admitted;
    admitted.reserve(static_cast<size_t>(rows) * s.tokens);
    for (int i = 0; i < rows * s.tokens; ++i) {
      admitted.push_back(static_cast<int>(random_() % 8) < s.density ? 1 : 0);
    }
    std::vector<int32_t> columns(admitted.size()), counts;
    for (int row = 0; row < rows; ++row) {
      int count = 0;
      for (int t = 0; t < s.tokens; ++t) {
        if (admitted[row * s.tokens + t] != 0) columns[row * s.tokens + count++] = t;
      }
      counts.push_back(count);
    }
    const auto d_query = Uploaded(query), d_kv = Uploaded(kv);
    const auto d_admitted = Uploaded(admitted);
    const auto d_columns = Uploaded(columns), d_counts = Uploaded(counts);
    auto output = Poisoned<__nv_bfloat16>(d_query.size());
    VerticalSlashAttention(
        {.query = d_query.get(),
         .kv = {d_kv.get(), int64_t{s.tokens} * 2 * kDim, int64_t{2} * kDim, kDim},
         .columns = d_columns.get(),
         .column_counts = d_counts.get(),
         .admitted = d_admitted.get(),
         .output = output.get(),
         .sequences = s.sequences,
         .tokens = s.tokens,
         .window = s.window,
         .kv_heads = s.kv_heads,
         .group = s.group,
         .head_dim = kDim,
         .scale = 0.0883883f},
        nullptr);
    const auto got = ToHost(output);
    for (int sequence = 0; sequence < s.sequences; ++sequence) {
      for (int head = 0; head < heads; ++head) {
        const int row = sequence * s.kv_heads + head / s.group;
        for (int i = 0; i < s.tokens; i += i % 128 == 125 ? 1 : 3) {
          const int64_t at = ((int64_t{sequence} * s.tokens + i) * heads + head) * kDim;
          std::vector<double> weights;
          std::vector<int> seen;
          double most = -1e300, sum = 0;
          for (int j = 0; j <= i; ++j) {
            if (i - j >= s.window && admitted[row * s.tokens + j] == 0) continue;
            double dot = 0;
            for (int d = 0; d < kDim; ++d) {
              dot += At(query, at + d) * At(kv, (int64_t{row} * s.tokens + j) * 2 * kDim + d);
            }
            weights.push_back(dot * 0.0883883);
            seen.push_back(j);
            most = std::max(most, weights.back());
          }
          for (double& w : weights) sum += w = std::exp(w - most);
          for (int d = 0; d < kDim; d += 5) {
            double want = 0;
            for (size_t n = 0; n < seen.size(); ++n) {
              want += weights[n] / sum *
                      At(kv, (int64_t{row} * s.tokens + seen[n]) * 2 * kDim + kDim + d);
            }
            // Weights are rounded to bf16 before they meet the values.
            ASSERT_NEAR(__bfloat162float(got[at + d]), want, 0.01 + std::abs(want) / 100)
                << i << " " << head << " " << d;
          }
        }
      }
    }
  }
}

TEST_F(WgKv, WindowScoresAreSummedAttentionMaxPooled) {
  constexpr int kDim = 128, kPage = 16, kRows = 2, kSlots = 40;
  struct Shape {
    int group, queries, stride, shorter;
    int apart = 0;  // queries between the rows'
    bool partly = false;
  };
  // One chunk of keys and several, one part of the window and several, groups that fill their slots
  // and others; the last rows have no key. Queries may be further apart than they need, and keys
  // beyond some be for the softmax alone.
  for (const auto& [group, queries, stride, shorter, apart, partly] : {Shape{1, 21, 200, 77},
                                                                       {2, 150, 300, 256},
                                                                       {3, 21, 200, 77},
                                                                       {4, 70, 600, 257},
                                                                       {7, 40, 300, 31},
                                                                       {12, 21, 200, 77},
                                                                       {32, 9, 300, 0},
                                                                       {64, 5, 257, 1},
                                                                       {4, 70, 600, 257, 5, true},
                                                                       {2, 21, 200, 77, 0, true}}) {
    SCOPED_TRACE(testing::Message() << group << " " << queries << " " << stride << " " << partly);
    const int first = 500;
    const std::vector<int32_t> counts{stride, shorter}, scored{stride * 3 / 4, shorter};
    const int scored_stride = partly ? stride * 4 / 5 : stride;
    const int64_t query_stride = int64_t{queries + apart} * group * kDim;
    std::vector<int32_t> places, positions;
    for (int row = 0; row < kRows; ++row) {
      for (int n = 0; n < stride; ++n) {
        places.push_back(static_cast<int32_t>(random_() % (kSlots * kPage)));
        positions.push_back(first + queries + (n - counts[row]) * (n < counts[row] - 30 ? 3 : 1));
      }
    }
    const auto query = RandomBf16(random_, kRows * query_stride);
    const auto pages = RandomBf16(random_, int64_t{kSlots} * 2 * kPage * kDim);
    auto d_pages = Uploaded(pages);
    const auto d_query = Uploaded(query);
    const auto d_places = Uploaded(places), d_positions = Uploaded(positions);
    const auto d_counts = Uploaded(counts), d_scored = Uploaded(scored);
    auto scores = Poisoned<float>(int64_t{kRows} * scored_stride);
    WindowScoreArgs args{.query = d_query.get(),
                         .query_stride = apart > 0 ? query_stride : 0,
                         .cache = HndPages(d_pages.get(), kPage, 1, kDim),
                         .places = d_places.get(),
                         .positions = d_positions.get(),
                         .counts = d_counts.get(),
                         .scores = scores.get(),
                         .scored = partly ? d_scored.get() : nullptr,
                         .scored_stride = partly ? scored_stride : 0,
                         .workspace = nullptr,
                         .rows = kRows,
                         .stride = stride,
                         .queries = queries,
                         .group = group,
                         .first_position = first,
                         .smooth = 5,
                         .scale = 0.0883883f};
    auto workspace = Poisoned<float>(WindowScoreWorkspace(args));
    args.workspace = workspace.get();
    WindowScore(args, nullptr);
    const auto got = ToHost(scores);
    for (int row = 0; row < kRows; ++row) {
      std::vector<double> raw(static_cast<size_t>(counts[row]));
      for (int q = 0; q < queries; ++q) {
        std::vector<double> largest(raw.size());
        for (int g = 0; g < group; ++g) {
          std::vector<double> weights;
          double sum = 0;
          for (int n = 0; n < counts[row]; ++n) {
            const int place = places[row * stride + n];
            double dot = 0;
            for (int d = 0; d < kDim; ++d) {
              dot += At(query, row * query_stride + (int64_t{q} * group + g) * kDim + d) *
                     At(pages, (int64_t{place / kPage} * 2 * kPage + place % kPage) * kDim + d);
            }
            const bool seen = positions[row * stride + n] <= first + q;
            sum += weights.emplace_back(seen ? std::exp(dot * 0.0883883) : 0);
          }
          for (size_t n = 0; n < raw.size(); ++n) {
            largest[n] = std::max(largest[n], weights[n] / sum);
          }
        }
        for (size_t n = 0; n < raw.size(); ++n) raw[n] += largest[n];
      }
      for (int n = scored[row]; partly && n < scored_stride; ++n) {
        ASSERT_EQ(got[row * scored_stride + n], INFINITY) << n;
      }
      for (int n = 0; n < (partly ? scored[row] : counts[row]); ++n) {
        const auto from = raw.begin() + std::max(0, n - 2);
        const auto to = raw.begin() + std::min(counts[row], n + 3);
        const double want = *std::max_element(from, to);
        ASSERT_NEAR(got[row * scored_stride + n], want, 1e-4 * (1 + want)) << group << " " << n;
      }
    }
  }
}

// Rows of several lengths, their pages anywhere.
struct Rows {
  static constexpr int kPage = 8;
  Rows(std::mt19937& random, int dim, int window, std::vector<int32_t> admitted)
      : max_pages((window + *std::ranges::max_element(admitted) + kPage - 1) / kPage + 1) {
    for (const int32_t tokens : admitted) lengths.push_back(window + tokens);
    const auto rows = static_cast<int32_t>(admitted.size());
    for (int32_t i = 0; i < rows * max_pages; ++i) table.push_back(i);
    std::shuffle(table.begin(), table.end(), random);
    kv = RandomBf16(random, int64_t{rows} * max_pages * 2 * kPage * dim);
    d_kv = Uploaded(kv), d_table = Uploaded(table), d_lengths = Uploaded(lengths);
    view = {HndPages(d_kv.get(), kPage, 1, dim),
            d_table.get(),
            d_lengths.get(),
            rows,
            max_pages,
            window};
  }
  int32_t Place(int row, int token) const {
    return table[static_cast<size_t>(row * max_pages + token / kPage)] * kPage + token % kPage;
  }
  // Element of a row's token, keys and then values.
  int64_t Index(int row, int token, int channel) const {
    const int dim = view.cache.head_dim, place = Place(row, token);
    return place / kPage * view.cache.slot_stride + channel / dim * view.cache.kv_stride +
           int64_t{place % kPage} * dim + channel % dim;
  }

  int max_pages;
  std::vector<int32_t> lengths, table;
  std::vector<__nv_bfloat16> kv;
  Buffer<__nv_bfloat16> d_kv;
  Buffer<int32_t> d_table, d_lengths;
  GrowingRows view;
};

TEST_F(WgKv, ObservedKeysAreWhatWasAdmittedAndThenTheWindow) {
  constexpr int kWindow = 24, kStride = 400;
  const Rows rows(random_, 64, kWindow, {300, 0, 7});
  for (const auto& [queries, unseen, oldest] :
       std::vector<std::array<int, 3>>{{24, 0, 0}, {24, 5, 23}, {10, 0, 11}, {1, 0, 3}}) {
    auto places = Poisoned<int32_t>(3 * kStride), positions = Poisoned<int32_t>(3 * kStride);
    auto counts = Poisoned<int32_t>(3), admitted = Poisoned<int32_t>(3);
    ListObservedKeys(rows.view, oldest, queries, unseen,
                     {places.get(), positions.get(), counts.get(), admitted.get(), kStride},
                     nullptr);
    const auto got_places = ToHost(places), got_positions = ToHost(positions);
    for (int row = 0; row < 3; ++row) {
      const int length = rows.lengths[row], global = length - kWindow;
      ASSERT_EQ(ToHost(counts)[row], length);
      ASSERT_EQ(ToHost(admitted)[row], global);
      for (int n = 0; n < length; ++n) {
        const int in_window = n - global;
        ASSERT_EQ(got_places[row * kStride + n],
                  in_window < 0 ? rows.Place(row, kWindow + n)
                                : rows.Place(row, (oldest + in_window) % kWindow));
        // The first query is `queries` before the newest token, which none of them sees.
        const int later = kWindow - 1 - in_window;  // tokens after this one
        for (int q = 0; q < queries; ++q) {
          const bool sees = q >= unseen && (in_window < 0 || later >= queries - q);
          ASSERT_EQ(got_positions[row * kStride + n] <= q, sees) << n << " " << q;
        }
      }
    }
  }
}

TEST_F(WgKv, DroppingTokensMovesTheOthersUpInOrder) {
  constexpr int kWindow = 16;
  for (const int dim : {64, 128}) {
    for (const double share : {0.0, 0.02, 0.1, 0.9, 1.0}) {
      SCOPED_TRACE(testing::Message() << dim << " " << share);
      // One, several and no whole batches of tokens; none at all.
      Rows rows(random_, dim, kWindow, {5'000, 1'023, 1'025, 17, 1, 0});
      const auto count_rows = static_cast<int32_t>(rows.lengths.size());
      constexpr int kStride = 5'003;
      std::vector<int32_t> dropped(static_cast<size_t>(count_rows) * kStride, -1), counts;
      std::vector<std::vector<int>> kept(rows.lengths.size());
      for (int row = 0; row < count_rows; ++row) {
        int count = 0;
        for (int n = 0; n < rows.lengths[row] - kWindow; ++n) {
          // The first of the longest stay, as sinks do.
          if (!(row == 0 && n < 100) && static_cast<double>(random_() % 1000) < share * 1000) {
            dropped[row * kStride + count++] = n;
          } else {
            kept[row].push_back(n);
          }
        }
        // What a row does not have is ignored.
        if (row == 2) dropped[row * kStride + count++] = rows.lengths[row] - kWindow;
        if (row == 2) dropped[row * kStride + count++] = rows.lengths[row] + 1'000;
        counts.push_back(count);
      }
      const auto d_dropped = Uploaded(dropped), d_counts = Uploaded(counts);
      auto begun = Poisoned<int32_t>(count_rows), last_whole = Poisoned<int32_t>(count_rows);
      DropTokens(rows.view, d_dropped.get(), kStride, d_counts.get(),
                 {begun.get(), last_whole.get(), kWindow}, nullptr);
      const auto got = ToHost(rows.d_kv);
      for (int row = 0; row < count_rows; ++row) {
        const auto left = static_cast<int32_t>(kept[row].size());
        ASSERT_EQ(ToHost(rows.d_lengths)[row], kWindow + left);
        ASSERT_EQ(ToHost(begun)[row], (left + Rows::kPage - 1) / Rows::kPage);
        ASSERT_EQ(ToHost(last_whole)[row], left / Rows::kPage - 1);
        for (int n = 0; n < left; ++n) {
          for (int channel = 0; channel < 2 * dim; ++channel) {
            ASSERT_EQ(Bits(got[rows.Index(row, kWindow + n, channel)]),
                      Bits(rows.kv[rows.Index(row, kWindow + kept[row][n], channel)]))
                << row << " " << n << " " << channel;
          }
        }
        for (int n = 0; n < kWindow; ++n) {
          for (int channel = 0; channel < 2 * dim; ++channel) {
            const int64_t at = rows.Index(row, n, channel);
            ASSERT_EQ(Bits(got[at]), Bits(rows.kv[at])) << "window, row " << row;
          }
        }
      }
    }
  }
}

TEST_F(WgKv, RefusesWhatItCannotDo) {
  EXPECT_THROW(GateMlp({.kv_heads = 1, .head_dim = 128, .hidden = 100}, {}, {}, 1, nullptr, 1, 1,
                       nullptr, nullptr),
               Error);
  EXPECT_THROW(
      ListObservedKeys({.cache = {}, .rows = 1, .window = 8}, 0, 9, 0, {.stride = 8}, nullptr),
      Error);
  EXPECT_THROW(DropTokens({.cache = {}, .rows = 1}, nullptr, 1, nullptr, {}, nullptr), Error);
  EXPECT_THROW(VerticalSlashAttention({.window = 256, .group = 1, .head_dim = 64}, nullptr), Error);
}

}  // namespace
}  // namespace stallcast::kernels
