/* Vectors of floats, as wide as the processor has them, and their exponential: for every C source that attends. */

#include <stdint.h>

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));

static inline vec splat(float x) { return x - (vec){0}; }
static inline vec pick(ivec mask, vec a, vec b) { return (vec)((mask & (ivec)a) | (~mask & (ivec)b)); }

/* exp(x) for x <= 0: 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2], 2 ulp; NaN stays NaN. */
static inline vec exponential(vec x) {
    x = pick(x < splat(-87.0f), splat(-87.0f), x);
    vec shifted = x * splat(1.44269504f) + splat(12582912.0f); /* rounds to an integer in the low bits */
    vec n = shifted - splat(12582912.0f);
    vec r = x - n * splat(0.693359375f) + n * splat(2.12194440e-4f);
    vec p = splat(1.9875691500e-4f);
    p = p * r + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    p = p * r * r + r + splat(1.0f);
    return (vec)((ivec)p + ((ivec)shifted << 23));
}
