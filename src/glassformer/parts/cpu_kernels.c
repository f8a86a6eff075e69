/* Kernels for a processor, of decoding steps and of the loss. `cpu_kernels.py` says what each is for.

   B sentences, k beams, H heads, G key-value heads, N slots, K head width, R rows, D inputs, F outputs, V vocabulary */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define SLOTS 4096   /* of a sentence: more are left to PyTorch */
#define BLOCKS 16    /* of 16 features: the widest head */
#define BOUNDARY 64  /* tokens of a vocabulary that are compared at once with the least that was found */
#define SHIFT 12582912.0f /* 1.5 · 2²³: what is added to it loses its fraction, rounded to even */

typedef float features __attribute__((vector_size(64), aligned(4), may_alias));

#ifdef _OPENMP
#include <omp.h>
void use_threads(int count) { omp_set_num_threads(count); }
#endif

/* e^x for x ≤ 0: x = n ln 2 + r, and a polynomial for e^r. Not a number stays not a number. */
INLINE float power(float x) {
    float n = (x * 1.44269504f + SHIFT) - SHIFT;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { int32_t bits; float value; } two = { (int32_t)((uint32_t)((int32_t)n + 127) << 23) };
    return x < -87.0f ? 0.0f : p * two.value;
}

INLINE float total(features x) {
    typedef float half __attribute__((vector_size(32)));
    typedef float quarter __attribute__((vector_size(16)));
    union { features x; half parts[2]; } whole = { x };
    union { half x; quarter parts[2]; } halves = { whole.parts[0] + whole.parts[1] };
    quarter four = halves.parts[0] + halves.parts[1];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

/* One head of one sentence: its k queries over the slots that each may see. `blocks` of 16 features are a constant
   wherever this is used, so that queries and sums stay in registers. */
INLINE void attend_head(const float *query, long query_beam, const float *key, long key_slot, const float *value,
                        long value_slot, const uint8_t *seen, long seen_beam, float *output, long output_beam,
                        long beams, long slots, const long blocks, float scale) {
    float weights[SLOTS];
    int32_t places[SLOTS];
    long count = slots;
    for (long n = 0; !seen && n < slots; n++) places[n] = (int32_t)n;
    for (long b = 0; b < beams; b++) {
        features q[BLOCKS], taken[BLOCKS];
        float highest = -INFINITY, sum = 0;
        if (seen && (b == 0 || seen_beam)) {
            const uint8_t *allowed = seen + b * seen_beam;
            count = 0;
            for (long n = 0; n < slots; n++) {
                places[count] = (int32_t)n;
                count += allowed[n] != 0;
            }
        }
        _Pragma("GCC unroll 16") for (long d = 0; d < blocks; d++) {
            q[d] = *(const features *)(query + b * query_beam + 16 * d) * scale;
            taken[d] = (features){0};
        }
        for (long i = 0; i < count; i++) {
            const float *here = key + places[i] * key_slot;
            features product = q[0] * *(const features *)here;
            _Pragma("GCC unroll 16") for (long d = 1; d < blocks; d++)
                product += q[d] * *(const features *)(here + 16 * d);
            weights[i] = total(product);
        }
        #pragma omp simd reduction(max : highest)
        for (long i = 0; i < count; i++) highest = weights[i] > highest ? weights[i] : highest;
        #pragma omp simd reduction(+ : sum)
        for (long i = 0; i < count; i++) {
            weights[i] = power(weights[i] - highest);
            sum += weights[i];
        }
        for (long i = 0; i < count; i++) {
            const float *here = value + places[i] * value_slot;
            float weight = weights[i];
            _Pragma("GCC unroll 16") for (long d = 0; d < blocks; d++)
                taken[d] += *(const features *)(here + 16 * d) * weight;
        }
        float share = count ? 1.0f / sum : 0.0f; /* who may attend to nothing takes in nothing */
        _Pragma("GCC unroll 16") for (long d = 0; d < blocks; d++)
            *(features *)(output + b * output_beam + 16 * d) = taken[d] * share;
    }
}

/* Queries (B, H, k, K), keys and values (B, G, N, K), seen (B, k or 1, N) or none, output (B, k, H, K).
   strides: of sentence, head and beam or slot of queries, keys and values; of sentence and beam of seen */
void attend(const float *query, const float *key, const float *value, const uint8_t *seen, float *output,
            const int64_t *sizes, const int64_t *strides, float scale) {
    const long sentences = sizes[0], heads = sizes[1], groups = sizes[2], beams = sizes[3], slots = sizes[4],
               width = sizes[5];
    #pragma omp parallel for collapse(2) schedule(static) if (sentences * heads * beams * slots * width > 200000)
    for (long s = 0; s < sentences; s++)
        for (long h = 0; h < heads; h++) {
            const long group = h / (heads / groups);
            const float *q = query + s * strides[0] + h * strides[1];
            const float *k = key + s * strides[3] + group * strides[4];
            const float *v = value + s * strides[6] + group * strides[7];
            const uint8_t *allowed = seen ? seen + s * strides[9] : 0;
            float *to = output + (s * beams * heads + h) * width;
#define HEAD(BLOCKS_OF_16) attend_head(q, strides[2], k, strides[5], v, strides[8], allowed, strides[10], to, \
                                       heads * width, beams, slots, BLOCKS_OF_16, scale)
            if (width == 64) HEAD(4);
            else if (width == 32) HEAD(2);
            else if (width == 128) HEAD(8);
            else HEAD(width / 16);
        }
}

