// Implements weights.h.
#include "model/weights.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "base/checked.h"
#include "quant/bf16.h"
#include "quant/convert.h"
#include "quant/e2m1.h"
#include "quant/nvfp4.h"

namespace sextant {
namespace {

bool has_scales(Scheme scheme) {
  return has_codes(scheme) || scheme == Scheme::kFp8Block || scheme == Scheme::kFp8Channel;
}

WeightForm stored_form(Scheme scheme) {
  switch (scheme) {
    case Scheme::kF32: return WeightForm::kF32;
    case Scheme::kF16: return WeightForm::kF16;
    case Scheme::kBf16: return WeightForm::kBf16;
    case Scheme::kFp8Tensor:
    case Scheme::kFp8Channel:
    case Scheme::kFp8Block: return WeightForm::kFp8;
    case Scheme::kNvfp4: return WeightForm::kNvfp4;
    case Scheme::kMxfp4: return WeightForm::kMxfp4;
  }
  return WeightForm::kF32;
}

int64_t row_bytes(const LinearRecord& record) {
  if (has_codes(record.scheme)) return ceil_div(record.k, 2);
  return record.k * dtype_bits(record.weight.info->dtype) / 8;
}

// Row of scales that covers row `row` of the weights, as bytes.
const std::byte* scale_row(const LinearRecord& record, int64_t row) {
  const int64_t bytes =
      ceil_div(record.k, record.block_k) * dtype_bits(record.scales.info->dtype) / 8;
  return record.scales.bytes().data() + row / record.block_n * bytes;
}

void stored_values(DType dtype, const std::byte* in, int64_t n, float* out) {
  const bool known = stored_to_f32(dtype, in, n, out);
  SX_CHECK(known, "no weight or scale is stored as {}", dtype_name(dtype));
}

// scratch [ceil(k / block_k)].
void dequantize_row(const LinearRecord& record, int64_t row, std::span<float> scratch, float* out) {
  SX_CHECK(!record.column_major, "{} has its columns first", record.module);
  const std::byte* stored = record.weight.bytes().data() + row * row_bytes(record);
  const auto* codes = reinterpret_cast<const uint8_t*>(stored);
  const int64_t k = record.k;
  const auto n_scales = static_cast<int64_t>(scratch.size());
  if (record.scheme == Scheme::kNvfp4) {
    const ScaleRange& range = range_of(record, row);
    const Nvfp4Global global{range.is_divisor ? range.stored : range.g, range.is_divisor};
    const auto* scales = reinterpret_cast<const uint8_t*>(scale_row(record, row));
    nvfp4_dequantize({codes, 1, ceil_div(k, 2)}, {scales, 1, n_scales}, global, {out, 1, k},
                     record.block_k);
    return;
  }
  if (record.scheme == Scheme::kMxfp4)
    for (int64_t i = 0; i < k; ++i) out[i] = e2m1_decode(nibble(codes, i));
  else
    stored_values(record.weight.info->dtype, stored, k, out);
  if (!is_quantized(record.scheme)) return;
  if (has_scales(record.scheme))
    stored_values(record.scales.info->dtype, scale_row(record, row), n_scales, scratch.data());
  else
    std::fill(scratch.begin(), scratch.end(), range_of(record, row).g);
  for (int64_t i = 0; i < k; ++i) out[i] *= scratch[static_cast<size_t>(i / record.block_k)];
}

int64_t scales_a_row(const LinearRecord& record) {
  return is_quantized(record.scheme) ? ceil_div(record.k, record.block_k) : 0;
}

// The stored bytes as a packer reads them; `multipliers` (of all rows of the record, or none) must
// outlive the source.
WeightSource stored_source(const BoundLinear& bound, std::span<const float> multipliers) {
  const LinearRecord& record = *bound.record;
  WeightSource source;
  source.form = stored_form(record.scheme);
  source.n = bound.n;
  source.k = bound.k;
  source.weight = record.weight.bytes().data() + bound.row_begin * row_bytes(record);
  if (!multipliers.empty())
    source.row_multiplier =
        multipliers.subspan(static_cast<size_t>(bound.row_begin), static_cast<size_t>(bound.n));
  if (has_scales(record.scheme)) {
    source.scales = scale_row(record, bound.row_begin);
    source.scale_dtype = record.scales.info->dtype;
    source.block_n = record.block_n;
    source.block_k = record.block_k;
  }
  return source;
}

// The whole linear in another form, dequantized in parallel.
AlignedBuffer convert(const BoundLinear& bound, Weights form, ThreadPool& pool) {
  const int64_t bytes = form == Weights::kBf16 ? 2 : 4;
  AlignedBuffer out(bound.n * bound.k * bytes);
  pool.split(bound.n, 8, [&](int64_t begin, int64_t end, int) {
    std::vector<float> scratch(static_cast<size_t>(scales_a_row(*bound.record)));
    std::vector<float> row(static_cast<size_t>(bound.k));
    for (int64_t r = begin; r < end; ++r) {
      dequantize_row(*bound.record, bound.row_begin + r, scratch, row.data());
      if (form == Weights::kBf16)
        f32_to_bf16(row.data(), bound.k, out.as<uint16_t>() + r * bound.k);
      else
        std::copy(row.begin(), row.end(), out.as<float>() + r * bound.k);
    }
  });
  return out;
}

// What the packer has read goes back to the system while it works, so that a large linear is never
// resident twice.
class PageRelease {
 public:
  explicit PageRelease(const BoundLinear& bound) : bound_(bound) {}
  static void call(void* context, int64_t row_end) {
    static_cast<PageRelease*>(context)->up_to(row_end);
  }

