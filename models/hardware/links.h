// Links between host and GPU by name: "pcie5x16", "c2c".
#pragma once

#include <string_view>

namespace stallcast::hardware {

/// What large copies reach, bytes/s.
struct LinkRates {
  double h2d = 0, d2h = 0;
};

/// "pcieGxL" for generations 3 to 6 and 1 to 16 lanes, or "c2c" (NVLink-C2C of Grace). Anything
/// else: usage Error. Rates of 16 lanes by copies: 12.8 GB/s (PCIe 3), 25.5 (4: nvbandwidth #11,
/// #53), 55 (5: measured on H100 and H200), 106 (6: the same share of the raw rate as 5, assumed);
/// fewer lanes have their share. C2C: 346 GB/s to the GPU and 295 back (GH200).
LinkRates LinkNamed(std::string_view name, std::string_view where);

}  // namespace stallcast::hardware
