/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define SSE4   __attribute__((target("sse4.1")))
#define AVX2   __attribute__((target("avx2")))
#define INLINE inline __attribute__((always_inline)) /* where a constant argument shall make a loop disappear */

enum {
    ROUND = 1 << (TSP_WEIGHT_BITS - 1),
};

/* Of four RGB pixels the first two, or the last two, as pairs of 16 bits: red red, green green, blue blue, 0 0. */
static const int8_t first_two[16] = {0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1};
static const int8_t last_two[16] = {6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1};
/* Of four pixels of four bytes, the first three bytes of each. */
static const int8_t close_up[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1};

/* The high or low weights of taps `k` and `k + 1`, k even, as one word. */
enum part {
    HIGH = 0,
    LOW = TSP_GROUP,
};

static inline int32_t two_weights(const int16_t *pairs, uint32_t k, enum part part)
{
    int32_t word;
    memcpy(&word, pairs + k / TSP_GROUP * TSP_PAIRS + k % TSP_GROUP + part, sizeof word);
    return word;
}

/* ---- SSE4.1: four sums at a time, each in its two parts ---- */

struct sums4 {
    __m128i high, low;
};

SSE4 static inline __m128i load4(const void *from)
{
    return _mm_loadu_si128(from);
}

SSE4 static inline struct sums4 begin4(void)
{
    return (struct sums4){_mm_setzero_si128(), _mm_set1_epi32(ROUND)};
}

SSE4 static inline struct sums4 add4(struct sums4 sums, __m128i pixels, const int16_t *pairs, uint32_t k)
{
    sums.high = _mm_add_epi32(sums.high, _mm_madd_epi16(pixels, _mm_set1_epi32(two_weights(pairs, k, HIGH))));
    sums.low = _mm_add_epi32(sums.low, _mm_madd_epi16(pixels, _mm_set1_epi32(two_weights(pairs, k, LOW))));
    return sums;
}

SSE4 static inline __m128i end4(struct sums4 sums)
{
    return _mm_srai_epi32(_mm_add_epi32(_mm_slli_epi32(sums.high, TSP_LOW_BITS), sums.low), TSP_WEIGHT_BITS);
}

SSE4 static inline __m128i pack4(__m128i a, __m128i b, __m128i c, __m128i d)
{
    return _mm_packus_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
}

/* Pixel `i` of a row, as three values; `few`: no pixel has more taps than a group. */
SSE4 static INLINE __m128i squeeze_pixel4(const struct tsp_weights *weights, uint32_t i, const uint8_t *row, bool few)
{
    const uint8_t *from = row + (size_t)weights->taps[i].first * 3;
    const int16_t *pairs = weights->pairs + i * (few ? TSP_PAIRS : weights->step);
    uint32_t k = 0;
    struct sums4 sums = begin4();
    do {
        __m128i pixels = load4(from + (size_t)k * 3);
        sums = add4(sums, _mm_shuffle_epi8(pixels, load4(first_two)), pairs, k);
        sums = add4(sums, _mm_shuffle_epi8(pixels, load4(last_two)), pairs, k + 2);
        k += TSP_GROUP;
    } while (!few && k < weights->taps[i].count);
    return end4(sums);
}

SSE4 static INLINE void squeeze_row4(const struct tsp_weights *weights, uint32_t n, const uint8_t *row, uint8_t *to,
                                     bool few)
{
    for (uint32_t i = 0; i < n; i += TSP_SQUEEZE_PIXELS, to += 3 * TSP_SQUEEZE_PIXELS) {
        __m128i four = pack4(squeeze_pixel4(weights, i, row, few), squeeze_pixel4(weights, i + 1, row, few),
                             squeeze_pixel4(weights, i + 2, row, few), squeeze_pixel4(weights, i + 3, row, few));
        _mm_storeu_si128((void *)to, _mm_shuffle_epi8(four, load4(close_up)));
    }
}

SSE4 static void squeeze_sse4(const struct tsp_weights *weights, uint32_t n,
                              const uint8_t *const rows[TSP_SQUEEZE_ROWS], uint8_t *const to[TSP_SQUEEZE_ROWS])
{
    for (int r = 0; r < TSP_SQUEEZE_ROWS; r++) {
        if (weights->step == TSP_PAIRS)
            squeeze_row4(weights, n, rows[r], to[r], true);
        else
            squeeze_row4(weights, n, rows[r], to[r], false);
    }
}

