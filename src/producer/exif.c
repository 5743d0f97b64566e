/* SPDX-License-Identifier: Apache-2.0 */
#include "exif.h"

enum {
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
    TYPE_LONG = 4,
    HEADER_BYTES = 8,
    ENTRY_BYTES = 12,
};

/* A TIFF structure and its byte order. Reading past its end gives zeros. */
struct tiff {
    const uint8_t *data;
    size_t len;
    bool big;
};

static uint32_t read_number(const struct tiff *tiff, size_t at, uint32_t bytes)
{
    uint32_t value = 0;
    if (at > tiff->len || bytes > tiff->len - at)
        return 0;
    for (uint32_t i = 0; i < bytes; i++)
        value = value << 8 | tiff->data[at + (tiff->big ? i : bytes - 1 - i)];
    return value;
}

/* The value of the entry at `at`, if it is an orientation; 0 if not. */
static uint32_t read_entry(const struct tiff *tiff, size_t at)
{
    uint32_t type = read_number(tiff, at + 2, 2);
    if (read_number(tiff, at, 2) != TAG_ORIENTATION || read_number(tiff, at + 4, 4) != 1)
        return 0;
    if (type != TYPE_SHORT && type != TYPE_LONG)
        return 0;
    return read_number(tiff, at + 8, type == TYPE_SHORT ? 2 : 4);
}

uint32_t tsp_exif_orientation(const uint8_t *data, size_t len)
{
    struct tiff tiff = {data, len, false};
    if (len < HEADER_BYTES || data[0] != data[1] || (data[0] != 'I' && data[0] != 'M'))
        return 1;
    tiff.big = data[0] == 'M';
    if (read_number(&tiff, 2, 2) != 42)
        return 1;
    size_t directory = read_number(&tiff, 4, 4);
    uint32_t entries = read_number(&tiff, directory, 2);
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t orientation = read_entry(&tiff, directory + 2 + (size_t)i * ENTRY_BYTES);
        if (orientation > 0)
            return orientation <= 8 ? orientation : 1;
    }
    return 1;
}

/* From the upright picture to the stored one: rows become columns first, then it is mirrored. */
struct turn {
    bool swap, across, down;
};

static struct turn turn_of(uint32_t orientation)
{
    static const struct turn turns[9] = {
        [2] = {.across = true},
        [3] = {.across = true, .down = true},
        [4] = {.down = true},
        [5] = {.swap = true},
        [6] = {.swap = true, .down = true},
        [7] = {.swap = true, .across = true, .down = true},
        [8] = {.swap = true, .across = true},
    };
    return turns[orientation];
}

bool tsp_exif_swaps(uint32_t orientation)
{
    return turn_of(orientation).swap;
}

static void swap(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

void tsp_exif_turn(uint32_t orientation, uint32_t width, uint32_t height, struct tsp_view *view)
{
    struct turn turn = turn_of(orientation);
    if (turn.swap) {
        swap(&view->x, &view->y);
        swap(&view->width, &view->height);
    }
    if (turn.across)
        view->x = width - view->x - view->width;
    if (turn.down)
        view->y = height - view->y - view->height;
    /* The flip of the upright view comes last: it is along columns of the stored picture if these were swapped. */
    bool flip = view->flip;
    view->turn = turn.swap;
    view->flip = turn.across != (flip && !turn.swap);
    view->flop = turn.down != (flip && turn.swap);
}
