// Implements summary.h.
#include "checkpoint/summary.h"

namespace sextant {

double CheckpointSummary::bits_per_weight() const {
  if (linears.n_weights == 0) return 0;
  return 8.0 * static_cast<double>(linears.n_bytes) / static_cast<double>(linears.n_weights);
}

CheckpointSummary summarize(const Checkpoint& checkpoint) {
  CheckpointSummary out;
  int64_t n_quantized = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) out.n_bytes += tensor.info->n_bytes();
  for (const auto& [module, linear] : checkpoint.linears()) {
    const int64_t n_weights = linear.n * linear.k;
    for (SchemeSum* sum : {&out.linears, &out.schemes[std::string(scheme_name(linear.scheme))]}) {
      ++sum->n_linears;
      sum->n_weights += n_weights;
      sum->n_bytes += linear.n_bytes;
    }
    if (is_quantized(linear.scheme)) n_quantized += n_weights;
  }
  if (out.linears.n_weights > 0)
    out.quantized_share =
        static_cast<double>(n_quantized) / static_cast<double>(out.linears.n_weights);
  return out;
}

}  // namespace sextant