SSE4 static inline __m128i blend_bytes4(const int16_t *pairs, uint32_t count, const uint8_t *const *rows, size_t x)
{
    const __m128i zero = _mm_setzero_si128();
    struct sums4 sums[4] = {begin4(), begin4(), begin4(), begin4()};
    for (uint32_t k = 0; k < count; k += 2) {
        __m128i a = load4(rows[k] + x), b = k + 1 < count ? load4(rows[k + 1] + x) : zero;
        __m128i left = _mm_unpacklo_epi8(a, b), right = _mm_unpackhi_epi8(a, b);
        sums[0] = add4(sums[0], _mm_unpacklo_epi8(left, zero), pairs, k);
        sums[1] = add4(sums[1], _mm_unpackhi_epi8(left, zero), pairs, k);
        sums[2] = add4(sums[2], _mm_unpacklo_epi8(right, zero), pairs, k);
        sums[3] = add4(sums[3], _mm_unpackhi_epi8(right, zero), pairs, k);
    }
    return pack4(end4(sums[0]), end4(sums[1]), end4(sums[2]), end4(sums[3]));
}

SSE4 static void blend_sse4(const struct tsp_weights *weights, uint32_t i, const uint8_t *const *rows, uint8_t *to,
                            size_t n)
{
    const int16_t *pairs = weights->pairs + i * weights->step;
    uint32_t count = weights->taps[i].count;
    size_t x = 0;
    for (; x + sizeof(__m128i) <= n; x += sizeof(__m128i))
        _mm_storeu_si128((void *)(to + x), blend_bytes4(pairs, count, rows, x));
    if (x < n) {
        __m128i rest = blend_bytes4(pairs, count, rows, x);
        memcpy(to + x, &rest, n - x);
    }
}

/* ---- AVX2: the same twice, in the two halves; squeeze has a row in each, and two such pairs ---- */

struct sums8 {
    __m256i high, low;
};

AVX2 static inline __m256i load8(const void *from)
{
    return _mm256_loadu_si256(from);
}

AVX2 static inline __m256i twice(const int8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
}

AVX2 static inline struct sums8 begin8(void)
{
    return (struct sums8){_mm256_setzero_si256(), _mm256_set1_epi32(ROUND)};
}

AVX2 static inline struct sums8 add8(struct sums8 sums, __m256i pixels, const int16_t *pairs, uint32_t k)
{
    sums.high = _mm256_add_epi32(sums.high, _mm256_madd_epi16(pixels, _mm256_set1_epi32(two_weights(pairs, k, HIGH))));
    sums.low = _mm256_add_epi32(sums.low, _mm256_madd_epi16(pixels, _mm256_set1_epi32(two_weights(pairs, k, LOW))));
    return sums;
}

AVX2 static inline __m256i end8(struct sums8 sums)
{
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(sums.high, TSP_LOW_BITS), sums.low), TSP_WEIGHT_BITS);
}

AVX2 static inline __m256i pack8(__m256i a, __m256i b, __m256i c, __m256i d)
{
    return _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
}

/* Pixel `i` of four rows, the first two in made[0]. They share the weights, whose loads would be the bottleneck. */
AVX2 static INLINE void squeeze_pixel8(const struct tsp_weights *weights, uint32_t i,
                                       const uint8_t *const rows[TSP_SQUEEZE_ROWS], bool few, __m256i made[2])
{
    size_t at = (size_t)weights->taps[i].first * 3;
    const int16_t *pairs = weights->pairs + i * (few ? TSP_PAIRS : weights->step);
    uint32_t k = 0;
    struct sums8 sums[2] = {begin8(), begin8()};
    do {
        for (int r = 0; r < 2; r++) {
            __m256i pixels =
                _mm256_loadu2_m128i((const void *)(rows[2 * r + 1] + at), (const void *)(rows[2 * r] + at));
            sums[r] = add8(sums[r], _mm256_shuffle_epi8(pixels, twice(first_two)), pairs, k);
            sums[r] = add8(sums[r], _mm256_shuffle_epi8(pixels, twice(last_two)), pairs, k + 2);
        }
        at += TSP_GROUP * 3;
        k += TSP_GROUP;
    } while (!few && k < weights->taps[i].count);
    made[0] = end8(sums[0]);
    made[1] = end8(sums[1]);
}

