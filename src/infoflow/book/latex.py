r"""The formula of every statement, as LaTeX: what the site shows under the words.

One display per entry, in the notation of its paper; $\varepsilon$ is the error, $W$ the Lambert function.
"""

FORMULAS = {
    "infoflow.theorem1": r"F(X) = \min_{s,t} 2\,(1 + x(s) \cdot x(t)), \qquad"
    r" \text{one layer: } \Omega(\varepsilon^{-k}), \quad k = \frac{T - H - 1}{H(n+1) + 1} - 1",
    "infoflow.theorem2": r"\text{width} \ge \frac{(k-1)\,\varepsilon\, N^{m/(n+1)}}{4\, m\, n}, \qquad"
    r" m = T - k + 1, \quad N = \left\lfloor \frac{1}{16\, m\, \varepsilon} \right\rfloor",
    "infoflow.theorem3": r"L = \left\lceil \log_2 \frac{2m}{\varepsilon} \right\rceil, \qquad"
    r" \sup_V |D(E(V)) - V| \le 2^{-L}, \qquad O(\varepsilon^{-m/n}) \text{ units}",
    "infoflow.theorem3.lower": r"E(V) = E(1 - V) \text{ for some } V \in \partial [0,1]^m"
    r" \quad\Longrightarrow\quad \sup |D(E(V)) - V| \ge \tfrac{1}{2}",
    "infoflow.lemma1": r"\left\| 1_{x \ge 0} - \left(A \tanh(Bx + C) + D\right) \right\|_{L_p} < \delta, \qquad"
    r" A = D = \tfrac12, \quad B = \frac{R + C}{\eta}, \quad \eta = \frac{\delta^p}{8\, \text{density}}",
    "infoflow.costlaw": r"\tau = \max\left(0, \frac{|I|\, d}{E} - 1\right), \quad"
    r" \max\left(0, \frac{T d}{E} - 1\right), \quad"
    r" \max\left(0, \frac{|I'| \max_s |I(s)|\, d}{E} - 1\right)",
    "infoflow.equation5": r"\sum_{l < L} \sum_t \left[\max(0, |I(t,l)|^{\beta_1} - 1) + h_l (T-1)\right]"
    r" + \sum_{l \le L} \left[\max(0, |I(T+1,l)|^{\beta_1} - 1) + h_l (T-1)\right]",
    "infoflow.section6": r"s\,T - 1 \ge D\,(T - D) \quad\Longrightarrow\quad s \ge D"
    r" \qquad \text{exactly when } T \ge D^2",
    "infoflow.proposition1": r"F(X) = \sum_{i=1}^{D} \max_{s,t} x(s)^\top A_i\, x(t), \qquad"
    r" \text{heads } (D, D), \quad E = \left(D\,(d + \lceil d/D \rceil),\, 2D\right)",
    "infoflow.equation47": r"T\left((h_1+1)^2 - 1\right) + h_1 T (T-1) + h_1^2 - 1"
    r" + \left((h_1+1)(h_2+1) - 1\right)^2 - 1 + (h_1 + h_2)(T-1)",
    "infoflow.proposition2": r"F(X) = \max_{s,t,u}\; x(s)^\top A\, x(t) + x(u)^\top B\, x(t)"
    r" = \max_t \left[ \max_s x(s)^\top A\, x(t) + \max_u x(u)^\top B\, x(t) \right]",
    "infoflow.triangle": r"F(X) = \min_{t_1, t_2, t_3} |x(t_1) + x(t_2) + x(t_3)|^2",
    "infoflow.appendixD.retrieval": r"D\,(T - D) \;\le\; \text{comparisons} \;\le\; D\,(T - 1)",
    "infoflow.appendixD.triples": r"\binom{T}{3} - 3 \;\le\; \text{comparisons} \;\le\; T^3 - 1",
    "infoflow.appendixE": r"I(\cdot, 1) = \{1,3\}, \{2,4\}, \{1,3\}, \{3,4\}, \qquad I(\text{CLS}, 2) = \{1,3\}",
    "heads.density": r"\left| F(X) - F_0\left(\min_{t \in S_1} f_1(x(t)), \dots, \min_{t \in S_D} f_D(x(t))\right)"
    r" \right|"
    r" \le \varepsilon, \qquad |S_i| \ge \frac{T}{4}, \qquad D = \lceil 4.5\, L/\varepsilon \rceil^d"
    r" \binom{T}{\lceil T/4 \rceil}",
    "heads.corollary1": r"50\,(D_1^2 + D_2^2) \le T \;\text{ and }\; k > \gamma"
    r" \quad\Longrightarrow\quad D_1 = D_2",
    "heads.transition": r"h \ge D: \quad \text{parameters} \le C\, \varepsilon^{-\gamma}",
    "heads.transition.lower": r"h < D: \quad \text{parameters} = \Omega(\varepsilon^{-k}), \qquad"
    r" k = \frac{T/4 - h - D + 1}{(n+1)\,h + 1} - 1",
    "heads.single": r"n \ge T d, \; h = 1: \quad \text{parameters} \le C\, \varepsilon^{-(1+\gamma)}",
    "softmax.F.1": r"\beta \ge \frac{\ln\left((n-1)/\varepsilon\right)}{x_1 - x_2}"
    r" \quad\Longrightarrow\quad \| \mathrm{softmax}(\beta x) - e_1 \|_\infty \le \varepsilon",
    "softmax.3.4": r"\left| \mathrm{out}_i - \mathrm{Range}_{[a,b]}(w_i \cdot x_i + t_i) \right|"
    r" \le \frac{b-a}{p} + (b-a)\,\varepsilon_0, \qquad"
    r" \beta \ge \frac{2 \ln\left((p-2)/\varepsilon_0\right)}{\Delta L^2}",
    "softmax.G.6": r"p = \max\left(n + 1,\, 3,\, \left\lceil \frac{2(b-a)}{\varepsilon} \right\rceil\right)",
    "softmax.3.9": r"\text{error} \le \frac{\Delta L}{2} + M \varepsilon_0, \qquad p = (n-2) H, \quad"
    r" \beta = \frac{1}{\Delta L} \ln \frac{(H+1)(n-1)}{\varepsilon_0}",
    "softmax.3.10": r"\text{error} = O\left(\frac{1}{(n-2)\,H}\right)",
    "softmax.G.14": r"\left| \mathrm{out} - \sum_i \mathrm{Range}_{[a,b]}(w \cdot x_i + t_i) \right|"
    r" \le n \left( \frac{b-a}{p} + (b-a)\,\varepsilon_0 \right)",
    "softmax.3.11": r"\|\mathrm{FFN} - f\|_p^p \le \omega(B/g)^p \left(2B(1-\delta)\right)^N"
    r" + \max(|f|, \omega)^p\, (2B)^N \left(1 - (1-\delta)^N\right)",
    "softmax.3.12": r"\|f - \mathrm{net}\|_p \le (2B)^{N/p} \left(\omega(B/g) + \mathrm{osc}\,\varepsilon_1\right)"
    r" + \mathrm{osc} \left((2B)^N (1 - (1-\delta)^N)\right)^{1/p}, \qquad"
    r" \beta = \frac{\ln\left((G-1)/\varepsilon_1\right)}{N}",
    "softmax.3.13": r"\mathrm{net}(X) = \sum_v f(v)\, \mathrm{softmax}(\beta N R)_v",
    "softmax.3.14": r"2 d g + d n \text{ heads with shared levels} \qquad (2 d\, g^{dn} + d n \text{ in print})",
    "softmax.3.15": r"\mathrm{net}(X)_{ij} = \sum_v f_{ij}(v)\, \mathrm{softmax}(\beta N R)_v",
    "softmax.E.1": r"2 d\, g^{dn} + 1, \quad 2 d\, g^{dn} + dn \qquad \text{or, shared: } 2 d g + 1, \quad 2 d g + d n",
    "softmax.F.2": r"\text{error} \le \varepsilon_{\mathrm{relu}} + |\eta|_1\, (\varepsilon_2 + n\, \varepsilon_1)",
    "softmax.D.1": r"\mathrm{out}_i \approx \mathrm{Range}_{[a,b]}(w \cdot x_i + t_i) \quad"
    r" \text{with } w, t \text{ rows of } X",
    "softmax.D.4": r"w \leftarrow w - \eta \nabla L(w), \qquad x_r\, l'(s) \approx"
    r" \frac{l(s + \tau x_r) - l(s - \tau x_r)}{2\tau}, \qquad"
    r" \text{deviation} \le \sum_t \rho^t\, \eta\, \sqrt{d}\, \varepsilon",
    "softmax.H.1": r"\mathrm{Range}_{[0,b]}(z) = \max(z, 0) \quad \text{for } z \le b",
    "softmax.H.2": r"\mathrm{Range}_{[-1,1]}(z) = \max(-1, \min(1, z))",
    "softmax.H.3": r"\mathrm{Range}_{[0,c]}(z) = \min(\max(z, 0), c)",
    "softmax.I.1": r"Z = \begin{pmatrix} X & 0 \\ I_{n+1} & \end{pmatrix} \mapsto A X B, \qquad"
    r" T \ge \frac{\ln(n/\delta)}{n \ln 2}, \quad \delta = \frac{\varepsilon}{3 M n |AX|}",
    "softmax.I.2": r"\left| \mathrm{out}_i - \sum_k a_{ik} \mathrm{ReLU}(S_{ki}) \right|"
    r" \le N \left( \frac{0.2785}{\beta} + 3 n\, e^{-\beta} \max|S| \right)",
    "rank1.theorem1": r"\{1, 3, 6, 10\}\,v \;\text{ and }\; \{1, 4, 5, 10\}\,v: \quad"
    r" \min,\; \max \;\text{ and sum agree}",
    "rank1.lemma1": r"\left| \mathrm{boltz}(a) - \mathrm{boltz}(b) \right| > (\log n)^2 e^{-2r}, \qquad"
    r" \mathrm{boltz}(a) = \sum_i a_i\, \mathrm{softmax}(a)_i",
    "rank1.lemma2": r"\sqrt{\frac{8}{\pi d}}\, \frac{|x - x'|}{m^2} \le |v \cdot (x - x')| \le |x - x'|",
    "rank1.lemma3": r"W_K = u v^\top, \quad W_Q = u' v^\top, \qquad"
    r" |u \cdot u'| = (|V|+1)^4\, \frac{\pi d}{8}\, \frac{\delta}{\varepsilon\, r_{\min}}",
    "rank1.lemma4": r"\frac{\partial\, \mathrm{boltz}}{\partial a_i} = p_i \left(1 + a_i - \mathrm{boltz}(a)\right) < 0"
    r" \quad \text{for } a_i < \max a - \log n - 1",
    "rank1.lemma5": r"\frac{\partial^2\, \mathrm{boltz}}{\partial a_i^2}"
    r" = p_i \left( (1 - 2 p_i)(1 + a_i - \mathrm{boltz}(a)) + 1 \right) < 0"
    r" \quad \text{for } a_i < \max a - \log n - 3",
    "rank1.lemma6": r"\mathrm{boltz}(b) - \mathrm{boltz}(a) > (a_n - b_n)(\delta + a_n - b_n - \log n - 1)\,"
    r" \mathrm{softmax}(b)_n",
    "rank1.lemma7": r"\left| \mathrm{boltz}(a) - \mathrm{boltz}(b) \right| \ge 0.9\, \delta\, e^{-(a_1 - a_{k+1})}"
    r" \quad \text{for } \delta \ge 2 \log n + 3",
    "rank1.theorem2": r"\mathrm{id} = x + a\, s, \qquad |\mathrm{id}| \le r_{\max} + \frac{\varepsilon}{4}, \qquad"
    r" \mathrm{rank}\, W_K = \mathrm{rank}\, W_Q = \mathrm{rank}\, W_V = 1",
    "rank1.corollary1": r"n N - 1 \text{ ReLU units}, \qquad 4(s + d) + d\,(2 n N + d) \text{ numbers}",
    "rank1.corollary2": r"E_k = (2 r_{\max} + \varepsilon)\, k\, e, \qquad"
    r" x + E_k \text{ is } \left(r_{\max} + \varepsilon,\; (2n+1) r_{\max} + n \varepsilon,\; \varepsilon\right)"
    r"\text{-separated}",
    "rank1.proposition1": r"\| f - \mathrm{FFN}_2 \circ \mathrm{Attn} \circ \mathrm{FFN}_1 \|_{L_p} = O(1/D)",
    "rank1.appendixC": r"\text{gap} \ge 0.9\, (2 \log n + 3)\, e^{-2r}",
}
