"""Nothing from outside runs code: every reader of headers, stores and folders meets spellings that name a file of code.

The file leaves a mark when it is run, by whatever name and from wherever.
"""

import base64
import copy
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

import infoflow
from infoflow import cli, reading
from infoflow.architecture import Architecture
from infoflow.compiler.certification import certify
from infoflow.errors import InfoFlowError, JobError
from infoflow.nn import Transformer, TransformerConfig, files
from infoflow.probes import stories
from infoflow.probes.record import load as load_recording
from infoflow.probes.record import record
from infoflow.probes.sources import open_source
from infoflow.refutations import refute
from infoflow.targets import parse
from infoflow.train.fit import Recipe, Run, Store, fit_many

BUILDS = {
    "transformer": ["pairwise_max:D=1,d=2", "-T", "4", "--eps", "0.5"],
    "codec": ["codec"],
    "memory_head": ["memory_head", "-T", "2", "--eps", "0.5"],
    "exponential_head": ["exponential_head", "--target", "d_retrieval:D=2,d=1", "-T", "4", "--eps", "0.5"],
    "occupancy": ["triangle_center:d=1", "-T", "8", "--eps", "2.0", "--weight-bound", "none"],
    "truncated_linear": ["truncated_linear"],
    "grid": ["grid", "--function", "x11", "--d", "1", "--n", "1", "--g", "2"],
    "memorizer": ["memorizer", "--data", "d.json"],
    "context_map": ["context_map", "--data", "d.json"],
    "equivariant": ["equivariant"],
}
DATA = {"X": [[[0.1], [0.5]], [[0.9], [0.2]]], "Y": [[1, 0], [0, 1]]}
NAMES = ("target", "arch", "architecture", "function", "task", "construction", "loader", "kind", "module", "source")
Saved = tuple[str, dict[str, torch.Tensor], dict[str, Any]]


MARK = "it_ran"  # the file that code leaves which must not run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> list[Saved]:
    """One file of every kind there is: built where that is quick, of made-up tensors where it is not."""
    out = tmp_path_factory.mktemp("built")
    (out / "d.json").write_text(json.dumps(DATA))
    found = []
    for kind, arguments in BUILDS.items():
        words = [str(out / word) if word == "d.json" else word for word in arguments]
        done = CliRunner().invoke(cli.cli, ["build", *words, "--out", str(out / kind)], catch_exceptions=False)
        assert done.exit_code == 0
        found.append(tuple(files.read(next((out / kind).glob("*.safetensors")))))
    network = Transformer(TransformerConfig(dim=2, heads=(1,), head_dims=(2,), widths=(2,)))
    record(network, torch.zeros(1, 3, 2)).save(out / "recording")
    found.append(tuple(files.read(next((out / "recording").glob("*.safetensors")))))
    rest = set(files.LOADERS) - {kind for kind, _, _ in found}
    return [*found, *((kind, {"weights": torch.zeros(2)}, {}) for kind in sorted(rest))]


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[str]:
    """The spelling of code that leaves a mark, which must not be there in the end."""
    mark = tmp_path / MARK
    (tmp_path / "evil.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).write_text('')\n"
        "from infoflow.targets import pairwise_max\nF = pairwise_max(D=1, d=2)\n"
    )
    yield f"{tmp_path / 'evil.py'}:F"
    assert not mark.exists()


