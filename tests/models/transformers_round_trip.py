"""Checks with Transformers that what copy_model writes is exact.

    python tests/models/transformers_round_trip.py COPY_MODEL

New models, and models that Transformers wrote, are saved by COPY_MODEL in one file and in shards;
each must open in Transformers and come out the same. Exit status 77 without Transformers.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
LLAMAS = ["llama", "llama_biases", "llama_one_key_head"]
MODELS = ["gpt2", *LLAMAS, "qwen3", "qwen3_windows", "mixtral", "mixtral_8_experts"]


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


def main() -> int:
    try:
        import safetensors  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    copy_model, check = sys.argv[1], [sys.executable, GOLDEN / "check_roundtrip.py"]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for index, model in enumerate(MODELS):
            original = GOLDEN / "data" / model
            for kind, options in [("whole", []), ("sharded", [50_000])]:
                copy = scratch / f"{index}-{kind}"
                run(copy_model, original, copy, *options)
                run(*check, copy, original)
        for preset in ["gpt2-nano", "llama3-nano", "qwen3-nano", "mixtral-nano"]:
            run(copy_model, preset, scratch / preset)
            run(*check, scratch / preset)
    return 0


if __name__ == "__main__":
    sys.exit(main())
