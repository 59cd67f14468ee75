"""The models of `torch_train_step.py`: GPT-2 in plain PyTorch, LLaMA, Qwen3 and Mixtral as Transformers has them
or, without it, in plain PyTorch too, where the residual stream, positions and norms are computed alike.

Each returns the loss, so that a compiled graph covers it. Names of presets are those of `infini-train`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Gpt2Config:
    n_layer: int
    n_head: int
    n_embd: int
    vocab_size: int = 50304  # padded: tokens are below 50257
    n_positions: int = 1024

    def flops_per_token(self, sequence_length: int) -> float:
        """Multiplications and additions of a step's matrix products, half the attention square."""
        matrices = self.n_layer * 12 * self.n_embd**2 + self.vocab_size * self.n_embd
        attention = self.n_layer * sequence_length * self.n_embd
        return 6 * (matrices + attention)

    def check(self, sequence_length: int) -> None:
        if sequence_length > self.n_positions:
            raise SystemExit(f"--sequence_length {sequence_length}: at most {self.n_positions}")

    def build(self, use_transformers: bool, weights: Path | None = None) -> nn.Module:
        return Gpt2(self)


@dataclass(frozen=True)
class LlamaConfig:
    """LLaMA, Qwen3 with `qk_norm`, Mixtral with `num_local_experts`."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool = True
    rope_theta: float = 500000.0
    qk_norm: bool = False
    num_local_experts: int = 0
    num_experts_per_tok: int = 2
    router_aux_loss_coef: float = 0.02

    def flops_per_token(self, sequence_length: int) -> float:
        heads = self.num_attention_heads * self.head_dim
        projections = self.hidden_size * 2 * (heads + self.num_key_value_heads * self.head_dim)
        mlp = 3 * self.hidden_size * self.intermediate_size
        if self.num_local_experts:
            mlp = mlp * self.num_experts_per_tok + self.hidden_size * self.num_local_experts
        matrices = self.num_hidden_layers * (projections + mlp) + self.vocab_size * self.hidden_size
        return 6 * (matrices + self.num_hidden_layers * sequence_length * heads)

    def check(self, sequence_length: int) -> None:
        """Any length goes: angles are made for it."""

    def build(self, use_transformers: bool, weights: Path | None = None) -> nn.Module:
        return FromTransformers(self, weights) if use_transformers else Llama(self)


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int) -> LlamaConfig:
    return LlamaConfig(hidden, intermediate, layers, heads, 8, 128, 151936, rope_theta=1e6, qk_norm=True)


PRESETS = {
    "gpt2": Gpt2Config(12, 12, 768),
    "gpt2-medium": Gpt2Config(24, 16, 1024),
    "gpt2-large": Gpt2Config(36, 20, 1280),
    "gpt2-xl": Gpt2Config(48, 25, 1600),
    "llama3-125m": LlamaConfig(768, 2432, 12, 12, 4, 64, 50257),
    "llama3.2-1b": LlamaConfig(2048, 8192, 16, 32, 8, 64, 128256),
    "llama3.2-3b": LlamaConfig(3072, 8192, 28, 24, 8, 128, 128256),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16),
    "mixtral-1.2b": LlamaConfig(
        1024, 3584, 12, 16, 8, 64, 32000, tie_word_embeddings=False, rope_theta=1e6, num_local_experts=8
    ),
}


def find_config(model: str) -> Gpt2Config | LlamaConfig:
    """A preset's sizes, or those in the config.json of a folder."""
    if model in PRESETS:
        return PRESETS[model]
    file = Path(model) / "config.json"
    try:
        fields = json.loads(file.read_text())
        family = fields["model_type"]
        if family not in ("gpt2", "llama", "qwen3", "mixtral"):
            raise SystemExit(f"{file}: model_type {family}, expected gpt2, llama, qwen3 or mixtral")
        kind = Gpt2Config if family == "gpt2" else LlamaConfig
        fields.setdefault("head_dim", fields.get("hidden_size", 0) // fields.get("num_attention_heads", 1))
        fields["qk_norm"] = family == "qwen3"
        return kind(**{name: fields[name] for name in kind.__dataclass_fields__ if name in fields})
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        known = ", ".join(PRESETS)
        raise SystemExit(f"--model {model}: neither of {known} nor a folder with a config.json ({error})") from None


RESIDUAL_PROJECTIONS = ("attn_proj", "mlp_proj", "o_proj", "down_proj")


def initialize(model: nn.Module, num_layers: int) -> None:
    """Matrices and tables N(0, 0.02), residual projections less by sqrt(2 layers), biases 0."""
    residual_std = 0.02 / math.sqrt(2 * num_layers)
    for name, parameter in model.named_parameters():
        if name.removesuffix(".weight").endswith(RESIDUAL_PROJECTIONS):
            nn.init.normal_(parameter, std=residual_std)
        elif parameter.ndim >= 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Gpt2Block(nn.Module):
    def __init__(self, config: Gpt2Config):
        super().__init__()
        width = config.n_embd
        self.n_head = config.n_head
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.n_head, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, config: Gpt2Config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.blocks = nn.ModuleList(Gpt2Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)
        initialize(self, config.n_layer)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.wte(ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return cross_entropy(F.linear(self.ln_f(x), self.wte.weight), labels)


class RmsNorm(nn.Module):
    """Over the last dimension, in float32, with the result in the input's type before the weight."""

    def __init__(self, width: int, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normal.to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [B, H, T, D] by angles [T, D], pairs half a head apart."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.head_dim = config.head_dim
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q = nn.Linear(config.hidden_size, queries, bias=False)
        self.k = nn.Linear(config.hidden_size, keys, bias=False)
        self.v = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.q_norm = RmsNorm(config.head_dim) if config.qk_norm else nn.Identity()
        self.k_norm = RmsNorm(config.head_dim) if config.qk_norm else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, self.head_dim)) for layer in (self.q, self.k, self.v))
        q = rotate(self.q_norm(q).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(k).transpose(1, 2), cos, sin)
        v = v.transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class LlamaMlp(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each token by its best experts, expert by expert. Keeps what its router said."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.router = nn.Linear(config.hidden_size, config.num_local_experts, bias=False)
        self.experts = nn.ModuleList(LlamaMlp(config) for _ in range(config.num_local_experts))
        self.probabilities = self.chosen = None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        self.probabilities = F.softmax(self.router(rows).float(), dim=-1)
        weights, self.chosen = self.probabilities.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            token, choice = torch.where(self.chosen == index)
            mixed = expert(rows[token]) * weights[token, choice, None]
            out.index_add_(0, token, mixed.to(out.dtype))
        return out.view_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.norm_1 = RmsNorm(config.hidden_size)
        self.attention = LlamaAttention(config)
        self.norm_2 = RmsNorm(config.hidden_size)
        self.mlp = Experts(config) if config.num_local_experts else LlamaMlp(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x), cos, sin)
        return x + self.mlp(self.norm_2(x))


