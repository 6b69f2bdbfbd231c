// Opening a checkpoint in a test, and looking up its findings.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "checkpoint/scan.h"

namespace sextant::testing {

// The checkpoint, or a failed test and nullptr.
inline std::unique_ptr<Checkpoint> opened(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().text;
    return nullptr;
  }
  return std::move(*checkpoint);
}

// The error of a checkpoint that must not open.
inline Error refused(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error();
  ADD_FAILURE() << path << " opened";
  return {};
}

inline const Finding* find(const Checkpoint& checkpoint, std::string_view slug) {
  for (const Finding& finding : checkpoint.findings())
    if (finding.slug == slug) return &finding;
  return nullptr;
}

inline std::vector<Finding> with_severity(const Checkpoint& checkpoint, Severity severity) {
  std::vector<Finding> found;
  for (const Finding& finding : checkpoint.findings())
    if (finding.severity == severity) found.push_back(finding);
  return found;
}

inline std::vector<Finding> scanned(const Checkpoint& checkpoint, int n_threads = 2) {
  ThreadPool pool(n_threads);
  return scan_scales(checkpoint, pool);
}

}  // namespace sextant::testing
