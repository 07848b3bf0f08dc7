"""The tables of docs/information_sets.md, from benchmarks/results/infosets_*.json."""

from typing import Any

from tables import ROOT, Recorded, Shown, cells, markdown, number, recorded, registry, source

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


@table(file("built"))
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


@table(file("trained"))
def infosets_trained(payload: Recorded) -> Shown:
    form = "({heads[0]},{heads[1]}) | {NMSE:.1e} | {recall:i2} | {precision:i2} | {size:i2} | {sufficient:i2}"
    rows = []
    for r in payload["rows"]:
        least = min(range(len(r["fetched"])), key=lambda i: r["fetched"][i])
        ends = (min(r["maxima"]), max(r["fetched"]), r["chance"][0])
        found, most, chance = (f"{end:.2f}" for end in ends)
        rows.append([*cells(form, r), found, f"no. {least + 1}: {r['fetched'][least]:.2f}", most, chance])
    head = ["heads", "NMSE", "recall of the predicted tokens", "precision", "content set", "enough together",
            "least found maximum", "least fetched maximum", "most fetched", "chance"]  # fmt: skip
    return head, rows


@table(file("film"))
def infosets_film(payload: Recorded) -> Shown:
    form = "({heads[0]},{heads[1]}) | {step} | {NMSE:.2g} | {recall:i2} | {precision:i2} | {size:i2} | "
    form += "{fetched:.2f, of each}"
    rows = [cells(form, {**frame, "heads": strip["heads"]}) for strip in payload["strips"] for frame in strip["frames"]]
    return ["heads", "step", "NMSE", "recall", "precision", "content set", "fetched, by maximum"], rows


@table(file("long"))
def infosets_long(payload: Recorded) -> Shown:
    form = "{T} | {members:d, of each} | {active:d, of each} | {tests} | {missed} of {audited} | {most_missed:.3g} | "
    form += "{selection:i3} | {seconds:.0f} s"
    rows = []
    for r in payload["rows"]:
        *found, chosen, time = cells(form, r)
        rows.append([*found, chosen or "not sampled", time])
    head = ["T", "content set found", "active positions", "group tests", "members among audited", "missed at most",
            "selection set, estimated", "time on a busy core"]  # fmt: skip
    return head, rows


@table(file("proxies"))
def infosets_proxies(payload: Recorded) -> Shown:
    rows: list[list[Any]] = []
    names = [r["network"] for r in payload["rows"]]
    for k, r in enumerate(payload["rows"]):
        again = ", another seed" if r["network"] in names[:k] else ""
        rows += [_proxy(r["network"] + again, name, found) for name, found in r["proxies"].items()]
    return ["network", "proxy", "precision", "recall", "average precision"], rows


def _proxy(where: str, name: str, found: dict[str, Any]) -> list[str]:
    return [where, PROXIES[name], *cells("{precision:i2} | {recall:i2} | {average_precision:i2}", found)]


def _models() -> list[tuple[str, Recorded]]:
    known = {part: words for part, words in MODELS.items() if (ROOT / file(part)).is_file()}
    return [(words, recorded(file(part))) for part, words in known.items()]


@table
def infosets_layers() -> str:
    form = "{layer} | {size:i3} | {own:i2} | {others:i2} | {distance:i2} | {dropped:i2}"
    found = _models()
    rows = [[name, *cells(form, row)] for name, payload in found for row in payload["layers"]]
    head = ["model", "behind layer", "tokens in a state", "effect of the own token", "of all others",
            "mean distance of the others", "tokens lost in this layer"]  # fmt: skip
    return markdown(head, rows) + "".join(source(payload) for _, payload in found)


@table
def infosets_outputs() -> str:
    form = "{sources:i2} | {content:i2} | {selection:i2} | {sufficient:i2} | {unclear:i2} | {distance:i2}"
    rows = [[name, *cells(form, payload["output"])] for name, payload in _models()]
    return markdown(
        ["model", "tokens", "content set", "selection set", "enough together", "unclear", "mean distance"], rows
    )


@table
def infosets_carried() -> str:
    modes = ("max-position", "specific position", "global", "mixed")
    rows = []
    for name, payload in _models():
        shares = payload["carried"]
        both = [{"share": shares[mode], "heads": shares[f"heads: {mode}"]} for mode in modes]
        rows.append([name, *(cell for two in both for cell in cells("{share:i2} ({heads[0]:.0%})", two))])
    return markdown(["model", *modes], rows)


@table
def infosets_model_proxies() -> str:
    rows = [_proxy(name, proxy, found) for name, payload in _models() for proxy, found in payload["proxies"].items()]
    return markdown(["model", "proxy", "precision", "recall", "average precision"], rows)


@table(file("roles"))
def infosets_roles(payload: Recorded) -> Shown:
    """Precision and recall of the labels that need repeats, planted beside six other kinds."""
    rows = []
    for r in payload["planted"]:
        for kind in ("induction", "duplicate"):
            found = r["kinds"][kind]
            precision = "none so labelled" if found["precision"] is None else f"{found['precision']:.3f}"
            rows.append([r["repeats"], r["case"], kind, int(found["support"]), precision, f"{found['recall']:.3f}"])
    return ["periods", "planted heads", "kind", "heads", "precision", "recall"], rows


@table(file("roles"))
def infosets_copying(payload: Recorded) -> Shown:
    """The strongest heads of the story model for each role, whether or not they reach the bound."""
    rows = []
    for h in sorted(payload["copying"], key=lambda h: -abs(h["score"]))[:4]:
        (score,) = cells("{score:i2}", {"score": [h["score"], *h["interval"]]})
        rows.append([f"layer {h['layer']}, head {h['head']}", "copying", score, h["label"] or "neither"])
    for role in ("induction", "duplicate"):
        h = max(payload["labels"], key=lambda h: h["scores"][role])
        said = h["label"] if h["label"] == role else "not so labelled"
        rows.append([f"layer {h['layer']}, head {h['head']}", role, f"{h['scores'][role]:.2f}", said])
    return ["head of the story model", "role", "score", "verdict"], rows
