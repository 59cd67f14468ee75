"""Writes the golden files of LoRA under data/peft/ with PEFT; README.md describes them.

    python tests/golden/peft_adapters.py [NAME ...]

The base models are those of the families; PEFT is the one of requirements.txt.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

DATA = Path(__file__).parent / "data"
STEPS, LEARNING_RATE = 10, 1e-2
OPTIMIZER = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}

# A part of the layers, a square one among them; all of them; a pattern and another scale.
ADAPTERS = {
    "gpt2": {"r": 4, "lora_alpha": 6, "target_modules": ["c_attn", "attn.c_proj", "c_fc"], "fan_in_fan_out": True},
    "llama": {"r": 3, "lora_alpha": 5, "target_modules": "all-linear"},
    "qwen3": {"r": 4, "lora_alpha": 7, "target_modules": r".*\.(q|v|down)_proj", "use_rslora": True},
    "mixtral": {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
}


def loss_of(model: torch.nn.Module, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    outputs = model(input_ids=ids, use_cache=False)
    loss = F.cross_entropy(outputs.logits.flatten(0, 1), labels.flatten())
    if getattr(outputs, "aux_loss", None) is not None:
        loss = loss + model.config.router_aux_loss_coef * outputs.aux_loss
    return outputs.logits, loss


def published(model: PeftModel, folder: Path) -> dict[str, Tensor]:
    model.save_pretrained(folder)
    return load_file(folder / "adapter_model.safetensors")


def published_gradients(model: PeftModel) -> dict[str, Tensor]:
    """The gradients under the names of the file."""
    values = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for _, parameter in trained(model):
            parameter.copy_(parameter.grad)
    with tempfile.TemporaryDirectory() as scratch:
        gradients = published(model, Path(scratch))
    with torch.no_grad():
        for name, parameter in trained(model):
            parameter.copy_(values[name])
    return gradients


def trained(model: PeftModel) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def write(name: str) -> None:
    base, folder = DATA / name, DATA / "peft" / name
    rng = np.random.Generator(np.random.PCG64(sum(name.encode()) + 1))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    config = LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[name])
    model = get_peft_model(model, config).eval()
    with torch.no_grad():
        for _, parameter in trained(model):
            parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape)) * 0.3)
    # A name that says nothing about the machine.
    model.peft_config["default"].base_model_name_or_path = name
    adapters = published(model, folder)
    (folder / "README.md").unlink()
    settings = json.loads((folder / "adapter_config.json").read_text())
    if isinstance(settings["target_modules"], list):
        settings["target_modules"].sort()  # PEFT has a set, in no order
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")

    inputs = load_file(base / "golden.safetensors")
    ids, labels = inputs["input_ids"].long(), inputs["labels"].long()
    logits, loss = loss_of(model, ids, labels)
    loss.backward()
    gradients = published_gradients(model)
    assert gradients.keys() == adapters.keys()
    save_file(gradients, folder / "gradients.safetensors", {"format": "pt"})
    save_file({"logits": logits.detach()}, folder / "golden.safetensors", {"format": "pt"})

    parameters = [p for _, p in trained(model)]
    optimizer = torch.optim.AdamW(
        parameters, lr=LEARNING_RATE, betas=tuple(OPTIMIZER["betas"]), eps=1e-8, weight_decay=0.1
    )
    losses = []
    for tokens in inputs["training_tokens"][:STEPS].long():
        optimizer.zero_grad()
        step_loss = loss_of(model, tokens[:, :-1], tokens[:, 1:])[1]
        step_loss.backward()
        optimizer.step()
        losses.append(step_loss.item())
    golden = {
        "versions": {"peft": peft.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "loss": loss.item(),
        "optimizer": OPTIMIZER | {"learning_rate": LEARNING_RATE},
        "losses": losses,
        "evaluation_loss": loss_of(model, ids, labels)[1].item(),
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    count = sum(p.numel() for p in parameters)
    print(f"{name}: {count} weights in adapters, loss {losses[0]:.3f} -> {losses[-1]:.3f}")


def main() -> int:
    names = sys.argv[1:] or list(ADAPTERS)
    if unknown := set(names) - set(ADAPTERS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ADAPTERS)}")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in names:
        write(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
