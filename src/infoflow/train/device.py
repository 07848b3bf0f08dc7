"""Devices by name."""

import torch

from infoflow.errors import InfoFlowError


def check_device(name: str, elsewhere: bool = False) -> torch.device:
    """cpu, cuda or cuda:K, there and usable (or on the nodes of a cluster, `elsewhere`); one sentence otherwise."""
    try:
        device = torch.device(name)
        if device.type == "cuda" and elsewhere:
            return torch.device("cuda")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise InfoFlowError(f"expected a CUDA device for {name!r}, this machine offers none; use --device cpu.")
        if device.type not in ("cpu", "cuda"):
            raise InfoFlowError(f"expected device cpu, cuda or cuda:K, got {name!r}.")
        torch.empty(1, device=device)
    except RuntimeError as error:
        reason = str(error).split("\n")[0]
        raise InfoFlowError(f"expected device cpu, cuda or cuda:K, got {name!r} ({reason}).") from None
    return device