/* The log-probabilities of the `count` likeliest of each row of logits (R, V), and which they are, (R, count) each. */
void likeliest(const float *logits, float *values, int64_t *tokens, long rows, long vocabulary, long count) {
    #pragma omp parallel for schedule(static) if (rows * vocabulary > 50000)
    for (long r = 0; r < rows; r++) {
        const float *x = logits + r * vocabulary;
        float *best = values + r * count, least = -INFINITY, highest = -INFINITY, sum = 0;
        int64_t *which = tokens + r * count;
        long found = 0;
        for (long first = 0; first < vocabulary; first += BOUNDARY) {
            const long last = first + BOUNDARY < vocabulary ? first + BOUNDARY : vocabulary;
            float peak = -INFINITY;
            #pragma omp simd reduction(max : peak)
            for (long n = first; n < last; n++) peak = x[n] > peak ? x[n] : peak;
            if (!(peak > least)) continue;
            highest = peak > highest ? peak : highest;
            for (long n = first; n < last; n++) {
                if (!(x[n] > least)) continue;
                long place = found < count ? found++ : count - 1;
                for (; place > 0 && best[place - 1] < x[n]; place--) {
                    best[place] = best[place - 1];
                    which[place] = which[place - 1];
                }
                best[place] = x[n];
                which[place] = n;
                if (found == count) least = best[count - 1];
            }
        }
        #pragma omp simd reduction(+ : sum)
        for (long n = 0; n < vocabulary; n++) sum += power(x[n] - highest);
        const float level = highest + logf(sum);
        for (; found < count; found++) { /* all others have probability 0 */
            best[found] = -INFINITY;
            which[found] = 0;
        }
        for (long n = 0; n < count; n++) best[n] -= level;
    }
}

INLINE float wide(uint16_t x) { /* bfloat16: the upper half of a float */
    union { uint32_t bits; float value; } all = { (uint32_t)x << 16 };
    return all.value;
}

INLINE uint16_t narrow(float x) { /* to the nearest, to even if there are two */
    union { float value; uint32_t bits; } all = { x };
    const uint32_t rounded = (all.bits + 0x7fff + ((all.bits >> 16) & 1)) >> 16;
    return x != x ? 0x7fc0 : (uint16_t)rounded;
}

