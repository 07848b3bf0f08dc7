/* Attention of tokens over themselves with keys and values the tokens: forward, and the gradient of the queries' maps.

   q_t = A' [x_t; 1],  p_t = softmax_s <q_t, x_s>,  r_t = sum_s p_ts x_s,  z_t = [x_t; r_1t; ..; r_ht]

   The inner dimension d is tiny, so nothing is gained from a matrix product: queries lie along the lanes of a vector,
   keys are scalars, and the scores of one block of queries stay in the first-level cache. Sequences of a batch are
   independent; the gradient is summed over them in double. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../lanes.h"

#define MOST 16 /* token coordinates */

/* Queries of one block: q_j = A[d][j] + sum_a A[a][j] x_a. */
static inline void queries(const float *A, const vec *x, int d, vec *q) {
    for (int j = 0; j < d; j++) {
        q[j] = splat(A[d * d + j]);
        for (int a = 0; a < d; a++) q[j] += splat(A[a * d + j]) * x[a];
    }
}

static inline vec score(const float *keys, const vec *q, int d) {
    vec s = splat(keys[0]) * q[0];
    for (int j = 1; j < d; j++) s += splat(keys[j]) * q[j];
    return s;
}

static inline __attribute__((always_inline)) void forward_block(
    const float *keys, const vec *q, int T, int d, vec *tile, vec *r, vec *top) {
    vec most = score(keys, q, d);
    for (int s = 0; s < T; s++) {
        tile[s] = score(keys + s * d, q, d);
        most = pick(tile[s] > most, tile[s], most);
    }
    vec total = splat(0.0f);
    for (int j = 0; j < d; j++) r[j] = splat(0.0f);
    for (int s = 0; s < T; s++) {
        vec e = exponential(tile[s] - most);
        total += e;
        for (int j = 0; j < d; j++) r[j] += e * splat(keys[s * d + j]);
    }
    *top = most;
    vec inverse = splat(1.0f) / total;
    for (int j = 0; j < d; j++) r[j] *= inverse;
}

/* With dr the gradient of r: dS = p (<dr, x_s> - <dr, r>), dq = sum_s dS x_s. The sum of exponentials is formed again,
   so weights add up to one whatever the rounding of the scores. */
static inline __attribute__((always_inline)) void backward_block(
    const float *keys, const vec *q, const vec *dr, vec top, int T, int d, vec *dq) {
    vec first[MOST], seen[MOST], mean = splat(0.0f), total = splat(0.0f);
    for (int j = 0; j < d; j++) first[j] = seen[j] = splat(0.0f);
    for (int s = 0; s < T; s++) {
        const float *key = keys + s * d;
        vec p = exponential(score(key, q, d) - top);
        vec weighted = p * score(key, dr, d);
        mean += weighted;
        total += p;
        for (int j = 0; j < d; j++) {
            first[j] += weighted * splat(key[j]);
            seen[j] += p * splat(key[j]);
        }
    }
    vec inverse = splat(1.0f) / total;
    mean *= inverse;
    for (int j = 0; j < d; j++) dq[j] = inverse * (first[j] - mean * seen[j]);
}

/* The tokens of a sequence X (d, T) as keys (T, d), and as blocks of lanes padded with zeros. */
static void arrange(const float *X, int T, int d, int blocks, float *keys, vec *x) {
    memset(x, 0, sizeof(vec) * blocks * d);
    for (int j = 0; j < d; j++)
        for (int t = 0; t < T; t++) {
            keys[t * d + j] = X[j * T + t];
            ((float *)(x + (t / LANES) * d + j))[t % LANES] = X[j * T + t];
        }
}

static inline __attribute__((always_inline)) void forward_sequence(
    const float *X, const float *A, int T, int h, int d, float *Z, vec *tops, float *keys, vec *x, vec *tile) {
    int blocks = (T + LANES - 1) / LANES, z = d * (h + 1);
    arrange(X, T, d, blocks, keys, x);
    for (int t = 0; t < T; t++) memcpy(Z + t * z, keys + t * d, sizeof(float) * d);
    for (int head = 0; head < h; head++)
        for (int b = 0; b < blocks; b++) {
            vec q[MOST] = {0}, r[MOST];
            queries(A + head * (d + 1) * d, x + b * d, d, q);
            forward_block(keys, q, T, d, tile, r, tops + head * blocks + b);
            for (int l = 0; l < LANES && b * LANES + l < T; l++)
                for (int j = 0; j < d; j++) Z[(b * LANES + l) * z + (head + 1) * d + j] = r[j][l];
        }
}