class Llama(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.head.weight = self.embedding.weight
        pairs = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        self.register_buffer("frequencies", config.rope_theta**-pairs, persistent=False)
        initialize(self, config.num_hidden_layers)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(ids)
        angles = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        # In the projections' type, as Transformers does.
        dtype = torch.get_autocast_dtype(ids.device.type) if torch.is_autocast_enabled(ids.device.type) else x.dtype
        cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        loss = cross_entropy(self.head(self.norm(x)), labels)
        if self.config.num_local_experts:
            loss = loss + self.config.router_aux_loss_coef * self.balance()
        return loss

    def balance(self) -> Tensor:
        """The load-balancing loss of the Switch Transformer over the tokens of all layers."""
        experts = self.config.num_local_experts
        routers = [block.mlp for block in self.blocks]
        chosen = F.one_hot(torch.cat([router.chosen for router in routers]), experts).float().mean(0)
        probabilities = torch.cat([router.probabilities for router in routers]).mean(0)
        return experts * (chosen * probabilities).sum()


class FromTransformers(nn.Module):
    """The causal language model of the family, with PyTorch's fused attention; that of a folder with `weights`."""

    def __init__(self, config: LlamaConfig, weights: Path | None = None):
        super().__init__()
        self.balances = config.num_local_experts > 0
        self.coefficient = config.router_aux_loss_coef
        self.model = self._load(weights) if weights else self._make(config)
        self.model.config.output_router_logits = self.balances

    @staticmethod
    def _load(weights: Path) -> nn.Module:
        import transformers

        # Straight to another device only the package accelerate would load them.
        with torch.device("cpu"):
            loader = transformers.AutoModelForCausalLM
            return loader.from_pretrained(weights, attn_implementation="sdpa", dtype=torch.float32).train()

    def _make(self, config: LlamaConfig) -> nn.Module:
        import transformers

        family = "Mixtral" if config.num_local_experts else "Qwen3" if config.qk_norm else "Llama"
        fields = {name: getattr(config, name) for name in LlamaConfig.__dataclass_fields__ if name != "qk_norm"}
        if not config.num_local_experts:
            fields = {name: value for name, value in fields.items() if "expert" not in name and "router" not in name}
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": config.rope_theta}
        described = getattr(transformers, f"{family}Config")(
            **fields, max_position_embeddings=131072, rms_norm_eps=1e-5, output_router_logits=self.balances
        )
        described._attn_implementation = "sdpa"
        model = getattr(transformers, f"{family}ForCausalLM")(described)
        initialize(model, config.num_hidden_layers)
        return model

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        result = self.model(input_ids=ids, use_cache=False)
        loss = cross_entropy(result.logits, labels)
        return loss + self.coefficient * result.aux_loss if self.balances else loss
