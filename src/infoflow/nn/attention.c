/* Many small softmax attentions, forward and backward, in float.

   S_rt = scale <q_r, k_t>,  p_r = softmax_t S_rt,  o_r = sum_t p_rt v_t;  with g the gradient of o and D_r = <g_r, o_r>
   dS_rt = p_rt (<g_r, v_t> - D_r),  dq_r = scale sum_t dS_rt k_t,  dk_t = scale sum_r dS_rt q_r,  dv_t = sum_r p_rt g_r

   A matrix product of ten by ten costs more to call than to compute. Here the rows that are asked for lie along the
   lanes of a vector and the others are scalars: queries in the forward pass and for dq, keys for dk and dv, where the
   weights are computed again. Row r of head j of item i begins at i * item + j * head + r * row. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../lanes.h"

#define MOST 16 /* coordinates of a head */
typedef struct { int64_t item, head, row; } layout;
typedef struct { int64_t items, heads, queries, keys, inner, outer; } sizes;

/* Rows first .. first + LANES of a matrix as one vector a coordinate; rows that are not there are zero. */
static inline void gather(const float *x, int64_t row, int first, int rows, int n, vec *out) {
    int here = rows - first < LANES ? rows - first : LANES;
    if (here < LANES) memset(out, 0, sizeof(vec) * n);
    for (int l = 0; l < here; l++)
        for (int c = 0; c < n; c++) ((float *)(out + c))[l] = x[(first + l) * row + c];
}

static inline void scatter(const vec *x, int64_t row, int first, int rows, int n, float *out) {
    int here = rows - first < LANES ? rows - first : LANES;
    for (int l = 0; l < here; l++)
        for (int c = 0; c < n; c++) out[(first + l) * row + c] = ((const float *)(x + c))[l];
}

static inline vec dot(const float *scalars, const vec *x, int n) {
    vec s = splat(scalars[0]) * x[0];
    for (int c = 1; c < n; c++) s += splat(scalars[c]) * x[c];
    return s;
}

#define INLINE static inline __attribute__((always_inline))

INLINE void forward_head(const float *q, const float *k, const float *v, float *out, float *tops, float *inverses,
                         layout Q, layout K, layout V, layout O, int R, int T, int n, int m, float scale, vec *tile) {
    for (int first = 0; first < R; first += LANES) {
        vec asked[MOST], sum[MOST], total = splat(0.0f);
        gather(q, Q.row, first, R, n, asked);
        for (int c = 0; c < n; c++) asked[c] *= splat(scale);
        vec most = dot(k, asked, n);
        for (int t = 0; t < T; t++) {
            tile[t] = dot(k + t * K.row, asked, n);
            most = pick(tile[t] > most, tile[t], most);
        }
        for (int c = 0; c < m; c++) sum[c] = splat(0.0f);
        for (int t = 0; t < T; t++) {
            vec e = exponential(tile[t] - most);
            total += e;
            for (int c = 0; c < m; c++) sum[c] += e * splat(v[t * V.row + c]);
        }
        vec inverse = splat(1.0f) / total;
        for (int c = 0; c < m; c++) sum[c] *= inverse;
        scatter(sum, O.row, first, R, m, out);
        scatter(&most, 1, first, R, 1, tops);
        scatter(&inverse, 1, first, R, 1, inverses);
    }
}

INLINE void backward_queries(const float *q, const float *k, const float *v, const float *g, const float *tops,
                             const float *inverses, const float *deltas, float *dq, layout Q, layout K, layout V,
                             layout O, int R, int T, int n, int m, float scale) {
    for (int first = 0; first < R; first += LANES) {
        vec asked[MOST], grad[MOST], sum[MOST], top, inverse, delta;
        gather(q, Q.row, first, R, n, asked);
        gather(g, O.row, first, R, m, grad);
        gather(tops, 1, first, R, 1, &top);
        gather(inverses, 1, first, R, 1, &inverse);
        gather(deltas, 1, first, R, 1, &delta);
        for (int c = 0; c < n; c++) asked[c] *= splat(scale), sum[c] = splat(0.0f);
        for (int t = 0; t < T; t++) {
            vec p = exponential(dot(k + t * K.row, asked, n) - top) * inverse;
            vec ds = p * (dot(v + t * V.row, grad, m) - delta) * splat(scale);
            for (int c = 0; c < n; c++) sum[c] += ds * splat(k[t * K.row + c]);
        }
        scatter(sum, Q.row, first, R, n, dq);
    }
}

