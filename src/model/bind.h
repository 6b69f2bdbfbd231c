// Binding: every parameter the model needs is asked for once, by name, shape and dtype, before
// anything runs; what is missing, what does not fit and what nobody asked for is reported by name
// and stops the load, harmless kinds and names the user allows excepted (cli.md section 4). Nothing
// is ever read that was not bound, so nothing is ever read before it was written.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/directory.h"
#include "model/weights.h"

namespace sextant {

class Binder {
 public:
  // What the checkpoint was opened to allow: C16 tensors that are left over, C15 biases that are
  // missing (they count as zero). Anything else that is missing has no value to stand for.
  explicit Binder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  bool has_linear(const std::string& module) const { return checkpoint_.linear(module) != nullptr; }

  // One linear [n, k], with its bias [n] where the architecture has one. What is wrong is noted,
  // and an empty record comes back; finish() reports it.
  BoundLinear linear(const std::string& module, int64_t n, int64_t k, bool bias);

  // The same for the small matrix that chooses experts.
  BoundLinear router(const std::string& module, int64_t n, int64_t k);

  // Linears that share their input and may be stored as one: prefix + names[i] [rows[i], k], or
  // prefix + fused with all rows in this order.
  struct Part {
    const char* name;
    int64_t n;
  };
  std::vector<BoundLinear> linears(const std::string& prefix, std::span<const Part> parts,
                                   const char* fused, int64_t k, bool bias);

  // A plain vector [n] (F32, BF16 or F16): a norm's weight.
  TensorRef vector(const std::string& name, int64_t n);

  // The embedding table [n, k]; policies do not apply to it. nullptr where it is wrong or missing.
  const LinearRecord* table(const std::string& module, int64_t n, int64_t k);

  // The head of a model with tied embeddings: the table's rows under the head's name. A stored copy
  // is accepted when its bytes are the embedding's, and is a contradiction otherwise.
  BoundLinear tied_head(const std::string& module, const LinearRecord* embedding);

  // Everything asked for: kModel with all names where something is missing, does not fit, or is
  // left over. Notes about what was left out on purpose are appended to findings.
  Status finish(std::vector<Finding>& findings);

  // The same, a finding each: C16 missing-parameter, C15 unexpected-shape, C16 unconsumed-tensor.
  std::vector<Finding> problems() const;

  // What policies are about, in the order of asking; those without a record are missing.
  const std::vector<BoundLinear>& linears() const { return linears_; }
  const std::vector<std::string>& modules() const { return modules_; }

 private:
  std::vector<std::string> left_over() const;  // neither consumed, nor harmless, nor allowed
  const LinearRecord* record_of(const std::string& module, int64_t n, int64_t k);
  void consume(const LinearRecord& record);
  TensorRef plain(const std::string& name, int64_t n, const char* what, bool optional);
  BoundLinear part_of(const std::string& module, const LinearRecord& record, int64_t row_begin,
                      int64_t n);
  void add_bias(BoundLinear& bound, const std::string& stored_module, int64_t begin, int64_t total);

  const Checkpoint& checkpoint_;
  std::set<std::string, std::less<>> consumed_;
  std::map<std::string, std::set<int64_t>> consumed_experts_;  // of stacks, by tensor
  std::vector<std::string> modules_;
  std::vector<BoundLinear> linears_;
  std::vector<std::string> missing_;                        // names
  std::vector<std::pair<std::string, std::string>> wrong_;  // names, sentences
};

}  // namespace sextant
