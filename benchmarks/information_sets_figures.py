"""Draw docs/figures/infosets_*.svg: one measured flow (made anew), the rest from benchmarks/results/infosets_*.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import infoflow as iflow
from infoflow.report import style

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
MODELS = {"stories": "story model", "minilm": "sentence encoder", "rxnmapper": "reaction model"}


def recorded(part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"infosets_{part}.json").read_text(encoding="utf-8"))
    return found


def example() -> Any:
    """A built network with two maxima over pairs, 16 tokens."""
    net = iflow.build("pairwise_max:D=2,d=3,seed=0", 16, 0.02)
    return iflow.trace(net, 2 * np.random.default_rng(4).random((16, 3)) - 1).figure()


def film() -> Any:
    """Rows are moments of training, columns are tokens; the darker, the more the output depends on the token."""
    from matplotlib.colors import LogNorm

    strips = recorded("film")["strips"]
    made, axes = style.figure(9.2, 4.3, 1, len(strips), squeeze=False)
    image = None
    for place, strip in zip(axes[0], strips, strict=True):
        frames = strip["frames"]
        effects = np.array([frame["first"]["effect"] for frame in frames])
        image = place.imshow(np.clip(effects, 1e-3, 1.0), cmap="Blues", norm=LogNorm(1e-3, 1.0), aspect="auto",
                             extent=(0.5, effects.shape[1] + 0.5, len(frames) - 0.5, -0.5))  # fmt: skip
        for number, pair in enumerate(frames[0]["first"]["pairs"]):
            for token in dict.fromkeys(pair):
                place.plot(token + 0.16 * (2 * number - 1), -0.85, marker="v", color=style.COLOURS[1 + number],
                           clip_on=False, markersize=6)  # fmt: skip
        place.set_yticks(range(len(frames)), [f"{f['step']:,}  ({f['NMSE']:.1g})" for f in frames])
        place.xaxis.get_major_locator().set_params(integer=True)
        place.set_xlabel("token")
        place.set_ylabel("step of training (error of the network)")
        place.set_title("heads ({},{}): ".format(*strip["heads"]) + ("one for each maximum" if strip["heads"][0] > 1
                        else "one too few in layer 1"), pad=18)  # fmt: skip
        place.grid(False)
    assert image is not None
    bar = made.colorbar(image, ax=axes[0].tolist(), shrink=0.8)
    bar.set_label("effect of the token on the output,\nas a share of the variance")
    made.supxlabel("triangles: the two tokens of each maximum, one colour for each: what the output should depend on",
                   fontsize=8)  # fmt: skip
    return made


def trained() -> Any:
    """For every network the share of tokens that hold the partner each maximum asks for."""
    payload = recorded("trained")
    rows = payload["rows"]
    shares = np.array([row["fetched"] for row in rows])
    made, axes = style.figure(7.6, 3.7)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, x in np.ndindex(*shares.shape):
        axes.text(x, y, f"{shares[y, x]:.2f}", ha="center", va="center", fontsize=8,
                  color="white" if shares[y, x] > 0.6 else style.INK)  # fmt: skip
    need, few = shares.shape[1], ("enough heads", "too few heads")
    axes.set_yticks(
        range(len(rows)),
        ["{}: ({},{}), error {:.0e}".format(few[min(r["heads"]) < need], *r["heads"], r["NMSE"]) for r in rows],
    )
    axes.set_xticks(range(need), [f"no. {k + 1}" for k in range(need)])
    axes.set_xlabel(f"which of the {need} maxima over pairs of tokens")
    axes.grid(False)
    axes.set_title("With too few heads one maximum is lost")
    made.colorbar(image, ax=axes)
    made.supxlabel("number: share of the tokens whose state behind layer 1 holds the partner this maximum asks for",
                   fontsize=8)  # fmt: skip
    return made


def models() -> Any:
    """How many tokens are in a state, layer by layer."""
    made, axes = style.figure(9.2, 3.5, 1, 2)
    known = [(part, name) for part, name in MODELS.items() if (RESULTS / f"infosets_{part}.json").is_file()]
    for number, (part, name) in enumerate(known):
        layers = recorded(part)["layers"]
        x = [row["layer"] for row in layers]
        for place, key in zip(axes, ("size", "own"), strict=True):
            mean, low, high = np.array([row[key] for row in layers]).T
            place.plot(x, mean, marker=style.MARKERS[number], color=style.COLOURS[number], label=name)
            place.fill_between(x, low, high, color=style.COLOURS[number], alpha=0.2, linewidth=0)
    axes[0].set_title("How many tokens a token's state holds")
    axes[0].set_ylabel("tokens (1% threshold)")
    axes[1].set_title("What is left of the token itself")
    axes[1].set_ylabel("effect on its own state,\nas a share of the variance")
    for place in axes:
        place.set_xlabel("behind layer")
        place.set_ylim(0, None)
    axes[0].legend()
    made.supxlabel("bands: 95% intervals over documents", fontsize=8)
    return made


def main() -> None:
    for name, draw in (("example", example), ("film", film), ("trained", trained), ("models", models)):
        style.save(draw(), ROOT / f"docs/figures/infosets_{name}", ("svg",))


if __name__ == "__main__":
    main()
