"""Writes the golden files under data/ with PyTorch and Transformers; README.md describes them.

    python tests/golden/generate.py [--output DIR] [--check] [NAME ...]

Everything runs in float32 on one CPU thread with deterministic algorithms, and is compared with the
float64 formulas of reference.py on the way; a disagreement beyond rounding stops the generator.
"""

import argparse
import copy
import json
import math
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import reference
import square_projection
import torch
import transformers
from compare import differences
from families import FAMILIES
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

DATA = Path(__file__).parent / "data"
BATCH, SEQUENCE = 3, 29
PROMPT, NEW_TOKENS = 7, 16
STEPS, WARMUP_STEPS, PEAK_LEARNING_RATE = 20, 4, 4e-3
IGNORE_INDEX = -100
PADDED_LENGTHS = (29, 11, 20)  # of the evaluation batch's rows, where it stands for a padded one
MASKED_LABELS_PER_ROW = (1, 7, 3, 5)
OPTIMIZER = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0}

# Largest deviation of a float32 run from the float64 formulas that still counts as rounding.
ROUNDING = {"logits": 3e-6, "gradients": 3e-5, "scalars": 3e-6, "training": 3e-6}
# A choice between candidates (next token, expert) must not hang on rounding.
SMALLEST_MARGIN = 1e-4


@dataclass
class Inputs:
    """What a family's golden numbers are computed on."""

    input_ids: Tensor
    labels: Tensor
    masked_input_ids: Tensor
    masked_labels: Tensor
    training_tokens: Tensor  # (steps, batch, sequence + 1)
    prompt: Tensor

    @staticmethod
    def draw(rng: np.random.Generator, vocab_size: int) -> "Inputs":
        def uniform(*shape: int) -> Tensor:
            return torch.from_numpy(rng.integers(0, vocab_size, shape))

        tokens = uniform(BATCH, SEQUENCE + 1)
        masked = uniform(len(MASKED_LABELS_PER_ROW), SEQUENCE + 1)
        masked_labels = masked[:, 1:].clone()
        for row, kept in enumerate(MASKED_LABELS_PER_ROW):
            ignored = rng.permutation(SEQUENCE)[kept:]
            masked_labels[row, torch.from_numpy(ignored)] = IGNORE_INDEX
        # Low ids are common, so that there is something to learn within a few steps.
        skewed = rng.random((STEPS, BATCH, SEQUENCE + 1)) ** 3 * vocab_size
        return Inputs(
            input_ids=tokens[:, :-1].contiguous(),
            labels=tokens[:, 1:].contiguous(),
            masked_input_ids=masked[:, :-1].contiguous(),
            masked_labels=masked_labels,
            training_tokens=torch.from_numpy(skewed.astype(np.int64)),
            prompt=uniform(1, PROMPT),
        )


def build(config: PreTrainedConfig, rng: np.random.Generator) -> PreTrainedModel:
    """A model whose weights depend on NumPy's bit generator only, with nothing left at 0 or 1."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    matrix_std = 0.9 / config.hidden_size**0.5
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.from_numpy(rng.standard_normal(parameter.shape))
            if parameter.ndim > 1:
                parameter.copy_(noise * matrix_std)
            elif name.endswith("bias"):
                parameter.copy_(noise * 0.1)
            else:
                parameter.copy_(1 + noise * 0.2)
    return model


def published(model: PreTrainedModel, folder: Path) -> dict[str, Tensor]:
    """Saves the model in `folder` and returns its tensors under their checkpoint names."""
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def published_gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    """The gradients under checkpoint names, in the layout of the checkpoint's weights."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for target, source in zip(twin.parameters(), model.parameters(), strict=True):
            target.copy_(source.grad)
    with tempfile.TemporaryDirectory() as folder:
        return published(twin, Path(folder))


