"""One training step in PyTorch, the anchor that `train_step` is compared with.

    python benchmarks/torch_train_step.py --model gpt2 --batch_size 4 --sequence_length 64

A step is forward (under autocast for bfloat16), backward, clipping of the global gradient norm to
1, and AdamW. It is the fastest that PyTorch offers without changing the numbers: fused attention,
fused AdamW, and the whole model in one graph with `--mode compile`. Prints one JSON line.

The first half of the steps, at most 10, is warm-up; times are the median of the others.
`tokens()` and `torch_models.initialize()` say what both programs compute on, so that losses agree.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_models import PRESETS, Gpt2Config, find_config

BATCHES = 4
WARMUP_STEPS = 10
TOKEN_IDS = 50257  # GPT-2's: the table of its presets is padded


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
    config.check(sequence_length)
    device = torch.device(arguments.device)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rss_before = peak_rss_bytes()

    use_transformers = arguments.implementation != "plain" and not isinstance(config, Gpt2Config)
    if use_transformers and importlib.util.find_spec("transformers") is None:
        if arguments.implementation == "transformers":
            raise SystemExit("--implementation transformers: the package is missing")
        use_transformers = False
    if arguments.weights and not use_transformers:
        raise SystemExit("--weights: only Transformers' models read folders")
    with device:
        model = config.build(use_transformers, arguments.weights).to(device)
    step_loss = torch.compile(model) if arguments.mode == "compile" else model
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=arguments.learning_rate, betas=(0.9, 0.95), fused=True)
    ids = min(config.vocab_size, TOKEN_IDS)
    batches = torch.from_numpy(tokens(batch_size, sequence_length, ids)).to(device)
    autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=arguments.dtype == "bfloat16")

    def synchronize() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    losses, grad_norms, seconds = [], [], []
    for step in range(arguments.steps):
        batch = batches[step % BATCHES]
        inputs, labels = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        synchronize()
        begin = time.perf_counter()
        with autocast:
            loss = step_loss(inputs, labels)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
        grad_norms.append(norm.item())

    median = statistics.median(seconds[min(WARMUP_STEPS, len(seconds) // 2) :])
    step_tokens = batch_size * sequence_length
    framework = f"PyTorch {torch.__version__}"
    if use_transformers:
        framework += f" with Transformers {importlib.metadata.version('transformers')}"
    result = {
        "framework": framework,
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
        "losses": losses,
        "grad_norms": grad_norms,
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
    parser.add_argument(
        "--implementation",
        choices=("auto", "transformers", "plain"),
        default="auto",
        help="of LLaMA and its kin; auto: Transformers where it is installed",
    )
    parser.add_argument("--weights", type=Path, help="Hugging Face folder to start from, as `train_step` makes it")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--threads", type=positive, help="default: PyTorch's choice")
    parser.add_argument("--steps", type=positive, default=20)
    print(json.dumps(run(parser.parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
