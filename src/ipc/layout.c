/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <inttypes.h>
#include <string.h>

#include "error.h"
#include "runtime.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [TSOCKET_UINT8] = {"uint8", 1},     [TSOCKET_INT32] = {"int32", 4},       [TSOCKET_INT64] = {"int64", 8},
    [TSOCKET_FLOAT16] = {"float16", 2}, [TSOCKET_BFLOAT16] = {"bfloat16", 2}, [TSOCKET_FLOAT32] = {"float32", 4},
    [TSOCKET_FLOAT64] = {"float64", 8},
};

size_t tsocket_dtype_bytes(enum tsocket_dtype dtype)
{
    return (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[dtype].bytes : 0;
}

const char *tsocket_dtype_name(enum tsocket_dtype dtype)
{
    return tsocket_dtype_bytes(dtype) > 0 ? dtypes[dtype].name : NULL;
}

/* Every factor is compared with what is left of the limit before it is multiplied: nothing can overflow. */
static int field_bytes(struct tsocket_field *field)
{
    uint64_t bytes = tsocket_dtype_bytes(field->dtype);

    if (memchr(field->name, '\0', sizeof(field->name)) == NULL || !tsi_name_ok(field->name))
        return tsi_fail(TSOCKET_EINVAL, "field: the name must be 1 to %d of A-Z a-z 0-9 . _ -", TSOCKET_NAME_MAX);
    if (bytes == 0)
        return tsi_fail(TSOCKET_EINVAL, "field %s: unknown dtype %d", field->name, (int)field->dtype);
    if (field->ndim > TSOCKET_NDIM_MAX)
        return tsi_fail(TSOCKET_EINVAL, "field %s: %" PRIu32 " dimensions, the limit is %d", field->name, field->ndim,
                        TSOCKET_NDIM_MAX);
    for (uint32_t i = 0; i < field->ndim; i++) {
        if (field->shape[i] == 0 || field->shape[i] > TSI_SAMPLE_BYTES_MAX / bytes)
            return tsi_fail(TSOCKET_EINVAL,
                            "field %s: dimension %" PRIu32 " is %" PRIu64 "; it must be at least 1, and the whole "
                            "sample at most %" PRIu64 " bytes",
                            field->name, i, field->shape[i], TSI_SAMPLE_BYTES_MAX);
        bytes *= field->shape[i];
    }
    field->sample_bytes = bytes;
    return TSOCKET_OK;
}

static int check_unique(const struct tsi_layout *layout, uint32_t field)
{
    for (uint32_t i = 0; i < field; i++) {
        if (strcmp(layout->fields[i].name, layout->fields[field].name) == 0)
            return tsi_fail(TSOCKET_EINVAL, "two fields are called %s", layout->fields[i].name);
    }
    return TSOCKET_OK;
}

static int check_counts(uint32_t n_fields, uint64_t capacity, uint64_t mirror)
{
    if (n_fields == 0 || n_fields > TSOCKET_FIELDS_MAX)
        return tsi_fail(TSOCKET_EINVAL, "%" PRIu32 " fields; 1 to %d are possible", n_fields, TSOCKET_FIELDS_MAX);
    if (capacity == 0 || capacity > TSI_CAPACITY_MAX)
        return tsi_fail(TSOCKET_EINVAL, "a ring of %" PRIu64 " samples; 1 to %" PRIu64 " are possible", capacity,
                        TSI_CAPACITY_MAX);
    if (mirror == 0 || mirror > capacity)
        return tsi_fail(TSOCKET_EINVAL,
                        "a largest batch of %" PRIu64 " samples in a ring of %" PRIu64
                        "; it must be 1 to the ring's size",
                        mirror, capacity);
    return TSOCKET_OK;
}

int tsi_layout_init(const struct tsocket_field *fields, uint32_t n_fields, uint64_t capacity, uint64_t mirror,
                    struct tsi_layout *layout_out)
{
    struct tsi_layout layout = {.n_fields = n_fields, .capacity = capacity, .mirror = mirror};
    int rc = check_counts(n_fields, capacity, mirror);

    for (uint32_t i = 0; rc == TSOCKET_OK && i < n_fields; i++) {
        struct tsocket_field *field = &layout.fields[i];
        uint64_t array_bytes;

        *field = fields[i];
        rc = field_bytes(field);
        if (rc == TSOCKET_OK)
            rc = check_unique(&layout, i);
        if (rc != TSOCKET_OK)
            break;
        if (field->sample_bytes > (TSI_RING_BYTES_MAX - layout.bytes - TSI_FIELD_ALIGN) / (capacity + mirror))
            return tsi_fail(TSOCKET_EINVAL,
                            "field %s: %" PRIu64 " slots of %" PRIu64 " bytes pass the limit of %" PRIu64
                            " bytes for a ring; make it smaller (--ring)",
                            field->name, capacity + mirror, field->sample_bytes, TSI_RING_BYTES_MAX);
        array_bytes = field->sample_bytes * (capacity + mirror);
        layout.offset[i] = layout.bytes;
        layout.bytes += (array_bytes + TSI_FIELD_ALIGN - 1) / TSI_FIELD_ALIGN * TSI_FIELD_ALIGN;
        layout.sample_bytes += field->sample_bytes;
    }
    if (rc == TSOCKET_OK)
        *layout_out = layout;
    return rc;
}

static unsigned char *slot_at(const struct tsi_layout *layout, void *base, uint32_t field, uint64_t slot)
{
    return (unsigned char *)base + layout->offset[field] + slot * layout->fields[field].sample_bytes;
}

void *tsi_layout_at(const struct tsi_layout *layout, void *base, uint32_t field, uint64_t position)
{
    return slot_at(layout, base, field, position % layout->capacity);
}

void tsi_layout_mirror(const struct tsi_layout *layout, void *base, uint64_t position)
{
    uint64_t slot = position % layout->capacity;

    if (slot >= layout->mirror)
        return;
    for (uint32_t i = 0; i < layout->n_fields; i++)
        memcpy(slot_at(layout, base, i, layout->capacity + slot), slot_at(layout, base, i, slot),
               layout->fields[i].sample_bytes);
}
