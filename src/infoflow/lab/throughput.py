"""How fast the lab trains: model-steps a second, stacked and one after the other."""

import torch

from infoflow.lab.grid import STACK
from infoflow.lab.stack import Adam, Stepper, Task, stacked
from infoflow.train.benchmark import timed


def throughput(task: Task, batch: int, lr: float, models: int, steps: int, device: torch.device) -> dict[str, float]:
    """`models` stacked as a grid is against the same models one after the other, in one run."""
    sizes = {"stacked": STACK[device.type], "one by one": 1}
    return {name: model_steps(task, batch, lr, models, size, steps, device) for name, size in sizes.items()}


def model_steps(task: Task, batch: int, lr: float, models: int, size: int, steps: int, device: torch.device) -> float:
    """A second, of so many models in stacks of at most `size`."""
    seconds = 0.0
    for seeds in (range(at, min(at + size, models)) for at in range(0, models, size)):
        network = stacked(task.network, seeds).to(device)
        data = task.samples(seeds)
        x, y = (values[:, :batch].expand(len(seeds), *values[:, :batch].shape[1:]) for values in (data.x, data.y))
        x, y = x.to(device), y.to(device)
        advance = Stepper(task, network, Adam(network, lr))
        advance(x, y)  # warm: buffers exist from here on
        seconds += timed(lambda: advance(x, y), steps, device)  # noqa: B023  (called before the loop goes on)
    return models * steps / seconds
