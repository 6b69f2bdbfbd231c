// Model::load: from a path to a model of the family that its config.json names.
#include "model/model.h"

#include "model/families/llama.h"
#include "model/linear_plan.h"
#include "model/step_buffers.h"

namespace sextant {

void StepBuffersDeleter::operator()(StepBuffers* buffers) const { delete buffers; }

Result<std::unique_ptr<const Stage>> Model::load_stage(int64_t, ThreadPool&) const {
  return fail(Code::kUnsupported, "{} models run whole only, not a layer at a time",
              config().architecture);
}

Result<BoundModel> bind_model(const Checkpoint& checkpoint) {
  if (checkpoint.config() == nullptr) return fail(Code::kUnsupported, "there is no config.json");
  SX_ASSIGN(ModelConfig config,
            read_model_config(*checkpoint.config(), checkpoint.generation_config()));
  return LlamaModel::bind_only(checkpoint, std::move(config));
}

Result<std::vector<Finding>> check_parameters(const Checkpoint& checkpoint) {
  SX_ASSIGN(BoundModel bound, bind_model(checkpoint));
  return std::move(bound.problems);
}

Result<std::shared_ptr<const Model>> Model::load(const std::filesystem::path& path,
                                                 const ModelOptions& options, ThreadPool& pool) {
  SX_ASSIGN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::open(path));
  return load(std::move(checkpoint), options, pool);
}

Result<std::shared_ptr<const Model>> Model::load(std::unique_ptr<Checkpoint> checkpoint,
                                                 const ModelOptions& options, ThreadPool& pool) {
  SX_ASSIGN(const Ops* ops, select_ops(options.isa));
  SX_ASSIGN(Policy policy, parse_policy(options.policies));
  policy.distrusted_inputs = options.distrusted_inputs;
  policy.warmup_scales = options.warmup_scales;
  if (checkpoint->config() == nullptr)
    return fail_at({checkpoint->root().string(), {}, {}, {}}, Code::kInput,
                   "{} was opened without config.json, which a model needs to run: give its "
                   "directory, with config.json in it",
                   checkpoint->root().string());
  SX_ASSIGN(ModelConfig config,
            read_model_config(*checkpoint->config(), checkpoint->generation_config()));
  if (options.max_context < 0 || options.max_context > config.max_context)
    return fail(Code::kUsage, "a context of {} tokens; config.json of this model allows 1 to {}",
                options.max_context, config.max_context);
  return LlamaModel::load(std::move(checkpoint), std::move(config), std::move(policy), *ops,
                          options, pool);
}

}  // namespace sextant
