"""Opening a model by a path or a package name: Hugging Face folders, llama2.c files, saved networks, user functions.

A package is looked up where Python finds it (it is not imported) and searched for a folder with `config.json` and
weights. Nothing is fetched, and no code that comes with a model is run.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from infoflow.arguments import integer
from infoflow.cost import memory
from infoflow.errors import InfoFlowError, printable
from infoflow.probes import folders, stories
from infoflow.probes.record import Batch, as_batches
from infoflow.probes.texts import Encoding, within

TOGETHER = 64  # sequences of a saved network that are looked at in one pass
SourceKind = Literal["causal", "masked", "encoder", "network"]


@dataclass
class Source:
    """A model and how text enters it; a `network` has no text but a sampler of inputs."""

    name: str
    model: nn.Module
    kind: SourceKind
    encoding: Encoding | None = None
    sample: Callable[[int, int], list[Batch]] | None = None  # (documents, seed) -> batches

    def __post_init__(self) -> None:
        self.name = printable(self.name)  # a file's name may hold what a terminal obeys


def open_source(spelling: str) -> Source:
    """The model at a path (a Hugging Face folder, a llama2.c file, a network of this project) or in a package."""
    path = _locate(spelling)
    if path.is_file():
        return _from_file(path)
    binary = [p for p in sorted(path.glob("*.bin")) if (path / "config.json").exists() is False and "tok" not in p.name]
    if len(binary) == 1:
        return _from_file(binary[0])
    folder = _model_folder(path, spelling)
    name = folder.parent.name if folder.name == "model" else folder.resolve().name
    return Source(name, *folders.read(folder))


def _locate(spelling: str) -> Path:
    path = Path(spelling)
    if path.exists():
        return path
    name = spelling.replace("-", "_")
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    if found is None or not found.submodule_search_locations:
        raise InfoFlowError(f"expected a path or an installed package, found neither for {spelling!r}; check the name.")
    return Path(next(iter(found.submodule_search_locations)))


def _model_folder(path: Path, spelling: str) -> Path:
    known = [c.parent for c in sorted(path.rglob("config.json"))]
    found = [folder for folder in known if any((folder / name).exists() for name in folders.WEIGHTS)]
    if len(found) != 1:
        raise InfoFlowError(
            f"expected one folder with config.json and weights in {spelling!r}, found {len(found)}; give its path."
        )
    return found[0]


def _from_file(path: Path) -> Source:
    if path.suffix == ".bin":
        tokens = [p for p in sorted(path.parent.glob("tok*.bin")) if p != path]
        if len(tokens) != 1:
            raise InfoFlowError(f"expected one tok*.bin beside {path}, found {len(tokens)}.")
        model = stories.read_model(path)
        tokenizer = stories.StoriesTokenizer(tokens[0], model.config.vocab_size)
        encoding = Encoding(tokenizer.encode, (tokenizer.start,), (), tokenizer.end)
        return Source(path.stem, model, "causal", within(encoding, model.config.vocab_size))
    return _from_saved(path)


def _from_saved(path: Path) -> Source:
    """A network of this project; its inputs are drawn by the target named in its header."""
    from infoflow import targets
    from infoflow.nn import Transformer
    from infoflow.nn import files as nn_files

    model = nn_files.load(path)
    if not isinstance(model, Transformer):
        raise InfoFlowError(f"expected a saved Transformer at {path}, got a {type(model).__name__}.")
    spelling, T = model.header.get("target"), model.header.get("T")
    if not isinstance(spelling, str) or T is None:
        raise InfoFlowError(f"expected a target and T in the header of {path}, got none; probe it from Python.")
    target, T = targets.parse(spelling), integer(f"T in the header of {path}", T)
    if target.dim != model.config.dim:
        raise InfoFlowError(f"expected tokens of dimension {model.config.dim} in {path}, its target has {target.dim}.")
    heads = max(model.config.heads)
    memory(3 * TOGETHER * heads * 8 * T**2, f"the attention weights of T={T}, as {path} has it", "T")

    def sample(documents: int, seed: int) -> list[Batch]:
        X = target.sample(documents, T, seed, kind="torch").to(next(model.parameters()))
        return [Batch({"X": part}) for part in X.split(TOGETHER)]

    return Source(path.stem, model.eval(), "network", sample=sample)


def given(name: str, made: Any) -> Source:
    """What a user's function made: `(module, encoding)`, or `(module, inputs)` in place of a text."""
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise InfoFlowError(f"expected {name} to return (module, encoding or inputs), got {type(made).__name__}.")
    model, text = made
    if isinstance(text, Encoding):
        return Source(name, model.eval(), "causal", text)
    batches = as_batches(text)
    return Source(name, model.eval(), "network", sample=lambda documents, seed: batches)
