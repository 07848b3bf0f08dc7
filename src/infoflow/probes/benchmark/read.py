"""Read a benchmark: the networks as a method sees them, and the truth that a scorer holds."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from infoflow.errors import InfoFlowError
from infoflow.nn import Transformer
from infoflow.nn.files import load
from infoflow.probes.benchmark.truth import Truth
from infoflow.probes.record import Batch
from infoflow.reading import json_of, plain

MOST_NETWORKS = 10**4  # of one benchmark: files are named by four digits


@dataclass
class PlantedNetwork:
    """What a method sees of one network: `model`, `batch` (64 documents to run it on) and, where directions are asked
    for, `asked` ((layer, name), 1-based) with their numbers at every token in `quantities`."""

    number: int
    folder: Path
    hidden: bool
    _seen: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def model(self) -> Transformer:
        found = load(self.folder / "networks" / f"{self.number:04d}.safetensors")
        if not isinstance(found, Transformer):
            raise InfoFlowError(f"expected a Transformer as network {self.number}, got {type(found).__name__}.")
        return found.requires_grad_(False).eval()

    @cached_property
    def tensors(self) -> dict[str, Any]:
        path = plain(self.folder / "inputs" / f"{self.number:04d}.safetensors", "inputs")
        try:
            with safe_open(str(path), framework="pt") as file:
                found: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                found["asked"] = json.loads((file.metadata() or {}).get("quantities", "[]"))
        except (OSError, SafetensorError, ValueError, RecursionError) as error:
            raise InfoFlowError(f"expected inputs in {path}, could not read them ({error}).") from None
        if not isinstance(found.get("X"), Tensor) or found["X"].ndim != 3:
            raise InfoFlowError(f"expected inputs X (documents, T, d) in {path}, found none.")
        return found

    @property
    def X(self) -> Tensor:
        tokens: Tensor = self.tensors["X"]
        return tokens

    @property
    def batch(self) -> Batch:
        """The inputs for `infoflow.probes`; the first token is where sinks would be, symbols are kinds of tokens."""
        first = torch.zeros(self.X.shape[:2], dtype=torch.bool)
        first[:, 0] = True
        return Batch({"X": self.X}, sinks=first, kinds=self.symbols)

    @property
    def symbols(self) -> Tensor | None:
        """(documents, T): which tokens are of one kind, where the network has circuits over symbols."""
        return self.tensors.get("symbols")

    @property
    def logits(self) -> int:
        """How many of the outputs, the last ones, are logits of symbols; 0: none."""
        found = self.tensors.get("logits")
        whole = found is None or (isinstance(found, Tensor) and found.numel() == 1)
        if not whole or not 0 <= (0 if found is None else int(found)) <= self.model.config.outputs:
            raise InfoFlowError(f"expected at most {self.model.config.outputs} logits of symbols, got another number.")
        return 0 if found is None else int(found)

    @property
    def asked(self) -> list[tuple[int, str]]:
        try:
            return [(int(layer), str(name)) for layer, name in self.tensors["asked"]]
        except (TypeError, ValueError) as error:
            raise InfoFlowError(f"expected pairs of a layer and a name as quantities, got others ({error}).") from None

    @property
    def quantities(self) -> Tensor:
        found: Tensor = self.tensors["quantities"]
        return found

    def truth(self) -> Truth:
        path = self.folder / "truth" / f"{self.number:04d}.json"
        if self.hidden and not path.is_file():
            raise InfoFlowError(f"expected a public network, the truth of number {self.number} is hidden by a salt.")
        return Truth.from_json(json_of(path, "the truth of a planted network"))


class Benchmark:
    """The networks of a folder, in order."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.index = json_of(self.folder / "index.json", "the index of a benchmark")
        if not isinstance(self.index, dict) or self.index.get("version") != 1 or not self._whole():
            raise InfoFlowError(f"expected the index of a benchmark of version 1 in {folder}, got another file.")

    def _whole(self) -> bool:
        """Numbers, salted and hidden are there, of their types, and no more networks than can be named."""
        made, count, seed, salted, hidden = (
            self.index.get(key) for key in ("made", "count", "seed", "salted", "hidden")
        )
        whole = type(made) is type(count) is type(seed) is int
        numbers = whole and 0 <= made <= count <= MOST_NETWORKS and seed >= 0
        return numbers and type(salted) is bool and type(hidden) is list and all(type(n) is int for n in hidden)

    def __len__(self) -> int:
        made: int = self.index["made"]
        return made

    def __iter__(self) -> Iterator[PlantedNetwork]:
        hidden = set(self.index["hidden"])
        for number in range(len(self)):
            yield PlantedNetwork(number, self.folder, number in hidden)


def open_benchmark(folder: str | Path) -> Benchmark:
    """A benchmark made by `infoflow planted`."""
    return Benchmark(folder)
