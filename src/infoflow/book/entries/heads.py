"""The head-count slides: the dense class of retrieval targets, the transition at D heads, one head that remembers."""

from infoflow.book.entry import Entry, Erratum

P = "heads"

ENTRIES = (
    Entry(
        "heads.density",
        P,
        "Generalised D-retrieval targets are dense",
        "Every continuous F on [0,1]^(T x d) is a uniform limit of F_0(min_{t in S_1} f_1(x(t)), ..., min_{t "
        "in S_D} f_D(x(t))) with |S_i| >= T/4. With features |x - c| at the centres of g^d cells, g = ceil(4.5 L/eps), "
        "and all sets of ceil(T/4) positions, F of Lipschitz constant L is approximated within eps: D = g^d binom(T, "
        "ceil(T/4)). Where no permutation changes F, none changes the target.",
        "Theorem 1 (density), slide on the target class",
        "holds",
        "infoflow.book.density.dense_retrieval(F, T, d, eps, lipschitz), dimension(T, d, eps, lipschitz)",
        remark="The slides give no proof. The sets {x(t) : t in S} for all S of ceil(T/4) positions determine the "
        "sequence up to three times their error, order and repeated tokens included.",
        related=("heads.transition",),
    ),
    Entry(
        "heads.corollary1",
        P,
        "The intrinsic dimension is intrinsic",
        "If one target has two representations of dimensions D1 < D2 that meet the assumptions and 50(D1^2 + "
        "D2^2) <= T, then D1 = D2: with D1 heads it would be approximated with eps^-gamma parameters and not "
        "with fewer than eps^-k.",
        "Corollary 1",
        "holds after repair",
        "infoflow.verdicts.intrinsic.intrinsic(D, T): heads, cost, excluded dimensions",
        ("unique, well-separated, non-degenerate minimisers; F_0 depends on every coordinate", "k > gamma"),
        errata=(
            Erratum(
                "Corollary 1",
                "50(D1^2 + D2^2) <= T is enough",
                "comparing the two rates also needs k > gamma, the exponent of the feed-forward blocks",
                "exponent_against_gamma",
            ),
        ),
        related=("heads.transition", "heads.transition.lower"),
    ),
    Entry(
        "heads.transition",
        P,
        "D heads are enough for D retrievals",
        "One layer with h >= D heads approximates a generalised D-retrieval target with C/eps^gamma "
        "parameters: each head reads one minimum. T enters the inverse temperature (and tables of positions) "
        "only.",
        "Theorem 1 (transition), first part",
        "holds",
        "iflow.build('d_retrieval:D=2,d=2', T, eps)",
        errata=(
            Erratum("Theorem 1", "n >= 2", "n = 1 is enough: one score a head and a constant CLS", "dimension_one"),
            Erratum(
                "Theorem 1", "growth independent of T, with a constant C_{d,D,T}", "T enters beta alone, so C_{d,D}"
            ),
        ),
        related=("heads.transition.lower", "heads.density"),
    ),
    Entry(
        "heads.transition.lower",
        P,
        "Fewer than D heads cost exponentially in T",
        "One layer with h < D heads of dimension n needs Omega(eps^-k) parameters, k = (T/4 - h - D + "
        "1)/((n+1)h + 1) - 1, to be within eps of a D-retrieval target that meets the assumptions.",
        "Theorem 1 (transition), second part",
        "holds after repair",
        "iflow.predict('d_retrieval:D=4,d=2', 'heads=1 embed=1', T=64, eps=1e-5)",
        ("weights bounded, read-out with one hidden layer", "k > 0"),
        remark="In numbers: we state the read-out width that a direct pigeonhole excludes at the eps asked for.",
        errata=(
            Erratum(
                "Theorem 1",
                "bounded weights stand among the assumptions only",
                "they decide: one head of exponentials with unbounded read-out weights approximates D minima",
                "unbounded_weights",
            ),
            Erratum("Theorem 1", "no condition on the sign of k", "k <= 0 says nothing", "negative_exponent"),
        ),
        related=("heads.transition", "infoflow.theorem2"),
    ),
    Entry(
        "heads.single",
        P,
        "One head of dimension Td remembers everything",
        "With n >= Td one uniform head stores concat(x)/T, and a ReLU read-out with five affine layers "
        "computes the target with C/eps^(1+gamma) parameters: hats for the features, levels for the minima, "
        "then the outer map.",
        "Theorem 2 (single head)",
        "holds",
        "infoflow build memory_head; infoflow.construct.single_heads.memory_head",
        ("the embedding P(x, s) is jointly nonlinear in token and position",),
        errata=(
            Erratum(
                "Theorem 2, remark",
                "an embedding of dimension Td stores the sequence",
                "it must not be additive: x + p(s) with linear values loses the order",
                "additive_codes",
            ),
            Erratum(
                "Theorem 2",
                "eps^-(1+gamma)",
                "eps^-max(1, gamma) with a linear bottleneck between hats and levels",
                "bottleneck",
            ),
        ),
        related=("heads.transition",),
    ),
)
