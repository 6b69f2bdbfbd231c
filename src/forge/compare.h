// A model against a dump of another framework (cli.md section 3, the format in docs/dumps.md):
// every tensor whose name is known, element by element, within the dump's bounds. Owns how a dump
// is read and how its ids are fed; prints nothing.
//
// Dynamic NTK has two right answers: one prefill is held to `logits` (and hidden.*, greedy_ids),
// token by token to `logits_cached`, other chunkings to neither.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "model/model.h"

namespace sextant {

struct DumpOptions {
  std::string name = "dump";  // NAME.safetensors and NAME.json
  int64_t prefill_chunk = 0;  // ids a step; 0: the whole prompt at once
  int64_t decode_from = -1;   // from this position on one id a step; -1: never
  ModelOptions model;         // policies empty: the dump's
};

struct DumpRow {
  std::string tensor;
  int64_t n_elements = 0;
  double max_abs_diff = 0;  // ids (greedy_ids, router.i.ids): how many differ; codes.MODULE and
                            // scales.MODULE: the share of elements that differ
  double bound = 0;
  std::optional<double> min_cosine;  // what the whole tensor is held to instead of the bound
  double cosine = 1;
  double rms_ratio = 1;             // rms(ours) / rms(dump)
  std::vector<int64_t> first_over;  // index of the first element over the bound; empty: none
  bool ok = true;
};

struct DumpReport {
  std::string policy;                // as the dump has it
  std::vector<std::string> applied;  // the policies the model ran under
  std::string isa;
  int64_t n_sequences = 0;
  int64_t n_positions = 0;
  std::vector<DumpRow> rows;
  std::vector<std::string> unknown;  // tensors whose names are not known here
  std::vector<Finding> findings;     // warnings and notes of the load
  std::vector<std::string> skipped;  // known, but not to be compared this way, with the reason
  bool ok() const;
};

// What a checkpoint that is compared is opened with, beside what the user allows: dumps leave the
// inputs of linears without an input scale as they are, and so may such a file (P13 names them).
std::vector<Allowance> dump_allowances();

// Errors for what cannot be compared at all; differences are rows that are not ok.
Result<DumpReport> compare_dump(std::unique_ptr<Checkpoint> model,
                                const std::filesystem::path& dump, const DumpOptions& options,
                                ThreadPool& pool);

}  // namespace sextant
