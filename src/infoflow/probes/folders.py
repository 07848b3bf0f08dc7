"""A Hugging Face folder, which may be anybody's: what is read of it, and what is refused before the library sees it.

No code of the folder is run: `auto_map` is not followed (`trust_remote_code=False`, so nobody is asked, either), and a
`pytorch_model.bin` is read by torch's restricted reader (`weights_only=True`), never by plain unpickling. Attention
kernels and adapters that the folder names elsewhere are refused. A configuration must be about as large as the weights
beside it, for the library makes what is missing.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from infoflow.errors import InfoFlowError
from infoflow.installation import extra
from infoflow.probes import token_rules
from infoflow.probes.stories import MOST_LAYERS
from infoflow.probes.texts import Encoding, library_encoding, reaction_encoding, within
from infoflow.reading import json_of, text

ModelKind = Literal["causal", "masked", "encoder"]
LOADERS = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "encoder": "AutoModel"}
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
PIECES = (".safetensors.index.json", ".bin.index.json")  # their names of files may lead out of the folder
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.txt", "vocab.json")
COUNTS = re.compile(r"layer|group|block|depth|expert|stage", re.IGNORECASE)
REACTION_TOKENS = {">>", "[CLS]", "[MASK]", "[UNK]", "[SEP]", "[PAD]", "Cl"}
CODE = "trust_remote_code"  # a word in the library's refusals to run code
MOST_LABELS = 1_000_000
LEAST_BITS = 1  # of a weight in the file, however it was packed


def read(folder: Path) -> tuple[nn.Module, ModelKind, Encoding]:
    """The model in evaluation mode, what it was trained for, and how text enters it."""
    transformers = extra("transformers", "probe", "a Hugging Face folder")
    config = _config(folder)
    names = [str(name) for name in config.get("architectures") or []]
    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names)
    masked = any(name.endswith("ForMaskedLM") for name in names)
    kind: ModelKind = "causal" if causal else "masked" if masked else "encoder"
    loader = getattr(transformers, LOADERS[kind])
    _expect_tokenizer(folder)
    token_rules.expect_files(folder)
    try:
        with _no_code(), token_rules.no_panic(f"in {folder} that can be made"):
            _expect_size(folder, loader)
            model = loader.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, weights_only=True
            )
            encoding = within(_encoding(folder), model.get_input_embeddings().num_embeddings)
    except InfoFlowError:
        raise
    except Exception as error:  # a hostile configuration makes the library fail in any way it can
        raise InfoFlowError(f"expected a model transformers can read in {folder}, {_reason(error)}") from None
    if not all(bool(torch.isfinite(weights).all()) for weights in model.parameters()):
        raise InfoFlowError(f"expected finite weights in {folder}, got NaN or infinity.")
    return model.eval(), kind, encoding


@contextmanager
def _no_code() -> Iterator[None]:
    """Meanwhile transformers has no way to import a module of a folder, and asks nobody whether it may.

    What we pass does not reach a model inside the model: the library makes it from a configuration of its own, with an
    `auto_map` of its own, and would ask on standard input.
    """
    from transformers import dynamic_module_utils as library

    def refused(*words: Any, **options: Any) -> Any:
        raise PermissionError(CODE)

    kept = library.get_class_in_module, library.TIME_OUT_REMOTE_CODE  # gone in another version: then nothing is read
    library.get_class_in_module, library.TIME_OUT_REMOTE_CODE = refused, 0
    try:
        yield
    finally:
        library.get_class_in_module, library.TIME_OUT_REMOTE_CODE = kept


def _config(folder: Path) -> dict[str, Any]:
    """The configuration, checked for what the library would follow out of the folder or could not end with."""
    for path in sorted(folder.iterdir()):
        known = path.name in (*WEIGHTS, *TOKENIZERS, "config.json")
        if path.exists() and not path.is_file() and (known or not path.is_dir()):  # the library would wait for a pipe
            raise InfoFlowError(f"expected {path.name} in {folder} to be a plain file, it is something else.")
        if path.name.endswith(PIECES):
            raise InfoFlowError(
                f"expected the weights in one file ({' or '.join(WEIGHTS)}), {path.name} in {folder} names others; "
                "save the model again with a larger max_shard_size."
            )
    config = json_of(folder / "config.json", "a config.json")
    if not isinstance(config, dict) or not isinstance(config.get("architectures") or [], list):
        raise InfoFlowError(f"expected an object with the names of architectures in {folder / 'config.json'}.")
    if (folder / "adapter_config.json").exists():
        raise InfoFlowError(f"expected a whole model in {folder}, found adapter_config.json; merge the adapter first.")
    for key, value in _entries(config):
        if key.endswith(("attn_implementation", "experts_implementation")) and "/" in str(value):
            raise InfoFlowError(
                f"expected no kernel from elsewhere in {folder}, config.json names {str(value)[:80]!r}."
            )
        if COUNTS.search(key) and type(value) is int and value > MOST_LAYERS:
            raise InfoFlowError(
                f"expected at most {MOST_LAYERS} for {key[:80]!r} in {folder}, config.json has {value:.3g}."
            )
        if key == "num_labels" and type(value) is int and value > MOST_LABELS:  # the library lists their names
            raise InfoFlowError(f"expected at most {MOST_LABELS} labels in {folder}, config.json has {value:.3g}.")
    return config


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key with its plain value, however deep."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from ((key, item) for key, item in value.items() if not isinstance(item, (dict, list)))
            left += [item for item in value.values() if isinstance(item, (dict, list))]
        elif isinstance(value, list):
            left += [item for item in value if isinstance(item, (dict, list))]


def _expect_tokenizer(folder: Path) -> None:
    if not any((folder / name).exists() for name in TOKENIZERS):
        raise InfoFlowError(
            f"expected a tokenizer beside the model in {folder} (tokenizer.json or vocab.txt), found none; put the "
            "model's tokenizer files there, or record it from Python with token ids of your own (infoflow.probe)."
        )


def _expect_size(folder: Path, loader: Any) -> None:
    """Refuse a configuration of far more parameters than the weights beside it hold: they would be made, at random."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):  # shapes alone, no memory
        named = sum(parameter.numel() for parameter in loader.from_config(config, trust_remote_code=False).parameters())
    stored = sum((folder / name).stat().st_size for name in WEIGHTS if (folder / name).exists())
    if named * LEAST_BITS > 8 * stored:
        raise InfoFlowError(
            f"expected the weights of {named} parameters in {folder}, as its config.json says, found {stored} bytes."
        )


def _encoding(folder: Path) -> Encoding:
    """The folder's tokenizer; a bare vocabulary with reaction arrows in it is that of a reaction model."""
    vocabulary = folder / "vocab.txt"
    bare = vocabulary.exists() and not (folder / "tokenizer.json").exists()
    if bare and set(text(vocabulary, "a vocabulary").splitlines()) >= REACTION_TOKENS:
        return reaction_encoding(vocabulary)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    if hasattr(tokenizer, "backend_tokenizer"):  # made of other files than tokenizer.json, too
        token_rules.expect(json.loads(tokenizer.backend_tokenizer.to_str()), folder)
    return library_encoding(tokenizer)


def _reason(error: Exception) -> str:
    """The library's own words, on one line; of code in the folder, ours."""
    said = " ".join(str(error).split())
    if CODE in said:
        return "it is made by Python code in that folder, which is never run; take one that needs none."
    if "weights_only" in said or "Weights only load failed" in said:
        return "its pytorch_model.bin holds more than tensors and is not unpickled; convert it to safetensors."
    return f"it says: {said[:300] or type(error).__name__}"