class Transformers:
    """The model under its own library, float32 parameters."""

    def __init__(self, model: PreTrainedModel, autocast: bool = False):
        self.model = model
        self.autocast = autocast

    def parameters(self) -> list[Tensor]:
        return list(self.model.parameters())

    def logits(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            output = self.model(input_ids=ids, use_cache=False)
        auxiliary = getattr(output, "aux_loss", None)
        if auxiliary is None:
            return output.logits, torch.zeros(())
        return output.logits, self.model.config.router_aux_loss_coef * auxiliary


class Reference:
    """The same model from the formulas, float64 parameters."""

    def __init__(self, config: PreTrainedConfig, weights: dict[str, Tensor]):
        self.config = config
        self.router_margin = math.inf  # smallest so far
        self.weights = {name: w.double().requires_grad_() for name, w in weights.items()}

    def parameters(self) -> list[Tensor]:
        return list(self.weights.values())

    def logits(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        output = reference.forward(self.config, self.weights, ids)
        self.router_margin = min(self.router_margin, output.router_margin)
        return output.logits, output.auxiliary_loss


Runner = Transformers | Reference


def loss_of(logits: Tensor, auxiliary: Tensor, labels: Tensor) -> Tensor:
    logits = logits if logits.dtype == torch.float64 else logits.float()
    mean = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE_INDEX)
    return mean + auxiliary


def backward(runner: Runner, ids: Tensor, labels: Tensor) -> tuple[Tensor, float, float]:
    """Logits, loss and global gradient norm; leaves the gradients in the parameters."""
    for parameter in runner.parameters():
        parameter.grad = None
    logits, auxiliary = runner.logits(ids)
    loss = loss_of(logits, auxiliary, labels)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in runner.parameters()])
    return logits.detach(), loss.item(), norm.item()


def learning_rates() -> list[float]:
    """Linear warm-up, then linear to a tenth of the peak, so that a forgotten update shows."""
    decay_steps = STEPS - WARMUP_STEPS
    return [
        PEAK_LEARNING_RATE * min((step + 1) / WARMUP_STEPS, 1 - 0.9 * (step - WARMUP_STEPS) / decay_steps)
        for step in range(STEPS)
    ]


