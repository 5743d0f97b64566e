/* SPDX-License-Identifier: Apache-2.0 */
#include "spans.h"

#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The first span that ends at `from` or behind it. */
static uint32_t place_of(const struct tsc_spans *spans, uint64_t from)
{
    uint32_t i = 0;

    while (i < spans->n && spans->items[i].to < from)
        i++;
    return i;
}

/* Puts one span in the place of the `n` that begin at number i. */
static void replace(struct tsc_spans *spans, uint32_t i, uint32_t n, struct tsc_span by)
{
    if (n == 0 && spans->n == TSC_SPANS_MAX) {
        spans->full = true;
        return;
    }
    memmove(&spans->items[i + 1], &spans->items[i + n], (spans->n - i - n) * sizeof(by));
    spans->items[i] = by;
    spans->n = spans->n - n + 1;
}

struct tsc_span tsc_spans_add(struct tsc_spans *spans, uint64_t from, uint64_t to)
{
    uint32_t i = place_of(spans, from), n = 0;
    struct tsc_span sum = {from, to}, twice = {0, 0};

    if (from >= to)
        return twice;
    for (; i + n < spans->n && spans->items[i + n].from <= to; n++) {
        const struct tsc_span *item = &spans->items[i + n];

        if (twice.from == twice.to && MAX(from, item->from) < MIN(to, item->to))
            twice = (struct tsc_span){MAX(from, item->from), MIN(to, item->to)};
        sum = (struct tsc_span){MIN(sum.from, item->from), MAX(sum.to, item->to)};
    }
    replace(spans, i, n, sum);
    return twice;
}

static void drop(struct tsc_spans *spans, uint32_t i)
{
    spans->n--;
    memmove(&spans->items[i], &spans->items[i + 1], (spans->n - i) * sizeof(spans->items[0]));
}

uint64_t tsc_spans_remove(struct tsc_spans *spans, uint64_t from, uint64_t to)
{
    uint64_t removed = 0;
    uint32_t i = 0;

    while (i < spans->n && from < to) {
        struct tsc_span item = spans->items[i];
        uint64_t begin = MAX(from, item.from), end = MIN(to, item.to);

        if (begin >= end) {
            i++;
            continue;
        }
        removed += end - begin;
        drop(spans, i);
        if (end < item.to)
            replace(spans, i, 0, (struct tsc_span){end, item.to});
        if (item.from < begin)
            replace(spans, i++, 0, (struct tsc_span){item.from, begin});
    }
    return removed;
}

struct tsc_span tsc_spans_missing(const struct tsc_spans *spans, uint64_t from, uint64_t to)
{
    for (uint32_t i = 0; i < spans->n && from < to; i++) {
        const struct tsc_span *item = &spans->items[i];

        if (item->from > from)
            return (struct tsc_span){from, MIN(to, item->from)};
        from = MAX(from, item->to);
    }
    return from < to ? (struct tsc_span){from, to} : (struct tsc_span){0, 0};
}
