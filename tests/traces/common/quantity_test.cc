// Numbers with units: what is read, what is refused and how, what is printed.
#include "traces/common/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "traces/common/error.h"

namespace stallcast {
namespace {

using testing::HasSubstr;

TEST(QuantityTest, ReadsEveryUnit) {
  struct Case {
    const char* text;
    Dimension dimension;
    double value;
  };
  for (const Case& c : {
           Case{"0.8", Dimension::kNumber, 0.8},
           Case{"80%", Dimension::kNumber, 0.8},
           Case{"1e3", Dimension::kNumber, 1000},
           Case{"7ps", Dimension::kTime, 7e-12},
           Case{"7ns", Dimension::kTime, 7e-9},
           Case{"4.9us", Dimension::kTime, 4.9e-6},
           Case{"2ms", Dimension::kTime, 2e-3},
           Case{"3s", Dimension::kTime, 3},
           Case{"1B", Dimension::kBytes, 1},
           Case{"16KiB", Dimension::kBytes, 16384},
           Case{"16kB", Dimension::kBytes, 16000},
           Case{"80GB", Dimension::kBytes, 80e9},
           Case{"1.5TiB", Dimension::kBytes, 1.5 * (int64_t{1} << 40)},
           Case{"52.8GB/s", Dimension::kRate, 52.8e9},
           Case{"1GiB/s", Dimension::kRate, 1 << 30},
           Case{"4.8 TB/s", Dimension::kRate, 4.8e12},
           Case{" 12MB/s ", Dimension::kRate, 12e6},
           Case{"989TFLOPS", Dimension::kFlops, 989e12},
           Case{"1PFLOP/s", Dimension::kFlops, 1e15},
           Case{"0B/s", Dimension::kRate, 0},
       }) {
    EXPECT_DOUBLE_EQ(ParseQuantity(c.text, c.dimension, "test"), c.value) << c.text;
  }
}

TEST(QuantityTest, RefusesWithTheReason) {
  struct Case {
    const char* text;
    Dimension dimension;
    const char* reason;
  };
  for (const Case& c : {
           Case{"128GB", Dimension::kRate, "'128GB' is a size; give a rate such as 52.8GB/s"},
           Case{"128GB/s", Dimension::kBytes, "is a rate; give a size"},
           Case{"4us", Dimension::kBytes, "is a time; give a size"},
           Case{"4KiB", Dimension::kTime, "is a size; give a time"},
           Case{"100", Dimension::kTime, "has no unit; give a time"},
           Case{"100", Dimension::kRate, "has no unit"},
           Case{"10%", Dimension::kBytes, "unknown unit '%'"},
           Case{"1TFLOPS", Dimension::kNumber, "is a compute rate; give a plain number"},
           Case{"1KiFLOPS", Dimension::kFlops, "unknown unit 'KiFLOPS'"},
           Case{"16KB", Dimension::kBytes, "write k for 1000 or Ki for 1024"},
           Case{"100Gb/s", Dimension::kRate, "unknown unit 'Gb/s'"},
           Case{"-3GB", Dimension::kBytes, "is negative"},
           Case{"nan", Dimension::kNumber, "is not a number"},
           Case{"inf", Dimension::kNumber, "is not finite"},
           Case{"1e999GB", Dimension::kBytes, "is out of range"},
           Case{"1e308TB", Dimension::kBytes, "is out of range"},
           Case{"", Dimension::kNumber, "is not a number"},
           Case{"   ", Dimension::kNumber, "is not a number"},
           Case{"GB", Dimension::kBytes, "is not a number"},
           Case{"1,5GB", Dimension::kBytes, "unknown unit ',5GB'"},
           Case{"5GB and more", Dimension::kBytes, "unknown unit"},
           Case{"0x10", Dimension::kNumber, "unknown unit 'x10'"},
       }) {
    try {
      ParseQuantity(c.text, c.dimension, "--set link.h2d");
      ADD_FAILURE() << c.text << " was read";
    } catch (const Error& error) {
      EXPECT_TRUE(error.usage());
      EXPECT_EQ(error.where(), "--set link.h2d");
      EXPECT_THAT(error.what(), HasSubstr(c.reason));
    }
  }
}

TEST(QuantityTest, PrintsForPeople) {
  struct Case {
    double value;
    Dimension dimension;
    const char* text;
  };
  for (const Case& c : {
           Case{52.8e9, Dimension::kRate, "52.8 GB/s"},
           Case{4.8e12, Dimension::kRate, "4.8 TB/s"},
           Case{16384, Dimension::kBytes, "16 KiB"},
           Case{1000, Dimension::kBytes, "1000 B"},
           Case{1023.0 * (1 << 20), Dimension::kBytes, "1023 MiB"},
           Case{1023.99 * (1 << 20), Dimension::kBytes, "1 GiB"},
           Case{1 << 30, Dimension::kBytes, "1 GiB"},
           Case{0, Dimension::kBytes, "0 B"},
           Case{4.9e-6, Dimension::kTime, "4.9 us"},
           Case{999.96e-9, Dimension::kTime, "1 us"},
           Case{0.01234567, Dimension::kTime, "12.35 ms"},
           Case{0, Dimension::kTime, "0 s"},
           Case{86400, Dimension::kTime, "86400 s"},
           Case{989e12, Dimension::kFlops, "989 TFLOPS"},
           Case{0.81234, Dimension::kNumber, "0.8123"},
           Case{123456, Dimension::kNumber, "123456"},
           Case{-52.8e9, Dimension::kRate, "-52.8 GB/s"},
       }) {
    EXPECT_EQ(FormatQuantity(c.value, c.dimension), c.text);
  }
}

TEST(QuantityTest, WhatIsPrintedReadsBackToFourDigits) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-11, 15);
  for (const Dimension dimension : {Dimension::kNumber, Dimension::kTime, Dimension::kBytes,
                                    Dimension::kRate, Dimension::kFlops}) {
    for (int i = 0; i < 2000; ++i) {
      const double value = std::pow(10, exponent(random));
      const std::string text = FormatQuantity(value, dimension);
      ASSERT_NEAR(ParseQuantity(text, dimension, "test") / value, 1, 6e-4) << text;
    }
  }
}

}  // namespace
}  // namespace stallcast
