// Implements bind.h.
#include "model/bind.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/finding.h"
#include "checkpoint/patterns.h"
#include "io/quote.h"

namespace sextant {
namespace {

constexpr size_t kNamesShown = 8;

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < items.size() && i < kNamesShown; ++i) {
    if (i != 0) text += separator;
    text += items[i];
  }
  if (items.size() > kNamesShown)
    text += fmt::format("{}and {} more", separator, items.size() - kNamesShown);
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

bool is_plain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

void Binder::consume(const LinearRecord& record) {
  for (const std::string_view name : checkpoint_.tensors_of(record)) {
    // A stack is consumed when all its experts are.
    if (record.weight.expert >= 0) {
      std::set<int64_t>& experts = consumed_experts_[std::string(name)];
      experts.insert(record.weight.expert);
      const TensorRef stack = checkpoint_.tensor(record.weight.info->name);
      if (static_cast<int64_t>(experts.size()) < stack.info->shape[0]) continue;
    }
    consumed_.emplace(name);
  }
}

TensorRef Binder::plain(const std::string& name, int64_t n, const char* what, bool optional) {
  const TensorRef tensor = checkpoint_.tensor(name);
  if (!tensor) {
    if (!optional) missing_.push_back(name);
    return {};
  }
  consumed_.insert(name);
  const TensorInfo& info = *tensor.info;
  if (info.shape != std::vector<int64_t>{n} || !is_plain(info.dtype)) {
    wrong_.emplace_back(name, fmt::format("{} {} is {} {}, expected [{}] of F32, BF16 or F16", what,
                                          name, shape_text(info.shape), dtype_name(info.dtype), n));
    return {};
  }
  return tensor;
}

TensorRef Binder::vector(const std::string& name, int64_t n) {
  return plain(name, n, "norm", false);
}

BoundLinear Binder::part_of(const std::string& module, const LinearRecord& record,
                            int64_t row_begin, int64_t n) {
  modules_.push_back(module);
  BoundLinear bound;
  bound.module = module;
  bound.record = &record;
  bound.row_begin = row_begin;
  bound.n = n;
  bound.k = record.k;
  linears_.push_back(bound);
  return bound;
}

void Binder::add_bias(BoundLinear& bound, const std::string& stored_module, int64_t begin,
                      int64_t total) {
  const std::string name = stored_module + ".bias";
  bound.bias = plain(name, total, "bias", allows(checkpoint_.allowed(), "C15", name));
  bound.bias_begin = begin;
}

const LinearRecord* Binder::record_of(const std::string& module, int64_t n, int64_t k) {
  const LinearRecord* record = checkpoint_.linear(module);
  if (record == nullptr) {
    missing_.push_back(module + ".weight");
    return nullptr;
  }
  consume(*record);
  if (record->column_major) {
    wrong_.emplace_back(record->weight.info->name,
                        fmt::format("{} is stored with its columns first, which is checked but not "
                                    "run",
                                    module));
    return nullptr;
  }
  if (record->n == n && record->k == k) return record;
  wrong_.emplace_back(
      record->weight.info->name,
      fmt::format("{} is [{}, {}], config.json says [{}, {}]", module, record->n, record->k, n, k));
  return nullptr;
}

const LinearRecord* Binder::table(const std::string& module, int64_t n, int64_t k) {
  return record_of(module, n, k);
}

BoundLinear Binder::linear(const std::string& module, int64_t n, int64_t k, bool bias) {
  const LinearRecord* record = record_of(module, n, k);
  BoundLinear bound;
  if (record != nullptr) bound = part_of(module, *record, 0, n);
  if (bias) add_bias(bound, module, 0, n);
  return bound;
}

BoundLinear Binder::router(const std::string& module, int64_t n, int64_t k) {
  BoundLinear bound = linear(module, n, k, false);
  if (bound.record != nullptr) linears_.back().is_router = true;
  bound.is_router = true;
  return bound;
}

std::vector<BoundLinear> Binder::linears(const std::string& prefix, std::span<const Part> parts,
                                         const char* fused, int64_t k, bool bias) {
  std::vector<BoundLinear> out;
  const std::string fused_module = prefix + fused;
  const LinearRecord* record = checkpoint_.linear(fused_module);
  if (record == nullptr || checkpoint_.linear(prefix + parts.front().name) != nullptr) {
    for (const Part& part : parts) out.push_back(linear(prefix + part.name, part.n, k, bias));
    return out;
  }
  int64_t total = 0;
  for (const Part& part : parts) total += part.n;
  record = record_of(fused_module, total, k);
  if (record == nullptr) {
    out.resize(parts.size());
    return out;
  }
  int64_t begin = 0;
  for (const Part& part : parts) {
    out.push_back(part_of(prefix + part.name, *record, begin, part.n));
    if (bias) add_bias(out.back(), fused_module, begin, total);
    begin += part.n;
  }
  return out;
}

BoundLinear Binder::tied_head(const std::string& module, const LinearRecord* embedding) {
  if (embedding == nullptr) return {};
  const LinearRecord* head = checkpoint_.linear(module);
  if (head != nullptr && !allows(checkpoint_.allowed(), "C16", module + ".weight")) {
    const auto a = head->weight.bytes();
    const auto b = embedding->weight.bytes();
    const bool same = head->scheme == embedding->scheme && head->n == embedding->n &&
                      head->k == embedding->k && a.size() == b.size() &&
                      std::memcmp(a.data(), b.data(), a.size()) == 0;
    release_pages(head->weight);
    consume(*head);
    if (!same)
      wrong_.emplace_back(
          module + ".weight",
          fmt::format(
              "tie_word_embeddings is true, but {}.weight is stored and differs from {}.weight "
              "(set "
              "tie_word_embeddings to false to use it, or --allow C16:{}.weight to leave it out)",
              module, embedding->module, module));
  }
  return part_of(module, *embedding, 0, embedding->n);
}

std::vector<std::string> Binder::left_over() const {
  std::vector<std::string> left;
  for (const auto& [name, tensor] : checkpoint_.tensors())
    if (!consumed_.contains(name) && !checkpoint_.harmless_tensors().contains(name) &&
        !allows(checkpoint_.allowed(), "C16", name))
      left.emplace_back(name);
  return left;
}

std::vector<Finding> Binder::problems() const {
  FindingSet findings(checkpoint_.allowed());
  const auto add = [&](const char* id, const char* slug, const std::string& tensor,
                       std::string message, const char* remedy) {
    Finding f;
    f.id = id;
    f.slug = slug;
    f.tensor = tensor;
    f.message = std::move(message);
    f.remedy = remedy;
    if (const TensorRef ref = checkpoint_.tensor(tensor)) {
      f.file = ref.file->path().filename().string();
      f.offset = ref.info->begin;
    }
    findings.add(std::move(f));
  };
  // A matrix that no dialect could read is no linear, and opening has said why.
  const auto is_broken = [&](std::string_view name) {
    const std::string module(name.substr(0, name.rfind('.')));
    if (checkpoint_.linear(module) != nullptr) return false;
    for (const char* part : {".weight", ".weight_packed"})
      if (const TensorRef ref = checkpoint_.tensor(module + part); ref)
        return ref.info->shape.size() == 2;
    return false;
  };
  constexpr const char* kAgain = "fetch or export the checkpoint again";
  for (const std::string& name : missing_)
    if (!is_broken(name))
      add("C16", "missing-parameter", name,
          fmt::format("{} is needed by the model, but no tensor of the checkpoint provides it",
                      quote_name(name)),
          kAgain);
  for (const auto& [name, sentence] : wrong_)
    add("C15", "unexpected-shape", name, sentence, kAgain);
  for (const std::string& name : left_over())
    if (!is_broken(name))
      add("C16", "unconsumed-tensor", name,
          fmt::format("{} has no place in the model: nothing would ever read it", quote_name(name)),
          "check its name, or accept it with --allow C16:NAME");
  return findings.take();
}

Status Binder::finish(std::vector<Finding>& findings) {
  std::vector<std::string> problems;
  if (!missing_.empty())
    problems.push_back(
        fmt::format("{} parameter{} that the model needs {} not in the checkpoint: {}",
                    missing_.size(), missing_.size() == 1 ? "" : "s",
                    missing_.size() == 1 ? "is" : "are", joined(missing_, ", ")));
  std::vector<std::string> sentences;
  for (const auto& [name, sentence] : wrong_) sentences.push_back(sentence);
  if (!wrong_.empty()) problems.push_back(joined(sentences, "; "));
  const std::vector<std::string> left = left_over();
  FindingSet notes;
  for (const auto& [name, tensor] : checkpoint_.tensors()) {
    if (consumed_.contains(name) || checkpoint_.harmless_tensors().contains(name)) continue;
    if (!allows(checkpoint_.allowed(), "C16", name)) continue;
    Finding note;
    note.id = "C16";
    note.slug = "allowed-tensor";
    note.severity = Severity::kWarning;
    note.tensor = name;
    note.file = tensor.file->path().string();
    note.message = fmt::format("{} has no place in the model and is left out, as allowed", name);
    notes.add(std::move(note));
  }
  for (Finding& note : notes.take()) findings.push_back(std::move(note));
  if (!left.empty())
    problems.push_back(
        fmt::format("{} tensor{} of the checkpoint {} no place in the model: {} (--allow "
                    "C16:PATTERN leaves out what PATTERN matches)",
                    left.size(), left.size() == 1 ? "" : "s", left.size() == 1 ? "has" : "have",
                    joined(left, ", ")));
  if (problems.empty()) return {};
  Where where;
  if (!missing_.empty())
    where.tensor = missing_.front();
  else if (!left.empty() && wrong_.empty())
    where.tensor = left.front();
  return fail_at(where, Code::kModel, "{}", joined(problems, "; "));
}

}  // namespace sextant
