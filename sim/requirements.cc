#include "sim/requirements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "traces/common/quantity.h"

namespace stallcast::sim {
namespace {

std::string Size(double bytes) { return FormatQuantity(bytes, Dimension::kBytes); }

template <class Key>
size_t Least(const std::vector<Figures>& all, const Key& key) {
  size_t least = all.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (least == all.size() || key(all[i]) < key(all[least])) least = i;
  }
  return least;
}

}  // namespace

Figures FiguresOf(const Prediction& p) {
  return {p.fits, Milliseconds(p.metrics.step_mean), p.selection.attention_mass,
          static_cast<double>(p.gpu_memory)};
}

bool Requirements::MassEnough(const Figures& of) const {
  return min_mass <= 0 || of.attention_mass >= min_mass;
}

std::string Requirements::MassText(double mass) const {
  if (std::isnan(mass)) return "-";
  constexpr int kDecimals = 3, kMostDecimals = 8;
  int decimals = kDecimals;
  std::string text = fmt::format("{:.{}f}", mass, decimals);
  while (mass < min_mass && std::stod(text) >= min_mass && decimals < kMostDecimals) {
    text = fmt::format("{:.{}f}", mass, ++decimals);
  }
  return text;
}

bool Requirements::Met(const Figures& of) const {
  return of.fits && MassEnough(of) && GpuEnough(of) && StepEnough(of);
}

double Requirements::Shortfall(const Figures& of) const {
  double sum = of.fits ? 0 : 1;
  if (!MassEnough(of)) {
    sum += std::isnan(of.attention_mass) ? 1 : (min_mass - of.attention_mass) / min_mass;
  }
  if (!GpuEnough(of)) sum += of.gpu_bytes / max_gpu_bytes - 1;
  if (!StepEnough(of)) sum += of.step_ms / max_step_ms - 1;
  return sum;
}

std::vector<std::string> Requirements::Missed(const Figures& of) const {
  std::vector<std::string> missed;
  if (!of.fits) missed.emplace_back("it does not fit the machine");
  if (!MassEnough(of)) {
    missed.push_back(
        std::isnan(of.attention_mass)
            ? "its mass is not known"
            : fmt::format("mass {} is below {:g}", MassText(of.attention_mass), min_mass));
  }
  if (!GpuEnough(of)) {
    missed.push_back(
        fmt::format("{} of GPU memory are above {}", Size(of.gpu_bytes), Size(max_gpu_bytes)));
  }
  if (!StepEnough(of)) {
    missed.push_back(fmt::format("a step of {:.2f} ms is above {:g} ms", of.step_ms, max_step_ms));
  }
  return missed;
}

std::string Requirements::Describe() const {
  std::vector<std::string> asked;
  if (min_mass > 0) asked.push_back(fmt::format("mass {:g} or more", min_mass));
  if (max_gpu_bytes < kAny) {
    asked.push_back(fmt::format("at most {} of GPU memory", Size(max_gpu_bytes)));
  }
  if (max_step_ms < kAny) asked.push_back(fmt::format("a step of at most {:g} ms", max_step_ms));
  return asked.empty() ? "any mass" : fmt::format("{}", fmt::join(asked, ", "));
}

size_t FastestThatMeets(const std::vector<Figures>& all, const Requirements& required) {
  const size_t best =
      Least(all, [&](const Figures& f) { return std::tuple(!required.Met(f), f.step_ms); });
  return best < all.size() && required.Met(all[best]) ? best : all.size();
}

size_t Nearest(const std::vector<Figures>& all, const Requirements& required) {
  return Least(all, [&](const Figures& f) { return std::tuple(required.Shortfall(f), f.step_ms); });
}

}  // namespace stallcast::sim
