// The kinds of post-processors and their loading (tokenizer_post.h).
#include "text/tokenizer_post.h"

#include "io/quote.h"

namespace sextant {
namespace {

constexpr size_t kMaxTemplatePieces = 1024;

Status read_ids(const JsonValue& special_tokens, const std::string& name, const JsonPlace& place,
                std::vector<int32_t>& out) {
  const JsonValue* token = special_tokens.find(name);
  if (token == nullptr)
    return fail_in(place, Code::kInput, "expected the template's {} in special_tokens, found none",
                   quote_name(name));
  FieldReader fields(*token, place);
  fields.ignore("id");
  fields.ignore("tokens");
  const JsonValue* ids = fields.list("ids");
  SX_TRY(fields.finish());
  for (const JsonValue& id : ids->array()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > kMaxTokenId)
      return fail_in(place, Code::kInput, "expected ids from 0 to {} for {}", kMaxTokenId,
                     quote_name(name));
    out.push_back(static_cast<int32_t>(id.as_int()));
  }
  return {};
}

Result<PostProcessor> load_template(FieldReader& fields) {
  const JsonValue* single = fields.list("single");
  const JsonValue* special_tokens = fields.object("special_tokens");
  fields.ignore("pair");
  SX_TRY(fields.finish());
  PostProcessor post;
  bool seen_text = false;
  const JsonPlace here = fields.place().field("single");
  if (single->array().size() > kMaxTemplatePieces)
    return fail_in(here, Code::kInput, "expected at most {} pieces, found {}", kMaxTemplatePieces,
                   single->array().size());
  for (size_t i = 0; i < single->array().size(); ++i) {
    const JsonValue& piece = single->array()[i];
    const JsonValue* token = piece.find("SpecialToken");
    const JsonValue* sequence = piece.find("Sequence");
    if (token != nullptr && token->find("id") != nullptr && token->find("id")->is_string()) {
      SX_TRY(read_ids(*special_tokens, token->find("id")->as_string(),
                      fields.place().field("special_tokens"),
                      seen_text ? post.after : post.before));
    } else if (sequence != nullptr && !seen_text) {
      const JsonValue* id = sequence->find("id");
      if (id == nullptr || !id->is_string() || id->as_string() != "A")
        return fail_in(here.item(i), Code::kUnsupported,
                       "expected the sequence A in a single text");
      seen_text = true;
    } else {
      return fail_in(here.item(i), Code::kInput,
                     "expected a SpecialToken, or once a Sequence, found something else");
    }
  }
  if (!seen_text)
    return fail_in(here, Code::kInput, "expected the sequence A, found none: texts would be lost");
  return post;
}

// ["</s>", 2]
Status read_pair(FieldReader& fields, std::string_view name, std::vector<int32_t>& out) {
  const JsonValue* pair = fields.list(name);
  if (pair == nullptr) return fields.finish();
  if (pair->array().size() != 2 || !pair->array()[1].is_int() || pair->array()[1].as_int() < 0 ||
      pair->array()[1].as_int() > kMaxTokenId)
    return fail_in(fields.place().field(name), Code::kInput,
                   "expected a token and its id, from 0 to {}", kMaxTokenId);
  out.push_back(static_cast<int32_t>(pair->array()[1].as_int()));
  return {};
}

Result<PostProcessor> post_processor_at(const JsonValue& json, const JsonPlace& place, int depth) {
  SX_ASSIGN(const std::string type, part_type(json, place));
  FieldReader fields(json, place);
  fields.ignore("type");
  if (type == "TemplateProcessing") return load_template(fields);
  PostProcessor post;
  if (type == "ByteLevel" || type == "RobertaProcessing") {
    for (const char* name : {"add_prefix_space", "trim_offsets"}) fields.ignore(name);  // offsets
    if (type == "ByteLevel") fields.ignore("use_regex");
  }
  if (type == "ByteLevel") {
    SX_TRY(fields.finish());
    return post;
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    SX_TRY(read_pair(fields, "cls", post.before));
    SX_TRY(read_pair(fields, "sep", post.after));
    SX_TRY(fields.finish());
    return post;
  }
  if (type == "Sequence") {
    SX_ASSIGN(const auto parts, load_sequence(fields, "processors", depth, post_processor_at));
    for (const PostProcessor& part : parts) {
      post.before.insert(post.before.begin(), part.before.begin(), part.before.end());
      post.after.insert(post.after.end(), part.after.begin(), part.after.end());
    }
    return post;
  }
  return fail_in(place.field("type"), Code::kUnsupported,
                 "expected a post-processor that is known (TemplateProcessing, ByteLevel, "
                 "RobertaProcessing, BertProcessing, Sequence), found {}",
                 quote_name(type));
}

}  // namespace

Result<PostProcessor> load_post_processor(const JsonValue& json, const JsonPlace& place) {
  return post_processor_at(json, place, 0);
}

}  // namespace sextant
