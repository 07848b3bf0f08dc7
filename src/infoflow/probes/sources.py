"""Opening a model by a path or a package name: Hugging Face folders, llama2.c files, saved networks, user functions.

A package is looked up where Python finds it (it is not imported) and searched for a folder with `config.json` and
weights. Nothing is fetched, no code of the model's folder is run. Old `pytorch_model.bin` files are read by torch's
restricted reader (`weights_only`), never by plain unpickling.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from infoflow.errors import InfoFlowError
from infoflow.probes import stories
from infoflow.probes.record import Batch
from infoflow.probes.texts import Encoding, library_encoding, reaction_encoding

Kind = Literal["causal", "masked", "encoder", "network"]
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


@dataclass
class Source:
    """A model and how text enters it; a `network` has no text but a sampler of inputs."""

    name: str
    model: nn.Module
    kind: Kind
    encoding: Encoding | None = None
    sample: Callable[[int, int], list[Batch]] | None = None  # (documents, seed) -> batches


def open_source(spelling: str) -> Source:
    """PATH or PACKAGE; `file.py:FUNCTION` for a user's own model; a saved network of this project."""
    file, colon, function = spelling.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_function(Path(file), function)
    path = _locate(spelling)
    if path.is_file():
        return _from_file(path)
    binary = [p for p in sorted(path.glob("*.bin")) if (path / "config.json").exists() is False and "tok" not in p.name]
    if len(binary) == 1:
        return _from_file(binary[0])
    return _from_folder(_model_folder(path, spelling))


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
    folders = [c.parent for c in sorted(path.rglob("config.json")) if any((c.parent / w).exists() for w in WEIGHTS)]
    if len(folders) != 1:
        raise InfoFlowError(
            f"expected one folder with config.json and weights in {spelling!r}, found {len(folders)}; give its path."
        )
    return folders[0]


def _from_file(path: Path) -> Source:
    if path.suffix == ".bin":
        tokens = [p for p in sorted(path.parent.glob("tok*.bin")) if p != path]
        if len(tokens) != 1:
            raise InfoFlowError(f"expected one tok*.bin beside {path}, found {len(tokens)}.")
        model = stories.read_model(path)
        tokenizer = stories.StoriesTokenizer(tokens[0], model.config.vocab_size)
        return Source(path.stem, model, "causal", Encoding(tokenizer.encode, (tokenizer.start,), (), tokenizer.end))
    return _from_saved(path)


def _from_saved(path: Path) -> Source:
    """A network of this project; its inputs are drawn by the target named in its header."""
    from infoflow import targets
    from infoflow.nn import Transformer
    from infoflow.nn import files as nn_files

    saved = nn_files.read(path)
    model = nn_files.load(path)
    if not isinstance(model, Transformer):
        raise InfoFlowError(f"expected a saved Transformer at {path}, got kind {saved.kind!r}.")
    spelling, T = saved.header.get("target"), saved.header.get("T")
    if not isinstance(spelling, str) or not isinstance(T, int):
        raise InfoFlowError(f"expected a target and T in the header of {path}, got none; probe it from Python.")
    target = targets.parse(spelling)

    def sample(documents: int, seed: int) -> list[Batch]:
        X = target.sample(documents, T, seed, kind="torch").to(next(model.parameters()))
        return [Batch({"X": part}) for part in X.split(64)]

    return Source(path.stem, model.eval(), "network", sample=sample)


def _from_function(path: Path, name: str) -> Source:
    """`FUNCTION() -> (module, encoding)` or `(module, inputs)`: the user's own code, run because the user named it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise InfoFlowError(f"expected a Python file at {path}, found none.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        model, given = getattr(module, name)()
    except Exception as error:
        raise InfoFlowError(
            f"expected {path}:{name}() to return (module, encoding or inputs), got {error!r}."
        ) from None
    if isinstance(given, Encoding):
        return Source(f"{path.stem}.{name}", model.eval(), "causal", given)
    from infoflow.probes.record import as_batches

    batches = as_batches(given)
    return Source(f"{path.stem}.{name}", model.eval(), "network", sample=lambda documents, seed: batches)


def _from_folder(folder: Path) -> Source:
    import transformers

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = [str(name) for name in config.get("architectures") or []]
    except (OSError, ValueError, AttributeError) as error:
        raise InfoFlowError(f"expected a config.json in {folder}, could not read it ({error}).") from None
    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    masked = any(name.endswith("ForMaskedLM") for name in names)
    kind: Kind = "causal" if causal else "masked" if masked else "encoder"
    loader = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "encoder": "AutoModel"}[kind]
    try:
        model = getattr(transformers, loader).from_pretrained(str(folder), local_files_only=True)
        encoding = _encoding(folder)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InfoFlowError(f"expected a model transformers can read in {folder}, it says: {error}") from None
    return Source(folder.parent.name if folder.name == "model" else folder.name, model.eval(), kind, encoding)


def _encoding(folder: Path) -> Encoding:
    """The folder's tokenizer; a bare vocabulary with reaction arrows in it is that of a reaction model."""
    vocabulary = folder / "vocab.txt"
    if vocabulary.exists() and not (folder / "tokenizer.json").exists():
        tokens = set(vocabulary.read_text(encoding="utf-8").splitlines())
        if {">>", "[CLS]", "[MASK]", "Cl"} <= tokens:
            return reaction_encoding(vocabulary)
    from transformers import AutoTokenizer

    return library_encoding(AutoTokenizer.from_pretrained(str(folder), local_files_only=True))
