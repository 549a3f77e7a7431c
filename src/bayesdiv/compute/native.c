/* What a CPU repeats for every weight in every step, in one pass: see native.py, noise.py and
   table.py, whose plain operations do the same.

   Loops are split so that each becomes vector instructions; their arrays stay in the cache. */

#include <math.h>
#include <stdint.h>

#define CHUNK 512
#define WIDEST 1e18f /* the ratio of two scales whose square is a number */
#define WIDTH 8 /* numbers a node: value, by η, by D, by η twice, by both, by D twice, nothing */
#define EACH _Pragma("omp simd") for (int i = 0; i < count; i++)

/* Of the table: the range of η, rows a unit of η, the greatest D, columns less one. */
typedef struct { float lowest, highest, steps, farthest, columns; } Grid;

/* 2 (s + s³/3 + s⁵/5 + …), s = (m-1)/(m+1), for x = m 2^e and m in [√½, √2): to 1e-9. */
static inline float log_of(float x) {
    union { float number; int32_t bits; } whole = {x}, part;
    int32_t e = (whole.bits - 0x3f3504f3) >> 23;
    part.bits = whole.bits - e * (1 << 23);
    float s = (part.number - 1) / (part.number + 1), square = s * s;
    float series = ((square * (2.0f / 9) + 2.0f / 7) * square + 2.0f / 5) * square + 2.0f / 3;
    float log = (float)e * 0.69314718f + (2 * s + s * square * series);
    return x == x ? log : x; /* the bits of NaN are no number */
}

/* `each` is 0 for a prior that all weights share and 1 for one of each weight's own. */
static inline __attribute__((always_inline)) float chunk(
    const Grid grid, const float *restrict table, const float *restrict loc,
    const float *restrict scale, const float *restrict prior_loc, const float *restrict prior_scale,
    const int each, float *restrict by_loc, float *restrict by_scale, int count) {
    const float span = grid.highest - grid.lowest, a_column = grid.farthest / grid.columns;
    float value[CHUNK], eta_off[CHUNK], distance_off[CHUNK], root[CHUNK], drag[CHUNK];
    float node[WIDTH][CHUNK];
    int32_t start[CHUNK];
    EACH {
        float s = scale[i], p = prior_scale[each ? i : 0], away = loc[i] - prior_loc[each ? i : 0];
        /* In units of p, as s * s may overflow and p * p underflow. NaN passes the comparison. */
        float ratio = s / p;
        ratio = ratio > WIDEST ? WIDEST : ratio;
        float inverse = 1 / (p * sqrtf(1 + ratio * ratio));
        float distance = fabsf(away) * inverse, eta = log_of(ratio) - grid.lowest;
        /* Comparisons that NaN passes unchanged, so that it reaches the sum. */
        distance = distance > grid.farthest ? grid.farthest : distance;
        eta = eta < 0 ? 0 : eta;
        eta = eta > span ? span : eta;
        float row = rintf(eta * grid.steps), column = rintf(distance * (1 / a_column));
        float place = row * (grid.columns + 1) + column;
        place = place >= 0 ? place : 0;
        start[i] = WIDTH * (int32_t)place;
        eta_off[i] = eta - row * (1 / grid.steps);
        distance_off[i] = distance - column * a_column;
        root[i] = copysignf(inverse, away);
        float share = inverse * p * ratio; /* its square is s²/(p² + s²) */
        drag[i] = distance * share * share; /* -∂D/∂log scale */
    }
    for (int i = 0; i < count; i++) {
        const float *from = table + start[i];
        for (int k = 0; k < 6; k++) node[k][i] = from[k];
    }
    EACH {
        float u = eta_off[i], v = distance_off[i];
        float eta_slope = node[1][i] + node[3][i] * u + node[4][i] * v;
        float slope = node[2][i] + node[4][i] * u + node[5][i] * v;
        /* The mean of a derivative at the node and here, times the way, to second order. */
        value[i] = node[0][i] + 0.5f * (u * (node[1][i] + eta_slope) + v * (node[2][i] + slope));
        by_loc[i] = slope * root[i];
        by_scale[i] = (eta_slope - slope * drag[i]) / scale[i];
    }
    float total = 0;
    _Pragma("omp simd reduction(+ : total)")
    for (int i = 0; i < count; i++) total += value[i];
    return total;
}

int64_t chunk_size(void) { return CHUNK; }

/* One sum a chunk, so that their order, and the last digit, do not depend on the threads. */
void table_sums(
    const Grid *grid, const float *table, const float *loc, const float *scale,
    const float *prior_loc, const float *prior_scale, int each, float *by_loc, float *by_scale,
    double *values, int64_t count, int threads) {
    int64_t chunks = (count + CHUNK - 1) / CHUNK;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t at = c * CHUNK;
        int some = count - at < CHUNK ? (int)(count - at) : CHUNK;
        values[c] = each
            ? chunk(*grid, table, loc + at, scale + at, prior_loc + at, prior_scale + at, 1,
                    by_loc + at, by_scale + at, some)
            : chunk(*grid, table, loc + at, scale + at, prior_loc, prior_scale, 0,
                    by_loc + at, by_scale + at, some);
    }
}

/* sin(π x) for |x| ≤ ½, by its series: to 6e-8. */
static inline float sin_pi(float x) {
    float y = 3.14159265f * x, q = y * y;
    float series = ((-q / 39916800 + 1.0f / 362880) * q - 1.0f / 5040) * q + 1.0f / 120;
    return y + y * q * (series * q - 1.0f / 6);
}

/* Normal numbers in the place of `pairs` random words and as many after them, in each row
   (Box-Muller):

       √(-2 log u) (cos π t, sin π t),   t in [-1, 1) of the second word

   u in (0, 1] has 31 bits of the first word and, below them, the 17 that t needs least. */
void normals(int32_t *words, int64_t rows, int64_t pairs, int threads) {
    int64_t chunks = (pairs + CHUNK - 1) / CHUNK;
    #pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < rows * chunks; c++) {
        int64_t at = c % chunks * CHUNK;
        int32_t *ones = words + c / chunks * 2 * pairs + at, *twos = ones + pairs;
        int count = pairs - at < CHUNK ? (int)(pairs - at) : CHUNK;
        EACH {
            union { int32_t word; float number; } one = {ones[i]}, two = {twos[i]};
            float u = (float)(int32_t)((uint32_t)one.word >> 1) * 0x1p-31f;
            float t = (float)two.word * 0x1p-31f;
            u += ((float)(two.word & 0x1ffff) + 0.5f) * 0x1p-48f;
            float radius = sqrtf(-2 * log_of(u)), turn = fabsf(t);
            one.number = radius * sin_pi(0.5f - turn);
            two.number = radius * copysignf(sin_pi(0.5f - fabsf(turn - 0.5f)), t);
            ones[i] = one.word;
            twos[i] = two.word;
        }
    }
}

/* The next words of a generator of NumPy, SFC64, whose state begins with a, b, c and a counter. */
void words(uint64_t *restrict state, uint64_t *restrict into, int64_t count) {
    uint64_t a = state[0], b = state[1], c = state[2], counter = state[3];
    for (int64_t i = 0; i < count; i++) {
        into[i] = a + b + counter++;
        a = b ^ (b >> 11);
        b = c + (c << 3);
        c = ((c << 24) | (c >> 40)) + into[i];
    }
    state[0] = a, state[1] = b, state[2] = c, state[3] = counter;
}
