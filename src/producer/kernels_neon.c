/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels_neon.h"

#if defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>
#include <string.h>

/*
 * Here vectors multiply 32 bits as fast as 16: the weights are taken whole, and the sums are those of the scalar loops,
 * four at a time.
 */
enum {
    ROUND = 1 << (TSP_WEIGHT_BITS - 1),
    AT_ONCE = 16, /* bytes of a vector */
    NONE = 255,   /* a table's entry for 0 */
};

/* One of four RGB pixels as three words and a word of 0. */
static const uint8_t pixel_tables[TSP_GROUP][AT_ONCE] = {
    {0, NONE, NONE, NONE, 1, NONE, NONE, NONE, 2, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
    {3, NONE, NONE, NONE, 4, NONE, NONE, NONE, 5, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
    {6, NONE, NONE, NONE, 7, NONE, NONE, NONE, 8, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
    {9, NONE, NONE, NONE, 10, NONE, NONE, NONE, 11, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
};

/* Of four pixels of four bytes, the first three bytes of each. */
static const uint8_t close_up[AT_ONCE] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, NONE, NONE, NONE, NONE};

static inline uint16x4_t end(int32x4_t sum)
{
    return vqmovun_s32(vshrq_n_s32(sum, TSP_WEIGHT_BITS));
}

static inline uint8x16_t pack(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d)
{
    return vcombine_u8(vqmovn_u16(vcombine_u16(end(a), end(b))), vqmovn_u16(vcombine_u16(end(c), end(d))));
}

/* Pixel `i` of a row, as three sums. */
static inline int32x4_t squeeze_pixel(const struct tsp_weights *weights, uint32_t i, const uint8_t *row)
{
    const struct tsp_taps taps = weights->taps[i];
    const int32_t *w = weights->whole + i * weights->max_taps;
    const uint8_t *from = row + (size_t)taps.first * 3;
    int32x4_t sum = vdupq_n_s32(ROUND);
    for (uint32_t k = 0; k < taps.count; k += TSP_GROUP, from += 3 * TSP_GROUP) {
        uint8x16_t pixels = vld1q_u8(from);
        for (uint32_t j = 0; j < TSP_GROUP && k + j < taps.count; j++) {
            uint8x16_t pixel = vqtbl1q_u8(pixels, vld1q_u8(pixel_tables[j]));
            sum = vmlaq_n_s32(sum, vreinterpretq_s32_u8(pixel), w[k + j]);
        }
    }
    return sum;
}

static void squeeze_row(const struct tsp_weights *weights, uint32_t n, const uint8_t *row, uint8_t *to)
{
    for (uint32_t i = 0; i < n; i += TSP_SQUEEZE_PIXELS, to += 3 * TSP_SQUEEZE_PIXELS) {
        uint8x16_t four = pack(squeeze_pixel(weights, i, row), squeeze_pixel(weights, i + 1, row),
                               squeeze_pixel(weights, i + 2, row), squeeze_pixel(weights, i + 3, row));
        vst1q_u8(to, vqtbl1q_u8(four, vld1q_u8(close_up)));
    }
}

static void squeeze(const struct tsp_weights *weights, uint32_t n, const uint8_t *const rows[TSP_SQUEEZE_ROWS],
                    uint8_t *const to[TSP_SQUEEZE_ROWS])
{
    for (int r = 0; r < TSP_SQUEEZE_ROWS; r++)
        squeeze_row(weights, n, rows[r], to[r]);
}

static inline int32x4_t add(int32x4_t sum, uint16x4_t pixels, int32_t weight)
{
    return vmlaq_n_s32(sum, vreinterpretq_s32_u32(vmovl_u16(pixels)), weight);
}

static inline uint8x16_t blend_bytes(const int32_t *w, uint32_t count, const uint8_t *const *rows, size_t x)
{
    const int32x4_t round = vdupq_n_s32(ROUND);
    int32x4_t a = round, b = round, c = round, d = round;
    for (uint32_t k = 0; k < count; k++) {
        uint8x16_t pixels = vld1q_u8(rows[k] + x);
        uint16x8_t low = vmovl_u8(vget_low_u8(pixels)), high = vmovl_u8(vget_high_u8(pixels));
        a = add(a, vget_low_u16(low), w[k]);
        b = add(b, vget_high_u16(low), w[k]);
        c = add(c, vget_low_u16(high), w[k]);
        d = add(d, vget_high_u16(high), w[k]);
    }
    return pack(a, b, c, d);
}

static void blend(const struct tsp_weights *weights, uint32_t i, const uint8_t *const *rows, uint8_t *to, size_t n)
{
    const int32_t *w = weights->whole + i * weights->max_taps;
    uint32_t count = weights->taps[i].count;
    size_t x = 0;
    for (; x + AT_ONCE <= n; x += AT_ONCE)
        vst1q_u8(to + x, blend_bytes(w, count, rows, x));
    if (x < n) {
        uint8x16_t rest = blend_bytes(w, count, rows, x);
        memcpy(to + x, &rest, n - x);
    }
}

const struct tsp_kernels *tsp_kernels_neon(void)
{
    static const struct tsp_kernels neon = {"neon", squeeze, blend};
    return &neon;
}

#else

const struct tsp_kernels *tsp_kernels_neon(void)
{
    return NULL;
}

#endif
