/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include "kernels_neon.h"
#include "kernels_x86.h"

enum {
    ROUND = 1 << (TSP_WEIGHT_BITS - 1),
};

static uint8_t to_pixel(int32_t sum)
{
    int32_t value = sum >> TSP_WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void squeeze_row(const struct tsp_weights *weights, uint32_t n, const uint8_t *row, uint8_t *to)
{
    for (uint32_t i = 0; i < n; i++, to += 3) {
        const int32_t *w = weights->whole + i * weights->max_taps;
        const uint8_t *from = row + (size_t)weights->taps[i].first * 3;
        int32_t red = ROUND, green = ROUND, blue = ROUND;
        for (uint32_t k = 0; k < weights->taps[i].count; k++, from += 3) {
            red += from[0] * w[k];
            green += from[1] * w[k];
            blue += from[2] * w[k];
        }
        to[0] = to_pixel(red);
        to[1] = to_pixel(green);
        to[2] = to_pixel(blue);
    }
}

static void squeeze(const struct tsp_weights *weights, uint32_t n, const uint8_t *const rows[TSP_SQUEEZE_ROWS],
                    uint8_t *const to[TSP_SQUEEZE_ROWS])
{
    for (int r = 0; r < TSP_SQUEEZE_ROWS; r++)
        squeeze_row(weights, n, rows[r], to[r]);
}

enum {
    STRIP = 256, /* sums that stay in the cache while the rows pass */
};

static void blend_strip(const int32_t *weights, uint32_t count, const uint8_t *const *rows, size_t at,
                        uint8_t *restrict to, size_t n)
{
    int32_t sums[STRIP];
    for (size_t x = 0; x < n; x++)
        sums[x] = ROUND;
    for (uint32_t k = 0; k < count; k++)
        for (size_t x = 0; x < n; x++)
            sums[x] += rows[k][at + x] * weights[k];
    for (size_t x = 0; x < n; x++)
        to[x] = to_pixel(sums[x]);
}

static void blend(const struct tsp_weights *weights, uint32_t i, const uint8_t *const *rows, uint8_t *to, size_t n)
{
    const int32_t *w = weights->whole + i * weights->max_taps;
    for (size_t x = 0; x < n; x += STRIP)
        blend_strip(w, weights->taps[i].count, rows, x, to + x, n - x < STRIP ? n - x : STRIP);
}

static const struct tsp_kernels scalar = {"scalar", squeeze, blend};

const struct tsp_kernels *tsp_kernels_at(size_t number)
{
    if (number == 0)
        return &scalar;
    return number == 1 && tsp_kernels_neon() ? tsp_kernels_neon() : tsp_kernels_x86_at(number - 1);
}

const struct tsp_kernels *tsp_kernels_best(void)
{
    size_t n = 0;
    while (tsp_kernels_at(n + 1))
        n++;
    return tsp_kernels_at(n);
}
