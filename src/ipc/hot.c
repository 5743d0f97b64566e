/* SPDX-License-Identifier: Apache-2.0 */
/* The hot messages of wire.h. */
#include "wire.h"

static void put(unsigned char *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *in, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << (8 * i);
    return value;
}

void tsi_hot_pack(const struct tsi_hot *hot, unsigned char out[TSI_HOT_BYTES])
{
    put(&out[0], (uint64_t)hot->kind, 1);
    put(&out[1], TSI_PROTOCOL, 1);
    put(&out[2], 0, 2);
    put(&out[4], hot->ring, 4);
    put(&out[8], hot->a, 8);
    put(&out[16], hot->b, 8);
}

int tsi_hot_unpack(const void *message, size_t len, struct tsi_hot *hot_out)
{
    const unsigned char *in = message;

    if (len != TSI_HOT_BYTES || in[0] < TSI_WANT || in[0] > TSI_PASSED || in[1] != TSI_PROTOCOL || get(&in[2], 2) != 0)
        return TSOCKET_EPROTOCOL;
    *hot_out = (struct tsi_hot){
        .kind = (enum tsi_kind)in[0],
        .ring = (uint32_t)get(&in[4], 4),
        .a = get(&in[8], 8),
        .b = get(&in[16], 8),
    };
    return TSOCKET_OK;
}
