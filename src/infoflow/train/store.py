"""The store: a folder in which every finished run is one JSON file named by its key.

    store.json                    the format; a store of another format is refused and left alone
    runs/KEY.json                 one finished run
    weights/KEY.safetensors       its best model, where weights are kept
    checkpoints/...               stacks on their way (see `checkpoint.py`)
    trained/...                   the calls that trained here: command, commit, versions, machine

Every file appears whole, by a rename, so a killed process leaves no half result, and any number of processes may write
at once: two of them that finish the same run write the same file. Nothing is made before the first result or
checkpoint, so a wrong call leaves no folder behind.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.errors import InfoFlowError, JobError
from infoflow.files import write_json
from infoflow.nn import Transformer
from infoflow.nn.files import load
from infoflow.provenance import note
from infoflow.reading import json_of
from infoflow.train.results import Result
from infoflow.train.run import key_of

FORMAT = 1
_NAME = re.compile(r"[0-9a-f]{24}\.json")  # a killed writer may leave temporary names: they are not results


class Store:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._check()

    def _check(self) -> None:
        marker = self.folder / "store.json"
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise InfoFlowError(f"expected a folder for the store, {self.folder} is a file; take another path.")
        if not marker.exists():
            if any(not path.name.startswith(".") for path in self.folder.iterdir()):
                raise InfoFlowError(
                    f"expected a store or an empty folder, {self.folder} holds other files; take another path."
                )
            return
        found = _json(marker)
        found = found.get("format") if isinstance(found, dict) else None
        if found != FORMAT:
            raise InfoFlowError(
                f"expected a store of format {FORMAT}, {self.folder} has format {found!r}; use the version that wrote "
                "it or another folder."
            )

    def prepare(self) -> None:
        """Make the folder and its marker, before the first file is written."""
        try:
            if not (self.folder / "store.json").exists():
                write_json(self.folder / "store.json", {"format": FORMAT})
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    def note_training(self) -> None:
        """Keep the record of this call, which has trained here."""
        try:
            note(self.folder)
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def get(self, key: str, with_weights: bool = False) -> Result | None:
        """The finished run of this key, or None (also None when its weights are asked for and were not kept)."""
        path = self.folder / "runs" / f"{key}.json"
        if not path.exists() or (with_weights and not self._weights(key).exists()):
            return None
        try:
            result = Result.from_json(_json(path), self)
        except InfoFlowError as error:
            raise InfoFlowError(f"expected a result in {path} ({error}); remove the file to train it again.") from None
        if result.key != key:
            raise InfoFlowError(f"expected run {key} in {path}, got {result.key!r}; remove the file to train it again.")
        if key_of(result.identity) != key:
            raise InfoFlowError(
                f"expected run {key} in {path}, its identity is that of another; remove the file to train it again."
            )
        return result

    def put(self, result: Result, network: nn.Module | None = None) -> None:
        """Keep a finished run; its weights are written first, so a result never promises weights that are not there."""
        self.prepare()
        try:
            if network is not None:
                assert isinstance(network, Transformer)  # `fit_many` asks before it trains
                about = {**network.header, "run": result.identity, result.measure: result.best}
                stated = tensor_checksum(network.state_dict(), {**about, "config": network.config.to_json()})
                network.save(self._weights(result.key), **about, checksum=stated)
            write_json(self.folder / "runs" / f"{result.key}.json", result.to_json())
        except OSError as error:
            raise JobError(f"expected to write the store {self.folder}, could not ({error.strerror}).") from None

    def network(self, key: str) -> Transformer:
        """The best model of a finished run whose weights were kept."""
        if not self._weights(key).exists():
            raise InfoFlowError(
                f"expected the weights of run {key} in {self.folder}, none were kept; train with keep_weights=True."
            )
        try:
            network: Transformer = load(self._weights(key))
            stated = network.header.pop("checksum", None)
            about = {**network.header, "config": network.config.to_json()}
            if stated is not None and stated != tensor_checksum(network.state_dict(), about):
                raise InfoFlowError(f"expected the weights of run {key} as they were written, their checksum differs.")
        except InfoFlowError as error:
            raise InfoFlowError(f"{str(error).rstrip('.')}; remove that file to train the run again.") from None
        return network

    def keys(self) -> list[str]:
        folder = self.folder / "runs"
        return sorted(p.stem for p in folder.iterdir() if _NAME.fullmatch(p.name)) if folder.is_dir() else []

    def results(self) -> list[Result]:
        """Everything finished, by key."""
        return [result for key in self.keys() if (result := self.get(key)) is not None]

    def _weights(self, key: str) -> Path:
        return self.folder / "weights" / f"{key}.safetensors"


def tensor_checksum(tensors: dict[str, Tensor], state: dict[str, Any]) -> str:
    """SHA-256 over plain JSON values and every tensor with its name, type and shape."""
    made = hashlib.sha256(json.dumps(state, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        made.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        made.update(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return made.hexdigest()


def _json(path: Path) -> Any:
    try:
        return json_of(path)
    except InfoFlowError:
        raise InfoFlowError(f"expected JSON in {path}, could not read it; the store is damaged there.") from None
