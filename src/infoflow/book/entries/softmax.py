"""The softmax-attention paper: heads that interpolate, universal approximation, descent in context."""

from infoflow.book.entry import Entry, Erratum

P = "softmax"
GRID_SLIPS = (
    Erratum(
        "(G.50), (G.57)",
        "multiplication by 1_G",
        "by 1_G/G, or read one column: as printed the output is G f",
        "sum_for_mean",
    ),
    Erratum(
        "(G.45), (G.46)",
        "t_k = -+ g v/(delta B)",
        "(1 -+ g v/B)/delta: without 1/delta the bumps are holes",
        "holes_for_bumps",
    ),
    Erratum(
        "G.5, layer 2",
        "R_v in [0, N]",
        "keep the +1 of every coordinate, R_v in {N..2N}: a column with R = 0 reads the mean of f",
        "uniform_columns",
    ),
    Erratum(
        "(G.51), (G.55)",
        "softmax error at most d eps0",
        "a score error is amplified by beta: use the gap between cells",
    ),
    Erratum(
        "G.5, L_p split", "cross terms, powers p and (2B) dropped; delta sufficiently large", "Minkowski; delta small"
    ),
    Erratum("(G.48)", "adds a 2 x G and a 1 x G matrix", "[1; 0] Z + [0; F]"),
)

