/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a ledger, as the daemon writes it and tsocketctl verify reads it.
 *
 *     | head | RUN | TEXT STREAM | TEXT ATTACH | PLACE | RELEASED | TIME | RELEASED | EPOCH | LEFT | END | RUN ...
 *       40 B   40 B  ...
 *
 * Every record has 40 bytes, little-endian, and a check of itself and of the check before it: they are a chain. So a
 * damaged record is seen, and costs at most the one behind it; what was taken out, put in or moved is seen as well; and
 * one that a crash cut short can only be the last. A daemon that starts again appends: RUN begins what it
 * has to say, and numbers of streams and consumers are its own from there on. Names are longer than a record: they
 * come before the record that they belong to, in TEXT records, cut into pieces.
 *
 * PLACE and RELEASED tell of a consumer's own way through the stream, on which what it has released is behind it. On
 * the way back to what it has lost, and from there, it says neither: OWED and AGAIN are all that there is to tell.
 *
 *     bytes 0: kind, 1: detail, 2..3: stream, 4..7: CRC-32 of the rest, begun with bytes 4..7 of what stands before it,
 *           8..15: consumer, 16..23: a, 24..31: b, 32..39: c
 *     TEXT: 1: enum tsi_record_of, 2..3: bytes that are used of 8..39, which are the piece
 *
 * Pure functions. Nothing that unpack accepts is trusted by it: numbers are the reader's to check.
 */
#ifndef TSI_RECORD_H
#define TSI_RECORD_H

#include <stddef.h>
#include <stdint.h>

#define TSI_RECORD_BYTES   40
#define TSI_RECORD_PIECE   32 /* bytes of text in one record */
#define TSI_RECORD_VERSION 3u

enum tsi_record_kind {
    TSI_RECORD_RUN = 1,  /* a: real time in ns, b: process */
    TSI_RECORD_TIME,     /* a: real time in ns; what stands before it happened before */
    TSI_RECORD_TEXT,     /* a piece of a name of the next STREAM or ATTACH */
    TSI_RECORD_STREAM,   /* stream, detail: below, a: seed, b: samples of an epoch, 0: not known */
    TSI_RECORD_EPOCH,    /* stream, a: epoch, b: its length, for good */
    TSI_RECORD_ATTACH,   /* stream, consumer, detail: below, a: process | batch << 32, b: rank | world << 32 */
    TSI_RECORD_PLACE,    /* consumer, reads from here on: a: epoch, b: index, c: until, UINT64_MAX: the epoch's end */
    TSI_RECORD_RELEASED, /* consumer, a: epoch, b: index: all of its place before it */
    TSI_RECORD_SKIPPED,  /* consumer, a: epoch, b: from, c: to */
    TSI_RECORD_OWED,     /* consumer, a: epoch, b: from, c: to: it lost a window that it held, and is to get it again */
    TSI_RECORD_AGAIN,    /* consumer, likewise: it has got it again, and given it back */
    TSI_RECORD_PARKED,   /* consumer, detail: why, as the daemon's ledger.h numbers it */
    TSI_RECORD_LEFT,     /* consumer, detail: enum tsi_record_how */
    TSI_RECORD_LOST,     /* a: so many records before it could not be written */
    TSI_RECORD_END,      /* the run ended in order */
    TSI_RECORD_KINDS,
};

/* The detail of STREAM, or 0: all epochs have the length of epoch 0, of which each is a pass. */
#define TSI_RECORD_RESIDENT 1u

/* The detail of ATTACH: enum tsocket_last in the two lowest bits, enum tsocket_join in the next two, and: */
#define TSI_RECORD_LAST_MASK  3u
#define TSI_RECORD_JOIN_SHIFT 2
#define TSI_RECORD_JOIN_MASK  3u
#define TSI_RECORD_RESUMED    0x80u

enum tsi_record_of {
    TSI_RECORD_OF_NAME = 1, /* of the stream or consumer */
    TSI_RECORD_OF_DATASET,
    TSI_RECORD_OF_RECIPE,
};

enum tsi_record_how {
    TSI_RECORD_HOW_LEFT = 1,
    TSI_RECORD_HOW_DIED,
    TSI_RECORD_HOW_EVICTED,
};

struct tsi_record {
    uint8_t kind;
    uint8_t detail;
    uint16_t stream; /* TEXT: the length of the piece */
    union {
        struct {
            uint64_t consumer;
            uint64_t a;
            uint64_t b;
            uint64_t c;
        };
        char piece[TSI_RECORD_PIECE]; /* TEXT */
    };
};

/* What the next record begins its check with: bytes 4..7 of this one, or of the head. */
uint32_t tsi_record_check(const unsigned char record[TSI_RECORD_BYTES]);

/* `before` is the check of what stands before it. */
void tsi_record_pack(const struct tsi_record *record, uint32_t before, unsigned char out[TSI_RECORD_BYTES]);

/*
 * TSOCKET_OK, or TSOCKET_EPROTOCOL: it is damaged, does not belong behind that, or is of no kind that is known. Sets no
 * error text.
 */
int tsi_record_unpack(const unsigned char in[TSI_RECORD_BYTES], uint32_t before, struct tsi_record *record_out);

/* The head of the file. check: TSOCKET_OK; TSOCKET_EINVAL: no ledger; TSOCKET_EPROTOCOL: one of another version. */
void tsi_record_head(unsigned char out[TSI_RECORD_BYTES]);
int tsi_record_check_head(const unsigned char in[TSI_RECORD_BYTES]);

#endif
