"""Whole tiny models as their producers write them: a seeded generator of healthy checkpoints of every dialect, and single models for
tests that need to run one. What varies: family, widths (multiples of 16 or 32), heads, layers, shards, tied embeddings, the distribution
of the weights, whether fused projections share a global scale, and the style of the config."""
import numpy as np

from . import arithmetic, fixture

DIALECTS = ("modelopt", "compressed-tensors", "nvfp4a16", "fp8-tensor", "fp8-channel", "fp8-block", "mxfp4", "plain")
FAMILIES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
FUSED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


class Model:
    """Sizes, the config of the unquantized model, float32 weights by tensor name, and the names of its linears."""

    def __init__(self, rng, family="llama", d=32, heads=2, kv_heads=1, head_dim=16, d_ff=64, layers=1, vocab=64, tied=False, draw=None,
                 new_style=False):
        draw = draw or (lambda shape: rng.standard_normal(shape))
        self.rng, self.tied, self.weights, self.linears = rng, tied, {}, []
        q, kv = heads * head_dim, kv_heads * head_dim
        self.matrix("model.embed_tokens", vocab, d, draw, 0.05)
        for i in range(layers):
            layer = f"model.layers.{i}."
            shapes = {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q)}
            for part, (n, k) in shapes.items():
                self.linears.append(self.matrix(f"{layer}self_attn.{part}", n, k, draw))
                if family == "qwen2" and part != "o_proj":
                    self.weights[f"{layer}self_attn.{part}.bias"] = rng.normal(0, 0.1, n)
            for part, (n, k) in {"gate_proj": (d_ff, d), "up_proj": (d_ff, d), "down_proj": (d, d_ff)}.items():
                self.linears.append(self.matrix(f"{layer}mlp.{part}", n, k, draw))
            for norm in ("input_layernorm", "post_attention_layernorm"):
                self.weights[f"{layer}{norm}.weight"] = rng.uniform(0.5, 1.5, d)
            if family == "qwen3":
                for norm in ("q_norm", "k_norm"):
                    self.weights[f"{layer}self_attn.{norm}.weight"] = rng.uniform(0.5, 1.5, head_dim)
        self.weights["model.norm.weight"] = rng.uniform(0.5, 1.5, d)
        if not tied:
            self.matrix("lm_head", vocab, d, draw)
        self.config = {
            "architectures": [FAMILIES[family]], "model_type": family, "hidden_size": d, "intermediate_size": d_ff,
            "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
            "vocab_size": vocab, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2}
        if family == "qwen2":
            del self.config["head_dim"]
        if family.startswith("qwen"):
            self.config |= {"use_sliding_window": False, "sliding_window": None, "max_window_layers": layers}
        if family == "mistral":
            self.config["sliding_window"] = None
        rope = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "dtype": "bfloat16"}
        self.config |= rope if new_style else {"rope_theta": 10000.0, "rope_scaling": None, "torch_dtype": "bfloat16"}

    def matrix(self, module, n, k, draw, gain=None):
        # BF16 values, as producers have them before they quantize.
        values = (draw((n, k)) * (gain or k ** -0.5)).astype(np.float32)
        self.weights[module + ".weight"] = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return module

    def amax(self, shared):
        """The amax that each linear is quantized by: its own, or that of its fused group."""
        own = {module: np.abs(self.weights[module + ".weight"]).max() for module in self.linears}
        if not shared:
            return own
        def group(module):
            parent, part = module.rsplit(".", 1)
            return parent, FUSED.get(part, part)
        return {module: max(own[other] for other in self.linears if group(other) == group(module)) for module in self.linears}

    def input_amax(self, module):
        """What a calibration could have seen: a few times the norm's rms behind a norm, anything elsewhere; from BF16 activations. One
        number for all that share the input."""
        parent, part = module.rsplit(".", 1)
        cache = self.__dict__.setdefault("inputs", {})
        key = parent, FUSED.get(part, part)
        if key not in cache:
            layer = parent.rsplit(".", 1)[0]
            norm = {"qkv": "input_layernorm", "gate_up": "post_attention_layernorm"}.get(key[1])
            amax = np.exp(self.rng.uniform(-2, 3))
            if norm:
                amax = np.sqrt(np.mean(self.weights[f"{layer}.{norm}.weight"] ** 2)) * self.rng.uniform(2, 3.5)
            cache[key] = np.array([amax], np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return float(cache[key].view(np.float32)[0])

    def plain(self, dtype="BF16"):
        return {name: fixture.array(values, dtype) for name, values in self.weights.items()}


def with_experts(tensors, top_k=1, seed=11):
    """F-MOE (or what a case made of it) as the one layer of a Qwen3-MoE model that runs: (tensors, config). The rest is plain; the norm is
    large enough for the activation scales of F-MOE (an amax of 672) and for a scale of 1 (2688)."""
    model = Model(np.random.default_rng(seed), "qwen3", d=32, heads=1, kv_heads=1, head_dim=32, d_ff=32)
    whole = {name: tensor for name, tensor in model.plain().items() if ".mlp." not in name}
    whole["model.layers.0.post_attention_layernorm.weight"] = fixture.array(np.full(32, 512.0), "BF16")
    config = {**model.config, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 8,
              "num_experts_per_tok": top_k, "moe_intermediate_size": 32, "norm_topk_prob": True}
    return {**whole, **tensors}, config


# ------------------------------------------------------------------ dialects: (tensors, members of config.json, sidecar)

def as_modelopt(model, shared=True, input_scales=True):
    tensors = model.plain()
    for module, amax in model.amax(shared).items():
        codes, scales, g = arithmetic.nvfp4_d(model.weights[module + ".weight"], amax)
        tensors[module + ".weight"] = fixture.array(codes, "U8")
        tensors[module + ".weight_scale"] = fixture.array(scales, "F8_E4M3")
        tensors[module + ".weight_scale_2"] = fixture.f32(g)
        if input_scales:
            tensors[module + ".input_scale"] = fixture.f32(np.float32(model.input_amax(module)) / np.float32(2688))
    return tensors


def as_compressed_tensors(model, shared=True, input_scales=True):
    tensors = model.plain()
    for module, amax in model.amax(shared).items():
        codes, scales, G = arithmetic.nvfp4_c(model.weights[module + ".weight"], amax)
        del tensors[module + ".weight"]
        tensors[module + ".weight_packed"] = fixture.array(codes, "U8")
        tensors[module + ".weight_scale"] = fixture.array(scales, "F8_E4M3")
        tensors[module + ".weight_global_scale"] = fixture.f32(G, [1])
        if input_scales:
            tensors[module + ".input_global_scale"] = fixture.f32(np.float32(2688) / np.float32(model.input_amax(module)), [1])
    return tensors


def modelopt(model, rng):
    config = fixture.modelopt(["lm_head"], **fixture.modelopt_groups(fixture.ARGS), producer={"name": "modelopt", "version": "0.37.0"})
    return as_modelopt(model, rng.random() < 0.5), config, fixture.modelopt_sidecar(["lm_head"], group_size=16)


def compressed_tensors(model, rng):
    return as_compressed_tensors(model, rng.random() < 0.5), fixture.compressed_tensors(["lm_head"]), None


def nvfp4a16(model, rng):
    """Weights only, as it is spelled: by the algorithm's name, by null activations (ModelOpt), by null activations (compressed-tensors)."""
    spelling = rng.integers(3)
    if spelling == 2:
        config = fixture.compressed_tensors(["lm_head"], {"group_0": fixture.ct_group()})
        return as_compressed_tensors(model, input_scales=False), config, None
    tensors = as_modelopt(model, input_scales=False)
    if spelling == 1:
        return tensors, fixture.modelopt(["lm_head"], **fixture.modelopt_groups(None)), None
    return tensors, fixture.modelopt(["lm_head"], "W4A16_NVFP4"), fixture.modelopt_sidecar(["lm_head"], "W4A16_NVFP4", group_size=16)


def as_fp8(model, rows, columns, name, shape, dtype="F32", inputs=False):
    tensors = model.plain()
    for module in model.linears:
        w = model.weights[module + ".weight"]
        codes, scales = arithmetic.fp8_blocks(w, rows or w.shape[0], columns or w.shape[1])
        tensors[module + ".weight"] = fixture.array(codes, "F8_E4M3")
        tensors[module + "." + name] = fixture.array(scales.reshape(shape(scales)), dtype)
        if inputs:
            tensors[module + ".input_scale"] = fixture.f32(np.float32(model.input_amax(module)) / np.float32(448))
    return tensors


def fp8_tensor(model, rng):
    if rng.random() < 0.5:
        tensors = as_fp8(model, 0, 0, "weight_scale", lambda s: (), inputs=True)
        return tensors, fixture.modelopt(["lm_head"], "FP8"), fixture.modelopt_sidecar(["lm_head"], "FP8")
    static = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
    groups = {"group_0": fixture.ct_group("tensor", 8, 0, activations=static)}
    tensors = as_fp8(model, 0, 0, "weight_scale", lambda s: (1,), inputs=True)
    return tensors, fixture.compressed_tensors(["lm_head"], groups, "float-quantized"), None


def fp8_channel(model, rng):
    if rng.random() < 0.5:
        tensors = as_fp8(model, 1, 0, "weight_scale", lambda s: (s.size,))
        return tensors, fixture.modelopt(["lm_head"], "FP8_PER_CHANNEL_PER_TOKEN"), None
    token = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
    groups = {"group_0": fixture.ct_group("channel", 8, 0, activations=token)}
    tensors = as_fp8(model, 1, 0, "weight_scale", lambda s: (s.size, 1), "BF16")
    return tensors, fixture.compressed_tensors(["lm_head"], groups, "float-quantized"), None


def fp8_block(model, rng):
    if rng.random() < 0.7:
        config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
        return as_fp8(model, 128, 128, "weight_scale_inv", lambda s: s.shape), {"quantization_config": config}, None
    tensors = as_fp8(model, 128, 128, "weight_scale", lambda s: (s.shape[0], 1, s.shape[1], 1))
    return tensors, fixture.modelopt(["lm_head"], "FP8_PB_WO"), None


def mxfp4(model, rng):
    tensors, up = model.plain(), rng.random() < 0.5
    for module in model.linears:
        codes, scales = arithmetic.mxfp4(model.weights[module + ".weight"], up)
        del tensors[module + ".weight"]
        tensors[module + ".weight_packed"] = fixture.array(codes, "U8")
        tensors[module + ".weight_scale"] = fixture.array(scales, "U8" if up else "F8_E8M0")
    groups = {"group_0": fixture.ct_group("group", size=32)}
    return tensors, fixture.compressed_tensors(["lm_head"], groups, "mxfp4-pack-quantized"), None


def plain(model, rng):
    return model.plain(str(rng.choice(["BF16", "F16", "F32"]))), {}, None


MAKE = {"modelopt": modelopt, "compressed-tensors": compressed_tensors, "nvfp4a16": nvfp4a16, "fp8-tensor": fp8_tensor,
        "fp8-channel": fp8_channel, "fp8-block": fp8_block, "mxfp4": mxfp4, "plain": plain}


# ------------------------------------------------------------------ the generator

def distribution(rng):
    kind, degrees = rng.integers(3), rng.uniform(3, 8)
    # Student's t by its definition, cut where a trained matrix would be: no element is a thousand times the others.
    def student(shape):
        return np.clip(rng.standard_normal(shape) / np.sqrt(rng.chisquare(degrees, shape) / degrees), -60, 60)
    return [rng.standard_normal, lambda shape: rng.laplace(size=shape), student][kind]


def random_model(seed, large=False, unit=16):
    """large: matrices of 10^5 elements and more, so that histograms mean something."""
    rng = np.random.default_rng(seed)
    family = str(rng.choice(list(FAMILIES)))
    width = lambda low, high: int(rng.integers(low, high)) * unit
    kv_heads = int(rng.integers(1, 3))
    heads, head_dim = kv_heads * int(rng.integers(1, 3)), 32
    d = width(20, 28) if large else width(2, 8)
    if family == "qwen2":  # its head_dim is hidden_size / heads
        heads, kv_heads, head_dim = d // 16, 1, 16
    elif large:
        heads, kv_heads = 10, int(rng.choice([5, 10]))
    d_ff, layers = (width(24, 32), 1) if large else (width(2, 10), int(rng.integers(1, 4)))
    return Model(rng, family, d, heads, kv_heads, head_dim, d_ff, layers, vocab=int(rng.integers(40, 200)), tied=rng.random() < 0.5,
                 draw=distribution(rng), new_style=rng.random() < 0.5)


def healthy_files(dialect, seed, large=False, n_shards=None):
    """File name -> content of one healthy checkpoint."""
    model = random_model(seed, large, 32 if dialect == "mxfp4" else 16)
    tensors, quantization, sidecar = MAKE[dialect](model, model.rng)
    files = fixture.sharded(tensors, n_shards or int(model.rng.integers(1, 4)))
    files["config.json"] = {**model.config, **quantization}
    if sidecar is not None:
        files["hf_quant_config.json"] = sidecar
    return {name: fixture.as_text(content) for name, content in files.items()}
