"""One GPT-2 training step in PyTorch, the anchor that `train_step` is compared with.

    python benchmarks/torch_train_step.py --model gpt2 --batch_size 4 --sequence_length 64

A step is forward (under autocast for bfloat16), backward, clipping of the global gradient norm to
1, and AdamW. It is the fastest that PyTorch offers without changing the numbers: fused attention,
fused AdamW, and the whole model in one graph with `--mode compile`. Prints one JSON line.

The first half of the steps, at most 10, is warm-up; times are the median of the others.
`tokens()` and `GPT2.initialize()` say what both programs compute on, so that losses agree.
"""

import argparse
import json
import math
import platform
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCHES = 4
WARMUP_STEPS = 10
TOKEN_IDS = 50257  # the preset's table is padded, its tokens are not
PADDED_VOCAB = 50304


@dataclass(frozen=True)
class Config:
    n_layer: int
    n_head: int
    n_embd: int
    vocab_size: int = PADDED_VOCAB
    n_positions: int = 1024

    def flops_per_token(self, sequence_length: int) -> float:
        """Multiplications and additions of a step's matrix products, half the attention square."""
        matrices = self.n_layer * 12 * self.n_embd**2 + self.vocab_size * self.n_embd
        attention = self.n_layer * sequence_length * self.n_embd
        return 6 * (matrices + attention)


PRESETS = {
    "gpt2": Config(12, 12, 768),
    "gpt2-medium": Config(24, 16, 1024),
    "gpt2-large": Config(36, 20, 1280),
    "gpt2-xl": Config(48, 25, 1600),
}


def find_config(model: str) -> Config:
    """A preset's sizes, or those in the config.json of a folder."""
    if model in PRESETS:
        return PRESETS[model]
    file = Path(model) / "config.json"
    try:
        fields = json.loads(file.read_text())
        if fields["model_type"] != "gpt2":
            raise SystemExit(f"{file}: model_type {fields['model_type']}, expected gpt2")
        return Config(**{name: fields[name] for name in Config.__dataclass_fields__})
    except (OSError, json.JSONDecodeError, KeyError) as error:
        known = ", ".join(PRESETS)
        raise SystemExit(f"--model {model}: neither of {known} nor a GPT-2 ({error})") from None


class Block(nn.Module):
    def __init__(self, config: Config):
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


class GPT2(nn.Module):
    """Returns the loss, so that a compiled graph covers it."""

    def __init__(self, config: Config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd)

    def initialize(self) -> None:
        """Matrices and tables N(0, 0.02), residual projections less by sqrt(2 layers), biases 0."""
        residual_std = 0.02 / math.sqrt(2 * len(self.blocks))
        for name, parameter in self.named_parameters():
            if name.endswith("_proj.weight"):
                nn.init.normal_(parameter, std=residual_std)
            elif parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.wte(ids) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def tokens(batch_size: int, sequence_length: int, ids: int) -> np.ndarray:
    """Four batches in turn, (4, batch, sequence + 1): element n is SplitMix64(n) mod ids."""
    count = BATCHES * batch_size * (sequence_length + 1)
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) % np.uint64(ids)
    return z.astype(np.int64).reshape(BATCHES, batch_size, sequence_length + 1)


def peak_rss_bytes() -> int:
    """High-water mark of this process since exec; getrusage's would include the parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(arguments: argparse.Namespace) -> dict:
    config = find_config(arguments.model)
    batch_size, sequence_length = arguments.batch_size, arguments.sequence_length
    if sequence_length > config.n_positions:
        raise SystemExit(f"--sequence_length {sequence_length}: at most {config.n_positions}")
    device = torch.device(arguments.device)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rss_before = peak_rss_bytes()

    model = GPT2(config)
    model.initialize()
    model.to(device)
    step_loss = torch.compile(model) if arguments.mode == "compile" else model
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=True)
    ids = min(config.vocab_size, TOKEN_IDS)
    batches = torch.from_numpy(tokens(batch_size, sequence_length, ids)).to(device)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=arguments.dtype == "bfloat16")

    def synchronize() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    losses, seconds = [], []
    for step in range(arguments.steps):
        batch = batches[step % BATCHES]
        inputs, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        synchronize()
        begin = time.perf_counter()
        with autocast:
            loss = step_loss(inputs, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())

    median = statistics.median(seconds[min(WARMUP_STEPS, len(seconds) // 2) :])
    step_tokens = batch_size * sequence_length
    result = {
        "framework": f"PyTorch {torch.__version__}",
        "mode": arguments.mode,
        "model": arguments.model,
        "batch_size": batch_size,
        "sequence_length": sequence_length,
        "dtype": arguments.dtype,
        "device": arguments.device,
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in parameters),
        "tokens_per_second": step_tokens / median,
        "step_ms": median * 1e3,
        "first_step_ms": seconds[0] * 1e3,
        "gflops": config.flops_per_token(sequence_length) * step_tokens / median / 1e9,
        "peak_rss_bytes": peak_rss_bytes(),
        "rss_before_model_bytes": rss_before,
        "first_loss": losses[0],
        "loss": losses[-1],
        "python": platform.python_version(),
    }
    if device.type == "cuda":
        result["peak_device_bytes"] = torch.cuda.max_memory_allocated(device)
        result["device_name"] = torch.cuda.get_device_name(device)
    return result


def positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 is needed")
    return value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    presets = ", ".join(PRESETS)
    parser.add_argument("--model", default="gpt2", help=f"{presets}, or a folder with config.json")
    parser.add_argument("--batch_size", type=positive, default=4)
    parser.add_argument("--sequence_length", type=positive, default=64)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--threads", type=positive, help="default: PyTorch's choice")
    parser.add_argument("--steps", type=positive, default=20)
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
