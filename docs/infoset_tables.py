"""The tables of docs/information_sets.md, from benchmarks/results/infosets_*.json."""

from typing import Any

from tables import ROOT, Recorded, Shown, markdown, measured, number, recorded, registry, source

TABLES, table = registry()
MODELS = {"stories": "story model", "minilm": "sentence encoder", "rxnmapper": "reaction model"}
PROXIES = {
    "argmax": "attention argmax",
    "rollout": "rollout",
    "flow": "attention flow",
    "gradient": "gradient x input",
}


def file(part: str) -> str:
    return f"benchmarks/results/infosets_{part}.json"


def interval(found: list[float] | None, digits: int = 3) -> str:
    return "" if found is None else f"{found[0]:.{digits}g} [{found[1]:.{digits}g}, {found[2]:.{digits}g}]"


@table
@measured(file("built"))
def infosets_built(payload: Recorded) -> Shown:
    """Inputs on which every measured set is the predicted one, away from near ties and at them."""
    rows = [
        [f"`{r['target']}`", r["T"], number(r["threshold"], 2), r["equal"] + r["other"], r["equal"],
         r["near tie, equal"] + r["near tie, other"], r["near tie, equal"]]
        for r in payload["rows"]
    ]  # fmt: skip
    clear, same = (sum(row[column] for row in rows) for column in (3, 4))
    near, held = (sum(row[column] for row in rows) for column in (5, 6))
    rows.append(["together", "", "", clear, same, near, held])
    head = ["built network of", "T", "threshold", "inputs without a near tie", "all sets as predicted",
            "inputs with one", "all sets as predicted"]  # fmt: skip
    return head, rows


@table
@measured(file("trained"))
def infosets_trained(payload: Recorded) -> Shown:
    rows = []
    for r in payload["rows"]:
        least = min(range(len(r["fetched"])), key=lambda i: r["fetched"][i])
        rows.append(
            ["({},{})".format(*r["heads"]), f"{r['NMSE']:.1e}", interval(r["recall"], 2), interval(r["precision"], 2),
             interval(r["size"], 2), interval(r["sufficient"], 2), f"{min(r['maxima']):.2f}",
             f"no. {least + 1}: {r['fetched'][least]:.2f}", f"{max(r['fetched']):.2f}", f"{r['chance'][0]:.2f}"]
        )  # fmt: skip
    head = ["heads", "NMSE", "recall of the predicted tokens", "precision", "content set", "enough together",
            "least found maximum", "least fetched maximum", "most fetched", "chance"]  # fmt: skip
    return head, rows


@table
@measured(file("film"))
def infosets_film(payload: Recorded) -> Shown:
    rows = []
    for strip in payload["strips"]:
        for f in strip["frames"]:
            rows.append(
                ["({},{})".format(*strip["heads"]), f["step"], number(f["NMSE"], 2), interval(f["recall"], 2),
                 interval(f["precision"], 2), interval(f["size"], 2), ", ".join(f"{v:.2f}" for v in f["fetched"])]
            )  # fmt: skip
    return ["heads", "step", "NMSE", "recall", "precision", "content set", "fetched, by maximum"], rows


@table
@measured(file("long"))
def infosets_long(payload: Recorded) -> Shown:
    rows = []
    for r in payload["rows"]:
        found, active = (", ".join(map(str, r[name])) for name in ("members", "active"))
        chosen = "not sampled" if r["selection"] is None else interval(r["selection"])
        rows.append([r["T"], found, active, r["tests"], f"{r['missed']} of {r['audited']}", number(r["most_missed"]),
                     chosen, f"{r['seconds']:.0f} s"])  # fmt: skip
    head = ["T", "content set found", "active positions", "group tests", "members among audited", "missed at most",
            "selection set, estimated", "time on a busy core"]  # fmt: skip
    return head, rows


