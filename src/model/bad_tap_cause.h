// From a bad tap to the bytes of the checkpoint that made it so: the row of the linear, the norm or
// the embedding that the bad element was computed with is read again. Everything that element was
// computed from is clean (first_bad_tap.h), so what is left is a parameter that is not finite, or
// arithmetic that left the range of its format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/directory.h"
#include "model/config.h"
#include "model/first_bad_tap.h"
#include "model/policy.h"

namespace sextant {

enum class CauseKind : uint8_t {
  kWeight,
  kScale,
  kGlobalScale,
  kInputScale,
  kBias,
  kNorm,
  kEmbedding,
  kRange
};
std::string_view cause_name(CauseKind kind);  // "weight", "scale", ..., "range"

struct BadTapCause {
  CauseKind kind = CauseKind::kRange;
  std::string tensor;          // empty for kRange
  std::vector<int64_t> index;  // of the tensor: row and column or group; empty for a scalar
  std::string file;
  std::optional<int64_t> offset;  // byte in the file; none where the stored form was converted
  std::optional<double> value;
  std::string message;  // a sentence without its end
};

// Why the element is not finite. token: of its row, where it is known ("embed" cannot be explained
// without).
BadTapCause find_cause(const Checkpoint& checkpoint, const ModelConfig& config,
                       const FirstBadTap::Found& found, std::optional<int32_t> token);

// Why the output of a linear is zero although its input is not: a global scale, the block scales,
// the weights, or, where the policy quantizes by it, the checkpoint's input scale.
BadTapCause find_dead_cause(const Checkpoint& checkpoint, const ModelConfig& config,
                            std::string_view module, const LinearPolicy& policy = {});

// The checkpoint's input scale for a module: input_scale or input_global_scale; empty if none.
TensorRef input_scale_of(const Checkpoint& checkpoint, const std::string& stored_module);

// The norm whose output a tap is, by its checkpoint name; empty for other taps.
std::string norm_of_tap(std::string_view tap, int64_t layer);

// The tensor that holds the global scale of a record, and the place of a row's in it.
struct GlobalScale {
  TensorRef tensor;
  int64_t element = 0;
  const ScaleRange* range = nullptr;
};
std::optional<GlobalScale> global_scale_of(const Checkpoint& checkpoint, const LinearRecord& record,
                                           int64_t row);

// Where a row of a linear is stored: q/k/v and gate/up may be one tensor, a tied head is the
// embedding. record is nullptr where the checkpoint has no such linear.
struct LinearRow {
  const LinearRecord* record = nullptr;
  int64_t row = 0;
  std::string stored_module;
};
LinearRow find_linear_row(const Checkpoint& checkpoint, const ModelConfig& config,
                          std::string_view module, int64_t row);

}  // namespace sextant
