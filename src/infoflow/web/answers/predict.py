"""What an architecture can do before training: the verdict, one head fewer, exponents, the plan, the forecast."""

from typing import Any

from infoflow import arguments
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.targets import Target
from infoflow.verdicts.plan import plan as plan_target
from infoflow.verdicts.predict import Prediction
from infoflow.verdicts.predict import predict as predict_target
from infoflow.verdicts.scale import scale
from infoflow.web import questions
from infoflow.web.answers.flow import drawable, target_of
from infoflow.web.answers.said import said, words
from infoflow.web.questions import length

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LONGEST = 1_000_000  # tokens a prediction is made for
LONGEST_FORECAST, MOST_EPOCHS = 64, 1000
LARGEST_PLAN = 8  # layers, and twice as many heads in one


def predict(question: questions.Predict) -> dict[str, Any]:
    target, arch = target_of(question.target), Architecture.parse(question.arch)
    drawable(question.arch, len(target.terms))
    T = length(question.T, LONGEST, "the tokens of a prediction")
    found = predict_target(target, arch, T, question.eps)
    spelled = f"iflow.predict({target.spelling!r}, {str(arch)!r}, T={T}, eps={question.eps:g})"
    return {
        **found.to_json(),
        "fewer": [_fewer(target, found, layer) for layer, h in enumerate(arch.heads) if h > 1],
        "scale": _scale(target, found),
        "said": said(
            words("predict", target.spelling, *str(arch).split(), "-T", T, "--eps", f"{question.eps:g}"),
            f"print({spelled})",
        ),
    }


def _fewer(target: Target, found: Prediction, layer: int) -> dict[str, Any]:
    """What changes with one head fewer in a layer, as a sentence."""
    heads = tuple(h - (number == layer) for number, h in enumerate(found.arch.heads))
    embed = tuple(-(-total // h) * h for total, h in zip(found.embed, heads, strict=True))
    arch = found.arch.with_(heads=heads, embed=embed if found.arch.embed is not None else None)
    less = predict_target(target, arch, found.T, found.eps)
    spelled = ",".join(map(str, heads))
    begin = f"Take one head from layer {layer + 1} (heads={spelled})"
    before, after = found.flow.exponent, less.flow.exponent
    stated = found.arch.embed is not None  # else each has an embedding of its own, and the exponents say nothing
    price = f"the framework's exponent goes from {before} to {after}" if stated and before != after else ""
    if (found.verdict, less.verdict) == ("constructed", "constructed"):
        text = f"{begin}, and it can still be built."
    elif found.verdict == "constructed":
        text = f"{begin}, and no construction is left" + (f"; {price}." if price else ".")
    elif found.verdict == less.verdict:
        text = f"{begin}, and the verdict stays {less.verdict}" + (f"; {price}." if price else ".")
    else:
        text = f"{begin}, and the verdict turns from {found.verdict} to {less.verdict}."
    return {"layer": layer + 1, "arch": str(arch), "verdict": less.verdict, "exponent": after, "sentence": text}


def _scale(target: Target, found: Prediction) -> dict[str, Any] | None:
    """Exponents against the length; None where the target has no count (a function, say)."""
    lengths = [T for T in LENGTHS if target.arity <= T]
    try:
        return scale(target, found.arch.with_(embed=found.embed), lengths).to_json()
    except InfoFlowError:
        return None


def plan(question: questions.Plan) -> dict[str, Any]:
    target = target_of(question.target)
    T = length(question.T, LONGEST, "the tokens of a plan")
    layers = arguments.integer("max_layers", question.max_layers, 1, LARGEST_PLAN)
    heads = arguments.integer("max_heads", question.max_heads, 1, 2 * LARGEST_PLAN)
    return {
        **plan_target(target, T, layers, heads).to_json(),
        "said": said(
            words("plan", target.spelling, "-T", T, "--max-layers", layers, "--max-heads", heads),
            f"print(iflow.plan({target.spelling!r}, T={T}, max_layers={layers}, max_heads={heads}))",
        ),
    }


def forecast(question: questions.Forecast) -> dict[str, Any]:
    from infoflow.forecasts.forecast import forecast as forecast_target
    from infoflow.train.recipe import Recipe

    target = target_of(question.target)
    drawable(question.arch, len(target.terms))
    T = length(question.T, LONGEST_FORECAST, "the tokens of a forecast")
    epochs = arguments.integer("epochs", question.epochs, 1, MOST_EPOCHS)
    found = forecast_target(target, question.arch, T, Recipe(epochs=epochs))
    recipe = f"iflow.Recipe(epochs={epochs})"
    return {
        **found.to_json(),
        "has_floor": found.parts.has_floor,
        "text": str(found),
        "said": said(
            words("forecast", target.spelling, *question.arch.split(), "-T", T, "--epochs", epochs),
            f"print(iflow.forecast({target.spelling!r}, {question.arch!r}, T={T}, recipe={recipe}))",
        ),
    }
