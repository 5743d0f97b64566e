/* SPDX-License-Identifier: Apache-2.0 */
#include "crc.h"

uint32_t tsi_crc(uint32_t crc, const void *bytes, size_t n)
{
    const unsigned char *in = bytes;

    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= in[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}
