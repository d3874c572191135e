// Files that are written whole or not at all, and never over what is read.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace stallcast {

/// Calls `write` with a path beside `path` and renames the result to `path`; where anything fails,
/// nothing is left and what was at `path` stays. A device or pipe is written directly. Errors name
/// `path`.
void WriteWhole(const std::filesystem::path& path,
                const std::function<void(const std::filesystem::path&)>& write);

/// The same where `write` says true; else nothing is left, and what was at `path` stays too.
void WriteWholeIf(const std::filesystem::path& path,
                  const std::function<bool(const std::filesystem::path&)>& write);

/// From now on a program that is interrupted, or told to end, leaves no half-written file behind.
/// Those of killed programs go when somebody next writes into their folder, an hour later.
void RemovePartsOnSignals();

/// Throws a usage Error where `output` is, by whatever name or link, one of the files that are
/// read. `inputs` may hold names that are no files: they match nothing.
void RefuseToReplace(const std::filesystem::path& output, const std::vector<std::string>& inputs);

}  // namespace stallcast