def spoiled(header: Any, spelling: str) -> Iterator[Any]:
    """The header with one of its words after another replaced, and with every name that could mean code."""
    yield {**header, **dict.fromkeys(NAMES, spelling)}

    def places(value: Any, way: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if isinstance(value, str):
            yield way
        for key, item in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            yield from places(item, (*way, key))

    for way in places(header, ()):
        changed = copy.deepcopy(header)
        inner = changed
        for key in way[:-1]:
            inner = inner[key]
        inner[way[-1]] = spelling
        yield changed


def attempt(read: Callable[[], Any]) -> Any:
    """What is read, or None where it is refused, which is one sentence."""
    try:
        return read()
    except (InfoFlowError, JobError) as error:
        if "\n" in str(error):
            raise
        return None


def read_everywhere(path: Path) -> bool:
    """Every reader of saved networks, each of which may refuse the file in one sentence; whether it loads."""
    network = attempt(lambda: files.load(path))
    if network is not None:
        attempt(lambda: certify(network, seconds=0.01))
    if isinstance(network, Transformer):
        target, T = network.header.get("target"), network.header.get("T")
        attempt(lambda: refute(network, target, T, seconds=0.01))
        attempt(lambda: open_source(str(path)).sample(2, 0))  # type: ignore[misc]
        attempt(lambda: infoflow.load(path))
    return network is not None


def test_no_header_of_any_kind_runs_code(saved: list[Saved], tmp_path: Path, evil: str) -> None:
    path, loaded = tmp_path / "foreign.safetensors", set()
    for kind, tensors, header in saved:
        for spelling in (evil, evil.removesuffix(":F")):
            for changed in spoiled(header, spelling):
                files.write(path, kind, tensors, changed)
                loaded.add(read_everywhere(path))
    assert loaded == {True, False}  # some places may hold any word, others are refused
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("command", ["probe", "certify", "refute"])
def test_no_command_runs_what_a_header_names(saved: list[Saved], tmp_path: Path, evil: str, command: str) -> None:
    kind, tensors, header = saved[0]
    assert kind == "transformer"
    path = files.write(tmp_path / "foreign.safetensors", kind, tensors, {**header, "target": evil})
    done = CliRunner().invoke(cli.cli, [command, str(path)])
    assert isinstance(done.exception, InfoFlowError)
    assert "code is run only when an argument" in str(done.exception)


def complaint(done: Result) -> str:
    """Nothing where a call ends in a result, or in one sentence and an exit code; else what it ended in."""
    if done.exception is None or isinstance(done.exception, SystemExit):
        return ""
    ending = cli.ending_of(done.exception)
    return repr(done.exception) if ending is None else ending[0] * ("\n" in ending[0])


@pytest.mark.parametrize("T", [100_000, 10**9, 10**30, -1, 0, True, "8", 8.0, None])
def test_no_header_asks_for_more_memory_than_there_is(saved: list[Saved], tmp_path: Path, T: Any) -> None:
    kind, tensors, header = saved[0]
    path = files.write(tmp_path / "foreign.safetensors", kind, tensors, {**header, "T": T})
    for command in ("probe", "certify", "refute"):
        assert not complaint(CliRunner().invoke(cli.cli, [command, str(path)]))  # certify has a bound for many a length


def test_no_name_of_a_file_runs_code(
    evil: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a shell writes for `*` in a stranger's folder: files that are called as code is named, or as options."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py:F").touch()
    for command in ("certify", "probe", "refute", "predict", "fit"):
        for words in (["evil.py:F"], ["evil.py:F", "heads=1,1 embed=4", "-T", "4"]):
            assert not complaint(CliRunner().invoke(cli.cli, [command, *words]))
    (tmp_path / "--target=evil.py:G").touch()
    with pytest.raises(SystemExit):
        cli.main(["certify", "--target=evil.py:G", "a.safetensors"])
    assert "is a file here" in capsys.readouterr().err


def test_an_argument_runs_it(tmp_path: Path) -> None:
    """The mark of the tests above is left when the code does run."""
    mark = tmp_path / MARK
    (tmp_path / "mine.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).write_text('')\n"
        "from infoflow.targets import pairwise_max\nF = pairwise_max(D=1, d=2)\n"
    )
    done = CliRunner().invoke(cli.cli, ["predict", f"{tmp_path / 'mine.py'}:F", "heads=2,2 embed=8,8", "-T", "8"])
    assert done.exit_code == 0
    assert mark.exists()


def test_no_store_runs_code(tmp_path: Path, evil: str) -> None:
    recipe = Recipe(samples=8, validation=4, batch=4, epochs=None, steps=2)
    run = Run(parse("pairwise_max:D=1,d=2"), Architecture.parse("heads=1,1 embed=2,2 width=2"), 3, 0, recipe)
    store = Store(tmp_path / "store")
    fit_many([run], store, keep_weights=True)
    for path in (tmp_path / "store").rglob("*.json"):
        kept = path.read_text()
        for changed in spoiled(json.loads(kept), evil):
            path.write_text(json.dumps(changed))
            attempt(lambda: Store(tmp_path / "store").results())
            attempt(lambda: fit_many([run], tmp_path / "store"))
        path.write_text(kept)
    assert not (tmp_path / MARK).exists()


def test_no_recording_runs_code(tmp_path: Path, evil: str) -> None:
    (tmp_path / "r").mkdir()
    header = {"format": 1, "documents": evil, "steps": evil, "heads": [evil], "model": evil, "target": evil}
    (tmp_path / "r" / "recording.json").write_text(json.dumps(header))
    with pytest.raises(InfoFlowError):
        load_recording(tmp_path / "r")


FOLDER = """
import pathlib
pathlib.Path({mark!r}).write_text("")
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
class C(BertConfig):
    model_type = "evil"
class M(BertModel):
    config_class = C
class T(PreTrainedTokenizerFast):
    pass
"""


def hugging_face(path: Path, mark: Path) -> Path:
    """A folder with a tiny BERT, a tokenizer and Python code that leaves a mark."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=32, **sizes)).save_pretrained(path)
    (path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"])
    )
    (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (path / "evil.py").write_text(FOLDER.format(mark=str(mark)))
    return path


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_code_in_a_hugging_face_folder_is_never_run_whatever_is_typed(tmp_path: Path) -> None:
    mark, text = tmp_path / "it_ran", tmp_path / "text.txt"
    folder = hugging_face(tmp_path / "m", mark)
    text.write_text("a b c d e f g h i j k l m n o p q r s t u v w x y z\n" * 40)
    models = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoTokenizer": ["evil.T", "evil.T"]}
    change(folder / "tokenizer_config.json", tokenizer_class="T", auto_map=models)
    change(folder / "config.json", model_type="evil", auto_map=models)
    call = [sys.executable, "-m", "infoflow", "probe", str(folder), "--text", str(text), "--out", str(tmp_path / "out")]
    done = subprocess.run(call, input="y\n" * 20, capture_output=True, text=True, timeout=300)
    assert not mark.exists()
    assert done.returncode == 2
    assert "which is never run" in done.stderr
    assert "Traceback" not in done.stderr


SIZES = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
PICTURES = {"model_type": "clip_vision_model", **SIZES, "image_size": 32, "patch_size": 16, "projection_dim": 8}


def test_nor_is_that_of_a_model_inside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part with an `auto_map` of its own, for a class transformers does not know: it asks whether to run the code."""
    mark = tmp_path / "it_ran"
    folder = hugging_face(tmp_path / "m", mark)
    part = {"model_type": "blip_text_model", "auto_map": {"AutoModel": f"{folder}--evil.M"}, **SIZES}
    (folder / "config.json").write_text(
        json.dumps({"model_type": "llava", "vision_config": PICTURES, "text_config": part})
    )
    monkeypatch.setattr("builtins.input", lambda *words: "y")
    said = refused(folder)
    assert not mark.exists()
    assert "which is never run" in said


def refused(folder: Path) -> str:
    with pytest.raises(InfoFlowError) as said:
        open_source(str(folder))
    assert "\n" not in str(said.value)
    return str(said.value)


class Marking:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_bin_is_read_as_tensors_or_not_at_all(tmp_path: Path) -> None:
    mark = tmp_path / "it_ran"
    folder = hugging_face(tmp_path / "m", mark)
    state = open_source(str(folder)).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert open_source(str(folder)).kind == "encoder"
    for write in (torch.save, lambda made, path: path.write_bytes(pickle.dumps(made))):
        write({**state, "extra": Marking(mark)}, folder / "pytorch_model.bin")
        assert "not unpickled" in refused(folder)
    assert not mark.exists()


def test_hostile_folders_are_one_sentence(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "m", tmp_path / "mark")
    config = (folder / "config.json").read_text()
    for entries, message in (
        ({"num_hidden_layers": 10**9}, "at most 1024"),
        ({"num_hidden_groups": 2**31}, "at most 1024"),
        ({"num_labels": 10**9}, "at most 1000000 labels"),
        ({"vocab_size": 10**9}, "parameters"),
        ({"hidden_size": "a"}, "it says"),
        ({"hidden_size": -8}, "it says"),
        ({"num_attention_heads": 0}, "it says"),
        ({"model_type": "no_such"}, "it says"),
        ({"architectures": 3}, "architectures"),
        ({"attn_implementation": "someone/kernel"}, "no kernel"),
    ):
        change(folder / "config.json", **entries)
        assert message in refused(folder)
        (folder / "config.json").write_text(config)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    assert "adapter" in refused(folder)
    (folder / "adapter_config.json").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../elsewhere.safetensors"}}')
    assert "weights in one file" in refused(folder)
    (folder / "model.safetensors.index.json").unlink()
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "expected a tokenizer beside the model" in refused(folder)


def test_a_tokenizer_that_does_not_fit_its_model_is_one_sentence(tmp_path: Path) -> None:
    folder = hugging_face(tmp_path / "m", tmp_path / "mark")
    words = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join([*words[:5], *["zz"] * 99, *words[5:]]))
    with pytest.raises(InfoFlowError, match=r"tokens below 32.* do not belong together"):
        open_source(str(folder)).encoding.encode("a b c")  # type: ignore[union-attr]
    (folder / "vocab.txt").write_text("a\nb\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n")
    with pytest.raises(InfoFlowError, match=r"tokenizer to take the text, it says: .*UNK"):
        open_source(str(folder)).encoding.encode("zz")  # type: ignore[union-attr]
    model = open_source(str(folder)).model
    with torch.no_grad():
        next(model.parameters())[0, 0] = torch.nan
    model.save_pretrained(folder)  # type: ignore[operator]
    assert "finite weights" in refused(folder)


WORDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "ab": 7}
RULES: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
         "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                   "max_input_chars_per_word": 100, "vocab": WORDS}}  # fmt: skip
DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
COPIES = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 20, "special_tokens": {},
          "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]}  # fmt: skip
MANY = {**COPIES, "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2] * 1000, "tokens": ["[CLS]"] * 1000}}}
TABLES = ["/////w==", "####", base64.b64encode(bytes([4, 0, 0, 0, 0, 0, 0, 0]) + b"x" * 300).decode()]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": [DOUBLE] * 40}}, "256 letters of one"),
        ({"normalizer": {**DOUBLE, "pattern": {"String": ""}, "content": "a" * 300}}, "256 letters of one"),
        ({"normalizer": {**DOUBLE, "pattern": {"Regex": "x*"}, "content": "a" * 300}}, "256 letters of one"),
        ({"normalizer": {"type": "Prepend", "prepend": "a" * 10**6}}, "64 letters before a text"),
        *(({"normalizer": {"type": "Precompiled", "precompiled_charsmap": table}}, "256 letters") for table in TABLES),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 40}}, "256 letters of one"),
        ({"post_processor": {"type": "Sequence", "processors": [COPIES] * 9}}, "64 pieces of a text"),
        ({"post_processor": MANY}, "64 pieces of a text"),
        ({"normalizer": "x", "post_processor": 5, "pre_tokenizer": [1]}, "transformers can read"),
    ],
)
def test_a_tokenizer_makes_little_of_a_letter(tmp_path: Path, rules: dict[str, Any], says: str) -> None:
    """Rules that double what they see, forty times over: the library would end the process."""
    folder = hugging_face(tmp_path / "m", tmp_path / "mark")
    (folder / "tokenizer.json").write_text(json.dumps({**RULES, **rules}))
    assert says in refused(folder)
    (folder / "tokenizer.json").rename(folder / "tokenizer.4.0.0.json")  # one with a version is taken, too
    change(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.0.json"])
    if "at most" in says or "letters" in says:
        assert says in refused(folder)


@pytest.mark.parametrize(
    "rules",
    [
        {"model": {"type": "BPE", "continuing_subword_prefix": "zz", "vocab": WORDS, "merges": ["a b"]}},
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}},
    ],
)
def test_a_panic_of_a_tokenizer_is_one_sentence(tmp_path: Path, rules: dict[str, Any]) -> None:
    """Which no `except Exception` catches."""
    folder = hugging_face(tmp_path / "m", tmp_path / "mark")
    change(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", unk_token="[UNK]")
    (folder / "tokenizer.json").write_text(json.dumps(RULES))
    assert open_source(str(folder)).encoding.encode("a b") == [5, 6]  # type: ignore[union-attr]
    (folder / "tokenizer.json").write_text(json.dumps({**RULES, **rules}))
    with pytest.raises(InfoFlowError, match=r"expected a tokenizer .* it fails there"):
        open_source(str(folder)).encoding.encode("a" * 60 + "b")  # type: ignore[union-attr]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders")
def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    """A pipe that nobody writes to, in place of any file of a folder: every reader says so at once."""
    folder = hugging_face(tmp_path / "m", tmp_path / "mark")
    for name in ("special_tokens_map.json", "merges.txt", "chat_template.jinja"):
        os.mkfifo(folder / name)
        assert "plain file" in refused(folder)
        (folder / name).unlink()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    readers = (reading.text, reading.json_of, infoflow.load, stories.read_model, Store,
               lambda path: stories.StoriesTokenizer(path, 3), load_recording)  # fmt: skip
    for place, name in ((tmp_path / "store", "store.json"), (tmp_path / "recording", "recording.json")):
        place.mkdir()
        os.mkfifo(place / name)
    for read in readers:
        place = {Store: tmp_path / "store", load_recording: tmp_path / "recording"}.get(read, pipe)
        with pytest.raises(InfoFlowError, match=r"plain file|could not read"):
            read(place)


@pytest.mark.parametrize("function", ["x11" + "+1" * 498, "*".join(["x11"] * 250)])
def test_a_long_function_is_built_and_certified(tmp_path: Path, function: str) -> None:
    words = ["build", "grid", "--function", function, "--d", "1", "--n", "1", "--g", "2", "--out", str(tmp_path)]
    assert CliRunner().invoke(cli.cli, words, catch_exceptions=False).exit_code == 0
    done = CliRunner().invoke(cli.cli, ["certify", str(tmp_path / "grid.safetensors"), "--seconds", "0.1"])
    assert done.exit_code in (0, 1)  # a bound that holds, or does not: never a traceback
    assert not complaint(done)


HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**9,
    10**30,
    1e308,
    1e-320,
    "",
    "x" * 10_000,
    "\x1b[2J\n",
    [],
    {},
    [10**9] * 3,
]
HOSTILE += [[1] * 5000, [None], [[1]], "pairwise_max:D=100000", "../../etc/passwd"]


