"""Recipes, schedules, keys, data and orders."""

import math

import pytest
import torch

from infoflow.architecture import Architecture
from infoflow.commands.own_code import asked_target
from infoflow.errors import InfoFlowError
from infoflow.targets import pairwise_max
from infoflow.train.fit import fit_many
from infoflow.train.loop import data_of, epoch_order
from infoflow.train.recipe import Recipe
from infoflow.train.run import Run, key_of
from infoflow.train.store import Result, summary
from infoflow.train.task import streams
from infoflow.train.tasks import task

CPU = torch.device("cpu")
ARCH = Architecture((2, 2), (4, 4))


def test_schedules() -> None:
    cosine = Recipe(samples=8, batch=4, epochs=3).factors()
    assert cosine == [0.5 * (1 + math.cos(math.pi * step / 6)) for step in range(6)]
    assert Recipe(epochs=None, steps=3, schedule="constant").factors() == [1.0] * 3
    two = Recipe(samples=8, batch=4, epochs=2, schedule="two_phase", second_epochs=1, second_factor=0.2).factors()
    assert two[:4] == [0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(4)]
    assert two[4:] == [0.2, 0.2]


def test_warm_up_rises_to_the_schedule() -> None:
    plain, warm = Recipe(epochs=None, steps=10), Recipe(epochs=None, steps=10, warm_up=4)
    ratio = [w / p for w, p in zip(warm.factors(), plain.factors(), strict=True)]
    assert ratio == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1])


def test_a_collapsed_model_is_counted() -> None:
    def result(best: float | None, final: float | None) -> Result:
        return Result("k", {"seed": 0}, "ok", best, final, [], [], 1, None, 0.0, 1, {})

    found = [result(0.01, 1.0), result(0.01, 0.02), result(0.95, 0.99), result(0.3, None)]
    assert [one.collapsed for one in found] == [True, False, False, True]
    assert [one.unlearned for one in found] == [False, False, True, False]
    assert (summary(found).collapsed, summary(found).unlearned) == (2, 1)


def test_the_last_incomplete_batch_is_left_out_and_a_batch_never_exceeds_the_samples() -> None:
    assert Recipe(samples=11, batch=4, epochs=2).total_steps == 4
    assert Recipe(samples=3, batch=8, epochs=2).total_steps == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 5},
        {"epochs": None},
        {"epochs": 0},
        {"samples": -1},
        {"batch": 2.5},
        {"lr": 0.0},
        {"lr": math.nan},
        {"decay": -1.0},
        {"decay": math.inf},
        {"validation": 1},
        {"schedule": "two_phase"},
        {"second_epochs": 3},
        {"init_scale": 0.0},
        {"query_key_rate": 0.0},
        {"clip": 0.0},
        {"clip": math.nan},
        {"warm_up": -1},
        {"starts": 0},
        {"starts": 2},
        {"start_epochs": 3},
        {"starts": 2, "start_epochs": -1},
        {"starts": 2.0, "start_epochs": 1},
        {"starts": 2, "start_epochs": 1.5},
    ],
)
def test_wrong_recipes(wrong: dict[str, object]) -> None:
    with pytest.raises(InfoFlowError):
        Recipe(**wrong)


def test_keys_name_everything_that_changes_the_numbers() -> None:
    target = pairwise_max(D=2, d=2, seed=0)
    base = Run(target, ARCH, 8)
    others = [
        Run(pairwise_max(D=2, d=2, seed=1), ARCH, 8),
        Run(target, ARCH.with_(width=3), 8),
        Run(target, ARCH, 9),
        Run(target, ARCH, 8, seed=1),
        Run(target, ARCH, 8, recipe=Recipe(lr=2e-2)),
        Run(target, ARCH, 8, recipe=Recipe(data_seed=1)),
        Run(target, ARCH, 8, recipe=Recipe(clip=1.0)),
        Run(target, ARCH, 8, recipe=Recipe(warm_up=1)),
        Run(target, ARCH, 8, recipe=Recipe(starts=2, start_epochs=1)),
        Run(target, ARCH, 8, recipe=Recipe(starts=2, start_epochs=2)),
        Run(target, ARCH, 8, recipe=Recipe(query_key_rate=2.0)),
    ]
    assert len({run.key for run in [base, *others]}) == 12
    assert base.key == Run(pairwise_max(D=2, d=2, seed=0), Architecture((2, 2), 4), 8).key
    same_group = [base, others[3], others[4], Run(target, ARCH, 8, 5, Recipe(decay=0.5, init_scale=2.0))]
    assert len({run.group for run in same_group}) == 1
    assert len({run.group for run in (base, *others[:3], *others[5:])}) == 10


