"""Mixture-of-experts families: mixtral, qwen2_moe, qwen3_moe, gpt_oss (BF16 and MXFP4), glm4_moe. Run: python make/moe.py [name ...]"""
import shutil
import sys

import torch
from transformers import Glm4MoeConfig, GptOssConfig, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig

import common
import families
import reference
from dense import rope

BY = "make/moe.py"


def qwen3_moe(**kw):
    d = dict(vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True,
             max_position_embeddings=128, tie_word_embeddings=False, rope_parameters=rope(theta=1000000.0))
    return Qwen3MoeConfig(**{**d, **kw})


def qwen3moe():
    families.bf16_model("qwen3-moe", qwen3_moe(), BY, hub=True, ablations={"norm_topk_prob": {"norm_topk_prob": False}})


def qwen3moe_mixed():
    c = qwen3_moe(norm_topk_prob=False, num_hidden_layers=4, mlp_only_layers=[1], decoder_sparse_step=2, num_experts=6,
                  num_experts_per_tok=2, intermediate_size=112, moe_intermediate_size=48, vocab_size=325)
    # sparse step 2 makes layers 1 and 3 sparse, mlp_only_layers takes layer 1 back: only layer 3 has experts
    families.bf16_model("qwen3-moe-mixed", c, BY, ablations={"norm_topk_prob": {"norm_topk_prob": True}})


def qwen2moe():
    c = Qwen2MoeConfig(vocab_size=320, hidden_size=64, intermediate_size=128, moe_intermediate_size=48,
                       shared_expert_intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                       num_experts=6, num_experts_per_tok=2, norm_topk_prob=False, max_position_embeddings=128,
                       rope_parameters=rope(theta=1000000.0))
    families.bf16_model("qwen2-moe", c, BY, hub=True, ablations={"norm_topk_prob": {"norm_topk_prob": True}})


def mixtral():
    c = MixtralConfig(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, max_position_embeddings=128,
                      sliding_window=None, rope_parameters=rope(theta=1000000.0))
    families.bf16_model("mixtral", c, BY, hub=True)


def glm4_config(**kw):
    d = dict(vocab_size=320, hidden_size=64, intermediate_size=144, moe_intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, head_dim=32, use_qk_norm=True, attention_bias=True,
             n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=1.8,
             first_k_dense_replace=1, norm_topk_prob=True, num_nextn_predict_layers=0, max_position_embeddings=128,
             rope_parameters=rope(theta=100000.0, partial_rotary_factor=0.5))
    return Glm4MoeConfig(**{**d, **kw})


def glm4():
    c = glm4_config()
    families.bf16_model("glm4-moe", c, BY, hub=True, ablations={
        "no group limit": {"n_group": 1, "topk_group": 1}, "routed_scaling_factor 1": {"routed_scaling_factor": 1.0},
        "full rotary": {"partial_rotary_factor": 1.0}, "norm_topk_prob": {"norm_topk_prob": False}})


def glm4_plain():
    """GLM-4.5-Air style: one group, no query and key norms, two shared experts, no normalization; config in the new style and
    router weights in F32, as transformers 5 saves them."""
    c = glm4_config(n_group=1, topk_group=1, use_qk_norm=False, n_shared_experts=2, norm_topk_prob=False, n_routed_experts=8,
                    num_experts_per_tok=2, num_hidden_layers=2, first_k_dense_replace=1, attention_bias=False, vocab_size=337,
                    routed_scaling_factor=1.0, num_nextn_predict_layers=1)
    def more(W):
        add_mtp(W, c)
        gen = torch.Generator().manual_seed(c.vocab_size)
        for k in sorted(W):
            if k.endswith("mlp.gate.weight"):
                W[k] = W[k] * (1 + 0.003 * torch.randn(W[k].shape, generator=gen))  # not BF16-representable

    families.bf16_model("glm4-moe-plain", c, BY, more=more, f32=r"e_score_correction_bias$|mlp\.gate\.weight$", note=(
        "model.layers.2.* is a multi-token-prediction layer (num_nextn_predict_layers 1), as published GLM-4.5 checkpoints have "
        "one behind their last layer. The dump does not use it."))