 private:
  void up_to(int64_t row_end) {
    const int64_t bytes = row_bytes(*bound_.record);
    release_pages(bound_.record->weight, (bound_.row_begin + released_) * bytes,
                  (bound_.row_begin + row_end) * bytes);
    released_ = row_end;
  }
  const BoundLinear& bound_;
  int64_t released_ = 0;
};

Status check_layout(const BoundLinear& bound) {
  const LinearRecord& record = *bound.record;
  Where where;
  where.file = record.weight.file->path().string();
  if (record.pre_quant_scale) {
    where.tensor = record.pre_quant_scale.info->name;
    return fail_at(where, Code::kUnsupported,
                   "{} has a pre_quant_scale (AWQ), which this version does not apply; use a "
                   "checkpoint without one, or one where it is folded into the weights",
                   bound.module);
  }
  where.tensor = record.weight.info->name;
  if (record.column_major)
    return fail_at(where, Code::kUnsupported,
                   "{} is stored with its columns first, which is checked but not run",
                   bound.module);
  if (has_scales(record.scheme) && bound.row_begin % record.block_n != 0)
    return fail_at(where, Code::kUnsupported,
                   "{} begins at row {} of {}, which cuts a block of {} rows that share a scale",
                   bound.module, bound.row_begin, record.module, record.block_n);
  if (has_codes(record.scheme) && record.k % 2 != 0)
    return fail_at(where, Code::kUnsupported,
                   "{} has {} columns of 4 bits; expected an even number", bound.module, record.k);
  return {};
}

}  // namespace

WeightForm resident_form(const LinearRecord& record, Weights weights) {
  if (weights == Weights::kStored) return stored_form(record.scheme);
  return weights == Weights::kBf16 ? WeightForm::kBf16 : WeightForm::kF32;
}

ActForm act_form(Act act) {
  if (is_a4(act)) return ActForm::kNvfp4;
  return act == Act::kA16 ? ActForm::kBf16 : ActForm::kF32;
}

void take_inputs(Linear& linear, const LinearPolicy& policy, const LinearRecord& record) {
  linear.input = input_quantizer(policy, record);
  linear.act = act_form(policy.act);
}

LinearPolicy policy_for(const BoundLinear& bound, const Policy& policy) {
  return bound.is_router ? policy.for_router(bound.module, *bound.record)
                         : policy.for_linear(bound.module, *bound.record);
}

bool takes_f32(const Linear& linear) {
  return linear.input.quantizes() ? !linear.input.from_bf16 : linear.act == ActForm::kF32;
}

void dequantize_rows(const LinearRecord& record, int64_t row_begin, int64_t n_rows, float* out) {
  std::vector<float> scratch(static_cast<size_t>(scales_a_row(record)));
  for (int64_t r = 0; r < n_rows; ++r)
    dequantize_row(record, row_begin + r, scratch, out + r * record.k);
}

Result<Linear> make_linear(const BoundLinear& bound, const LinearPolicy& policy, const Ops& ops,
                           ThreadPool& pool) {
  SX_TRY(check_layout(bound));
  const LinearRecord& record = *bound.record;
  Linear linear;
  linear.module = bound.module;
  take_inputs(linear, policy, record);
  const bool as_stored = policy.weights == Weights::kStored ||
                         (policy.weights == Weights::kBf16 && record.scheme == Scheme::kBf16) ||
                         (policy.weights == Weights::kF32 && record.scheme == Scheme::kF32);
  PageRelease pages(bound);
  WeightSource source;
  std::vector<float> multipliers;
  AlignedBuffer values;
  if (as_stored) {
    multipliers = row_multipliers(record);
    source = stored_source(bound, multipliers);
    source.release = &PageRelease::call;
    source.release_context = &pages;
  } else {
    values = convert(bound, policy.weights, pool);
    source.form = resident_form(record, policy.weights);
    source.n = bound.n;
    source.k = bound.k;
    source.weight = values.data();
  }
  linear.packed = ops.pack(source, pool);
  release_pages(record.weight);
  release_pages(record.scales);
  if (bound.bias) {
    const std::vector<float> all = to_floats(bound.bias);
    const auto begin = all.begin() + bound.bias_begin;
    linear.bias.assign(begin, begin + bound.n);
  }
  return linear;
}

std::vector<float> to_floats(const TensorRef& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.info->n_elements()));
  stored_values(tensor.info->dtype, tensor.bytes().data(), tensor.info->n_elements(), out.data());
  return out;
}

}  // namespace sextant
