"""`infoflow probe PATH_OR_PACKAGE --text FILE [--intervene]`: what each head does, and what the labels are worth."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infoflow import reading
from infoflow.commands.options import device_option, emit, encode, json_option, out_option, seed_option
from infoflow.commands.own_code import made_by, names_code
from infoflow.errors import InfoFlowError
from infoflow.files import write_json

if TYPE_CHECKING:
    from infoflow.probes.record import Batch
    from infoflow.probes.sources import Source
    from infoflow.probes.summary import Probe
    from infoflow.probes.tasks import Measurement


ABOUT = (
    "A head looks back over the tokens (its keys) and mixes some of them into the state of a position. A label is one "
    "word for how it chooses them; below it stand the scores the labels come from and what they are worth."
)


@click.command()
@click.argument("source", metavar="PATH_OR_PACKAGE")
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Text, plain or gzipped.")
@click.option("--intervene", is_flag=True, help="Force heads into modes and measure the cost on held-out text.")
@click.option("--singles", is_flag=True, help="With --intervene: also every head alone.")
@click.option("--recover", is_flag=True, help="Also recover the retrieved token from the residual stream.")
@click.option("--sets", is_flag=True, help="Also measure effective information sets.")
@click.option("--documents", type=click.IntRange(min=4), default=48, show_default=True, help="Documents per part.")
@click.option("--length", type=click.IntRange(min=8), default=128, show_default=True, help="Tokens per document.")
@click.option("--batch", type=click.IntRange(min=1), default=16, show_default=True, help="Documents run together.")
@out_option("out/probe")
@json_option
@seed_option
@device_option
def command(source: str, text: Path | None, out: Path, as_json: bool, **options: Any) -> None:
    """What each head of a trained or pretrained model does.

    PATH_OR_PACKAGE is a Hugging Face folder, an installed package that carries one, a llama2.c model, a network saved
    by `infoflow`, or file.py:FUNCTION. A text of question<TAB>sentence lines makes retrieval the task of an encoder;
    without a text a causal model draws its own.
    """
    with quiet():
        found, opened, documents = run(source, text, options)
    payload = {"model": opened.name, "kind": opened.kind, "documents": documents, **found.to_json()}
    files = write_report(found, opened.name, out)
    write_json(out / "probe.json", encode(payload))
    if as_json:
        emit({**payload, "files": [*files, out / "probe.json"]})
    else:
        click.echo(f"{opened.name}: labels from {documents} documents\n\n{found}")
        click.echo(f"\nreport: {out / 'report.html'}")


@contextmanager
def quiet() -> Iterator[None]:
    """The library of the models draws bars and talks to a hub; neither belongs here."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        from transformers.utils import logging
    except ImportError:
        yield
        return
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()


def run(spelling: str, text: Path | None, options: dict[str, Any]) -> "tuple[Probe, Source, int]":
    """What was found, the model, and the number of documents the labels come from."""
    from infoflow.probes.sources import given, open_source
    from infoflow.probes.summary import probe
    from infoflow.train.plan import check_device

    check_device(options["device"])
    opened = given(spelling, made_by(spelling)) if names_code(spelling) else open_source(spelling)
    opened.model.to(options["device"])
    parts, tasks = prepare(opened, text, options)
    search, held_out = tasks if options["intervene"] else (None, None)
    found = probe(
        opened.model,
        parts[0],
        search,
        held_out,
        singles=options["singles"],
        recover=options["recover"],
        sets=options["sets"],
    )
    return found, opened, sum(batch.size for batch in parts[0])


def prepare(
    opened: "Source", text: Path | None, options: dict[str, Any]
) -> "tuple[list[list[Batch]], list[Measurement]]":
    """Three parts of the text: for labels and stand-ins, for the search, held out; and the tasks on the last two."""
    from infoflow.probes import tasks, texts

    count, device, batch = options["documents"], options["device"], options["batch"]
    if opened.sample is not None:
        if text is not None:
            raise InfoFlowError(f"expected no --text for {opened.name}, whose inputs are numbers; leave it out.")
        drawn = [opened.sample(count, options["seed"] + n) for n in range(3)]
        moved = [[b.to(device) for b in part] for part in drawn]
        return moved, [tasks.own_outputs(opened.model, part) for part in moved[1:]]
    encoding = opened.encoding
    assert encoding is not None
    if text is None:
        if opened.kind != "causal":
            raise InfoFlowError("expected --text FILE for a model that cannot draw its own, got none; give a text.")
        rows = texts.sampled(opened.model, encoding, 3 * count, options["length"], options["seed"])
        parts = [texts.batches_of(rows[n * count : (n + 1) * count], encoding, batch, device) for n in range(3)]
        return parts, [task_of(opened, part) for part in parts[1:]]
    words = reading.text(text)
    if opened.kind == "encoder" and "\t" in words.partition("\n")[0]:
        pairs = texts.pairs_of(words)
        lines = "\n".join(sentence for _, sentence in pairs)
        rows = texts.documents_of(lines, replace(encoding, lines=True), options["length"], count)
        share = 8 * count
        chosen = [pairs[n * share : (n + 1) * share] for n in (1, 2)]
        return [texts.batches_of(rows, encoding, batch, device)], [
            texts.retrieval_of(part, encoding, 32, 64, options["length"], device) for part in chosen
        ]
    rows = texts.documents_of(words, encoding, options["length"], 3 * count)
    cut = [rows[n * len(rows) // 3 : (n + 1) * len(rows) // 3] for n in range(3)]
    parts = [texts.batches_of(part, encoding, batch, device) for part in cut]
    return parts, [task_of(opened, part) for part in parts[1:]]


def task_of(opened: "Source", part: "list[Batch]") -> "Measurement":
    from infoflow.probes import tasks

    if opened.kind == "causal":
        return tasks.LanguageModelling(part)
    if opened.kind == "masked" and opened.encoding is not None and opened.encoding.mask is not None:
        return tasks.MaskedTokens(part, opened.encoding.mask)
    return tasks.own_outputs(opened.model, part)


def write_report(found: "Probe", name: str, out: Path) -> list[Path]:
    """The HTML page and the SVG figures."""
    from infoflow.probes.figures import cost_bars, joint_curve, recovery_bars
    from infoflow.report import html, style

    figures = {"heads": (found.figure(), "One cell per head: the colour is the label, the number its score.")}
    section = html.Section("Heads")
    if found.interventions is not None:
        figures["costs"] = (cost_bars(found.interventions), "All heads forced into one mode, held-out documents.")
    if found.joint is not None:
        figures["joint"] = (joint_curve(found.joint), "Heads forced one after another, cheapest joint loss first.")
    if found.recovered is not None:
        figures["recovery"] = (recovery_bars(found.recovered), "Normalised recovery error (56), mean over heads.")
    written = []
    for key, (made, caption) in figures.items():
        section.figure(key, made, caption)
        if key == "heads":  # the page opens with the picture and what it says in words
            section.text(found.in_words()).text(ABOUT)
        written += style.save(made, out / key, ("svg",))
    section.code(str(found))
    page = html.write(out / "report.html", f"Heads of {name}", "Labels, and what they are worth.", [section])
    return [*written, Path(page)]