def add_mtp(W, c):
    """One multi-token-prediction layer: a decoder layer with its own embedding, head, two norms and a projection of [2d, d]."""
    L, d, V = c.num_hidden_layers, c.hidden_size, c.vocab_size
    gen = torch.Generator().manual_seed(L)
    last = {k.replace(f"layers.{L - 1}.", f"layers.{L}."): v.shape for k, v in W.items() if f".layers.{L - 1}." in k}
    p = f"model.layers.{L}."
    last.update({p + "eh_proj.weight": (d, 2 * d), p + "enorm.weight": (d,), p + "hnorm.weight": (d,),
                 p + "embed_tokens.weight": (V, d), p + "shared_head.head.weight": (V, d), p + "shared_head.norm.weight": (d,)})
    W.update({k: families.init(k, tuple(s), gen, {"eh": 1.0, "head": 3.0}) for k, s in sorted(last.items())})


# ------------------------------------------------------------------ gpt-oss

def gpt_oss_config(**kw):
    d = dict(vocab_size=320, hidden_size=64, intermediate_size=96, head_dim=32, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2, sliding_window=12, max_position_embeddings=256,
             rope_parameters=rope("yarn", 150000.0, factor=16.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
                                  original_max_position_embeddings=16))
    return GptOssConfig(**{**d, **kw})


def quantize_mxfp4(w):
    """w [E, K, rows] -> blocks U8 [E, rows, K/32, 16], scales U8 [E, rows, K/32]: scale 2^(floor(log2 amax) - 2), nearest even."""
    t = w.transpose(1, 2).unflatten(-1, (-1, 32)).contiguous()
    amax = t.abs().amax(-1)
    e = torch.floor(torch.log2(amax)).int() - 2
    codes = common.e2m1_codes(torch.ldexp(t, -e[..., None]))
    return common.pack(codes), (e + 127).to(torch.uint8)


def gpt_oss_pair(name, config, base=0, bf16=True, **kw):
    """The native MXFP4 layout, and the same weights dequantized to BF16 (exact); one dump serves both."""
    seed = common.seed_of(name, base)
    W = families.random_weights(config, seed, {"gate": 3.5, "down": 0.5})
    packed = {}
    for k, v in W.items():
        if k.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = quantize_mxfp4(v)
            packed[k + "_blocks"], packed[k + "_scales"] = blocks, scales
            W[k] = reference.dequantize_mxfp4(blocks, scales)
            assert torch.equal(W[k].bfloat16().float(), W[k])
        else:
            packed[k] = v.bfloat16()
    quant = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
             "quant_method": "mxfp4"}
    d = families.fresh(name + "-mxfp4")
    config_json = families.config_json(config, hub=True, quantization_config=quant, swiglu_limit=7.0,
                                       experts_per_token=config.num_experts_per_tok)
    config_json.pop("swiglu_alpha", None)  # published configurations have none: it is 1.702
    common.write_checkpoint(d, packed, config_json)
    families.dump(d, seed, BY, policy="f32", verified=verify_mxfp4(packed, W), **kw)
    print(f"{name}-mxfp4", sum(f.stat().st_size for f in d.iterdir()) / 1e6)
    if bf16:
        b = families.fresh(name + "-bf16")
        common.write_checkpoint(b, {k: v.bfloat16() for k, v in W.items()}, families.config_json(config))
        for f in ("dump.safetensors", "dump.json"):
            shutil.copy(d / f, b / f)
        print(f"{name}-bf16", sum(f.stat().st_size for f in b.iterdir()) / 1e6)


def verify_mxfp4(packed, W):
    """transformers' own unpacking gives the same values."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    n = 0
    for k in packed:
        if k.endswith("_blocks"):
            theirs = convert_moe_packed_tensors(packed[k], packed[k[:-7] + "_scales"], dtype=torch.bfloat16).float()
            assert torch.equal(theirs, W[k[:-7]]), k
            n += 1
    return f"transformers.integrations.mxfp4.convert_moe_packed_tensors gives bit-equal values for all {n} expert tensors"


def gptoss():
    y = gpt_oss_config().rope_parameters
    gpt_oss_pair("gpt-oss", gpt_oss_config(), ablations={
        "no window": {"sliding_window": None}, "sliding layers swapped": {"layer_types": ["full_attention", "sliding_attention"] * 2},
        "truncate true": {"rope_scaling": {**y, "truncate": True}}, "attention factor 1": {"rope_scaling": {**y, "attention_factor": 1.0}},
        "no swiglu clamp": {"swiglu_limit": 1e9}})


ALL = [qwen3moe, qwen3moe_mixed, qwen2moe, mixtral, glm4, glm4_plain, gptoss]

if __name__ == "__main__":
    for make in ALL:
        if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
            make()
