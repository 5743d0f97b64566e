/* SPDX-License-Identifier: Apache-2.0 */
#include "axis.h"

#include <assert.h>
#include <math.h>

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic convolution with a = -1/2. The operations and their order are Pillow's: the last bit counts. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* From here on a filter is 0. */
static const double reaches[] = {
    [TSP_BILINEAR] = 1,
    [TSP_BICUBIC] = 2,
};

static double centre_of(const struct tsp_axis *axis, uint32_t destination)
{
    return axis->from + (destination + 0.5) * axis->scale;
}

/* Counted from the first pixel that the filter may see. */
static struct tsp_taps find_taps(const struct tsp_axis *axis, uint32_t destination)
{
    double centre = centre_of(axis, destination);
    double low = centre - axis->reach + 0.5, high = centre + axis->reach + 0.5;
    low = low > 0 ? low : 0;
    high = high < axis->source ? high : axis->source;
    return (struct tsp_taps){(uint32_t)low, (uint32_t)high - (uint32_t)low};
}

void tsp_axis_set(struct tsp_axis *axis, double from, double length, uint32_t source, uint32_t destination,
                  enum tsp_filter filter, bool clip)
{
    axis->origin = clip ? (uint32_t)floor(from) : 0;
    axis->source = clip ? (uint32_t)ceil(from + length) - axis->origin : source;
    from -= axis->origin;
    /* Pillow takes boxes in single precision. */
    float low = (float)from, high = (float)(from + length);
    axis->from = (double)low;
    axis->scale = (double)(high - low) / destination;
    axis->reach = reaches[filter] * fmax(axis->scale, 1); /* enlarging: the filter's own width */
    axis->destination = destination;
    axis->filter = filter;
    struct tsp_taps first = find_taps(axis, 0), last = find_taps(axis, destination - 1);
    axis->start = axis->origin + first.first;
    axis->needed = last.first + last.count - first.first;
}

static int32_t round_weight(double weight)
{
    return (int32_t)(weight * (1 << TSP_WEIGHT_BITS) + (weight < 0 ? -0.5 : 0.5));
}

/* The weights of one destination pixel: they sum to 1 before they are rounded, also where the picture's edge cuts off.
 */
static void weigh(const struct tsp_axis *axis, uint32_t destination, struct tsp_taps taps, int32_t *weights)
{
    double centre = centre_of(axis, destination);
    double shrink = axis->scale > 1 ? 1 / axis->scale : 1;
    double *exact = axis->exact.data;
    double sum = 0;
    for (uint32_t k = 0; k < taps.count; k++) {
        double x = (k + taps.first - centre + 0.5) * shrink;
        exact[k] = axis->filter == TSP_BILINEAR ? bilinear(x) : bicubic(x);
        sum += exact[k];
    }
    for (uint32_t k = 0; k < taps.count; k++)
        weights[k] = round_weight(sum != 0 ? exact[k] / sum : exact[k]);
}

/* Cuts `count` weights into pairs, and fills up with zeros to the end. */
static void cut_weights(const int32_t *weights, uint32_t count, int16_t *pairs, size_t step)
{
    for (size_t k = 0; k < step / 2; k++) {
        int32_t weight = k < count ? weights[k] : 0;
        int16_t *group = pairs + k / TSP_GROUP * TSP_PAIRS + k % TSP_GROUP;
        group[0] = (int16_t)(weight >> TSP_LOW_BITS);
        group[TSP_GROUP] = (int16_t)(weight & ((1 << TSP_LOW_BITS) - 1));
    }
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

bool tsp_axis_prepare(struct tsp_axis *axis, bool mirror)
{
    size_t n = axis->destination, padded = round_up(n, TSP_SQUEEZE_PIXELS);
    size_t max_taps = (size_t)(2 * axis->reach + 1.001); /* the rest is for what rounding does to find_taps */
    size_t step = round_up(max_taps, TSP_GROUP) * 2;
    if (!tsp_buffer_reserve(&axis->taps, padded * sizeof(struct tsp_taps)) ||
        !tsp_buffer_reserve(&axis->whole, n * max_taps * sizeof(int32_t)) ||
        !tsp_buffer_reserve(&axis->pairs, padded * step * sizeof(int16_t)) ||
        !tsp_buffer_reserve(&axis->exact, max_taps * sizeof(double)))
        return false;
    struct tsp_taps *taps = axis->taps.data;
    int32_t *whole = axis->whole.data;
    int16_t *pairs = axis->pairs.data;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = mirror ? axis->destination - 1 - i : i;
        taps[i] = find_taps(axis, at);
        assert(taps[i].count <= max_taps);
        weigh(axis, at, taps[i], whole + i * max_taps);
        cut_weights(whole + i * max_taps, taps[i].count, pairs + i * step, step);
        taps[i].first -= axis->start - axis->origin;
    }
    for (size_t i = n; i < padded; i++) {
        taps[i] = (struct tsp_taps){0, 0};
        cut_weights(NULL, 0, pairs + i * step, step);
    }
    axis->weights = (struct tsp_weights){taps, whole, max_taps, pairs, step};
    return true;
}

void tsp_axis_fini(struct tsp_axis *axis)
{
    free(axis->taps.data);
    free(axis->whole.data);
    free(axis->pairs.data);
    free(axis->exact.data);
}
