"""Time the fused kernels over warps, chunk widths and precisions on a CUDA device: the source of their block sizes."""
# ruff: noqa: B023  (each lambda is called before the loop goes on)

import sys
from pathlib import Path

import torch

from infoflow.files import write_json
from infoflow.provenance import provenance
from infoflow.train import folded, speed, triton_layer
from infoflow.train.loop import data_of


def time_kernel(launch) -> float:
    """Milliseconds, median of repeated launches."""
    from triton.testing import do_bench

    return do_bench(launch, warmup=20, rep=60, return_mode="median")


def sweep(D: int, models: int, device: torch.device) -> list[dict]:
    run = speed.workload(D, 1)[0]
    (h, k), w, d, T, B = run.arch.heads, run.arch.widths[0], 4, run.T, run.recipe.batch
    N, zdim = models * B, d * (h + 1)

    def make(*shape):
        return torch.randn(*shape, device=device)

    X, A, G, g, U = make(N, d, T), make(models, h, d + 1, d), make(models, zdim, w), make(models, w), make(N, k, w)
    Z, lse, out, dout = make(N, zdim, T), make(N, h, T), make(N, k, w), make(N, k, w)
    dZ, dA, dG, dg, dU = make(N, zdim, T), make(N, h, 1, d + 1, d), make(N, zdim, w), make(N, w), make(N, k, w)
    rows = []
    for warps in (1, 2, 4, 8):
        blocks = {**folded.attend_blocks(T), "num_warps": warps, "d": d}
        grid = (N, h, -(-T // blocks["BQ"]))
        forward = time_kernel(lambda: triton_layer.attend_forward[grid](X, A, Z, lse, B, T, h, **blocks))
        backward = time_kernel(lambda: triton_layer.attend_backward[grid](X, A, lse, dZ, dA, B, T, h, **blocks))
        rows.append({"D": D, "kernel": "attend", "warps": warps, "forward_ms": forward, "backward_ms": backward})
        print(rows[-1], flush=True)
    choices = [(p, warps, width) for p in ("tf32x3", "tf32") for warps in (2, 4) for width in (32, 64)]
    for precision, warps, width in [*choices, ("tf32x3", 4, 16), ("ieee", 4, 32)]:
        if width > w:
            continue
        blocks = {**folded.pool_blocks(T, zdim, w, k), "num_warps": warps, "BW": width}
        named = {"h": k, "w": w, "zdim": zdim, "ACT": "gelu", "PRECISION": precision, **blocks}
        forward = time_kernel(lambda: triton_layer.pool_forward[(N,)](Z, G, g, U, out, B, T, 0.4, **named))
        backward = time_kernel(
            lambda: triton_layer.pool_backward[(N,)](Z, G, g, U, dout, dZ, dG, dg, dU, B, T, 0.4, **named)
        )
        rows.append({"D": D, "kernel": "pool", "precision": precision, "warps": warps, "width": width,
                     "forward_ms": forward, "backward_ms": backward})  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def breakdown(D: int, models: int, device: torch.device, steps: int = 5) -> list[dict]:
    """Where the time of a whole step goes: the longest kernels, milliseconds a step."""
    from torch.profiler import ProfilerActivity, profile

    data = data_of(speed.workload(D, 1), device)
    stepper = speed.stepper_of(speed.workload(D, models), device, folded.Fused(), data)
    for _ in range(3):
        stepper._eager(None)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        for _ in range(steps):
            stepper._eager(None)
        torch.cuda.synchronize()
    events = sorted(record.key_averages(), key=lambda e: -e.device_time_total)
    total = sum(e.device_time_total for e in events) / steps / 1000
    rows = [{"kernel": e.key[:70], "ms": e.device_time_total / steps / 1000, "calls": e.count / steps} for e in events]
    print(f"D={D}, {models} models: {total:.3f} ms of kernels a step, {sum(r['calls'] for r in rows):.0f} launches")
    for row in rows[:14]:
        print(f"  {row['ms']:8.3f} ms  {row['calls']:5.1f} x  {row['kernel']}", flush=True)
    return rows[:30]


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    if not torch.cuda.is_available():
        print("kernel_sweep: no CUDA device here; nothing measured.")
    else:
        device = torch.device("cuda")
        steps = {D: breakdown(D, 256, device) for D in (2, 6)}
        found = [row for D in (2, 4, 6) for row in sweep(D, 64, device)]
        write_json(
            folder / "kernel_sweep.json",
            {"models": 64, "rows": found, "steps": steps, "provenance": provenance(("torch", "triton"))},
        )
