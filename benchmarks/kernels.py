"""The fused kernels on this GPU against float64 PyTorch: outputs and gradients over lengths, head sizes and heads.

Two kernels: the token layer of a folded two-layer Transformer (eq. (6), D heads), and the attention of any head of size
1 to 64. Run alone it writes benchmarks/results/kernels_cuda.json; a folder as first argument changes where.
"""

import math
import sys
from itertools import product
from pathlib import Path

import torch

from _rivals import kernel_errors, relative_errors
from infoflow.files import write_json
from infoflow.nn.attention import attention, fused_attention
from infoflow.progress import Progress
from infoflow.provenance import provenance
from infoflow.train.folded import Fused, pool_runs
from infoflow.train.speed import workload

LENGTHS = (1, 2, 17, 64, 200, 256, 257, 300, 384, 512)
HEADS = (2, 4, 6)
SIZES = (1, 3, 6, 8, 24, 33, 64)
ROWS = ((1, 1), (1, 64), (64, 64), (5, 257), (300, 129), (512, 512))  # queries, keys


def attention_errors(size: int, queries: int, keys: int, device: torch.device) -> dict[str, float]:
    """Relative error of the values and of the three gradients.

    With one key the softmax is constant and the gradients of queries and keys are zero: two equal numbers cancel. Their
    error is given over the first of the two, s (w.v) k for a query and s (w.v) q for a key.
    """
    generator = torch.Generator(device=device).manual_seed(size)
    lead = (3, 5)
    shapes = {"q": (*lead, queries, size), "k": (*lead, keys, size), "v": (*lead, keys, size)}
    inputs = {name: torch.randn(shape, generator=generator, device=device) for name, shape in shapes.items()}
    weight = torch.randn(shapes["q"], generator=generator, device=device)

    def gradients(dtype: torch.dtype) -> list[torch.Tensor]:
        leaves = [value.to(dtype).detach().requires_grad_() for value in inputs.values()]
        scale = 1 / math.sqrt(size)
        exact = dtype == torch.float64
        out = attention(*leaves, scale).values if exact else fused_attention(*leaves, scale)
        return [out.detach(), *torch.autograd.grad((out * weight.to(dtype)).sum(), leaves)]

    exact, got = gradients(torch.float64), gradients(torch.float32)
    names = ["values", *(f"d{name}" for name in inputs)]
    if keys > 1:
        return relative_errors(names, exact, got)
    weighed = (weight * inputs["v"]).sum(-1, keepdim=True) / math.sqrt(size)
    over = [exact[0], weighed * inputs["k"], weighed * inputs["q"], exact[3]]
    return {n: float((a - b).norm() / c.norm()) for n, a, b, c in zip(names, exact, got, over, strict=True)}


def main(folder: Path) -> None:
    device = torch.device("cuda")
    rows = []
    cases = [("layer", *case) for case in product(HEADS, LENGTHS)]
    cases += [("attention", size, *shape) for size, shape in product(SIZES, ROWS)]
    with Progress("kernels", len(cases)) as bar:
        for done, (kernel, *case) in enumerate(cases):
            if kernel == "layer":
                D, T = case
                errors = kernel_errors(D, device, Fused(), T)
                run = workload(D, 1, T=T)[0]
                (h, k), w, d = run.arch.heads, run.arch.widths[0], run.regression()[0].dim
                fused = pool_runs(T, d * (h + 1), w, k, "gelu", Fused().precision, device)
                row = {"D": D, "T": T, "pool": "fused" if fused else "plain"}
            else:
                size, queries, keys = case
                errors = attention_errors(size, queries, keys, device)
                row = {"size": size, "queries": queries, "keys": keys}
            rows.append({"kernel": kernel, **row, "errors": errors, "worst": max(errors.values())})
            bar.update(done + 1, f"worst {max(row['worst'] for row in rows):.1e}")
    print(f"{len(rows)} cases, worst relative error {max(row['worst'] for row in rows):.2e}")
    write_json(folder / "kernels_cuda.json", {"rows": rows, "provenance": provenance(("torch", "triton"))})


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("kernels: no CUDA device here; nothing measured.")
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