static inline __attribute__((always_inline)) void backward_sequence(
    const float *X, const float *A, const vec *tops, const float *dZ, int T, int h, int d, double *dA, float *keys,
    vec *x) {
    int blocks = (T + LANES - 1) / LANES, z = d * (h + 1);
    arrange(X, T, d, blocks, keys, x);
    for (int head = 0; head < h; head++) {
        vec sum[MOST + 1][MOST];
        memset(sum, 0, sizeof sum);
        for (int b = 0; b < blocks; b++) {
            vec q[MOST] = {0}, dq[MOST], dr[MOST] = {0};
            queries(A + head * (d + 1) * d, x + b * d, d, q);
            for (int j = 0; j < d; j++)
                for (int l = 0; l < LANES && b * LANES + l < T; l++)
                    dr[j][l] = dZ[(b * LANES + l) * z + (head + 1) * d + j];
            backward_block(keys, q, dr, tops[head * blocks + b], T, d, dq); /* padded lanes: dr = 0, so dq = 0 */
            for (int j = 0; j < d; j++) {
                for (int a = 0; a < d; a++) sum[a][j] += dq[j] * x[b * d + a];
                sum[d][j] += dq[j];
            }
        }
        for (int a = 0; a <= d; a++)
            for (int j = 0; j < d; j++)
                for (int l = 0; l < LANES; l++) dA[(head * (d + 1) + a) * d + j] += sum[a][j][l];
    }
}

/* d as a constant lets the compiler keep the coordinates in registers; other d take the same code with loops. */
#define WITH_D(call)                                   \
    switch (d) {                                       \
        case 2: { enum { D = 2 }; call; } break;       \
        case 3: { enum { D = 3 }; call; } break;       \
        case 4: { enum { D = 4 }; call; } break;       \
        default: { const int D = d; call; }            \
    }

int attend_lanes(void) { return LANES; }

static void *room(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }

/* X (M, B, d, T), A (M, h, d+1, d) -> Z (M, B, T, d (h+1)), tops (M, B, h, blocks, LANES). 0, or 1 without memory. */
int attend_forward(
    const float *X, const float *A, float *Z, vec *tops, int64_t M, int64_t B, int64_t T, int64_t h, int64_t d) {
    int64_t blocks = (T + LANES - 1) / LANES, z = d * (h + 1);
    float *keys = room(sizeof(float) * T * d);
    vec *x = room(sizeof(vec) * blocks * d), *tile = room(sizeof(vec) * T);
    if (keys && x && tile)
        for (int64_t n = 0; n < M * B; n++) {
            const float *a = A + n / B * h * (d + 1) * d;
            WITH_D(forward_sequence(X + n * d * T, a, T, h, D, Z + n * T * z, tops + n * h * blocks, keys, x, tile))
        }
    int failed = !(keys && x && tile);
    free(keys), free(x), free(tile);
    return failed;
}

/* dA (M, h, d+1, d) in double, set to zero by the caller. */
int attend_backward(
    const float *X, const float *A, const vec *tops, const float *dZ, double *dA, int64_t M, int64_t B, int64_t T,
    int64_t h, int64_t d) {
    int64_t blocks = (T + LANES - 1) / LANES, z = d * (h + 1), size = h * (d + 1) * d;
    float *keys = room(sizeof(float) * T * d);
    vec *x = room(sizeof(vec) * blocks * d);
    if (keys && x)
        for (int64_t n = 0; n < M * B; n++) {
            const float *a = A + n / B * size;
            const vec *top = tops + n * h * blocks;
            WITH_D(backward_sequence(X + n * d * T, a, top, dZ + n * T * z, T, h, D, dA + n / B * size, keys, x))
        }
    int failed = !(keys && x);
    free(keys), free(x);
    return failed;
}
