"""`infoflow build memorizer --data FILE.json` or `--conll FILE`: one rank-1 head that outputs every label."""

from pathlib import Path
from typing import Any

from infoflow.construct.catalogue import CONSTRUCTIONS


def run(options: dict[str, Any], out: Path, seed: int) -> dict[str, Any]:
    """Make it, save it, and say what it remembers; for text beside what models that see less can reach."""
    from infoflow.construct import makers
    from infoflow.construct.rank_one.text import PAPER_ACCURACY, TextMemory, ceilings, read_conll

    given = CONSTRUCTIONS["memorizer"].read(options, command=True)
    development = given["dev"] or (_beside(given["conll"]) if given["conll"] is not None else None)
    other = read_conll(development) if given["conll"] is not None and development is not None else None
    made = makers.memorizer(given, seed)
    if not isinstance(made, TextMemory):
        return _report(made, out)
    training = read_conll(given["conll"])
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
    path = made.save(out / "memorizer.safetensors")
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
    """The report in words."""
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
