"""Softmax attention as a universal approximator, in five steps. Run it: python docs/tutorials/softmax_attention.py"""

import torch

from infoflow.construct.softmax_attention import (
    DescentProblem,
    grid_approximator,
    in_context_gd,
    multi_head_truncated_linear,
    truncated_linear,
)
from infoflow.construct.softmax_attention.expression import parse
from infoflow.construct.softmax_attention.table_head import Derivatives, table, table_head

torch.set_default_dtype(torch.float64)

# 1. One head computes Range_[a,b](w.x + t) for every token. Ask for an error, get p anchors and a temperature.
head = truncated_linear(w=[1.0, -2.0], t=0.5, a=-1.0, b=2.0, eps=0.01, n=4)
X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
print(f"1. p = {head.anchors.p}, beta = {head.beta:.3g}, error at most {head.certificate.bound:.3g}")
print(f"   the worst point an attack finds: {head.attack(seed=0, seconds=1):.3g}")
assert (head.explicit(X) - head.fast(X)).abs().max() <= 1e-12 + head.explicit_rounding  # matrices and shortcut agree

# 2. H heads share the anchors, and the map before them acts token by token: error O(1 / ((n-2) H)).
for H in (2, 8, 32):
    net = multi_head_truncated_linear([1.0, -2.0], 0.5, -1.0, 2.0, n=6, H=H, eps0=0.01 / H)
    print(f"2. H = {H}: bound {net.certificate.bound:.4f}, attacked {net.attack(0, 1):.4f}")

# 3. At a milder temperature one head is a table of any function of one variable, with error O(1/p^2).
sine = table_head(torch.sin, table(torch.sin, -3.0, 3.0, p=256), [1.0], sup=Derivatives(first=1.0, second=1.0))
print(f"3. sin by one head: bound {sine.certificate.bound:.2g}, attacked {sine.attack(0, 1):.2g}")

# 4. Any continuous function on a cube: cells compete by a softmax. The bound comes from interval gradients.
f = parse("sin(2*x11)+x11*x12", d=1, n=2)
for variant in ("two-layer", "quadratic"):
    net = grid_approximator(f, 1, 2, g=16, variant=variant)
    print(f"4. {variant}: {net.heads['built']} heads (paper: {net.heads['paper']})")
    print(f"   {net.certificate.claim.quantity}: at most {net.certificate.bound:.3f}")

# 5. Gradient descent in context: examples and weights are the input, each layer makes one step.
generator = torch.Generator().manual_seed(1)
x = torch.randn(3, 20, generator=generator)
data = DescentProblem(x, torch.tensor([1.0, -2.0, 0.5]) @ x, torch.zeros(3))
descent = in_context_gd("squared", 3, 20, eta=0.5, steps=200, data=data, ridge=0.1)
run = descent.run(data)
closed = torch.linalg.solve(x @ x.mT / 20 + 0.1 * torch.eye(3), x @ data.y / 20)
print(f"5. {descent.heads_per_step} heads a step, {run.deviation:.1g} from exact descent")
print(f"   proved: at most {descent.certificate.bound:.1g}; {descent.domain.source}")
print(f"   from the closed form of ridge regression: {(run.w - closed).norm():.1g}")
assert run.deviation <= descent.certificate.bound
