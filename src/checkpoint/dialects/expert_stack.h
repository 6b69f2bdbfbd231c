// Experts of a layer that share one tensor, [E, ...] (nvfp4.md 2.3): found by name and dimensions,
// then cut into the tensors of one linear an expert, which the dialect readers take like any other.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dialects/dialect.h"

namespace sextant {

struct ExpertStack {
  std::string experts;     // "model.layers.0.mlp.experts"
  std::string projection;  // "gate_up_proj"
  ModuleTensors tensors;   // module: the two joined
};
using ExpertStacks = std::map<std::string, ExpertStack, std::less<>>;  // by module

// The stack that a tensor belongs to by its name, and as what.
struct StackPart {
  std::string_view experts;
  std::string_view projection;
  Part part = Part::kCount;
  std::string module() const;
};
std::optional<StackPart> stack_part(std::string_view name);

// All stacks: at least one of their tensors has three dimensions or more.
ExpertStacks collect_stacks(const TensorMap& tensors);

// The experts of a stack one by one, at most `most`; nothing after a finding, or where it is not
// clear which way the matrices lie. Of one that keeps its columns first, matrices are given with
// the shapes they have in row order, and finish_slice gives the record its stored shapes back.
struct StackSlices {
  std::vector<ModuleTensors> experts;
  bool column_major = false;
};
std::optional<StackSlices> slice_stack(const ExpertStack& stack, const ExpertStacks& all,
                                       int64_t most, DialectContext& context);
// Marks a record that a reader made of such an expert; false after a finding, where its parts were
// brought into another form.
bool finish_slice(LinearRecord& record, DialectContext& context);

// The name that configs have for the linear of a slice: that of its stack.
std::string stack_module(std::string_view slice_module);

}  // namespace sextant