AVX2 static INLINE void squeeze_rows8(const struct tsp_weights *weights, uint32_t n,
                                      const uint8_t *const rows[TSP_SQUEEZE_ROWS], uint8_t *const to[TSP_SQUEEZE_ROWS],
                                      bool few)
{
    const uint8_t *const from[TSP_SQUEEZE_ROWS] = {rows[0], rows[1], rows[2], rows[3]};
    for (uint32_t i = 0; i < n; i += TSP_SQUEEZE_PIXELS) {
        __m256i a[2], b[2], c[2], d[2];
        squeeze_pixel8(weights, i, from, few, a);
        squeeze_pixel8(weights, i + 1, from, few, b);
        squeeze_pixel8(weights, i + 2, from, few, c);
        squeeze_pixel8(weights, i + 3, from, few, d);
        for (int r = 0; r < 2; r++) {
            __m256i four = _mm256_shuffle_epi8(pack8(a[r], b[r], c[r], d[r]), twice(close_up));
            _mm256_storeu2_m128i((void *)(to[2 * r + 1] + (size_t)i * 3), (void *)(to[2 * r] + (size_t)i * 3), four);
        }
    }
}

AVX2 static void squeeze_avx2(const struct tsp_weights *weights, uint32_t n,
                              const uint8_t *const rows[TSP_SQUEEZE_ROWS], uint8_t *const to[TSP_SQUEEZE_ROWS])
{
    if (weights->step == TSP_PAIRS)
        squeeze_rows8(weights, n, rows, to, true);
    else
        squeeze_rows8(weights, n, rows, to, false);
}

AVX2 static inline __m256i blend_bytes8(const int16_t *pairs, uint32_t count, const uint8_t *const *rows, size_t x)
{
    const __m256i zero = _mm256_setzero_si256();
    struct sums8 sums[4] = {begin8(), begin8(), begin8(), begin8()};
    for (uint32_t k = 0; k < count; k += 2) {
        __m256i a = load8(rows[k] + x), b = k + 1 < count ? load8(rows[k + 1] + x) : zero;
        __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
        sums[0] = add8(sums[0], _mm256_unpacklo_epi8(left, zero), pairs, k);
        sums[1] = add8(sums[1], _mm256_unpackhi_epi8(left, zero), pairs, k);
        sums[2] = add8(sums[2], _mm256_unpacklo_epi8(right, zero), pairs, k);
        sums[3] = add8(sums[3], _mm256_unpackhi_epi8(right, zero), pairs, k);
    }
    return pack8(end8(sums[0]), end8(sums[1]), end8(sums[2]), end8(sums[3]));
}

AVX2 static void blend_avx2(const struct tsp_weights *weights, uint32_t i, const uint8_t *const *rows, uint8_t *to,
                            size_t n)
{
    const int16_t *pairs = weights->pairs + i * weights->step;
    uint32_t count = weights->taps[i].count;
    size_t x = 0;
    for (; x + sizeof(__m256i) <= n; x += sizeof(__m256i))
        _mm256_storeu_si256((void *)(to + x), blend_bytes8(pairs, count, rows, x));
    if (x < n) {
        __m256i rest = blend_bytes8(pairs, count, rows, x);
        memcpy(to + x, &rest, n - x);
    }
}

/* ---- dispatch ---- */

const struct tsp_kernels *tsp_kernels_x86_at(size_t number)
{
    static const struct tsp_kernels sse4 = {"sse4.1", squeeze_sse4, blend_sse4};
    static const struct tsp_kernels avx2 = {"avx2", squeeze_avx2, blend_avx2};
    if (number == 0 && __builtin_cpu_supports("sse4.1"))
        return &sse4;
    if (number == 1 && __builtin_cpu_supports("avx2"))
        return &avx2;
    return NULL;
}

#else

const struct tsp_kernels *tsp_kernels_x86_at(size_t number)
{
    (void)number;
    return NULL;
}

#endif