/* The loss of each row of logits (R, V), which become the slope of the sum of all; x: a row as floats, and its room.
   A row whose right token is negative does not count. */
INLINE float smoothed_row(float *x, long right, long vocabulary, float smoothing) {
    const float spread = smoothing / (float)vocabulary;
    float highest = -INFINITY, sum = 0, all = 0;
    #pragma omp simd reduction(max : highest)
    for (long n = 0; n < vocabulary; n++) highest = x[n] > highest ? x[n] : highest;
    const float chosen = x[right] - highest;
    #pragma omp simd reduction(+ : sum, all)
    for (long n = 0; n < vocabulary; n++) {
        const float below = x[n] - highest;
        all += below;
        x[n] = power(below);
        sum += x[n];
    }
    const float level = logf(sum), share = 1.0f / sum;
    #pragma omp simd
    for (long n = 0; n < vocabulary; n++) x[n] = x[n] * share - spread;
    x[right] -= 1 - smoothing;
    return (smoothing - 1) * (chosen - level) - spread * (all - (float)vocabulary * level);
}

/* In 16 bits (bfloat16) or 32. 1: there is no memory; 2: a right token is not in the vocabulary. */
long smoothed(void *logits, const int64_t *right, float *losses, long rows, long vocabulary, float smoothing,
              long bits) {
    long failed = 0;
    for (long r = 0; r < rows; r++)
        if (right[r] >= vocabulary) return 2;
    #pragma omp parallel if (rows * vocabulary > 50000) reduction(+ : failed)
    {
        float *room = bits == 16 ? malloc(vocabulary * sizeof(float)) : 0;
        failed = bits == 16 && !room;
        #pragma omp for schedule(static)
        for (long r = 0; r < rows; r++) {
            uint16_t *half = (uint16_t *)logits + r * vocabulary;
            float *x = bits == 16 ? room : (float *)logits + r * vocabulary;
            losses[r] = 0;
            if (failed) continue;
            if (right[r] < 0) {
                if (bits == 16) memset(half, 0, vocabulary * sizeof(uint16_t));
                else memset(x, 0, vocabulary * sizeof(float));
                continue;
            }
            for (long n = 0; bits == 16 && n < vocabulary; n++) x[n] = wide(half[n]);
            losses[r] = smoothed_row(x, right[r], vocabulary, smoothing);
            for (long n = 0; bits == 16 && n < vocabulary; n++) half[n] = narrow(x[n]);
        }
        free(room);
    }
    return failed > 0;
}

/* Products in 8 bits: four of them are multiplied and added at once where the processor has VNNI instructions. A tile
   is ROWS rows by TILE vectors of LANES outputs, whose sums stay in registers; the weights of a tile lie one after the
   other in the order in which it reads them: (D / 4, TILE, LANES, 4). */
#if defined(__AVX512VNNI__)
#define LANES 16
#define TILE 4
#define DOT "vpdpbusd %2, %1, %0"
#define REGISTER "v"
#elif defined(__AVXVNNI__)
#define LANES 8
#define TILE 2
#define DOT "%{vex%} vpdpbusd %2, %1, %0"
#define REGISTER "x"
#else
#define LANES 0
#define TILE 0
#endif
#define ROWS 6

long lanes(void) { return LANES; }
long outputs_of_a_tile(void) { return LANES * TILE; }

#if LANES
/* Vectors (R, D) in whole numbers around 128, the largest of a vector 127 away, and the largest of each, (R): not a
   number where one of the vector is not finite, since whole numbers do not show it. */
