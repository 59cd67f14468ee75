"""Checks with PEFT that adapters trained here are what PEFT takes them for.

    python tests/models/peft_round_trip.py INFINI_TRAIN

INFINI_TRAIN trains adapters of the golden models. PEFT must open them with every tensor in its
place and save the very same tensors; what it computes with them merged must be what INFINI_TRAIN
exports, up to a rounding of each weight. Exit status 77 without PEFT.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
TARGETS = {
    "gpt2": ["", "attn.c_proj,c_fc", "all-linear"],
    "llama": ["", "q_proj,gate_proj", "c_attn,mlp.c_proj"],
    "qwen3": [r".*\.(k|o|up)_proj", "c_fc"],
    "mixtral": ["", "q_proj,v_proj"],
}


def write_tokens(path: Path, vocabulary: int) -> None:
    tokens = [i * i % vocabulary for i in range(200)]
    header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))


def require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(what)


def check(program: str, family: str, targets: str, scratch: Path) -> None:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    base, adapters, merged = GOLDEN / family, scratch / "adapters", scratch / "merged"

    def load(folder: Path) -> torch.nn.Module:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    model = load(base)
    write_tokens(scratch / "tokens.bin", model.config.vocab_size)
    common = ["--num_threads", "1", "--device", "cpu"]
    train = ["train", "--model", base, "--input_bin", scratch / "tokens.bin", "--sequence_length", "16"]
    train += ["--lora_rank", "3", "--lora_alpha", "6.5", "--learning_rate", "1e-2", "--num_iteration", "4"]
    train += ["--lora_save_path", adapters, *common]
    if targets:
        train += ["--lora_target_modules", targets]
    export = ["export", "--model", base, "--lora_load_path", adapters, "--output", merged]
    for command in train, export:
        subprocess.run([program, *map(str, command)], check=True, stdout=subprocess.DEVNULL)

    opened = PeftModel.from_pretrained(model, adapters, is_trainable=True)
    ours = load_file(adapters / "adapter_model.safetensors")
    opened.save_pretrained(scratch / "again")
    theirs = load_file(scratch / "again" / "adapter_model.safetensors")
    require(ours.keys() == theirs.keys(), f"{family}: PEFT has {sorted(ours.keys() ^ theirs.keys())} or not")
    for name, tensor in ours.items():
        require(torch.equal(tensor, theirs[name]), f"{family}: {name} differs in PEFT")
        require(tensor.abs().max() > 0, f"{family}: {name} was not trained")

    ids = torch.arange(24).reshape(2, 12) % model.config.vocab_size
    with torch.no_grad():
        expected = opened(input_ids=ids).logits
        found = load(merged)(input_ids=ids).logits
    away = ((found - expected).abs().max() / expected.abs().max()).item()
    require(away <= 1e-5, f"{family}: the logits of the merged model are {away:.1e} away from PEFT's")
    weights, reference = load(merged).state_dict(), opened.merge_and_unload().state_dict()
    worst = 0.0
    for name, tensor in reference.items():
        rounding = torch.finfo(torch.float32).eps * tensor.abs().max()
        worst = max(worst, ((weights[name] - tensor).abs().max() / rounding).item())
    require(worst <= 2, f"{family}: merged weights are {worst:.1f} roundings away from PEFT's")
    print(f"{family}: {targets or 'the default'}: {len(ours)} tensors, logits {away:.1e}, merged {worst:.2f} roundings")


def main() -> int:
    try:
        import peft  # noqa: F401
        import transformers
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for family, choices in TARGETS.items():
        for targets in choices:
            with tempfile.TemporaryDirectory() as scratch:
                check(sys.argv[1], family, targets, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
