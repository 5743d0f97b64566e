/* SPDX-License-Identifier: Apache-2.0 */
#include "record.h"

#include <string.h>

#include <tsocket/tsocket.h>

#include "crc.h"

#define MAGIC "tsledger"

enum {
    AT_STREAM = 2,
    AT_CHECK = 4,
    AT_BODY = 8,
    MAGIC_BYTES = 8,
    AT_VERSION = 8,
};

static void put(unsigned char *at, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *at, size_t n_bytes)
{
    uint64_t value = 0;

    for (size_t i = n_bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/* Of all but itself. */
static uint32_t check_of(const unsigned char *record, uint32_t before)
{
    return tsi_crc(tsi_crc(before, record, AT_CHECK), record + AT_BODY, TSI_RECORD_BYTES - AT_BODY);
}

uint32_t tsi_record_check(const unsigned char record[TSI_RECORD_BYTES])
{
    return (uint32_t)get(record + AT_CHECK, 4);
}

void tsi_record_pack(const struct tsi_record *record, uint32_t before, unsigned char out[TSI_RECORD_BYTES])
{
    memset(out, 0, TSI_RECORD_BYTES);
    out[0] = record->kind;
    out[1] = record->detail;
    put(out + AT_STREAM, record->stream, 2);
    if (record->kind == TSI_RECORD_TEXT) {
        memcpy(out + AT_BODY, record->piece, TSI_RECORD_PIECE);
    } else {
        put(out + AT_BODY, record->consumer, 8);
        put(out + AT_BODY + 8, record->a, 8);
        put(out + AT_BODY + 16, record->b, 8);
        put(out + AT_BODY + 24, record->c, 8);
    }
    put(out + AT_CHECK, check_of(out, before), 4);
}

int tsi_record_unpack(const unsigned char in[TSI_RECORD_BYTES], uint32_t before, struct tsi_record *record_out)
{
    struct tsi_record record = {.kind = in[0], .detail = in[1], .stream = (uint16_t)get(in + AT_STREAM, 2)};

    if (tsi_record_check(in) != check_of(in, before) || record.kind < TSI_RECORD_RUN || record.kind >= TSI_RECORD_KINDS)
        return TSOCKET_EPROTOCOL;
    if (record.kind == TSI_RECORD_TEXT) {
        if (record.stream > TSI_RECORD_PIECE)
            return TSOCKET_EPROTOCOL;
        memcpy(record.piece, in + AT_BODY, TSI_RECORD_PIECE);
    } else {
        record.consumer = get(in + AT_BODY, 8);
        record.a = get(in + AT_BODY + 8, 8);
        record.b = get(in + AT_BODY + 16, 8);
        record.c = get(in + AT_BODY + 24, 8);
    }
    *record_out = record;
    return TSOCKET_OK;
}

void tsi_record_head(unsigned char out[TSI_RECORD_BYTES])
{
    memset(out, 0, TSI_RECORD_BYTES);
    memcpy(out, MAGIC, MAGIC_BYTES);
    put(out + AT_VERSION, TSI_RECORD_VERSION, 4);
}

int tsi_record_check_head(const unsigned char in[TSI_RECORD_BYTES])
{
    unsigned char ours[TSI_RECORD_BYTES];

    tsi_record_head(ours);
    if (memcmp(in, MAGIC, MAGIC_BYTES) != 0)
        return TSOCKET_EINVAL;
    return memcmp(in, ours, sizeof(ours)) == 0 ? TSOCKET_OK : TSOCKET_EPROTOCOL;
}
