// Implements dump.h.
#include "forge/dump.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/json.h"
#include "model/policy.h"

namespace sextant {
namespace {

constexpr int64_t kMaxJsonBytes = 16 << 20;
constexpr int64_t kMaxIds = int64_t{1} << 24;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

}  // namespace

Result<Dump> Dump::open(const std::filesystem::path& directory, std::string_view name) {
  const std::filesystem::path base = directory / name;
  const std::string json_name = base.string() + ".json";
  SX_ASSIGN(SafetensorsFile file, SafetensorsFile::open(base.string() + ".safetensors"));
  JsonLimits limits;
  limits.max_bytes = kMaxJsonBytes;
  SX_ASSIGN(const JsonValue json, read_json(json_name, limits));
  Dump dump(std::move(file), json_name);
  const JsonValue* policy = json.find("policy");
  if (policy == nullptr || !policy->is_string())
    return fail_at({json_name, {}, "policy", {}}, Code::kInput,
                   "{}: field policy is missing or no string; expected f32, w4a16-f32, ...",
                   json_name);
  dump.policy_ = policy->as_string();
  const JsonValue* bounds = json.find("bounds");
  if (bounds == nullptr || !bounds->is_object())
    return fail_at({json_name, {}, "bounds", {}}, Code::kInput,
                   "{}: field bounds is missing or no object; it says how close a tensor must be",
                   json_name);
  // Some bounds are sentences (codes of quantized activations): they bound no tensor of floats.
  for (const JsonMember& member : bounds->members()) {
    if (member.second.is_string()) continue;
    const double bound = member.second.is_number() ? member.second.as_double() : NAN;
    if (!(bound >= 0.0 && std::isfinite(bound)))
      return fail_at({json_name, {}, "bounds." + member.first, {}}, Code::kInput,
                     "{}: bounds.{} is not a number of at least 0", json_name, member.first);
    dump.bounds_.emplace(member.first, bound);
  }
  return dump;
}

Result<std::vector<std::string>> Dump::model_policies() const {
  if (policy_ == "f32" || policy_ == "w4a16-f32" || policy_ == "w8a16-f32")
    return std::vector<std::string>{"f32"};
  // FP8 linears of such a model take FP8; those without an input scale, and those that are not
  // quantized, float32 (P13 names them).
  if (policy_ == "w4a4") return std::vector<std::string>{"f32", "a8:fp8", "a4:static,quantizer=A"};
  std::vector<std::string> specs;
  for (size_t begin = 0; begin < policy_.size();) {
    const size_t end = std::min(policy_.find(' ', begin), policy_.size());
    if (end > begin) specs.push_back(policy_.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!specs.empty() && parse_policy(specs)) return specs;
  return fail_at({json_name_, {}, "policy", {}}, Code::kUnsupported,
                 "{}: policy {} is not known; expected f32, w4a16-f32, w8a16-f32, w4a4 or values "
                 "of --policy (or say which one with --policy)",
                 json_name_, policy_);
}

Result<double> Dump::bound(std::string_view tensor, std::string_view kind) const {
  if (kind.empty()) kind = tensor.substr(0, tensor.find('.'));
  for (const std::string_view key : {tensor, kind}) {
    const auto found = bounds_.find(key);
    if (found != bounds_.end()) return found->second;
  }
  return fail_at({json_name_, std::string(tensor), "bounds", {}}, Code::kInput,
                 "{}: bounds has no entry for {}", json_name_, tensor);
}

Result<const TensorInfo*> Dump::floats(std::string_view tensor,
                                       const std::vector<int64_t>& shape) const {
  const TensorInfo* info = find(tensor);
  if (info == nullptr) return nullptr;
  if (info->dtype != DType::kF32 || info->shape != shape)
    return fail_at({file_.path().string(), info->name, {}, {}}, Code::kInput,
                   "{}: {} is {} {}, expected F32 {} for this model", file_.path().string(),
                   info->name, dtype_name(info->dtype), shape_text(info->shape), shape_text(shape));
  return info;
}

float Dump::value(const TensorInfo& tensor, int64_t i) const {
  float value = 0.0F;
  std::memcpy(&value, file_.bytes(tensor).data() + i * int64_t{sizeof(float)}, sizeof(float));
  return value;
}

Result<Dump::Ids> Dump::ids(std::string_view tensor, int64_t n_ids) const {
  const std::string path = file_.path().string();
  const TensorInfo* info = find(tensor);
  if (info == nullptr)
    return fail_at({path, std::string(tensor), {}, {}}, Code::kInput,
                   "{}: there is no {}; a dump needs the ids that it was made from", path, tensor);
  if (info->dtype != DType::kI64 || info->shape.size() != 2 || info->n_elements() == 0 ||
      info->n_elements() > kMaxIds)
    return fail_at({path, info->name, {}, {}}, Code::kInput,
                   "{}: {} is {} {}, expected I64 in two dimensions with 1 to {} ids", path,
                   info->name, dtype_name(info->dtype), shape_text(info->shape), kMaxIds);
  Ids out;
  out.rows = info->shape[0];
  out.cols = info->shape[1];
  for (int64_t i = 0; i < info->n_elements(); ++i) {
    int64_t id = 0;
    std::memcpy(&id, file_.bytes(*info).data() + i * int64_t{sizeof(id)}, sizeof(id));
    if (id < 0 || id >= n_ids)
      return fail_at({path, info->name, {}, {}}, Code::kInput,
                     "{}: {}[{}, {}] is {}, but the model's ids go from 0 to {}", path, info->name,
                     i / out.cols, i % out.cols, id, n_ids - 1);
    out.ids.push_back(static_cast<int32_t>(id));
  }
  return out;
}

}  // namespace sextant
