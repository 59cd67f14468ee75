"""Forward passes from the published formulas, in float64, over weights in checkpoint names.

Independent of Transformers' model code, which narrows to float32 in places (RMSNorm, rotary angles,
router) whatever the parameters' type is. The golden values come from Transformers in float32; how
far they lie from these is the rounding error that the tolerances of the tests are derived from.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedConfig

Weights = dict[str, Tensor]


class Output(NamedTuple):
    """Logits (batch, sequence, vocabulary); the rest says something about experts only."""

    logits: Tensor
    auxiliary_loss: Tensor = torch.zeros((), dtype=torch.float64)
    router_margin: float = math.inf  # smallest lead of a chosen expert over one left out
    router_logits: Tensor | None = None  # (layers, batch x sequence, experts)


def forward(config: PreTrainedConfig, weights: Weights, ids: Tensor) -> Output:
    if config.model_type == "gpt2":
        return Output(_gpt2(config, weights, ids))
    return _llama_like(config, weights, ids)


def _attention(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """Causal, over the last `window` positions; all (batch, heads, sequence, head size), k and v may
    have fewer heads."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    if window:
        hidden = hidden | torch.ones(scores.shape[-2:], dtype=torch.bool).tril(-window)
    mixed = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
    return mixed.transpose(1, 2).flatten(2)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _gpt2(config: PreTrainedConfig, weights: Weights, ids: Tensor) -> Tensor:
    w = {name.removeprefix("transformer."): value for name, value in weights.items()}

    def norm(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        unit = centred / torch.sqrt(variance + config.layer_norm_epsilon)
        return unit * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]  # stored as (in, out)

    def gelu(x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]]
    for i in range(config.n_layer):
        qkv = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (_split_heads(part, config.n_head) for part in qkv.chunk(3, -1))
        x = x + linear(_attention(q, k, v), f"h.{i}.attn.c_proj")
        hidden = gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"))
        x = x + linear(hidden, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def _rotary_frequencies(rope: dict, head_dim: int) -> Tensor:
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = rope["rope_theta"] ** -exponent
    if rope["rope_type"] == "default":
        return frequencies
    assert rope["rope_type"] == "llama3", rope
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return keep * frequencies + (1 - keep) * frequencies / rope["factor"]


def _rotate(x: Tensor, frequencies: Tensor) -> Tensor:
    """Rotates dimension j with dimension j + head size / 2, by position times frequency j."""
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


def _llama_like(config: PreTrainedConfig, w: Weights, ids: Tensor) -> Output:
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    frequencies = _rotary_frequencies(config.rope_parameters, head_dim)
    router_logits = []

    def norm(x: Tensor, name: str) -> Tensor:
        scale = torch.sqrt(x.square().mean(-1, keepdim=True) + config.rms_norm_eps)
        return x / scale * w[f"{name}.weight"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

    def attention(x: Tensor, name: str, window: int | None) -> Tensor:
        q = _split_heads(linear(x, f"{name}.q_proj"), heads)
        k = _split_heads(linear(x, f"{name}.k_proj"), kv_heads)
        v = _split_heads(linear(x, f"{name}.v_proj"), kv_heads)
        if f"{name}.q_norm.weight" in w:
            q, k = norm(q, f"{name}.q_norm"), norm(k, f"{name}.k_norm")
        mixed = _attention(_rotate(q, frequencies), _rotate(k, frequencies), v, window)
        return linear(mixed, f"{name}.o_proj")

    def swiglu(x: Tensor, gate: str, up: str, down: str) -> Tensor:
        gated = linear(x, gate)
        return linear(gated * torch.sigmoid(gated) * linear(x, up), down)

    def mixture(x: Tensor, name: str) -> Tensor:
        router_logits.append(linear(x, f"{name}.gate").flatten(0, 1))
        probabilities = router_logits[-1].softmax(-1).view(*x.shape[:2], -1)
        chosen = probabilities.topk(config.num_experts_per_tok, -1)
        share = torch.zeros_like(probabilities).scatter(-1, chosen.indices, chosen.values)
        share = share / share.sum(-1, keepdim=True)
        # Every expert sees every token: slow, and nothing to get wrong.
        return sum(
            share[..., e, None] * swiglu(x, *(f"{name}.experts.{e}.{m}" for m in ("w1", "w3", "w2")))
            for e in range(config.num_local_experts)
        )

    # Of Qwen3 the layers from max_window_layers on have the window, of others all that set one.
    full_layers = getattr(config, "max_window_layers", 0)
    window = getattr(config, "sliding_window", None)
    x = w["model.embed_tokens.weight"][ids]
    for i in range(config.num_hidden_layers):
        layer = f"model.layers.{i}"
        seen = window if i >= full_layers else None
        x = x + attention(norm(x, f"{layer}.input_layernorm"), f"{layer}.self_attn", seen)
        hidden = norm(x, f"{layer}.post_attention_layernorm")
        if f"{layer}.block_sparse_moe.gate.weight" in w:
            x = x + mixture(hidden, f"{layer}.block_sparse_moe")
        else:
            x = x + swiglu(hidden, *(f"{layer}.mlp.{m}_proj" for m in ("gate", "up", "down")))
    head = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
    logits = linear(norm(x, "model.norm"), head)
    if not router_logits:
        return Output(logits)
    gates = torch.cat(router_logits)
    lead = gates.topk(config.num_experts_per_tok + 1, -1).values[:, -2:].detach()
    margin = (lead[:, 0] - lead[:, 1]).min().item()
    auxiliary = config.router_aux_loss_coef * load_balancing_loss(config, gates)
    return Output(logits, auxiliary, margin, torch.stack(router_logits))


def load_balancing_loss(config: PreTrainedConfig, gates: Tensor) -> Tensor:
    """Experts x sum over slots and experts of (share of choices x mean probability)."""
    probabilities = gates.softmax(-1)
    experts = probabilities.shape[-1]
    chosen = probabilities.topk(config.num_experts_per_tok, -1).indices
    share = F.one_hot(chosen, experts).double().mean(0)
    return experts * (share * probabilities.mean(0)).sum()
