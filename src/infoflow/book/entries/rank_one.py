"""The rank-1 paper: contextual mapping, memorisation and approximation by one attention layer of rank 1."""

from infoflow.book.entry import Entry, Erratum

P = "rank1"

ENTRIES = (
    Entry(
        "rank1.theorem1",
        P,
        "One hardmax attention layer is no contextual mapping",
        "For n >= 4 tokens there are two sequences with different token sets that no one-layer hardmax "
        "attention tells apart, whatever its weights: v (1, 3, 6, 10) and v (1, 4, 5, 10) share minimum, "
        "maximum and sum, and these are all a head can see on a line. Longer sequences add common tokens "
        "strictly between 1 and 3.",
        "Theorem 1, Appendix A.1",
        "holds after repair",
        "iflow.hardmax_collision(d, n), infoflow refute hardmax",
        ("n >= 4 (n >= 3 if every head has (W_K v).(W_Q v) != 0)", "ties split evenly", "data first, weights after"),
        errata=(
            Erratum(
                "Theorem 1", "stated for every n", "n >= 4; two heads know both tokens at n = 2", "hardmax_two_tokens"
            ),
            Erratum(
                "Theorem 1", "stated for every n", "with a zero-score head n = 3 fails as well", "hardmax_three_tokens"
            ),
            Erratum(
                "Appendix A.1",
                "the proof reads off minimum and maximum only",
                "a head whose scores all vanish averages, so the sum is seen, too",
                "hardmax_zero_scores",
            ),
        ),
        related=("rank1.theorem2",),
    ),
    Entry(
        "rank1.lemma1",
        P,
        "The Boltzmann operator keeps separated vectors apart",
        "If the entries of a and b are within r and different entries are more than delta > 2 log n + 3 apart, then "
        "|boltz(a)| <= r and |boltz(a) - boltz(b)| > (log n)^2 e^(-2r), where boltz(a) = sum_i a_i softmax(a)_i.",
        "Lemma 1, (14) to (16)",
        "holds after repair",
        "infoflow.book.statements.boltzmann.separation",
        ("a and b are different multisets", "no repeated entry inside a vector", "n >= 2"),
        remark="The bound is loose by a factor of several hundred; rank1.lemma7 has the sharp form.",
        errata=(
            Erratum(
                "Lemma 1",
                "asks for a != b as vectors",
                "different multisets: a permutation has gap 0",
                "lemma_1_permutation",
            ),
            Erratum(
                "(8), (16)",
                "0 at n = 1",
                "(log n)^2 + 5 log n + 15/2, which the proof gives, is positive for every n",
                "lemma_1_one_token",
            ),
        ),
        related=("rank1.lemma7", "rank1.theorem2"),
    ),
    Entry(
        "rank1.lemma2",
        P,
        "One direction keeps finitely many points apart",
        "For m points of R^d there is a unit vector v with sqrt(8/(pi d)) |x - x'| / m^2 <= |v.(x - x')| <= |x - x'| "
        "for all pairs.",
        "Lemma 2, (72), after Park et al. (2021)",
        "holds",
        "infoflow.construct.rank_one.projection.find_projection(tokens, 'lemma')",
        remark="A uniform draw succeeds with probability at least 1 - (2/pi)(m-1)/m > 0.363 in every dimension, "
        "so drawing and checking is fast; sorting the projections avoids looking at m^2 pairs.",
        related=("rank1.lemma3",),
    ),
    Entry(
        "rank1.lemma3",
        P,
        "Rank-1 keys and queries separate scores by delta",
        "With v of Lemma 2 on the tokens and 0, W_K = u v', W_Q = u' v' and |u.u'| = (|V|+1)^4 (pi d/8) "
        "delta/(eps r_min), scores of different keys differ by more than delta for every query.",
        "Lemma 3, (73) to (75)",
        "holds",
        "infoflow.construct.rank_one.scales.paper_scale",
        ("tokens of norm above r_min > 0, pairwise more than eps apart",),
        errata=(
            Erratum(
                "footnote 3",
                "both v and v' satisfy (72)",
                "v needs pairwise gaps; v' only has to keep tokens away from 0",
                "query_direction",
            ),
        ),
        related=("rank1.lemma2", "rank1.theorem2"),
    ),
    Entry(
        "rank1.lemma4",
        P,
        "A small entry lowers the Boltzmann operator as it grows",
        "If a_i < max a - log n - 1, then d boltz/d a_i = p_i (1 + log p_i + S(p)) = p_i (1 + a_i - boltz(a)) < 0.",
        "Lemma 4, (83), (84)",
        "holds",
        "infoflow.book.statements.boltzmann.monotonicity",
        remark="The derivative is negative exactly when a_i < boltz(a) - 1, and max - boltz <= W((n-1)/e) is the "
        "sharp form of the entropy bound log n.",
        related=("rank1.lemma5", "rank1.lemma7"),
    ),
    Entry(
        "rank1.lemma5",
        P,
        "The Boltzmann operator is concave in a small entry",
        "If a_i < max a - log n - 3, then d^2 boltz/d a_i^2 = p_i ((1 - 2 p_i)(1 + a_i - boltz(a)) + 1) < 0.",
        "Lemma 5, (95) to (97)",
        "holds",
        "infoflow.book.statements.boltzmann.concavity",
        related=("rank1.lemma4", "rank1.lemma6"),
    ),
    Entry(
        "rank1.lemma6",
        P,
        "Vectors that differ in a small last entry",
        "If a and b agree but for the last entry, max_{i<n} a_i - delta > a_n > b_n and delta > log n + 3, "
        "then boltz(b) - boltz(a) > (a_n - b_n)(delta + a_n - b_n - log n - 1) softmax(b)_n.",
        "Lemma 6, (103)",
        "holds",
        "infoflow.book.statements.boltzmann.last_entry",
        ("n >= 2",),
        errata=(
            Erratum(
                "text of Lemma 6",
                "bounds boltz(a) - boltz(b) from below",
                "boltz(b) - boltz(a), as (103) has it",
                "sign_of_lemma_6",
            ),
        ),
        related=("rank1.lemma7",),
    ),
    Entry(
        "rank1.lemma7",
        P,
        "Lemma 1 for decreasing vectors",
        "Decreasing, delta-separated vectors whose first difference is a_{k+1} > b_{k+1}: boltz(a) > boltz(b) "
        "if k = 0 and boltz(a) < boltz(b) if k >= 1, with gap above (log n)^2 e^(-2r). Sharp form: the gap is "
        "at least 0.9 delta e^(-(a_1 - a_{k+1})) for delta >= 2 log n + 3, and 0.7 of it already for delta >= "
        "log n + 2.",
        "Lemma 7, (114) to (126)",
        "holds",
        "infoflow.book.statements.boltzmann.gap_bound(a, b, 'sharp')",
        remark="delta = log n is not enough: random pairs then come in the wrong order.",
        errata=(
            Erratum("(114)", "a_i - a_j > delta for i > j", "for i < j; as printed no vector qualifies", "indices_114"),
            Erratum(
                "(120)", "strict", "an equality when k + 1 = n; the final bound does not suffer", "equality_in_120"
            ),
        ),
        related=("rank1.lemma1", "rank1.lemma6"),
    ),
    Entry(
        "rank1.theorem2",
        P,
        "One softmax head of rank 1 is a contextual mapping",
        "For sequences without repeated tokens, tokenwise (r_min, r_max, eps)-separated, one head whose W_K, "
        "W_Q, W_V have rank 1 maps every (token, token set) to its own id x + a s: ids within r_max + eps/4, "
        "at least delta of (8) apart.",
        "Theorem 2, (6) to (8), Appendix A.2",
        "holds",
        "iflow.ContextMap.fit(X, scale), infoflow build context_map",
        ("fixed length n >= 2", "no repeated token (needed for the stated delta only)"),
        remark="The stated scale (29) saturates float64: ids that are provably distinct become bit-identical. A "
        "moderate scale separates 1.6 million contexts, repeated tokens included, because for all but "
        "finitely many scales in a bounded range different multisets of one length have different averages.",
        errata=(
            Erratum("(41)", "u'.u'", "u.u'", "score_of_41"),
            Erratum("(42)", "right side", "times 8 eps r_min", "factor_of_42"),
            Erratum(
                "(47)",
                "another delta than (8)",
                "(8): under X -> cX the gap scales by c, (47) does not",
                "factor_of_47",
            ),
            Erratum(
                "footnote 2, Section 5",
                "W_V = W_K = u'v', value and query share v_1",
                "W_V = u''v', W_K = u v', W_Q = u'v'': value and key share v_1, as in (20)",
                "value_and_key",
            ),
        ),
        related=("rank1.lemma1", "rank1.lemma3", "rank1.corollary1", "rank1.appendixC"),
    ),
    Entry(
        "rank1.corollary1",
        P,
        "One layer memorises N sequences",
        "For N sequences of n tokens without repeats and any labels that are a function of (token, token set), "
        "one rank-1 head and a ReLU block with nN - 1 units output every label; 4(s+d) + d(2nN+d) independent "
        "numbers are enough.",
        "Corollary 1, Remark 2",
        "holds after repair",
        "iflow.memorize(X, Y), infoflow build memorizer",
        ("labels consistent per (token, multiset)",),
        remark="Repeated tokens need nothing new at a fixed length. Float64 holds about a million contexts.",
        errata=(
            Erratum(
                "Corollary 1",
                "the count reads as matrix entries",
                "it holds for independent numbers in factored form; dense matrices have more once nN > d^2 + d + 1",
                "dense_parameters",
            ),
        ),
        related=("rank1.theorem2", "rank1.corollary2"),
    ),
    Entry(
        "rank1.corollary2",
        P,
        "With positional encodings any labels can be memorised",
        "Adding E_k = (2 r_max + eps) k e, |e| = 1, makes the tokens of different positions different: x + E_k "
        "is tokenwise (r_max + eps, (2n+1) r_max + n eps, eps)-separated, so Corollary 1 covers repeats and "
        "order.",
        "Corollary 2, (48) to (50)",
        "holds after repair",
        "iflow.memorize(X, Y, positions='corollary')",
        errata=(
            Erratum(
                "(48), (49)",
                "2 k r_max in every coordinate keeps tokens eps apart",
                "it does not for d = 1 (any eps) and d = 2, 3 (large eps); E_k = (2 r_max + eps) k e does",
                "encoding_48_separation",
            ),
            Erratum(
                "(48), (50)",
                "norms stay below (2n+1) r_max",
                "the columns have norm 2 k r_max sqrt(d); the repaired ones (2n+1) r_max + n eps",
                "encoding_48_norm",
            ),
        ),
        related=("rank1.corollary1",),
    ),
    Entry(
        "rank1.proposition1",
        P,
        "One attention layer between two feed-forward blocks approximates equivariant functions in L_p",
        "Feed-forward, one rank-1 head, feed-forward, all with skips, equal the step function of f on D^d "
        "cells per token off ramps of width delta, and vanish outside the cube; the L_p error is O(1/D). On a box "
        "[a, b] the same; with a table of positions for every continuous f.",
        "Proposition 1, Appendix A.5, (52) to (71)",
        "holds after repair",
        "iflow.approximate_equivariant(f, d, n, D, box=(0, 1)); with positions, for any f: "
        "iflow.approximate_function(f, d, n, D, box=(0, 1)); infoflow build equivariant",
        ("f continuous and permutation equivariant on [0,1]^(d x n)", "1 <= p < infinity"),
        remark="Cells that hold a token twice are served like all others; zeroing them, as in print, costs "
        "O(D^(-d/p)) and dominates for d = 1.",
        errata=(
            Erratum("(19)", "R^(n x d)", "R^(d x n)"),
            Erratum("(52)", "[-1, 1]", "[0, 1]: the network is 0 elsewhere", "cube_of_52"),
            Erratum("(54)", "closed cells", "half-open cells; closed ones count shared faces twice", "closed_cells_54"),
            Erratum("(58)", "t = 1..D", "t = 0..D-1", "steps_58"),
            Erratum(
                "(59)", "signs", "-s[(z-1)/delta] + s[(z-1)/delta - 1] - s[-z/delta] + s[-z/delta - 1]", "signs_59"
            ),
            Erratum(
                "(60)",
                "adds every token's penalty to every token",
                "a feed-forward block sees one token: token-wise, "
                "positive penalties, so that tokens outside become huge",
            ),
            Erratum(
                "A.5 (3)",
                "the grid is (1/D, sqrt d, 1/D)-separated",
                "Definition 1 is strict: (1/2D, 2 sqrt d, 1/2D)",
                "strict_grid",
            ),
            Erratum(
                "(65)",
                "moved by at most 1/(4D) for large D",
                "by dn/(4D) for every D: amplitude eps/(4 dn sqrt d)",
                "amplitude_65",
            ),
            Erratum(
                "(67), (68)",
                "coefficient -1; a sum over tokens and coordinates",
                "-2 makes a hat, and a sum of hats fires "
                "on partial matches: a one-dimensional table on t = v.id instead",
                "bumps_67",
            ),
            Erratum("after (68)", "0 <= F2 <= 1", "f takes values in [-1, 1]"),
            Erratum("after (69)", "a cell has volume D^(-d)", "D^(-dn)", "volume_after_69"),
            Erratum("(71)", "the ideal quantiser F1-bar", "F1: the strips belong to the error"),
        ),
        related=("rank1.theorem2",),
    ),
    Entry(
        "rank1.appendixC",
        P,
        "Masked attention is a contextual mapping, too",
        "With a mask, classes are (own token, visible multiset). Where one visible set is a prefix of another "
        "the gap is at least 0.9 (2 log n + 3) e^(-2r); the rest of Theorem 2 carries over.",
        "Remark 1, Appendix C, (132), (133)",
        "holds after repair",
        "iflow.ContextMap.fit(X, mask='causal'), iflow.memorize(X, Y, mask='causal')",
        ("0 times (-inf) counts as 0 in (133)", "every query sees a key", "labels consistent per visible class"),
        errata=(
            Erratum(
                "Appendix C",
                "the proof goes through with the same constant",
                "a set and its prefix come closer from n = 21 on: 0.9 (2 log n + 3) for (log n)^2",
                "prefix_of_a_set",
            ),
            Erratum(
                "Appendix C",
                "sequences of different lengths are covered",
                "with repeated tokens proportional multisets collide for all weights",
                "proportional_multisets",
            ),
            Erratum("(132)", "R^(d x n)", "R^(n x n)"),
        ),
        related=("rank1.theorem2", "rank1.lemma7"),
    ),
)
