/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a ring: per field one contiguous array of capacity + mirror slots.
 *
 *     field 0 | slot 0 | slot 1 | ... | slot capacity-1 | mirror of slot 0 | ... | mirror of slot mirror-1 |
 *     field 1 | ...
 *
 * The mirror repeats the first slots behind the last, so that a window of up to `mirror` samples is contiguous wherever
 * it begins. Both sides compute the layout from the same few numbers; no offset ever comes from a peer.
 */
#ifndef TSI_LAYOUT_H
#define TSI_LAYOUT_H

#include <tsocket/tsocket.h>

#define TSI_CAPACITY_MAX     (UINT64_C(1) << 28) /* samples in a ring */
#define TSI_SAMPLE_BYTES_MAX (UINT64_C(1) << 36) /* of one field */
#define TSI_RING_BYTES_MAX   (UINT64_C(1) << 46)
#define TSI_FIELD_ALIGN      4096u

struct tsi_layout {
    uint32_t n_fields;
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    uint64_t offset[TSOCKET_FIELDS_MAX]; /* of each field's array, multiple of TSI_FIELD_ALIGN */
    uint64_t capacity;
    uint64_t mirror;
    uint64_t sample_bytes; /* all fields together */
    uint64_t bytes;        /* of the whole ring */
};

/*
 * Checks every number and fills *layout_out, sample_bytes of its fields included. TSOCKET_EINVAL with the field, the
 * value and the limit in tsocket_last_error().
 */
int tsi_layout_init(const struct tsocket_field *fields, uint32_t n_fields, uint64_t capacity, uint64_t mirror,
                    struct tsi_layout *layout_out);

/* Where field `field` of the sample at `position` lies in a ring mapped at `base`. */
void *tsi_layout_at(const struct tsi_layout *layout, void *base, uint32_t field, uint64_t position);

/* Repeats the sample at `position` in the mirror, if its slot has one there. */
void tsi_layout_mirror(const struct tsi_layout *layout, void *base, uint64_t position);

#endif
