// Writes one forward pass of ours in the format of docs/dumps.md: input_ids, hidden.*, logits, and
// bounds for a run of another build or machine. A probe: rows go to the file as they pass, so that
// nothing large is held. The directory appears whole with commit(), or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/safetensors_writer.h"
#include "model/model.h"
#include "model/tap_statistics.h"

namespace sextant {

class DumpWriter : public Probe {
 public:
  // For one sequence of these ids under these policies (none: the model's default). directory must
  // not exist.
  static Result<std::unique_ptr<DumpWriter>> create(const std::filesystem::path& directory,
                                                    const Model& model,
                                                    std::span<const std::string> policies,
                                                    std::span<const int32_t> ids);

  void begin_step(int64_t pos_begin) { pos_begin_ = pos_begin; }
  void visit(const Tap& tap, Mat<const float> values) override;
  // After the last step. made_by: the program, for people.
  Status commit(const std::string& made_by);

 private:
  DumpWriter(AtomicDir dir, SafetensorsWriter file, std::string policy, int64_t n_layers);
  void write_rows(int64_t tensor_idx, Mat<const float> values);

  AtomicDir dir_;
  SafetensorsWriter file_;
  std::string policy_;
  int64_t n_layers_;
  int64_t pos_begin_ = 0;
  std::vector<TapStatistics> statistics_;  // of hidden.0 ..., then logits
  Status status_;                          // the first failed write
};

}  // namespace sextant
