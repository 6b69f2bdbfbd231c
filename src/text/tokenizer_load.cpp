// Reading a tokenizer.json: which parts it has, in the order in which they depend on each other.
// truncation and padding are read over on purpose: a model's context is the engine's matter, and a
// prompt is never cut in silence.
#include "text/tokenizer_impl.h"

namespace sextant {

Result<std::unique_ptr<Tokenizer::Impl>> Tokenizer::Impl::load(const JsonValue& json,
                                                               std::string_view name) {
  const JsonPlace top{std::string(name), {}};
  FieldReader fields(json, {std::string(name), "the file"});
  fields.ignore("version");
  fields.ignore("truncation");
  fields.ignore("padding");
  const JsonValue* model = fields.object("model");
  const JsonValue* added = fields.any("added_tokens");
  const JsonValue* normalizer = fields.any("normalizer");
  const JsonValue* pretokenizer = fields.any("pre_tokenizer");
  const JsonValue* post = fields.any("post_processor");
  const JsonValue* decoder = fields.any("decoder");
  SX_TRY(fields.finish());

  auto impl = std::make_unique<Impl>();
  SX_ASSIGN(impl->model, load_model(*model, top.field("model")));
  if (normalizer != nullptr) {
    SX_ASSIGN(impl->normalizer, load_normalizer(*normalizer, top.field("normalizer")));
  }
  if (pretokenizer != nullptr) {
    SX_ASSIGN(impl->pretokenizer, load_pretokenizer(*pretokenizer, top.field("pre_tokenizer")));
  }
  if (post != nullptr) {
    SX_ASSIGN(impl->post, load_post_processor(*post, top.field("post_processor")));
  }
  if (decoder != nullptr) {
    SX_ASSIGN(impl->decoder, load_decoder(*decoder, top.field("decoder")));
  }
  if (added != nullptr)
    SX_TRY(impl->added.load(*added, top.field("added_tokens"), impl->model->vocab(),
                            impl->normalizer.get()));
  return impl;
}

}  // namespace sextant