ENTRIES = (
    Entry(
        "softmax.F.1",
        P,
        "How sharp a softmax must be",
        "One leader with gap x_1 - x_2 among n scores: |softmax(beta x) - e_1|_inf <= eps for beta >= "
        "ln((n-1)/eps)/gap. Two leaders, gamma = x_1 - x_3: within eps of the two-point softmax for beta >= "
        "ln((n-2)/eps)/gamma. Both are attained; the l1 distance is at most 2 eps.",
        "Lemma F.1, Lemma G.1",
        "holds",
        "infoflow.construct.softmax_attention.lemma_f1",
        ("gap > 0", "n >= 2 for one leader, n >= 3 for two (else any beta does)"),
        errata=(
            Erratum(
                "(G.13)",
                "a weight error of eps moves the value read by max|V| eps",
                "by (max V - min V) eps, up to twice that",
                "spread_of_values",
            ),
            Erratum("Lemma G.1, last display", "one sign is reversed", "the other way; the lemma does not suffer"),
        ),
        related=("softmax.3.4",),
    ),
    Entry(
        "softmax.3.4",
        P,
        "One head computes n truncated linear models",
        "out_i is within (b-a)/p + (b-a) eps0 of Range_[a,b](w_i.x_i + t_i) for every real argument, with p >= "
        "max(n, 3) anchors, scores -(beta/2)(z - L_k)^2 and beta >= 2 ln((p-2)/eps0)/dL^2.",
        "Theorem 3.4, Theorem G.2, (3.1)",
        "holds after repair",
        "infoflow build truncated_linear --a -1 --b 2 --eps 0.01",
        ("p >= 3", "0 < eps0 <= 1/2", "all outputs in one row (G constant)"),
        remark="Closed and midpoint grids halve the interpolation error. A head with c = beta dL^2/2 of order 1 "
        "interpolates smoothly: error O(1/p^2) for smooth functions.",
        errata=(
            Erratum(
                "G.2, W_K and W_Q", "beta stands in both, so it is squared", "beta dL/2 in W_K alone", "beta_squared"
            ),
            Erratum(
                "G.2, (G.10), D.1", "ln(n-1), ln(n-2)", "ln(p-1), ln(p-2): the softmax runs over p entries", "n_for_p"
            ),
            Erratum("Theorem 3.4", "p = 2 is admitted, ln(p-2) = ln 0", "p >= 3", "two_anchors"),
            Erratum(
                "Theorem 3.4, (3.1)",
                "any map G from anchors to rows",
                "constant G: at a midpoint two rows carry half each, on a share ln((1-eps0)/eps0)/c of [a, b]",
                "two_rows",
            ),
            Erratum("(3.1), (G.5)", "w, t without index; L_p in the last row", "w_i, t_i; L_{p-1}"),
            Erratum(
                "G.2, case (ii)",
                "eps_m <= M eps0/2, which asks for p >= 2(b-a)/(M eps0)",
                "not needed: two adjacent anchors bracket z, so any mixture of them is within dL",
            ),
            Erratum(
                "Theorem 3.4",
                "2d + d_o + 2 rows; columns of the padding are 0",
                "weights per token take 2(d+1) + d_o + 2 rows; those columns are uniform and W_O drops them",
            ),
            Erratum(
                "Figure 3",
                "p = n = 30, the theorem asks for p > n; |b - a| = 0.5 in the caption, a = -0.5, b = 0.5 in the text",
                "p >= n is enough; the caption agrees with the published code",
            ),
            Erratum(
                "Figures 2 and 4",
                "mean squared error falls like 1/p",
                "like 1/p^2; sup error like 1/p",
                "slope_of_the_error",
            ),
        ),
        related=("softmax.F.1", "softmax.G.6", "softmax.3.9"),
    ),
    Entry(
        "softmax.G.6",
        P,
        "Parameters for a given error",
        "p = max(n+1, 3, ceil(2(b-a)/eps)) anchors and the beta of Theorem 3.4 at what eps leaves give an "
        "error of at most eps.",
        "Corollary G.6",
        "holds after repair",
        "infoflow build truncated_linear --eps 0.01",
        errata=(
            Erratum("Corollary G.6", "built on Theorem 3.4 as printed", "holds with beta in W_K alone and p >= 3"),
        ),
        related=("softmax.3.4",),
    ),
    Entry(
        "softmax.3.9",
        P,
        "H heads share the anchors, token-wise",
        "With A(X) = [X; I_n], n >= 3, p = (n-2)H anchors and beta = ln((H+1)(n-1)/eps0)/dL the error is at "
        "most dL/2 + M eps0 for every real argument, M = max(|a|, |b|). Weights per token need n H heads with "
        "gates.",
        "Theorem 3.9, Lemma G.7, Remarks G.9 to G.12",
        "holds after repair",
        "infoflow.construct.softmax_attention.multi_head_truncated_linear",
        ("n >= 3", "one output row"),
        errata=(
            Erratum(
                "G.3, values of the sentinels",
                "0 for all heads",
                "b on the right sentinel of head H: no other head covers the last half cell",
                "sentinels_at_b",
            ),
            Erratum(
                "G.3, values of the sentinels",
                "0 for all heads",
                "a on the left sentinel of head 1: arguments below a are never treated",
                "sentinels_below_a",
            ),
            Erratum(
                "Lemma G.7", "covers [L_0, L_p]", "it holds up to L_{p-1}; the sentinel values above serve the rest"
            ),
            Erratum("Remark G.11", "a head computes a clipped function", "z on its own range and 0 elsewhere"),
            Erratum(
                "Theorem 3.9",
                "no value for beta; w_i may differ by token",
                "the beta above; a token-wise A allows t_i, and w_i with n H gated heads",
            ),
            Erratum("Theorem 3.9", "any G in the statement, a constant one in the proof", "constant G"),
        ),
        related=("softmax.3.4", "softmax.3.10"),
    ),
    Entry(
        "softmax.3.10",
        P,
        "The error falls like 1/(nH)",
        "The error of Theorem 3.9 is O(1/((n-2)H)): it halves when the heads double.",
        "Corollary 3.10",
        "holds after repair",
        "infoflow.construct.softmax_attention.multi_head_truncated_linear",
        errata=(
            Erratum("Corollary 3.10", "built on Theorem 3.9 as printed", "holds with the sentinels of softmax.3.9"),
        ),
        related=("softmax.3.9",),
    ),
    Entry(
        "softmax.G.14",
        P,
        "A head that adds ranges into one column",
        "One head whose output row is 0 but for sum_i Range_[a,b](w.x_i + t_i) in one column, within n((b-a)/p "
        "+ (b-a) eps0); the affine map A (rows X, I_n, L, L^2) is the same for all heads.",
        "Lemma G.14, (G.43), (G.44)",
        "holds after repair",
        "infoflow.construct.softmax_attention.summed_range",
        errata=(
            Erratum(
                "Lemma G.14", "its statement is missing from the copy we worked from", "reconstructed from its use"
            ),
            Erratum(
                "(G.43)", "t absorbed as x_i + t_i w/|w|^2, w != 0", "t through the positional rows: w = 0 is fine"
            ),
            Erratum("G.14, last display", "Range(w.X)", "Range(w.A_0(X))"),
        ),
        related=("softmax.3.12",),
    ),
    Entry(
        "softmax.3.11",
        P,
        "Bumps on a grid approximate in L_p",
        "A ReLU network with two hidden layers, one bump per cell: |FFN - f|_p^p <= omega(B/g)^p "
        "(2B(1-delta))^N + max(|f|, omega)^p (2B)^N (1 - (1-delta)^N).",
        "Lemma 3.11, Theorem G.13",
        "holds after repair",
        "infoflow.construct.softmax_attention.ReluBumps",
        ("p < infinity", "delta to 0 with g", "f extended continuously to the cube"),
        errata=(
            Erratum("G.4", "R_v in [N-1, N) on the shell", "it can be near 0 in N > 1 dimensions", "shell_value"),
            Erratum("G.4", "excluded measure B^N(1 - (1-delta)^N)", "(2B)^N(1 - (1-delta)^N)", "shell_measure"),
            Erratum("Lemma 3.11", "two-layer", "two hidden ReLU layers"),
            Erratum(
                "Lemma 3.11",
                "no word that the claim stops at L_p",
                "the network is 0 on every cell face: the sup error does not fall with g",
                "zero_on_faces",
            ),
        ),
        related=("softmax.3.12",),
    ),
    Entry(
        "softmax.3.12",
        P,
        "Two attention layers approximate sequence-to-scalar functions",
        "Layer 1 writes R_v for every cell v, layer 2 lets cells compete by beta R_v R_v' and reads f at the "
        "winner: |f - net|_p <= (2B)^(N/p)(omega(B/g) + osc eps1) + osc((2B)^N(1-(1-delta)^N))^(1/p), beta = "
        "ln((G-1)/eps1)/N.",
        "Lemma 3.12, Appendix G.5",
        "holds after repair",
        "infoflow build grid --variant two-layer",
        ("p < infinity; on cell faces all cells of a grid line tie",),
        remark="Scores -|X - v|^2 need no first layer and give a sup norm: `--variant quadratic`.",
        errata=GRID_SLIPS,
        related=("softmax.3.11", "softmax.3.13", "softmax.E.1"),
    ),
    Entry(
        "softmax.3.13",
        P,
        "One attention layer and a softmax approximate sequence-to-scalar functions",
        "The same bound with softmax(beta N R) and the table f(v) in place of layer 2.",
        "Lemma 3.13, Lemma G.19",
        "holds after repair",
        "infoflow build grid --variant one-layer-softmax",
        errata=(Erratum("Lemma G.19", "layer 1 as in Lemma 3.12", "with its repairs (softmax.3.12)"),),
        related=("softmax.3.12",),
    ),
    Entry(
        "softmax.3.14",
        P,
        "Two attention layers approximate sequence-to-sequence functions in L_p",
        "The same network with one head of layer 2 per entry: 2dg + dn heads with shared levels, 2d g^(dn) + "
        "dn in the paper.",
        "Theorem 3.14, Theorem G.20",
        "holds after repair",
        "infoflow build grid",
        ("p < infinity",),
        errata=(Erratum("Theorem G.20", "built on Lemma 3.12 as printed", "with its repairs (softmax.3.12)"),),
        related=("softmax.3.12", "softmax.3.15", "softmax.E.1"),
    ),
    Entry(
        "softmax.3.15",
        P,
        "One attention layer and a softmax approximate sequence-to-sequence functions in L_p",
        "As Theorem 3.14 with softmax(beta N R) and one table per entry.",
        "Corollary 3.15",
        "holds after repair",
        "infoflow build grid --variant one-layer-softmax",
        ("p < infinity",),
        errata=(Erratum("Corollary 3.15", "built on Lemma 3.13 as printed", "with its repairs (softmax.3.12)"),),
        related=("softmax.3.13", "softmax.3.14"),
    ),
    Entry(
        "softmax.E.1",
        P,
        "How many heads and parameters",
        "2d g^(dn) + 1 heads for a scalar, 2d g^(dn) + dn for a sequence. Heads that share levels give the "
        "same output with 2dg + 1 and 2dg + dn.",
        "Remark E.1",
        "holds after repair",
        "infoflow.book.statements.counts",
        errata=(
            Erratum(
                "Remark E.1",
                "O(1) parameters per head, dn g^(2dn) in all",
                "w and t sit in W_Q (d + n numbers) and W_O is p x g^(dn): about 2d g^(3dn) entries, O(dn "
                "g^(dn)) of them not 0",
                "dense_heads",
            ),
            Erratum("Remark E.1", "refers to Appendix G.6", "G.5; and (1/delta)^(dn) hides a factor (2B)^(dn)"),
        ),
        related=("softmax.3.14",),
    ),
    Entry(
        "softmax.F.2",
        P,
        "Two attention layers approximate in the sup norm",
        "Layer 1 writes the pre-activations of a ReLU network, layer 2 its ReLUs: error at most eps_relu + "
        "|eta|_1 (eps2 + n eps1) with the errors of single heads, because Range is 1-Lipschitz; p of order n "
        "|eta|_1/eps.",
        "Theorem F.2, Theorems G.22, G.23",
        "holds after repair",
        "infoflow.construct.softmax_attention.two_layer_attention",
        remark="Pinkus gives existence of the ReLU network; a ridge fit with a certified error gives one.",
        errata=(
            Erratum(
                "(G.64)",
                "a bound with |W_K' W_Q|",
                "a bound from 1-Lipschitz heads: (G.64) grows with p while the error falls",
                "growing_bound",
            ),
            Erratum("Theorem F.2", "p = Omega(n^(5/2))", "p of order n |eta|_1/eps"),
            Erratum("(G.61), (G.62)", "|b|, b/p; t a vector", "max(|a|, |b|), (b-a)/p; t a scalar"),
        ),
        related=("softmax.3.4", "softmax.I.2"),
    ),
    Entry(
        "softmax.D.1",
        P,
        "Truncated linear models whose weights come with the input",
        "With w and t as rows of X one head with fixed matrices outputs Range(w.x_i + t_i) within the bound of "
        "Theorem 3.4.",
        "Theorem D.1",
        "holds after repair",
        "infoflow.construct.softmax_attention.in_context_truncated_linear",
        errata=(
            Erratum("D.1, M_2", "-1 in the position of t", "-2: as printed half of the bias is read", "halved_bias"),
            Erratum(
                "D.1, M_2",
                "reads t of column 1 for all tokens",
                "t_i as a query row against the key row -2k",
                "first_bias_only",
            ),
        ),
        related=("softmax.3.4", "softmax.D.4"),
    ),
    Entry(
        "softmax.D.4",
        P,
        "Attention layers follow gradient descent in context",
        "One layer with 2d heads adds -eta dL/dw to the rows w of the state, for losses psi(w.x - y) and phi(y "
        "w.x), by a central difference [l(s + tau x_r) - l(s - tau x_r)]/(2 tau) read from tables; after T "
        "steps the deviation is at most sum_t rho^t eta sqrt(d) eps.",
        "Theorem 4.2, Theorem D.4, Theorem G.26",
        "holds after repair",
        "infoflow build icgd",
        ("data bounded; tables cover the whole trajectory", "losses with known derivative bounds"),
        errata=(
            Erratum(
                "Theorem 4.2",
                "heads see (w.x_i, y_i)",
                "they must see x_ir as well: the gradient is l'(w.x_i, y_i) x_ir",
                "lost_factor",
            ),
            Erratum("(G.66)", "a sum of ReLUs", "a sum with coefficients of both signs", "no_outer_coefficients"),
            Erratum("G.26", "range bound B_R B_1^2", "at least 3 for B_R = B_1 = 1: |a w.x + b y + c| reaches it"),
            Erratum("4.2, D.4, G.26", "a sum of losses, then a mean", "one of them; here the mean"),
            Erratum("G.26, L_{h,r}", "blocks whose shapes do not add up", "rows a x (d), b y, 1, w (d), 1, c"),
            Erratum("Remark D.3", "the prediction at x_u is said to come with it", "one more head reads it: w.x_u"),
            Erratum("Section 4", "lasso as an example", "leave it out: it is neither C^1 nor of the form l(w.x, y)"),
        ),
        related=("softmax.D.1",),
    ),
    Entry(
        "softmax.H.1",
        P,
        "A head as a ReLU",
        "Range_[0,b] is the ReLU for pre-activations up to b.",
        "Example H.1",
        "holds after repair",
        "infoflow.construct.softmax_attention.relu",
        ("b at least the largest pre-activation",),
        errata=(
            Erratum(
                "Example H.1",
                "b to infinity",
                "finite b above every pre-activation: beyond it the head saturates",
                "saturation",
            ),
        ),
        related=("softmax.3.4",),
    ),
    Entry(
        "softmax.H.2",
        P,
        "A head as a hard tanh",
        "Range_[-1,1] is the hard tanh.",
        "Example H.2",
        "holds",
        "infoflow.construct.softmax_attention.hard_tanh",
        related=("softmax.3.4",),
    ),
    Entry(
        "softmax.H.3",
        P,
        "A head as a clipped ReLU",
        "Range_[0,cap] is min(max(z, 0), cap).",
        "Example H.3",
        "holds",
        "infoflow.construct.softmax_attention.clipped_relu",
        related=("softmax.3.4",),
    ),
    Entry(
        "softmax.I.1",
        P,
        "Attention multiplies by a positive matrix from the right",
        "Z = [X 0; I_{n+1}] and one head give A X B exactly in the first n columns for positive B, and at most "
        "eps in the padding column for T >= ln(n/delta)/(n ln 2), delta = eps/(3 M n |AX|).",
        "Lemma I.1",
        "holds",
        "infoflow.book.statements.exact_products.exact_product",
        ("B > 0; signed B takes two heads, (B+ + c) - (B- + c)",),
        errata=(
            Erratum(
                "footnote to Lemma I.1", "B = B+ - B-", "(B+ + c) - (B- + c): zeros have no logarithm", "zero_entry"
            ),
        ),
        related=("softmax.I.2",),
    ),
    Entry(
        "softmax.I.2",
        P,
        "Attention alone with token-wise maps computes ReLU networks",
        "sum_k a_ik ReLU(S_ki) within N(0.2785/beta + 3 n e^-beta max|S|) by three layers of n+1, n+1 and 2N "
        "heads, or by two of n^2+1 and 2N.",
        "Theorem I.2",
        "holds after repair",
        "infoflow.book.statements.relu_attention",
        ("a_ik = +-1", "biases through the positional rows"),
        errata=(
            Erratum(
                "I.2, layer 3",
                "D_s = -1 + [I_n, 1_n]",
                "-1 + [C_s, 1_n]: as printed the output is sum a_k |S_k|/2",
                "halved_absolute_values",
            ),
            Erratum(
                "I.2, layer 2",
                "Lemma I.1 applied to a 0/1 matrix",
                "queries -1 and +1 against a padding key: 0 has no logarithm",
            ),
            Erratum(
                "I.2, layer 1",
                "Theorem 3.9 with weights per token",
                "gated copy heads: Theorem 3.9 has no weights per token, and is not needed",
            ),
            Erratum(
                "Theorem I.2",
                "no bias",
                "bias/n through the positional rows: without one every network is 0 at X = 0",
                "zero_at_zero",
            ),
            Erratum("Theorem I.2", "H = O(N)", "(n+1) + (n+1) + 2N"),
            Erratum("Theorem I.2, X_p", "0_n under X", "0_d"),
        ),
        related=("softmax.I.1", "softmax.F.2"),
    ),
)
