/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes arrays as numpy's .npy files, format version 1.0, for numpy.load.
 *
 *     "\x93NUMPY" 1 0, header length (2 bytes), {'descr': '|u1', 'fortran_order': False, 'shape': (7, 8, 8, 3), }, data
 */
#ifndef TSC_NPY_H
#define TSC_NPY_H

#include <stddef.h>
#include <stdint.h>

#include <tsocket/tsocket.h>

#define TSC_NPY_HEADER_MAX 512

/*
 * The header of an array of `count` samples of `field`: its length, a multiple of 64 so that the data is aligned; 0
 * where the field is of no type that is known. bfloat16, which numpy does not have, is written as its bits, uint16:
 * numpy.load(FILE).view(ml_dtypes.bfloat16).
 */
size_t tsc_npy_header(const struct tsocket_field *field, uint64_t count, char header_out[TSC_NPY_HEADER_MAX]);

/* Creates or replaces the file. TSOCKET_OK; TSOCKET_EINVAL, TSOCKET_ESYSTEM with one line in `error`. */
int tsc_npy_write(const char *path, const struct tsocket_field *field, uint64_t count, const void *data, char *error,
                  size_t len);

#endif