def test_the_key_of_a_users_target_changes_with_its_file(tmp_path) -> None:
    file = tmp_path / "mine.py"
    text = "from infoflow.targets import pairwise_max\nMINE = pairwise_max(D=1, d=2, seed={})\n"
    keys = set()
    for seed in (0, 1):
        file.write_text(text.format(seed))
        keys.add(Run(asked_target(f"{file}:MINE"), ARCH, 4).key)
    assert len(keys) == 2


def test_data_are_those_of_their_seed_with_exact_labels() -> None:
    target, recipe = pairwise_max(D=2, d=3, seed=0), Recipe(samples=40, validation=10)
    one, two, other = (data_of([Run(target, ARCH, 5, recipe=recipe.with_(data_seed=seed))], CPU) for seed in (0, 0, 1))
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.y, two.y)
    assert not torch.equal(one.x, other.x)
    assert one.x.shape == (1, 40, 3, 5)
    labels = target(one.x[0].transpose(-1, -2).double())
    torch.testing.assert_close(one.y[0, :, 0].double() * one.deviation + one.mean, labels, rtol=1e-6, atol=1e-6)
    assert abs(float(one.y.mean())) < 1e-6
    assert abs(float(one.y.square().mean()) - 1) < 1e-6


def test_constant_labels_are_refused() -> None:
    with pytest.raises(InfoFlowError, match="vary"):
        data_of([Run(pairwise_max(D=1, d=2, seed=0), ARCH, 3, recipe=Recipe(samples=1, validation=2))], CPU)


def test_orders_are_permutations_of_the_seed_and_epoch_alone() -> None:
    seeds = torch.tensor([7, 0, 2**62])
    order = epoch_order(seeds, 3, 50)
    assert torch.equal(order.sort(1).values, torch.arange(50).expand(3, -1))
    for row in range(3):
        assert torch.equal(order[row], epoch_order(seeds[row : row + 1], 3, 50)[0])
    assert not torch.equal(order, epoch_order(seeds, 4, 50))
    assert not torch.equal(order[0], order[1])
    first = torch.stack([epoch_order(torch.arange(200), epoch, 4)[:, 0] for epoch in range(10)])
    counts = torch.bincount(first.flatten(), minlength=4)  # 2000 draws of 4: each about 500, deviation 19
    assert ((counts - 500).abs() < 100).all()


def test_a_sweep_of_seeds_writes_its_identity_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are those of the whole identity, and a hundred thousand seeds do not cost a hundred thousand of them."""
    asked: list[Run] = []
    identity = Run.identity
    monkeypatch.setattr(Run, "identity", lambda run: asked.append(run) or identity(run))
    recipes = [Recipe(steps=3, epochs=None, lr=rate) for rate in (1e-3, 2e-3)]
    runs = [Run(pairwise_max(D=1, d=3), ARCH, 5, seed, recipe) for seed in range(200) for recipe in recipes]
    assert len({run.key for run in runs}) == 400
    assert len({run.group for run in runs}) == 1
    assert len(asked) == 2
    assert all(run.key == key_of(identity(run)) for run in runs)


def test_test_samples_choose_nothing_and_score_the_best_epoch() -> None:
    """They come from a stream of their own, change neither training nor the keys of runs without them."""
    target, arch = pairwise_max(D=1, d=2, seed=0), Architecture((1, 1), (4, 4), 8)
    recipe = Recipe(samples=128, validation=32, batch=32, epochs=3)
    plain, tested = (Run(target, arch, 4, 0, r) for r in (recipe, recipe.with_(test=500)))
    assert plain.key != tested.key
    before, after = fit_many([plain, tested])
    assert before is not None
    assert after is not None
    assert before.test is None
    assert before.score == before.best == after.best
    X = torch.from_numpy(target.sample(500, 4, generator=streams(recipe)[2])).to(torch.float32)
    y = torch.as_tensor(target(X.double()))
    with torch.no_grad():
        wrong = (after.network()(X).double().flatten() - y).square().mean() / y.var(unbiased=False)
    assert after.score == after.test == pytest.approx(float(wrong), rel=1e-4)
    with pytest.raises(InfoFlowError, match="take test=0"):
        Run(task(X, y, validation=(X, y)), arch, None, 0, recipe.with_(test=10)).check()
