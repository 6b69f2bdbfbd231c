// What doctor says about one checkpoint: the verdict, how it was read and why, every finding, and
// the numbers that reports chart. `diagnose` makes it; the report_* files show it; nothing here
// runs a model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "doctor/statistics.h"

namespace sextant {

enum class Verdict : uint8_t { kHealthy, kWarnings, kErrors, kUnreadable };
std::string_view verdict_name(Verdict verdict);  // "healthy", "warnings", "errors", "unreadable"
std::string_view severity_name(Severity severity);

// How the global scales are to be read (nvfp4.md 3.1): "multiplier", "divisor" or "none".
struct Convention {
  std::string weight_global = "none";
  std::string input = "none";
  std::vector<std::string> evidence;
};

struct LinearSummary {
  std::string module;
  std::string projection;  // last component of the module, "q_proj"
  std::optional<int64_t> layer;
  std::optional<int64_t> expert;
  Scheme scheme = Scheme::kBf16;
  int64_t n = 0;
  int64_t k = 0;
  std::optional<float> g;            // largest multiplier of its ranges, where it has any
  std::optional<float> input_scale;  // multiplier
  PackedStatistics statistics;       // of 4-bit linears; none under quick
};

struct DiagnosisSummary {
  int64_t n_files = 0;
  int64_t n_tensors = 0;
  int64_t n_bytes = 0;
  std::map<std::string, int64_t> linears;  // by scheme
  double bits_per_weight = 0;
  double quantized_share = 0;  // of the parameters in matrices
  int64_t checked_bytes = 0;
  double seconds = 0;  // of diagnose(); the command counts opening and what it adds as well
};

struct Diagnosis {
  std::string model;
  Verdict verdict = Verdict::kHealthy;
  std::string dialect;
  std::vector<std::string> dialect_evidence;
  Convention convention;
  DiagnosisSummary summary;
  std::vector<Finding> findings;       // errors first, then by id
  std::vector<LinearSummary> linears;  // by module
  std::vector<std::string> skipped;    // sentences: what was not judged, and why
  // Every linear whose activation scale a finding is about, and which ("C12 uncalibrated-expert").
  std::map<std::string, std::string, std::less<>> distrusted_inputs;
};

struct DiagnoseOptions {
  bool quick = false;  // headers, configs and scalars only
  std::function<void(int64_t done_bytes, int64_t all_bytes)> progress;
};

// Every check on an open checkpoint. What Checkpoint::open found is part of it.
Diagnosis diagnose(const Checkpoint& checkpoint, const DiagnoseOptions& options, ThreadPool& pool);
// Of a checkpoint that could not be opened: one error finding, F3 unreadable.
Diagnosis unreadable(const std::string& model, const Error& error);
// Appends findings (another check's, a dry bind's) and judges anew.
void add_findings(Diagnosis& diagnosis, std::vector<Finding> findings);

}  // namespace sextant
