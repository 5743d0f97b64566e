/* SPDX-License-Identifier: Apache-2.0 */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX 10 /* bytes before the text: magic, version, length */

/* numpy's name of a type, without the byte order. */
static const char *numpy_type(enum tsocket_dtype dtype)
{
    switch (dtype) {
    case TSOCKET_UINT8:
        return "u1";
    case TSOCKET_INT32:
        return "i4";
    case TSOCKET_INT64:
        return "i8";
    case TSOCKET_FLOAT16:
        return "f2";
    case TSOCKET_FLOAT32:
        return "f4";
    case TSOCKET_FLOAT64:
        return "f8";
    case TSOCKET_BFLOAT16: /* which numpy has no type for: its bits */
        return "u2";
    }
    return NULL;
}

static char byte_order(enum tsocket_dtype dtype)
{
    if (dtype == TSOCKET_UINT8)
        return '|';
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';
}

/* "(7, 8, 8, 3)"; a single number keeps its comma, as Python wants: "(7,)". */
static size_t put_shape(const struct tsocket_field *field, uint64_t count, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, "(%llu,", (unsigned long long)count);

    for (uint32_t i = 0; i < field->ndim; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%llu%s", i == 0 ? " " : ", ",
                                 (unsigned long long)field->shape[i], i + 1 < field->ndim ? "" : ")");
    if (field->ndim == 0)
        used += (size_t)snprintf(text + used, room - used, ")");
    return used;
}

size_t tsc_npy_header(const struct tsocket_field *field, uint64_t count, char header_out[TSC_NPY_HEADER_MAX])
{
    const char *type = numpy_type(field->dtype);

    if (type == NULL || field->ndim > TSOCKET_NDIM_MAX)
        return 0;
    char *text = header_out + PREFIX;
    const size_t room = TSC_NPY_HEADER_MAX - PREFIX; /* enough: seven numbers of at most 20 digits */
    size_t used = (size_t)snprintf(
        text, room, "{'descr': '%c%s', 'fortran_order': False, 'shape': ", byte_order(field->dtype), type);
    used += put_shape(field, count, text + used, room - used);
    used += (size_t)snprintf(text + used, room - used, ", }");
    size_t total = (PREFIX + used + 1 + 63) / 64 * 64;
    memset(text + used, ' ', total - PREFIX - used);
    header_out[total - 1] = '\n';
    memcpy(header_out, "\x93NUMPY\x01\x00", 8);
    header_out[8] = (char)((total - PREFIX) & 0xff);
    header_out[9] = (char)((total - PREFIX) >> 8);
    return total;
}

int tsc_npy_write(const char *path, const struct tsocket_field *field, uint64_t count, const void *data, char *error,
                  size_t len)
{
    char header[TSC_NPY_HEADER_MAX];
    size_t header_len = tsc_npy_header(field, count, header);
    size_t data_len = (size_t)(count * field->sample_bytes);

    if (header_len == 0) {
        snprintf(error, len, "%s: dtype %d of field %s is not known", path, (int)field->dtype, field->name);
        return TSOCKET_EINVAL;
    }
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        snprintf(error, len, "%s: %s", path, strerror(errno));
        return TSOCKET_ESYSTEM;
    }
    bool good = fwrite(header, 1, header_len, file) == header_len && fwrite(data, 1, data_len, file) == data_len;
    good = fclose(file) == 0 && good;
    if (!good) {
        snprintf(error, len, "%s: %s", path, strerror(errno));
        return TSOCKET_ESYSTEM;
    }
    return TSOCKET_OK;
}