def train(runner: Runner, tokens: Tensor) -> dict[str, list[float]]:
    """AdamW with decay on matrices only, gradients clipped by their global norm."""
    decayed = [p for p in runner.parameters() if p.ndim >= 2]
    others = [p for p in runner.parameters() if p.ndim < 2]
    groups = [
        {"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
        {"params": others, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"])
    losses, grad_norms = [], []
    for batch, rate in zip(tokens, learning_rates(), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        losses.append(backward(runner, batch[:, :-1], batch[:, 1:])[1])
        norm = torch.nn.utils.clip_grad_norm_(runner.parameters(), OPTIMIZER["max_grad_norm"])
        grad_norms.append(norm.item())
        optimizer.step()
    return {"losses": losses, "grad_norms": grad_norms}


def evaluate(runner: Runner, inputs: Inputs) -> float:
    with torch.no_grad():
        return loss_of(*runner.logits(inputs.input_ids), inputs.labels).item()


def generate(model: PreTrainedModel, double: Reference, prompt: Tensor) -> tuple[list, Tensor, float]:
    """Greedy continuation: ids, the logits each was taken from, smallest lead of a winner."""
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        use_cache=True,
        return_dict_in_generate=True,
        output_logits=True,
    )
    ids, logits = output.sequences[0, prompt.shape[1] :], torch.cat(output.logits)
    if len(ids) != NEW_TOKENS or model.config.eos_token_id in ids.tolist():
        raise SystemExit("the continuation ends early: choose another seed")
    with torch.no_grad():
        whole = double.logits(output.sequences[:, :-1])[0][0, prompt.shape[1] - 1 :]
    require("logits with KV cache", error(logits, whole), ROUNDING["logits"])
    best = whole.topk(2, -1)
    if best.indices[:, 0].tolist() != ids.tolist():
        raise SystemExit("float64 chooses another continuation: choose another seed")
    return ids.tolist(), logits, (best.values[:, 0] - best.values[:, 1]).min().item()


def error(value: Tensor | list[float], exact: Tensor | list[float]) -> float:
    """Largest difference over largest magnitude."""
    value, exact = (torch.as_tensor(x, dtype=torch.float64) for x in (value, exact))
    return ((value - exact).abs().max() / exact.abs().max()).item()


def relative_error(values: list[float], exact: list[float]) -> float:
    """Largest relative difference, element by element."""
    return max(abs(a - b) / abs(b) for a, b in zip(values, exact, strict=True))


def require(what: str, measured: float, limit: float) -> None:
    if not measured <= limit:
        raise SystemExit(f"{what}: {measured:.2e} from float64, expected at most {limit:.0e}")


def route(model: PreTrainedModel, double: Reference, ids: Tensor) -> tuple[Tensor, float]:
    """Experts of each token (layers, batch x sequence, experts per token), the most probable first,
    and the load-balancing loss, without its coefficient, of the batch padded behind PADDED_LENGTHS."""
    mask = torch.arange(ids.shape[1]) < torch.tensor(PADDED_LENGTHS)[:, None]
    choices = model.config.num_experts_per_tok
    with torch.no_grad():
        gates = torch.stack(model(input_ids=ids, use_cache=False).router_logits)
        exact_gates = reference.forward(double.config, double.weights, ids).router_logits
        padded = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).aux_loss.item()
        counted = exact_gates[:, mask.flatten()].flatten(0, 1)
        exact_padded = reference.load_balancing_loss(double.config, counted).item()
    experts = gates.softmax(-1).topk(choices, -1).indices
    if not torch.equal(experts, exact_gates.topk(choices, -1).indices):
        raise SystemExit("float64 chooses other experts: choose another seed")
    require("load-balancing loss of a padded batch", abs(padded / exact_padded - 1), ROUNDING["scalars"])
    return experts, padded


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def write_family(name: str, folder: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(sum(name.encode())))
    config = FAMILIES[name]()
    inputs = Inputs.draw(rng, config.vocab_size)
    model = build(config, rng)
    weights = published(model, folder)
    single, double = Transformers(model), Reference(config, weights)

    logits, loss, grad_norm = backward(single, inputs.input_ids, inputs.labels)
    exact_logits, exact_loss, exact_grad_norm = backward(double, inputs.input_ids, inputs.labels)
    auxiliary = single.logits(inputs.input_ids)[1].item()
    gradients = published_gradients(model)
    exact_gradients = {n: w.grad for n, w in double.weights.items()}
    assert gradients.keys() == exact_gradients.keys()
    gradient_errors = {n: error(g, exact_gradients[n]) for n, g in gradients.items()}

    masked = backward(single, inputs.masked_input_ids, inputs.masked_labels)[1:]
    exact_masked = backward(double, inputs.masked_input_ids, inputs.masked_labels)[1:]
    routing, padded, masked_part = {}, {}, {}
    if hasattr(config, "num_local_experts"):
        experts, loss_of_padded = route(model, double, inputs.input_ids)
        masked_part = {"auxiliary_loss": single.logits(inputs.masked_input_ids)[1].item()}
        routing = {"router_experts": experts.to(torch.int32)}
        padded = {"padded": {"lengths": PADDED_LENGTHS, "load_balancing_loss": loss_of_padded}}
    ids, next_logits, margin = generate(model, double, inputs.prompt)
    for what, lead in ("token", margin), ("expert", double.router_margin):
        if lead < SMALLEST_MARGIN:
            raise SystemExit(f"{name}: a chosen {what} leads by {lead:.1e} only: choose another seed")

    trained = Transformers(copy.deepcopy(model))
    training = train(trained, inputs.training_tokens)
    exact_training = train(double, inputs.training_tokens)
    if double.router_margin < SMALLEST_MARGIN / 2:
        raise SystemExit(f"{name}: an expert leads by {double.router_margin:.1e} in training: another seed")
    training["evaluation_loss"] = evaluate(trained, inputs)
    exact_training["evaluation_loss"] = evaluate(double, inputs)
    mixed = Transformers(copy.deepcopy(model), autocast=True)
    training_bfloat16 = train(mixed, inputs.training_tokens)
    training_bfloat16["evaluation_loss"] = evaluate(mixed, inputs)

    scalars, exact_scalars = (
        [loss, grad_norm, *masked],
        [exact_loss, exact_grad_norm, *exact_masked],
    )
    losses = [*training["losses"], training["evaluation_loss"]]
    exact_losses = [*exact_training["losses"], exact_training["evaluation_loss"]]
    losses_bfloat16 = [*training_bfloat16["losses"], training_bfloat16["evaluation_loss"]]
    measured = {
        "logits": error(logits, exact_logits),
        "gradients": max(gradient_errors.values()),
        "gradients_worst": max(gradient_errors, key=gradient_errors.get),
        "scalars": relative_error(scalars, exact_scalars),
        "training_losses": relative_error(losses, exact_losses),
        "training_grad_norms": relative_error(training["grad_norms"], exact_training["grad_norms"]),
        "training_bfloat16_losses": relative_error(losses_bfloat16, exact_losses),
    }
    require(f"{name}: logits", measured["logits"], ROUNDING["logits"])
    require(f"{name}: gradients", measured["gradients"], ROUNDING["gradients"])
    require(f"{name}: scalars", measured["scalars"], ROUNDING["scalars"])
    require(f"{name}: training losses", measured["training_losses"], ROUNDING["training"])

    save_file(gradients, folder / "gradients.safetensors", {"format": "pt"})
    tensors = {n: t.to(torch.int32) for n, t in vars(inputs).items()}
    tensors |= {"logits": logits, "generated_logits": next_logits} | routing
    save_file(tensors, folder / "golden.safetensors", {"format": "pt"})
    golden = {
        "versions": versions(),
        "attention": model.config._attn_implementation,
        "loss": loss,
        "auxiliary_loss": auxiliary,
        "grad_norm": grad_norm,
        "masked": {"loss": masked[0], "grad_norm": masked[1]} | masked_part,
        **padded,
        "optimizer": OPTIMIZER | {"learning_rates": learning_rates()},
        "training": training,
        "training_bfloat16": training_bfloat16,
        "generated": {"ids": ids, "smallest_margin": margin},
        "float64": {
            "loss": exact_loss,
            "grad_norm": exact_grad_norm,
            "masked": {"loss": exact_masked[0], "grad_norm": exact_masked[1]},
            "training": exact_training,
        },
        "measured_error": measured,
    }
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(
        f"{name}: {sum(w.numel() for w in weights.values())} weights,"
        f" loss {losses[0]:.3f} -> {losses[STEPS - 1]:.3f},"
        f" grad norms {min(training['grad_norms']):.2f} to {max(training['grad_norms']):.2f};"
        f" from float64: logits {measured['logits']:.1e}, gradients {measured['gradients']:.1e},"
        f" {STEPS} steps {measured['training_losses']:.1e},"
        f" in bfloat16 {measured['training_bfloat16_losses']:.1e};"
        f" margins: token {margin:.1e}, expert {double.router_margin:.1e}"
    )


def main() -> int:
    names = [*FAMILIES, square_projection.NAME]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"among {', '.join(names)}; default all")
    parser.add_argument("--output", type=Path, default=DATA, help="default: data/ beside this file")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with --output")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names)}")

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) if arguments.check else arguments.output
        for name in arguments.names or names:
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            if name == square_projection.NAME:
                square_projection.write(folder)
            else:
                write_family(name, folder)
            if arguments.check and (found := differences(folder, arguments.output / name)):
                print(f"{name} differs:", *found, sep="\n  ")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