INLINE void backward_keys(const float *q, const float *k, const float *v, const float *g, const float *tops,
                          const float *inverses, const float *deltas, float *dk, float *dv, layout Q, layout K,
                          layout V, layout O, int R, int T, int n, int m, float scale) {
    for (int first = 0; first < T; first += LANES) {
        vec key[MOST], value[MOST], by_key[MOST], by_value[MOST];
        gather(k, K.row, first, T, n, key);
        gather(v, V.row, first, T, m, value);
        for (int c = 0; c < n; c++) key[c] *= splat(scale), by_key[c] = splat(0.0f);
        for (int c = 0; c < m; c++) by_value[c] = splat(0.0f);
        for (int r = 0; r < R; r++) {
            vec p = exponential(dot(q + r * Q.row, key, n) - splat(tops[r])) * splat(inverses[r]);
            vec ds = p * (dot(g + r * O.row, value, m) - splat(deltas[r])) * splat(scale);
            for (int c = 0; c < n; c++) by_key[c] += ds * splat(q[r * Q.row + c]);
            for (int c = 0; c < m; c++) by_value[c] += p * splat(g[r * O.row + c]);
        }
        scatter(by_key, K.row, first, T, n, dk);
        scatter(by_value, V.row, first, T, m, dv);
    }
}

/* Sizes as constants let the compiler keep coordinates in registers; others take the same code with loops. */
#define WITH_SIZES(call)                                                              \
    if (s.inner == s.outer && s.inner == 1) { enum { n = 1, m = 1 }; call; }          \
    else if (s.inner == s.outer && s.inner == 2) { enum { n = 2, m = 2 }; call; }     \
    else if (s.inner == s.outer && s.inner == 4) { enum { n = 4, m = 4 }; call; }     \
    else if (s.inner == s.outer && s.inner == 6) { enum { n = 6, m = 6 }; call; }     \
    else if (s.inner == s.outer && s.inner == 8) { enum { n = 8, m = 8 }; call; }     \
    else if (s.inner == s.outer && s.inner == 12) { enum { n = 12, m = 12 }; call; }  \
    else { const int n = s.inner, m = s.outer; call; }

static inline int64_t at(layout l, int64_t item, int64_t head) { return item * l.item + head * l.head; }
static void *room(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }

/* out like q with `outer` coordinates; tops and inverses (items, heads, queries). 0, or 1 without memory. */
int attention_forward(const float *q, const float *k, const float *v, float *out, float *tops, float *inverses,
                      const layout *l, const sizes *size, double scale) {
    sizes s = *size;
    layout Q = l[0], K = l[1], V = l[2], O = l[3];
    vec *tile = room(sizeof(vec) * s.keys);
    if (!tile) return 1;
    for (int64_t i = 0; i < s.items; i++)
        for (int64_t j = 0; j < s.heads; j++) {
            int64_t asked = (i * s.heads + j) * s.queries;
            WITH_SIZES(forward_head(q + at(Q, i, j), k + at(K, i, j), v + at(V, i, j), out + at(O, i, j), tops + asked,
                                    inverses + asked, Q, K, V, O, s.queries, s.keys, n, m, (float)scale, tile))
        }
    free(tile);
    return 0;
}

/* g and out have one layout; dq, dk, dv those of q, k, v. */
int attention_backward(const float *q, const float *k, const float *v, const float *out, const float *g,
                       const float *tops, const float *inverses, float *dq, float *dk, float *dv, const layout *l,
                       const sizes *size, double scale) {
    sizes s = *size;
    layout Q = l[0], K = l[1], V = l[2], O = l[3];
    float *deltas = room(sizeof(float) * s.queries);
    if (!deltas) return 1;
    for (int64_t i = 0; i < s.items; i++)
        for (int64_t j = 0; j < s.heads; j++) {
            int64_t asked = (i * s.heads + j) * s.queries;
            const float *seen = out + at(O, i, j), *grad = g + at(O, i, j);
            for (int64_t r = 0; r < s.queries; r++) {
                deltas[r] = 0.0f;
                for (int64_t c = 0; c < s.outer; c++) deltas[r] += seen[r * O.row + c] * grad[r * O.row + c];
            }
            WITH_SIZES(backward_queries(q + at(Q, i, j), k + at(K, i, j), v + at(V, i, j), grad, tops + asked,
                                        inverses + asked, deltas, dq + at(Q, i, j), Q, K, V, O, s.queries, s.keys, n,
                                        m, (float)scale))
            WITH_SIZES(backward_keys(q + at(Q, i, j), k + at(K, i, j), v + at(V, i, j), grad, tops + asked,
                                     inverses + asked, deltas, dk + at(K, i, j), dv + at(V, i, j), Q, K, V, O,
                                     s.queries, s.keys, n, m, (float)scale))
        }
    free(deltas);
    return 0;
}
