"""`infoflow build memorizer --data FILE.json` or `--conll FILE`: one rank-1 head that outputs every label."""

from pathlib import Path
from typing import Any

from infoflow.commands.constructions.options import Options
from infoflow.errors import InfoFlowError


def run(options: dict[str, str], out: Path, seed: int) -> dict[str, Any]:
    left = Options(options)
    data, conll = left.take("data", Path, None), left.take("conll", Path, None)
    if (data is None) == (conll is None):
        raise InfoFlowError("expected --data FILE.json or --conll FILE, one of them; give one.")
    return _conll(left, conll, out, seed) if data is None else _data(left, data, out, seed)


def _data(left: Options, path: Path, out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.rank_one.data import read_data
    from infoflow.construct.rank_one.memorize import memorize

    positions, mask = left.take("positions", str, None), left.take("mask", str, "none")
    head_size, dense = left.take("head_size", int, 1), left.take("dense", int, None)
    left.done()
    content = read_data(path)
    made = memorize(
        content["X"],
        content["Y"],
        positions,
        mask,
        head_size=head_size,
        seed=seed,
        dense_places=dense,
    )
    return _report(made, out)


def _conll(left: Options, path: Path, out: Path, seed: int) -> dict[str, Any]:
    from infoflow.construct.rank_one.text import PAPER_ACCURACY, ceilings, memorize_text, read_conll

    d, dense = left.take("d", int, 16), left.take("dense", int, 4000)
    development = left.take("dev", Path, _beside(path))
    left.done()
    if d < 1:
        raise InfoFlowError(f"expected --d of at least 1, got {d}.")
    training = read_conll(path)
    other = read_conll(development) if development is not None else None
    made = memorize_text(training, d, seed, dense)
    return {
        **_report(made.memorizer, out),
        "sentences": len(training.words),
        "tokens": training.size,
        "types": len(made.index),
        "tags": len(made.tags),
        "merged": made.memorizer.contexts.merged,
        "accuracy": made.accuracy,
        "ceilings": ceilings(training),
        "paper": PAPER_ACCURACY,
        "development": None if other is None else made.accuracy_on(other),
    }


def _beside(path: Path) -> Path | None:
    """The development file that lies beside the training file, if one does."""
    for name in ("valid", "dev", "testa"):
        other = path.with_name(path.name.replace("train", name))
        if other != path and other.is_file():
            return other
    return None


def _report(made: Any, out: Path) -> dict[str, Any]:
    from infoflow.construct.rank_one.saving import save_memorizer

    path = save_memorizer(made, out / "memorizer.safetensors")
    return {
        "construction": "memorizer",
        "contexts": made.contexts.size,
        "wrong": 0,  # anything else is a failed job
        "max_error": made.max_error,
        "dense_places": made.dense_places,
        "gap": made.spread.gap,
        "certificate": made.certificate.to_json(),
        "parameters": made.parameters(),
        "seconds": sum(made.seconds.values()),
        "path": path,
    }


def text(report: dict[str, Any]) -> str:
    count = report["parameters"]
    lines = [
        f"memoriser: {report['contexts']} contexts, {report['wrong']} wrong, largest error {report['max_error']:.3g} "
        f"({report['dense_places']} places with the dense network), {report['seconds']:.1f} s",
        f"  ids {report['gap']:.3g} of their range apart; proved error at most {report['certificate']['bound']:.3g} "
        f"({report['certificate']['arithmetic']})",
        f"  parameters: {count['factored']} independent numbers, {count['dense']} matrix entries; the paper's count "
        f"is {count['paper']}",
    ]
    if "ceilings" in report:
        names = {"majority": "majority tag", "word": "word alone", "order_free": "order-free", "positions": "positions"}
        shown = ", ".join(f"{names[key]} {value:.4f}" for key, value in report["ceilings"].items())
        lines += [
            f"  {report['tokens']} tokens, {report['sentences']} sentences: training accuracy {report['accuracy']:.5f}",
            f"  ceilings: {shown}; the paper's trained layer on CoNLL-2003: {report['paper']}",
        ]
        if report["development"] is not None:
            lines.append(
                f"  development accuracy {report['development']:.4f}: a lookup table knows no context it never saw"
            )
    return "\n".join([*lines, f"  saved {report['path']}"])
