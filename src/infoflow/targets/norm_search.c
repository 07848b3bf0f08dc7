/* min over triples a <= b <= c of |x_a + x_b + x_c|^2, tokens sorted along their first coordinate.
 *
 * For fixed a the window of b moves up while c moves down, so every pair (a, c) costs a step. The radius shrinks with the
 * best score found. Scores are summed over increasing positions, coordinate by coordinate, as NormOfSum does; compile
 * without fused multiply-add, so that equal scores stay equal. */
#include <math.h>
#include <stdint.h>

typedef struct {
    double value, radius;
    int64_t place[3];
} Best;

static double score(const double *x, int64_t d, const int64_t *p) {
    double total = 0.0;
    for (int64_t i = 0; i < d; i++) {
        double s = (x[p[0] * d + i] + x[p[1] * d + i]) + x[p[2] * d + i];
        total = i ? total + s * s : s * s;
    }
    return total;
}

static void offer(Best *best, const double *x, int64_t d, int64_t p, int64_t q, int64_t r, double rounding, double floor_) {
    int64_t t[3] = {p, q, r}, swap;
    if (t[0] > t[1]) { swap = t[0]; t[0] = t[1]; t[1] = swap; }
    if (t[1] > t[2]) { swap = t[1]; t[1] = t[2]; t[2] = swap; }
    if (t[0] > t[1]) { swap = t[0]; t[0] = t[1]; t[1] = swap; }
    double value = score(x, d, t);
    int first = t[0] != best->place[0] ? t[0] < best->place[0]
              : t[1] != best->place[1] ? t[1] < best->place[1] : t[2] < best->place[2];
    if (value < best->value || (value == best->value && first)) {
        best->value = value;
        best->radius = sqrt(value) * (1 + rounding) + floor_;
        for (int i = 0; i < 3; i++) best->place[i] = t[i];
    }
}

/* x (B, T, d), place (B, T) the sorted order, line (B, T) the sorted first coordinates -> winners (B, 3). */
void smallest_triples(const double *x, const int64_t *place, const double *line, int64_t B, int64_t T, int64_t d,
                      int64_t apart, double rounding, double underflow, int64_t *winners) {
    for (int64_t n = 0; n < B; n++, x += T * d, place += T, line += T, winners += 3) {
        double size = 0.0;
        for (int64_t i = 0; i < T * d; i++) size = fmax(size, fabs(x[i]));
        double floor_ = rounding * size + underflow;
        Best best = {INFINITY, INFINITY, {T, T, T}};
        offer(&best, x, d, 0, apart, 2 * apart, rounding, floor_);
        for (int64_t a = 0; a < T && line[a] <= best.radius; a++) {
            int64_t low = a + apart;
            for (int64_t c = T - 1; c - apart >= low; c--) {
                double ends = line[a] + line[c];
                while (low <= c - apart && ends + line[low] < -best.radius) low++;
                for (int64_t b = low; b <= c - apart && ends + line[b] <= best.radius; b++) {
                    double limit = best.radius * best.radius * (1 + rounding), square = 0.0;
                    const double *pa = x + place[a] * d, *pb = x + place[b] * d, *pc = x + place[c] * d;
                    for (int64_t i = 0; i < d && square <= limit; i++) {
                        double s = pa[i] + pc[i] + pb[i];
                        square += s * s;
                    }
                    if (square <= limit) offer(&best, x, d, place[a], place[b], place[c], rounding, floor_);
                }
            }
        }
        for (int i = 0; i < 3; i++) winners[i] = best.place[i];
    }
}
