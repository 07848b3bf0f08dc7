"""infoflow trace: information sets layer by layer, of a target as the framework says, of a model as measured."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from infoflow import arguments
from infoflow.commands.options import checked, device_option, emit, join_words, json_option, out_option, seed_option
from infoflow.commands.own_code import asked_architecture, asked_target, made_by, names_code
from infoflow.errors import InfoFlowError
from infoflow.flow.trace import check_length, trace
from infoflow.targets import Target

if TYPE_CHECKING:
    from infoflow.probes.record import Batch
    from infoflow.probes.sources import Source


@click.command("trace")
@click.argument("target", required=False)
@click.argument("arch", nargs=-1)
@click.option("--model", help="Measure a model instead: a saved network, hf:PATH, a package, or file.py:FUNCTION.")
@click.option("--tokens", help="The input as JSON: T rows of d numbers.")
@click.option("-T", "--T", "T", type=int, help="Draw a random input of this length instead.")
@seed_option
@click.option("--ties", type=click.Choice(["first", "last", "all"]), default="first", show_default=True)
@click.option("--cls-attends", is_flag=True, help="Let the CLS attend in every layer, also without a read.")
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="With --model: its text.")
@click.option("--documents", type=click.IntRange(min=1), default=1, show_default=True, help="With --model: how many.")
@click.option(
    "--length", type=click.IntRange(min=4), default=32, show_default=True, help="Tokens per document of text."
)
@click.option("--draws", type=click.IntRange(min=2), default=32, show_default=True, help="Fresh tokens for each place.")
@click.option(
    "--threshold",
    type=float,
    callback=checked(lambda value: arguments.number("--threshold", value, above=0.0)),
    help="From which effect on a token is a member; default: the certificate's, else 0.01 and a sweep.",
)
@device_option
@out_option(None, "Write the figure into this folder.")
@json_option
def command(target: str | None, arch: tuple[str, ...], model: str | None, **options: Any) -> None:
    """Information sets of one input, layer by layer.

    \b
    infoflow trace min_pair:d=2 heads=1,1 embed=4 --tokens '[[0,-1],[0.7,0.7],[0,1],[-0.2,-0.9]]'
    infoflow trace pairwise_max:D=4,d=4 heads=4,4 embed=24 -T 8 --seed 0 --out out/trace
    infoflow trace --model out/min_pair_d_3_T8_eps0.1.safetensors --out out/trace
    infoflow trace --model hf:path/to/gpt2 --text stories.txt --documents 8

    Of a target and an architecture: the sets the framework predicts, the winners of every head, and whether the target
    is learned. With --model: the sets of a built, trained or pretrained network, measured by drawing tokens again.
    """
    if (model is None) == (target is None):
        raise InfoFlowError("expected TARGET ARCH, or --model FILE, got both or neither; give one of them.")
    if model is not None:
        found, name = _measured(model, options), "measured"
    else:
        assert target is not None
        if not arch:
            raise InfoFlowError("expected an architecture behind the target, such as heads=1,1 embed=4, got none.")
        goal = asked_target(target)
        X = _tokens(goal, options["tokens"], options["T"], options["seed"])
        shape = asked_architecture(join_words(arch))
        found, name = trace(goal, shape, X, options["ties"], not options["cls_attends"]), "flow"
    _show(found, options["out"], name, options["as_json"])


def _show(found: Any, out: Path | None, name: str, as_json: bool) -> None:
    paths = []
    if out is not None:
        from infoflow.report import style

        paths = style.save(found.figure(), out / name)
    if as_json:
        emit({**found.to_json(), **({"figures": paths} if paths else {})})
    else:
        click.echo(str(found) + (f"\nfigure: {paths[0]}" if paths else ""))


def _tokens(target: Target, text: str | None, T: int | None, seed: int) -> Any:
    if (text is None) == (T is None):
        raise InfoFlowError("expected either --tokens '[[...], ...]' or -T for a random input; give one of them.")
    if text is None:
        assert T is not None
        check_length(target, T)
        return target.sample(1, T, seed=seed)[0]
    return _rows(text)


def _rows(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InfoFlowError("expected --tokens as JSON rows like [[0,-1],[0.7,0.7]], got something else.") from None


def _measured(spelling: str, options: dict[str, Any]) -> Any:
    """The measured sets of a model."""
    from infoflow.commands.probe import quiet
    from infoflow.probes.infosets import measured_sets
    from infoflow.probes.sources import given, open_source
    from infoflow.train.plan import check_device

    check_device(options["device"])
    with quiet():
        path = spelling.removeprefix("hf:")
        opened = given(path, made_by(path)) if names_code(path) else open_source(path)
        opened.model.to(options["device"])
        settings = {key: options[key] for key in ("draws", "seed", "threshold")}
        if options["tokens"] is not None:
            return measured_sets(opened.model, _rows(options["tokens"]), **settings)
        documents, law = _documents(opened, options)
        if options["documents"] == 1 and law is None:  # one sequence of a network whose law is known
            return measured_sets(opened.model, documents[0].inputs["X"][0], **settings)
        return measured_sets(opened.model, documents, law, **settings)


def _documents(opened: "Source", options: dict[str, Any]) -> "tuple[list[Batch], list[Batch] | None]":
    """The documents to measure, and those that tokens are drawn from where no target says their law."""
    from infoflow import reading
    from infoflow.probes import texts

    count, device, seed = options["documents"], options["device"], options["seed"]
    if opened.sample is not None:
        drawn = [batch.to(device) for batch in opened.sample(count, seed)]
        cut = drawn[0].rows(slice(0, count))
        known = bool(getattr(opened.model, "header", {}).get("target"))
        return [cut], None if known else drawn
    assert opened.encoding is not None
    total = count + LAW_DOCUMENTS
    if options["text"] is None:
        if opened.kind != "causal":
            raise InfoFlowError("expected --text FILE for a model that cannot draw its own, got none; give a text.")
        rows = texts.sampled(opened.model, opened.encoding, total, options["length"], seed)
    else:
        rows = texts.documents_of(reading.text(options["text"]), opened.encoding, options["length"], total)
    if len(rows) <= count:
        raise InfoFlowError(f"expected text for more than {count} documents of {options['length']} tokens, got less.")
    batches = [texts.batches_of([row], opened.encoding, 1, device)[0] for row in rows]
    return batches[:count], batches[count:]


LAW_DOCUMENTS = 64  # of text, beside those that are measured: tokens are drawn from them