static void in_8_bits(const float *x, uint8_t *whole, float *largest, long rows, long inputs) {
    #pragma omp parallel for schedule(static) if (rows * inputs > 100000)
    for (long r = 0; r < rows; r++) {
        const float *row = x + r * inputs;
        uint8_t *to = whole + r * inputs;
        float peak = 1e-12f, wrong = 0;
        #pragma omp simd reduction(max : peak) reduction(+ : wrong)
        for (long d = 0; d < inputs; d++) {
            float size = fabsf(row[d]);
            peak = size > peak ? size : peak;
            wrong += size - size; /* 0 for a number */
        }
        const float factor = 127.0f / peak;
        #pragma omp simd
        for (long d = 0; d < inputs; d++) to[d] = (uint8_t)((int32_t)((row[d] * factor + SHIFT) - SHIFT) + 128);
        largest[r] = peak + wrong;
    }
}

typedef int32_t sums __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float numbers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE void tile(const uint8_t *x, const float *largest, const int8_t *weight, const int32_t *offsets,
                 const float *scales, const float *bias, float *y, const long rows, long inputs, long outputs,
                 long left) {
    sums each[ROWS][TILE], some[TILE];
    _Pragma("GCC unroll 6") for (long r = 0; r < rows; r++)
        _Pragma("GCC unroll 4") for (long t = 0; t < TILE; t++) each[r][t] = (sums){0};
    for (long d = 0; d < inputs; d += 4) {
        _Pragma("GCC unroll 4") for (long t = 0; t < TILE; t++)
            some[t] = *(const sums *)(weight + (d * TILE + 4 * t) * LANES);
        _Pragma("GCC unroll 6") for (long r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * inputs + d, 4);
            sums same = (sums){0} + four;
            /* by hand, since compilers copy the sums of the intrinsic from register to register */
            _Pragma("GCC unroll 4") for (long t = 0; t < TILE; t++)
                __asm__(DOT : "+" REGISTER(each[r][t]) : REGISTER(same), REGISTER(some[t]));
        }
    }
    _Pragma("GCC unroll 4") for (long t = 0; t < TILE; t++) {
        const long real = left - t * LANES < LANES ? left - t * LANES : LANES;
        const sums less = *(const sums *)(offsets + t * LANES);
        const numbers scale = *(const numbers *)(scales + t * LANES), add = *(const numbers *)(bias + t * LANES);
        if (real <= 0) continue;
        _Pragma("GCC unroll 6") for (long r = 0; r < rows; r++) {
            numbers result = __builtin_convertvector(each[r][t] - less, numbers) * scale * largest[r] + add;
            if (real == LANES) *(numbers *)(y + r * outputs + t * LANES) = result;
            else memcpy(y + r * outputs + t * LANES, &result, real * sizeof(float));
        }
    }
}

/* Vectors (R, D) by a matrix in tiles: (R, F). Each vector is rounded to 8 bits first; not 0: there is no memory.
   offsets: 128 times the sum of each output's weights; offsets, scales and bias are filled up to whole tiles */
long multiply(const float *x, const int8_t *weight, const int32_t *offsets, const float *scales, const float *bias,
              float *y, long rows, long inputs, long outputs) {
    float *largest = malloc(rows * (sizeof(float) + inputs));
    uint8_t *whole = (uint8_t *)(largest + rows);
    if (!largest) return 1;
    in_8_bits(x, whole, largest, rows, inputs);
    #pragma omp parallel for schedule(static) if (rows * inputs * outputs > 2000000)
    for (long first = 0; first < outputs; first += LANES * TILE) {
        long r = 0;
#define ROWS_OF_A_TILE(COUNT) tile(whole + r * inputs, largest + r, weight + first * inputs, offsets + first, \
                                   scales + first, bias + first, y + r * outputs + first, COUNT, inputs, outputs, \
                                   outputs - first)
        for (; r + ROWS <= rows; r += ROWS) ROWS_OF_A_TILE(ROWS);
        switch (rows - r) {
            case 5: ROWS_OF_A_TILE(5); break;
            case 4: ROWS_OF_A_TILE(4); break;
            case 3: ROWS_OF_A_TILE(3); break;
            case 2: ROWS_OF_A_TILE(2); break;
            case 1: ROWS_OF_A_TILE(1); break;
        }
    }
    free(largest);
    return 0;
}
#endif
