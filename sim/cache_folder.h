// Where files are kept that can be made again: access logs, synthetic traces.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace stallcast::sim {

/// Folders to try, best first: `.stallcast` in `folder` (`folder` itself if it is one), then the
/// user's cache folder (XDG_CACHE_HOME, else ~/.cache).
std::vector<std::filesystem::path> CacheFolders(const std::filesystem::path& folder);

/// Calls `write` with the path of a new file and renames that to `name` in `folder`, which is made
/// where missing: the file appears whole, and programs that write it at once do not disturb one
/// another. False, with nothing left, where an Error or the system prevents it.
bool WriteCached(const std::filesystem::path& folder, const std::string& name,
                 const std::function<void(const std::filesystem::path&)>& write);

/// A text that this user's programs alone know, made where it is missing and kept in the user's
/// cache folder; empty where there is none. What is named by it came from nobody else.
std::string OwnSecret();

/// 32 hexadecimal digits for a text.
std::string HashOf(const std::string& text);

}  // namespace stallcast::sim
