"""What a run is: one model of one task, with its architecture, length, seed and recipe, and the key that names it."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from infoflow import arguments, cost
from infoflow.architecture import Architecture
from infoflow.errors import InfoFlowError
from infoflow.targets.target import Target
from infoflow.train.recipe import Recipe
from infoflow.train.task import Regression, Task

CANONICAL: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}  # how an identity is written for its key
SEED = "\0 the seed"  # stands in that text for the seed, and in no other place: no name of ours holds a null
REMEMBERED = 4096  # kinds of runs whose identity is kept as text; seeds share one
# (task, architecture, T, recipe) of runs -> their identity as text before and behind the seed, and their group
_written: "dict[Any, tuple[str, str, str]]" = {}
STEP_BYTES = 100  # of the table of learning rates
CODE_FORMAT = 1  # changes when the same run would give other numbers: results of another format are other results


@dataclass(frozen=True, eq=False)
class Run:
    """One model. A `Target` is regressed; tasks with a network of their own take no architecture, and only those whose
    length is open take a T. A network has numbers where an architecture may leave them open: they are filled in here.
    """

    task: Task
    arch: Architecture | None
    T: int | None
    seed: int
    recipe: Recipe

    def __init__(
        self,
        task: Task | Target,
        arch: Architecture | None = None,
        T: int | None = None,
        seed: int = 0,
        recipe: Recipe | None = None,
    ) -> None:
        recipe = Recipe() if recipe is None else recipe
        if not isinstance(recipe, Recipe):
            raise InfoFlowError(f"expected a Recipe(samples=..., epochs=...), got {arguments.shown(recipe)}.")
        task = Regression(task) if isinstance(task, Target) else task
        if not isinstance(task, Task):
            raise InfoFlowError(f"expected a target or a task, got {arguments.shown(task)}.")
        if forgotten := task.forgotten():
            called = task.name or type(task).__name__
            raise InfoFlowError(f"expected the task {called} to say its {', '.join(forgotten)}, it does not; add them.")
        arch = None if arch is None else Architecture.of(arch)
        counts = task.counts()
        if counts is not None:
            recipe = recipe.with_(samples=counts[0], validation=counts[1])
        arch = None if arch is None else task.filled(arch)
        T = task.length if T is None else arguments.integer("T", T)
        for name, value in {"task": task, "arch": arch, "T": T, "seed": seed, "recipe": recipe}.items():
            object.__setattr__(self, name, value)

    def regression(self) -> tuple[Target, Architecture, int]:
        """Target, architecture and length of a run that learns a target."""
        if not isinstance(self.task, Regression) or self.arch is None or self.T is None:
            raise InfoFlowError(f"expected a run of a target, {self.task.name} is a task of another kind.")
        return self.task.target, self.arch, self.T

    def check(self) -> None:
        """Everything that can be wrong with a run before anything is made of it."""
        self.check_numbers()
        if self.task.seeded and self.recipe.starts > 1:
            raise InfoFlowError(f"expected one start for {self.task.name}, whose data follow the seed.")
        if self.recipe.test and not isinstance(self.task, Regression):
            raise InfoFlowError(f"expected no test samples for {self.task.name}, which is no target; take test=0.")
        steps = self.recipe.all_steps
        cost.memory(STEP_BYTES * steps, f"the learning rates of {steps} steps", "steps, epochs, samples or starts")
        self.identity()
        self.task.check(self.arch, self.T, self.recipe)

    def check_numbers(self) -> None:
        """What runs of one group may still differ in, and T, without which there is no group."""
        T, length = self.T, self.task.length
        if T is not None:
            arguments.integer("T", T)
        if length is not None and length != T:
            raise InfoFlowError(f"expected no T for {self.task.name}, whose sequences have {length} tokens; got {T}.")
        arguments.integer("a seed", self.seed, 0, arguments.LARGEST_SEED // self.recipe.starts)

    def start(self, number: int) -> "Run":
        """One of the starts, tried alone: no two runs of a sweep that differ in their seed share one."""
        plain = {"starts": 1, "start_epochs": 0, "steps": None, "schedule": "cosine", "second_epochs": 0, "test": 0}
        recipe = self.recipe.with_(epochs=self.recipe.start_epochs, **plain)
        return replace(self, seed=self.seed * self.recipe.starts + number, recipe=recipe)

    def trials(self) -> "list[Run]":
        """All starts, where there are several."""
        return [self.start(number) for number in range(self.recipe.starts)] if self.recipe.starts > 1 else []

    def identity(self) -> dict[str, Any]:
        """What the run is, as plain JSON. The number of samples says nothing where the task brings its own."""
        recipe, own = self.recipe.identity(), self._task_identity()
        if self.task.counts() is not None:
            del recipe["samples"], recipe["validation"]
        arch = None if self.arch is None else str(self.arch)
        rest = {"code": CODE_FORMAT, "arch": arch, "T": self.T, "seed": self.seed, "recipe": recipe}
        if own.keys() & rest.keys():
            raise InfoFlowError(f"expected an identity of {self.task.name} without {', '.join(rest)}, got {own}.")
        return {**own, **rest}

    def _task_identity(self) -> dict[str, Any]:
        own = self.task.identity()
        return own if self.task.file_hash is None else own | {"source": self.task.file_hash}

    def _shared(self) -> "tuple[str, str, str]":
        """What all seeds of a run share, worked out once for a sweep of them: see `_written`."""
        name = (json.dumps(self._task_identity()), self.arch, self.T, self.recipe, self.task.counts() is not None)
        found = _written.get(name)
        if found is None:
            same = self.identity() | {"seed": SEED}
            before, after = json.dumps(same, **CANONICAL).split(json.dumps(SEED))
            same |= {"seed": 0, "recipe": same["recipe"] | {"lr": 1.0, "decay": 0.0, "init_scale": 1.0}}
            found = (before, after, key_of(same))
            if len(_written) >= REMEMBERED:
                _written.clear()
            _written[name] = found
        return found

    @cached_property
    def key(self) -> str:
        """24 hex digits of SHA-256 over the identity."""
        before, after, _ = self._shared()
        return _digest(f"{before}{json.dumps(self.seed)}{after}")

    @cached_property
    def group(self) -> str:
        """Runs of one group can be stacked: they differ in seed, learning rate, decay and initial scale at most."""
        return self._shared()[2]

    @cached_property
    def data_name(self) -> str:
        """Runs of equal name see the same data."""
        recipe = self.recipe
        drawn = [recipe.samples, recipe.validation, recipe.data_seed, recipe.dtype]
        drawn += [recipe.test] * (recipe.test > 0)
        return key_of({**self.task.identity(), "T": self.T, "drawn": drawn, "seed": self.seed * self.task.seeded})


def key_of(identity: dict[str, Any]) -> str:
    """The name of a run for ever: the hash of its identity."""
    return _digest(json.dumps(identity, **CANONICAL))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