def leaves(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a header, but no more than a few in a long list."""
    yield way
    for key, item in list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )[:8]:
        yield from leaves(item, (*way, key))


def test_any_value_anywhere_in_a_header_is_read_or_refused_in_one_sentence(saved: list[Saved], tmp_path: Path) -> None:
    """Three random values for every place of the header of every kind: load, then certify what loads."""
    choice, path, loaded = random.Random(0), tmp_path / "foreign.safetensors", set()
    for kind, tensors, header in saved:
        for way in leaves(header):
            for value in choice.sample(HOSTILE, 3) if way else ():
                changed = copy.deepcopy(header)
                inner = changed
                for key in way[:-1]:
                    inner = inner[key]
                inner[way[-1]] = value
                files.write(path, kind, tensors, changed)
                network = attempt(lambda: files.load(path))
                loaded.add(network is not None)
                if network is not None:
                    attempt(lambda network=network: certify(network, seconds=0.001))
    assert loaded == {True, False}


def test_a_message_is_short_and_obeyed_by_no_terminal() -> None:
    said = str(InfoFlowError("expected a name, got \x1b[2J\r\n\u202e" + "x" * 10**6))
    assert said.isprintable()
    assert len(said) < 2100
    assert "\\x1b[2J" in said
    assert str(JobError("a é ü 文 | plain")) == "a é ü 文 | plain"


def test_a_name_says_nothing_of_other_files(
    saved: list[Saved], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`certify *`, where a name ends a line and begins another."""
    path = files.write(tmp_path / "a: holds\nother.safetensors: holds\nb\x1b[8m.safetensors", *saved[0])
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *stream: False)  # as on a terminal
    with pytest.raises(SystemExit):
        cli.main(["certify", str(path), "--seconds", "0"])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\nother" not in said