@table
@measured(file("proxies"))
def infosets_proxies(payload: Recorded) -> Shown:
    rows: list[list[Any]] = []
    names = [r["network"] for r in payload["rows"]]
    for k, r in enumerate(payload["rows"]):
        again = ", another seed" if r["network"] in names[:k] else ""
        rows += [_proxy(r["network"] + again, name, found) for name, found in r["proxies"].items()]
    return ["network", "proxy", "precision", "recall", "average precision"], rows


def _proxy(where: str, name: str, found: dict[str, Any]) -> list[str]:
    return [where, PROXIES[name], *(interval(found[key], 2) for key in ("precision", "recall", "average_precision"))]


def _models() -> list[tuple[str, Recorded]]:
    known = {part: words for part, words in MODELS.items() if (ROOT / file(part)).is_file()}
    return [(words, recorded(file(part))) for part, words in known.items()]


def _sources(found: list[tuple[str, Recorded]]) -> str:
    return "".join(source(payload) for _, payload in found)


@table
def infosets_layers() -> str:
    found = _models()
    rows = [
        [name, r["layer"], interval(r["size"]), interval(r["own"], 2), interval(r["others"], 2),
         interval(r["distance"], 2), interval(r["dropped"], 2)]
        for name, payload in found
        for r in payload["layers"]
    ]  # fmt: skip
    head = ["model", "behind layer", "tokens in a state", "effect of the own token", "of all others",
            "mean distance of the others", "tokens lost in this layer"]  # fmt: skip
    return markdown(head, rows) + _sources(found)


@table
def infosets_outputs() -> str:
    found = _models()
    rows = []
    for name, payload in found:
        out = payload["output"]
        rows.append([name, interval(out["sources"], 2), *(interval(out[key], 2) for key in
                     ("content", "selection", "sufficient", "unclear", "distance"))])  # fmt: skip
    head = ["model", "tokens", "content set", "selection set", "enough together", "unclear", "mean distance"]
    return markdown(head, rows)


@table
def infosets_carried() -> str:
    modes = ("max-position", "specific position", "global", "mixed")
    rows = []
    for name, payload in _models():
        shares = payload["carried"]
        cells = [f"{interval(shares[mode], 2)} ({shares['heads: ' + mode][0]:.0%})" for mode in modes]
        rows.append([name, *cells])
    return markdown(["model", *modes], rows)


@table
def infosets_model_proxies() -> str:
    rows = [_proxy(name, proxy, found) for name, payload in _models() for proxy, found in payload["proxies"].items()]
    return markdown(["model", "proxy", "precision", "recall", "average precision"], rows)


@table
@measured(file("roles"))
def infosets_roles(payload: Recorded) -> Shown:
    """Precision and recall of the labels that need repeats, planted beside six other kinds."""
    rows = []
    for r in payload["planted"]:
        for kind in ("induction", "duplicate"):
            found = r["kinds"][kind]
            precision = "none so labelled" if found["precision"] is None else f"{found['precision']:.3f}"
            rows.append([r["repeats"], r["case"], kind, int(found["support"]), precision, f"{found['recall']:.3f}"])
    return ["periods", "planted heads", "kind", "heads", "precision", "recall"], rows


@table
@measured(file("roles"))
def infosets_copying(payload: Recorded) -> Shown:
    """The strongest heads of the story model for each role, whether or not they reach the bound."""
    rows = []
    for h in sorted(payload["copying"], key=lambda h: -abs(h["score"]))[:4]:
        score = interval([h["score"], *h["interval"]], 2)
        rows.append([f"layer {h['layer']}, head {h['head']}", "copying", score, h["label"] or "neither"])
    for role in ("induction", "duplicate"):
        h = max(payload["labels"], key=lambda h: h["scores"][role])
        said = h["label"] if h["label"] == role else "not so labelled"
        rows.append([f"layer {h['layer']}, head {h['head']}", role, f"{h['scores'][role]:.2f}", said])
    return ["head of the story model", "role", "score", "verdict"], rows
