"""The InfoFlow paper (arXiv:2605.17930v1): depth separation, retrieval, the codec, counting, and its predictions."""

from infoflow.book.entry import Entry, Erratum

P = "infoflow"

ENTRIES = (
    Entry(
        "infoflow.theorem1",
        P,
        "Depth separation: a minimum over pairs is easy for two layers and hard for one",
        "F(X) = min_{s,t} 2(1 + x(s).x(t)) on [-1,1]^3. Two layers with one head of dimension 6 each and all "
        "weights at most 1 approximate F within eps; the width is O(log^2 1/eps), and the inverse temperature "
        "beta is of order W((T-1)/e)/eps. One layer with H heads of dimension n and weights at most 1 needs "
        "Omega(eps^-k), k = (T-H-1)/(H(n+1)+1) - 1.",
        "Theorem 1 (informal), Theorem 4 (formal), Appendix A.1",
        "holds after repair",
        "iflow.build('min_pair', T, eps); iflow.predict('min_pair', 'heads=1 embed=6', T)",
        (
            "beta is free (with beta = 1/sqrt n part 2 is false)",
            "part 1: weights bounded, embeddings of norm at most 1, a read-out with one hidden layer, no layer norm",
        ),
        remark="Softmax stays below the maximum by at most W((T-1)/e)/beta, a sharp constant that replaces log T. "
        "Part 1 in numbers: T = 64, H = 1, n = 6 excludes read-outs below 6,000 neurons at eps = 1e-4 by a "
        "direct pigeonhole on sums.",
        errata=(
            Erratum(
                "A.1, item 3",
                "x(t).v(t) tends to min/9",
                "x.v tends to min/3; (x/3).v, which F_1 sees, to min/9",
                "factor_of_item_3",
            ),
            Erratum(
                "A.1, item 6",
                "2 + 18u with O(1) tanh units and weights at most 1",
                "slope and bias are shared among units: O(log^2 1/eps) of them with the Chebyshev rule",
            ),
            Erratum(
                "A.1, assumptions",
                "all weights are at most 1; the scale beta appears in items 3 and 6 of the proof only",
                "beta is a free field of the model: with beta = 1/sqrt n part 2 is false",
                "fixed_temperature",
            ),
            Erratum(
                "Theorem 1", "k = (T-2H)/(H(n+1)+1) - 1", "(T-H-1)/(H(n+1)+1) - 1, as in Theorem 4", "informal_exponent"
            ),
            Erratum(
                "(40)",
                "second term |a(t) - min_s x(s).x(t)/9|",
                "|a(t) - (x(t)/3).v(t)|: as printed the first error is counted twice",
            ),
            Erratum("A.1, item 5", "W_{K,1,1}", "W_{K,1,2}"),
            Erratum("A.1, part 1", "K_i = -B(b_i, L) cap Q_0", "-(B(b_i, L) cap Q_0 cap S^2); as typed it is empty"),
            Erratum(
                "A.1, from (14) to (38)",
                "(20) has lost 2T, (36) has Q_3 and V_3, the quotient of w_2 has Q_1, the last weight sum reads z_2",
                "2T; Q_4 and V_4; Q_2; w_2",
            ),
            Erratum(
                "A.1, part 1",
                "|M_1(W_1,T) - M_1(W_1,T)| <= 2 eps; the softmax scale is called gamma",
                "|M_1(W_1,T) - M_1(W_2,T)| >= 2 eps; beta, as everywhere else",
            ),
            Erratum(
                "A.1, part 1",
                "embeddings of norm at most 1 give |v_i| <= 1",
                "W_V with entries at most 1 allows sqrt(n E); only constants change",
            ),
            Erratum(
                "Section 3, A.1, D", "tokens in [0,1]^d, then in [-1,1]^3 and [-1,1]^d", "one domain per statement"
            ),
        ),
        related=("infoflow.theorem2", "heads.transition.lower"),
    ),
    Entry(
        "infoflow.theorem2",
        P,
        "One softmax head cannot retrieve the k-th largest, k >= 2",
        "Values in [0,1]^n, a non-decreasing score, a two-layer read-out with weights at most 1: within eps of "
        "the k-th largest token it needs width at least (k-1) eps N^(m/(n+1))/(4 m n), m = T-k+1, N = "
        "floor(1/(16 m eps)), for eps < 1/(64 m). The exponent is (T-k+1)/(n+1) - 1.",
        "Theorem 2 (informal), Theorem 5 (formal), Appendix A.2",
        "holds after repair",
        "iflow.predict('kth_largest:k=2', 'heads=1 embed=4', T=64, eps=1e-4)",
        ("k >= 2", "weights bounded"),
        errata=(
            Erratum(
                "Theorems 2 and 5",
                "exponents (T-k-1)/(n+1) - 1 and (T-k)/(n+1) - 1",
                "(T-k+1)/(n+1) - 1: what the proof gives, and the strongest",
                "three_exponents",
            ),
            Erratum(
                "Theorem 5",
                "an order without constants",
                "with the proof's constants it says nothing at usual accuracies; a direct pigeonhole on sums "
                "does better",
                "silent_at_usual_accuracy",
            ),
            Erratum(
                "C.1",
                "Tables 1 to 6, ratios from 0.08, n_1 fixed",
                "Tables 1 to 3; the smallest ratio is 0.065; E_1 = 36, 40, 40 for 6, 5, 5 heads",
            ),
            Erratum(
                "Section 4.2, Mechanism I",
                "any other position costs exponentially many parameters",
                "only with bounded weights: one head with values e^(beta f) and a steep read-out avoids it",
                "unbounded_weights",
            ),
        ),
        related=("infoflow.theorem1", "heads.transition.lower"),
    ),
    Entry(
        "infoflow.theorem3",
        P,
        "T_0 d numbers through n: the codec",
        "m = T_0 d numbers in [0,1] are cut to L = ceil(log2(2m/eps)) bits and spread over n latents. With "
        "step units the sup error is 2^-L; with tanh units the L_p error is at most eps, p < infinity; both "
        "networks are two-layer and have O(eps^(-m/n)) units.",
        "Theorem 3 (informal), Theorem 6 part 1 (formal), Appendix A.3",
        "holds after repair",
        "infoflow build codec --m 2 --n 1 --eps 0.25",
        ("L_p with p < infinity, over inputs with a measure (uniform)", "tanh units: weights unbounded"),
        errata=(
            Erratum(
                "Theorem 3",
                "O(eps^(1 - T_0 d/n)), for all inputs",
                "O(eps^(-T_0 d/n)) in L_p; the printed exponent is that of the lower bound",
            ),
            Erratum(
                "A.3, decoder",
                "it cuts at the ends of dyadic intervals, where the latents are",
                "at the midpoints (i - 1/2)/2^q, so that tanh units can replace the steps",
                "dyadic_thresholds",
            ),
            Erratum("A.3, sketch", "eps/1-accuracy", "eps/2"),
            Erratum("Theorem 6, Lemma 1", "p >= 1 in one, p > 1 in the other", "p >= 1 in both"),
        ),
        related=("infoflow.theorem3.lower", "infoflow.lemma1", "infoflow.costlaw"),
    ),
    Entry(
        "infoflow.theorem3.lower",
        P,
        "The codec's lower bound in the sup norm",
        "If smooth bounded networks encode m numbers into n < m and decode them within eps < 1/2 in the sup "
        "norm, they have Omega(eps^(1 - m/n)) parameters. No such networks exist: on the boundary of the cube "
        "a continuous encoder sends some V and 1 - V to one latent (Borsuk-Ulam), and no decoder is within 1/2 "
        "of both.",
        "Theorem 6 part 2 (formal), Appendix A.3",
        "vacuous",
        "infoflow.refutations.twins.codec_twins",
        ("m > n", "a continuous encoder"),
        errata=(
            Erratum(
                "Theorem 6, part 2", "a sup error of eps is assumed", "it is never below 1/2 when m > n", "borsuk_ulam"
            ),
            Erratum("Theorem 6, part 2", "must have a count of order O(.)", "Omega(.)"),
            Erratum("Theorem 6", "both halves speak of one class", "part 1 has unbounded weights, part 2 bounded ones"),
        ),
        related=("infoflow.theorem3", "infoflow.costlaw"),
    ),
    Entry(
        "infoflow.lemma1",
        P,
        "A tanh unit replaces a step in L_p",
        "For a finite measure on [a, b] with a < 0 < b and every delta > 0 there are A, B, C, D with |1{x >= 0} - "
        "(A tanh(Bx + C) + D)|_{L_p} < delta. Explicitly: eta = delta^p/(8 density), R = ln(8 mass/delta^p)/(2p), C = "
        "ln(4 atom/delta^p)/(2p), B = (R + C)/eta, A = D = 1/2.",
        "Lemma 1, Appendix A.3",
        "holds",
        "infoflow.construct.codec.heaviside_by_tanh",
        ("p >= 1", "density bounded near 0, apart from an atom at 0"),
        related=("infoflow.theorem3",),
    ),
    Entry(
        "infoflow.costlaw",
        P,
        "The cost of an update",
        "An update of layer l + 1 costs eps^-tau parameters with tau = max(0, |I| d/E - 1) for max-position retrieval, "
        "max(0, T d/E - 1) for global and max(0, |I'| max_s |I(s)| d/E - 1) for specific aggregation.",
        "Section 5.2",
        "holds after repair",
        "iflow.trace(F, arch, X).exponent; infoflow.flow.counting.mode_cost",
        ("read as an estimate: neither an upper nor a lower bound",),
        remark="Sums over positions count shared weights many times; we report the largest exponent. The lower "
        "half rests on infoflow.theorem3.lower, which is vacuous.",
        errata=(
            Erratum(
                "Sections 4.2, 5.2, 6",
                "eps^(-T/E), eps^(1-Td/E), eps^(-Td/E) for one mode",
                "one law: eps^(1-Td/E)",
                "three_laws",
            ),
            Erratum(
                "Section 5.2",
                "storing |I| tokens is what costs",
                "scores suffice where tokens are not needed: a compiled "
                "network pays polylog where the law charges eps^-2",
                "cheaper_than_the_law",
            ),
        ),
        related=("infoflow.theorem3", "infoflow.equation5"),
    ),
    Entry(
        "infoflow.equation5",
        P,
        "The Number of Comparison of a model",
        "sum_{l<L} sum_t [max(0, |I(t,l)|^b1 - 1) + h_l (T-1)] + sum_{l<=L} [max(0, |I(T+1,l)|^b1 - 1) + h_l "
        "(T-1)], with D_1 times the first summand where one block runs D_1 trees inside a set.",
        "Equation (5), Section 5.3",
        "holds after repair",
        "infoflow.flow.counting.model_count",
        errata=(
            Erratum(
                "(5)", "|I|^b1 - 1 for every set", "max(0, |I|^b1 - 1): an empty set compares nothing", "empty_set"
            ),
            Erratum(
                "(5) and Section 6",
                "one head with global aggregation learns D retrievals",
                "(5) counts too few comparisons for that; inside a set D trees may run: D_1 (|I|^b1 - 1)",
                "global_aggregation",
            ),
            Erratum(
                "Section 5.1",
                "I(t,l) within {1..T+1}; global mode gives {1..T}",
                "T+1 never occurs; global mode gives the union of I(s,l); specific mode keeps I(t,l)",
            ),
        ),
        related=("infoflow.equation47", "infoflow.proposition1", "infoflow.section6"),
    ),
    Entry(
        "infoflow.section6",
        P,
        "One layer needs D heads for D retrievals, by counting",
        "A layer of s heads with max-position retrieval makes s T - 1 comparisons; D retrievals need at least "
        "D(T - D). This forces s >= D exactly when T >= D^2.",
        "Section 6, first paragraphs",
        "holds after repair",
        "infoflow.flow.counting.one_layer_count",
        errata=(
            Erratum(
                "Section 6",
                "s(T-1) comparisons, so s >= D for every T",
                "sT - 1 by (5); s >= D follows for T >= D^2 only",
                "one_layer_heads",
            ),
        ),
        related=("infoflow.equation5", "heads.transition.lower"),
    ),
    Entry(
        "infoflow.proposition1",
        P,
        "Sums of D pair maxima: (D, D) heads",
        "F = sum_i max_{s,t} x(s)' A_i x(t) has at most D(T^2 - 1) comparisons, and a two-layer model with (D, "
        "D) heads and max-position retrieval learns it; as weights: heads (D, D), E = (D(d + ceil(d/D)), 2D).",
        "Proposition 1, Appendix B.1",
        "holds after repair",
        "iflow.build('pairwise_max:D=2,d=2', T, eps); iflow.trace",
        remark="That h_1 >= D is needed does not follow from the count. More layers replace heads: five layers of "
        "one head serve D = 4.",
        errata=(
            Erratum(
                "Proposition 1",
                "h_1 >= D follows from the count",
                "it follows from D(T^2 - 1), an upper bound; the count that is proved, C(T,2) - 2D, asks for one head",
                "heads_by_counting",
            ),
            Erratum("(45)", "exponent beta'", "beta_1, as in (5)"),
            Erratum(
                "Section 6.1, Table 11",
                "about 1e-5 for all D, two to three orders below",
                "the table has 4.7e-4 at D = 5 and 2.0e-3 at D = 6, where the gap is 3 to 15 times",
            ),
        ),
        related=("infoflow.equation47", "infoflow.proposition2"),
    ),
    Entry(
        "infoflow.equation47",
        P,
        "How many comparisons two layers make",
        "With max-position retrieval and dimension 2: at most T((h1+1)^2 - 1) + h1 T(T-1) + h1^2 - 1 + "
        "((h1+1)(h2+1) - 1)^2 - 1 + (h1+h2)(T-1), with equality where T has room for the sets.",
        "(45) to (48), Appendix B.1",
        "holds after repair",
        "infoflow.book.formulas.repaired_47",
        errata=(Erratum("(47)", "last term 2(T-1)", "(h1+h2)(T-1)", "bound_47"),),
        related=("infoflow.equation5", "infoflow.proposition1"),
    ),
    Entry(
        "infoflow.proposition2",
        P,
        "Targets of order above 2 need growing sets",
        "A target with Order of Comparison beta' > 2 is said to cost eps^(1 - C T^((beta'-1)/beta_1)/(LE)). "
        "The star max over triples of x1'A x2 + x3'B x2 has order 3, and one network with heads (2, 1) and one "
        "width serves every T within a proved error: attention shares inner maximisations, trees of comparison "
        "cannot.",
        "Proposition 2, Appendix B.2",
        "refuted",
        "iflow.build('star:k=3,d=2', T, 0.05)",
        remark="The network half is a certificate per T. That the star has order 3 rests on D.1 after its repair "
        "(infoflow.appendixD.triples). The count remains an estimate for scores that decompose over no tree.",
        errata=(
            Erratum(
                "Proposition 2",
                "every target of order above 2 needs sets that grow with T",
                "only scores that decompose over no tree may: the star has order 3 and one network of one width",
                "star_of_three",
            ),
            Erratum(
                "B.2, last display",
                "HLT^(b1)",
                "HLT^2, as in (54); T^b1 would swallow the target at b1 = 3",
                "growth_term",
            ),
            Erratum(
                "B.2", "M >= C T^((b'-1)/b1)/L", "/L^(1/b1) (the printed form is weaker); one layer has a T-free factor"
            ),
            Erratum("B.2, last line", "eps^(-M/E)", "eps^(1 - M d/E)"),
        ),
        related=("infoflow.triangle", "infoflow.appendixD.triples"),
    ),
    Entry(
        "infoflow.triangle",
        P,
        "Triangle-center cannot be approximated by a fixed Transformer as T grows",
        "F = min over triples |x(t1) + x(t2) + x(t3)|^2 is said to need eps^(1 - T^(2/3)/(6LE)) parameters "
        "whatever depth, heads and embedding. For each eps one occupancy network (heads that read min_t |x_t - "
        "c| for the cells c of a grid, a minimum over triples of cells) serves all T.",
        "Section 6.2, (7), Table 12",
        "refuted",
        "iflow.build('triangle_center:d=1', T, eps, weight_bound=None)",
        ("the network's embedding grows as eps falls, and not with T",),
        remark="With E fixed and eps far below the grid the question is open. Table 12 is confounded by scale: "
        "the target's standard deviation falls from 6.8 to 2.8e-4 between T = 3 and 64, and a pair minimum "
        "fails the same way.",
        errata=(
            Erratum(
                "Section 6.2",
                "no fixed Transformer approximates triangle-center as T grows",
                "for each eps one network does, for all T; with the embedding fixed and eps to 0 the question is open",
                "one_network_for_all_lengths",
            ),
            Erratum(
                "Section 6.2",
                "T^(2/3)/(6LE)",
                "(6L)^(1/3) for 6L, and d: M d/E with the least M of the count",
                "triangle_formula",
            ),
            Erratum(
                "Section 6.2",
                "explains Table 12",
                "with the proved count the exponent is 0 at every T of the table",
                "triangle_exponent",
            ),
            Erratum(
                "Section 6.2", "O(.), super-polynomial in 1/eps", "Omega(.), polynomial of a degree that grows with T"
            ),
            Erratum("Section 6.2, Table 12", "NMSE above .85 at T = 16", ".843 in the table"),
        ),
        related=("infoflow.proposition2", "infoflow.appendixD.triples"),
    ),
    Entry(
        "infoflow.appendixD.retrieval",
        P,
        "D retrievals: between D(T - D) and D(T - 1) comparisons",
        "D trees with T one-token leaves find the winners of D features; a tree that leaves out D positions "
        "misses winners placed there, so the count is at least D(T - D).",
        "Section 5.3, Appendix D.1",
        "holds after repair",
        "infoflow.targets.trees.comparison_trees",
        ("features with different maximisers",),
        errata=(
            Erratum(
                "D.1, item 2",
                "|I_F| = D almost everywhere",
                "on a set of positive measure: one token can win two features",
                "shared_winner",
            ),
            Erratum("D.1, (60)", "unions over i = 1..T", "i = 1..D"),
        ),
        related=("infoflow.appendixD.triples", "infoflow.section6"),
    ),
    Entry(
        "infoflow.appendixD.triples",
        P,
        "Triangle-center: between C(T,3) - 3 and T^3 - 1 comparisons",
        "One tree over ordered triples finds the best triple with T^3 - 1 comparisons, one over unordered "
        "triples with C(T,3) - 1; dimension and order are 3, and Omega(T^3) leaves are needed.",
        "Section 5.3, Appendix D.1",
        "holds after repair",
        "infoflow.targets.trees.comparison_trees",
        errata=(
            Erratum(
                "D.1",
                "two tied triples must both be leaves",
                "three trees of dimension 3 may return nine tokens and cover two tied triples; with four disjoint tied "
                "triples the non-leaves contain no matching of size 3, so they are O(T^2)",
            ),
            Erratum("D.1", "argmax of |.|^2", "argmin"),
        ),
        related=("infoflow.proposition2", "infoflow.triangle"),
    ),
    Entry(
        "infoflow.appendixE",
        P,
        "The worked example of information sets",
        "min over pairs of x(s).x(t), four tokens, one head a layer: with scores -min the argmax positions are "
        "(3, 4, 1, 3), the sets {1,3}, {2,4}, {1,3}, {3,4}, and the CLS reads {1,3}, the active set.",
        "Appendix E, (65) to (67)",
        "holds after repair",
        "infoflow.flow.sets.simulate; iflow.trace",
        ("the CLS skips layer 1", "a score must know the positions t and s, not only their sets"),
        errata=(
            Erratum("Appendix E", "scores +min in both layers", "-min: as printed the CLS reads {1}", "printed_sign"),
        ),
        related=("infoflow.equation5",),
    ),
)