def test_names_are_text_in_a_report(saved: list[Saved], tmp_path: Path) -> None:
    """A file's name may hold markup, mathematics for a figure, or a terminal's commands."""
    kind, tensors, header = saved[0]
    path = files.write(tmp_path / "<script>x$_{$\x1b[2J.safetensors", kind, tensors, header)
    done = CliRunner().invoke(cli.cli, ["probe", str(path), "--documents", "4", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.exception
    report = (tmp_path / "out" / "report.html").read_text()
    assert "<script" not in report
    assert "&lt;script&gt;" in report
    assert "\x1b" not in done.output
    assert "\x1b" not in report


@pytest.mark.skipif(sys.platform != "linux", reason="file names that are no text")
def test_a_name_that_is_no_text_is_printed(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "infoflow", "build", *BUILDS["transformer"], "--out", tmp_path / os.fsdecode(b"\xff")]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\udcff" in done.stdout


WHOLE = {"version": 1, "made": 1, "count": 1, "seed": 0, "salted": False, "hidden": []}
INDEXES = [{}, {"version": 1}, {**WHOLE, "count": 10**12}, {**WHOLE, "count": -1}, {**WHOLE, "count": "1"},
           {**WHOLE, "count": True}, {**WHOLE, "made": 2}, {**WHOLE, "hidden": 5}, {**WHOLE, "hidden": [[1]]},
           {**WHOLE, "seed": None}, {**WHOLE, "seed": -1}, {**WHOLE, "salted": "no"}]  # fmt: skip


@pytest.mark.parametrize("index", INDEXES)
def test_the_index_of_a_foreign_benchmark_is_checked(index: dict[str, Any], tmp_path: Path) -> None:
    from infoflow.probes.benchmark.hidden_part import score_with

    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(InfoFlowError, match="index of a benchmark of version 1"):
        score_with(tmp_path, {0: {}}, None)


def test_answers_to_a_benchmark_are_checked(tmp_path: Path) -> None:
    for key in ("9" * 5000, "-1", "1.5", ""):
        (tmp_path / "answers.json").write_text(json.dumps({key: {}}))
        done = CliRunner().invoke(cli.cli, ["planted", str(tmp_path), "--score", str(tmp_path / "answers.json")])
        assert "numbers of networks as keys" in str(done.exception)


def test_quantities_of_a_foreign_benchmark_are_checked(tmp_path: Path) -> None:
    from infoflow.probes.benchmark.read import PlantedNetwork

    (tmp_path / "inputs").mkdir()
    for said in ("[" * 100_000, "{", "[[1]]", "5", '[["a", 1]]'):
        path = tmp_path / "inputs" / "0000.safetensors"
        save_file({"X": torch.zeros(1, 2, 1)}, path, metadata={"quantities": said})
        with pytest.raises(InfoFlowError):
            _ = PlantedNetwork(0, tmp_path, False).asked


TRUTH = {"version": 1, "heads": [], "edges": [], "directions": [], "error": {}, "strength": 0, "family": "f",
         "disguise": "none"}  # fmt: skip


def test_truths_and_answers_of_others_are_numbers_or_refused(tmp_path: Path) -> None:
    from infoflow.probes.benchmark.score import judge
    from infoflow.probes.benchmark.truth import Truth

    whole = Truth.from_json(TRUTH)
    for change in ({"edges": [["", "out"]]}, {"edges": [[[], "out"]]}, {"strength": 10**400}):
        with pytest.raises(InfoFlowError, match="truth of a planted network"):
            Truth.from_json({**TRUTH, **change})
    with pytest.raises(InfoFlowError, match="answer of the stated form"):
        judge(whole, {"edges": [[[1, 1], "out", 10**400]]}, {})


DRAW = {"targets": 1, "seed": 1}
NAME = "test-1-0-0"  # the first cell of that draw


@pytest.mark.parametrize(
    ("listed", "trained"),
    [
        ([1], "{}"),
        ({"draw": {**DRAW, "targets": 10**9}, "cells": []}, ""),
        ({"draw": {**DRAW, "seed": -1}, "cells": []}, ""),
        ({"draw": DRAW, "cells": 5}, ""),
        ({"draw": DRAW, "cells": []}, "[1]"),
        ({"draw": DRAW, "cells": [{"name": NAME}] * 5}, json.dumps({"name": NAME, "full": []})),
        ({"draw": DRAW, "cells": [{"name": NAME}] * 5}, json.dumps({"name": NAME, "full": [{"test": -1}]})),
    ],
)
def test_registered_forecasts_of_others_are_checked(tmp_path: Path, listed: Any, trained: str) -> None:
    from infoflow.forecasts.registered_report import write_report

    (tmp_path / "registered.json").write_text(json.dumps(listed))
    (tmp_path / "registered.jsonl").write_text(trained)
    with pytest.raises(InfoFlowError):
        write_report(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
