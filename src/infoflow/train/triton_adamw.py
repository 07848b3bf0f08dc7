"""Triton: one AdamW step of a whole stack in one pass over its weights, where PyTorch makes fifteen.

The arithmetic is that of `Stack._move`, number by number. Bandwidth is all it costs: four numbers are read for each
weight and three written.
"""

# mypy: disable-error-code="no-untyped-def"
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def adamw(
    W, FIRST, SECOND, G, MULTIPLES, ALIVE, RATE, LR, DECAY, TABLE, STEP, P, new_1, beta_2, new_2, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """W, FIRST, SECOND, G (M, P); MULTIPLES (P); ALIVE, RATE, LR, DECAY (M); TABLE (steps, 3), of which STEP is a row:
    one program per (block of weights, model). `new` is 1 - beta, which in float32 is not 1 minus a rounded beta."""
    places, model = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    inside, at = places < P, model * P + places
    row = TABLE + 3 * tl.load(STEP)
    alive = tl.load(ALIVE + model) != 0
    rate = tl.load(LR + model) * tl.load(row) * tl.load(RATE + model)
    w = tl.load(W + at, mask=inside, other=0.0)
    first = tl.load(FIRST + at, mask=inside, other=0.0)
    second = tl.load(SECOND + at, mask=inside, other=0.0)
    g = tl.where(alive, tl.load(G + at, mask=inside, other=0.0), 0.0)
    first += new_1 * (g - first)
    second = beta_2 * second + new_2 * g * g
    size = tl.sqrt_rn(second) * tl.load(row + 2) + eps
    pull = rate * tl.load(row + 1) * tl.load(MULTIPLES + places, mask=inside, other=0.0)
    moved = w * (1.0 - rate * tl.load(DECAY + model)) - pull * tl.div_rn(first, size)
    tl.store(W + at, tl.where(alive, moved, w), mask=inside)
    tl.store(FIRST + at, first, mask=inside)
    tl.store(SECOND + at, second, mask=inside)
