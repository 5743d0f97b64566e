/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol: what is said over ZeroMQ, and the greeting on the lifeline.
 *
 *     consumer                                      daemon
 *        |--- HELLO {token, stream, batch, ...} ------>|      cold: JSON, once
 *        |<-- WELCOME {fields, geometry, start, arena} |      or REFUSED {why}
 *        |--- WANT {epoch, index} -------------------->|      hot: 24 bytes
 *        |<-- READY {head} ----------------------------|
 *        |--- RELEASE {position, received} ----------->|
 *        |--- PLACE {epoch, index, removed} ---------->|      cold: a consumer that was summoned (see control.h)
 *        |<-- MOVE {ring, capacity, arena} ------------|      says where it stands and is told where to read on;
 *        |--- LEFT {ring}, AHEAD --------------------->|      hot: it holds nothing of its side ring any more; see
 * below
 *        |=== LOST, AGAIN {epoch, index, n} ==========>|      hot, over the lifeline: what it held was written over,
 * and has been given again
 *
 * Hot messages stay under 33 bytes: above that libzmq allocates for each.
 *
 * Everything that comes from a peer is checked here: after an unpack that succeeds, every number is inside its limit
 * and every string ends and is made of the characters it may have. No pointer, offset or code is ever on the wire.
 */
#ifndef TSI_WIRE_H
#define TSI_WIRE_H

#include "layout.h"
#include "runtime.h"
#include "ticket.h"
#include "token.h"

#define TSI_PROTOCOL        5
#define TSI_HOT_BYTES       24
#define TSI_HOLD_MAX        1024u
#define TSI_WORLD_MAX       65536u
#define TSI_FIELD_LIST_MAX  (TSOCKET_FIELDS_MAX * (TSOCKET_NAME_MAX + 1))
#define TSI_REASON_MAX      512
#define TSI_NUMBER_MAX      (UINT64_C(1) << 53) /* what a JSON number holds exactly */
#define TSI_SETTING_MAX     128
#define TSI_DEVICE_LIST_MAX (16 * 41 + 8) /* 16 GPUs and "host", with the final 0 */

/* --- hot */

enum tsi_kind {
    TSI_WANT = 1, /* a: epoch, b: index: tell me when the samples before `index` of that epoch are ready, or it ended */
    TSI_READY,    /* look again */
    TSI_RELEASE,  /* a: position: nothing of mine reads below it; b: real samples I was given so far. In a resident
                     stream positions count on: each pass since WELCOME adds its length */
    TSI_SKIPPED,  /* a: position, b: so many samples from there I leave out, because I lag */
    TSI_LEFT,     /* of the side ring `ring` I hold nothing any more */
    TSI_AHEAD, /* all that I lost has been given again, and I read on from there: what I release is progress once more
                */

    /* over the lifeline, which brings them before the end of the consumer; they are about no ring, */
    TSI_LOST,   /* but about `ring` samples: a: epoch, b: index: they were written over while I held them */
    TSI_AGAIN,  /* likewise: I had lost them, and have been given them once more */
    TSI_PASSED, /* a: epoch, b: index: all before that is released, for I am leaving. RELEASE, there the very last word,
                   says that in positions, which mean nothing any more if I was parked and others have the ring */
};

struct tsi_hot {
    enum tsi_kind kind;
    uint32_t ring; /* 0: the group's; others name one assignment of a side ring; LOST and AGAIN: a number of samples */
    uint64_t a;
    uint64_t b;
};

/* bytes 0: kind, 1: protocol, 2..3: zero, 4..7: ring, 8..15: a, 16..23: b; all little-endian */
void tsi_hot_pack(const struct tsi_hot *hot, unsigned char out[TSI_HOT_BYTES]);
int tsi_hot_unpack(const void *message, size_t len, struct tsi_hot *hot_out); /* TSOCKET_OK or TSOCKET_EPROTOCOL */

/* --- cold. pack: a string for free(), or NULL without memory. unpack: TSOCKET_OK or TSOCKET_EPROTOCOL with the reason.
 */

struct tsi_greeting {             /* daemon -> whoever connects to the lifeline */
    char refused[TSI_REASON_MAX]; /* not empty: go away, and why */
    char socket[TSI_PATH_MAX];
    char token[TSI_RANDOM_HEX];
    bool gpu; /* there are rings in GPUs: HELLO should say which ones the consumer sees */
};

char *tsi_greeting_pack(const struct tsi_greeting *greeting);
int tsi_greeting_unpack(const char *text, size_t len, struct tsi_greeting *greeting_out);

struct tsi_hello { /* also the envelope of everything else that is said to a daemon, by type: */
    char type[16]; /* "STATUS", "STOP", "DRAIN" need the token only; "PLACE", "PAUSE", "SET" see below */
    char token[TSI_RANDOM_HEX];
    struct tsi_place place;            /* PLACE and PAUSE only: where the consumer stands */
    uint64_t number;                   /* PLACE and PAUSE only: the consumer counts what it says */
    bool again;                        /* likewise: it stands at what it has lost, and is to be given again */
    char setting[TSI_SETTING_MAX];     /* SET only, with stream and name: "KEY=VALUE" for that consumer */
    char stream[TSOCKET_NAME_MAX + 1]; /* empty: the daemon's first */
    char name[TSOCKET_NAME_MAX + 1];   /* of the consumer; printable ASCII */
    char fields[TSI_FIELD_LIST_MAX];   /* empty: all */
    char device[TSI_DEVICE_LIST_MAX];  /* where it can read: UUIDs and "host", the best first; empty: in host memory */
    uint32_t batch;
    uint32_t hold;
    uint32_t rank;
    uint32_t world;
    enum tsocket_join join;
    enum tsocket_last last;
    enum tsocket_on_lag on_lag;
    uint64_t max_lag;                   /* samples; 0: none */
    char resume[TSOCKET_TOKEN_MAX + 1]; /* empty, or a token, see token.h */
};

char *tsi_hello_pack(const struct tsi_hello *hello);
int tsi_hello_unpack(const char *text, size_t len, struct tsi_hello *hello_out);

struct tsi_welcome {
    int refused; /* not TSOCKET_OK: an error code, and the reason */
    char reason[TSI_REASON_MAX];
    char daemon[TSOCKET_NAME_MAX + 1];
    char stream[TSOCKET_NAME_MAX + 1];
    struct tsi_layout layout;
    uint64_t epoch_samples;      /* 0: not known */
    uint64_t epochs;             /* 0: for ever */
    uint64_t epoch;              /* the consumer's first */
    uint64_t first;              /* where it begins in there */
    uint64_t position;           /* the same as position; expected only, where the epoch has not begun */
    struct tsi_place from;       /* at or before that, a place from which its samples can be made; of the same epoch */
    uint32_t seat;               /* its number on control pages */
    bool side;                   /* there are side rings that are large enough for it */
    bool catch_up;               /* what lies before `first` comes behind the epoch's end, from a side ring */
    bool resident;               /* the whole stream is in the ring: every epoch is the first one again */
    char origin[TSI_ORIGIN_MAX]; /* what its tokens begin with, see token.h; empty: the producer cannot go back */
    char arena[TSI_TICKET_MAX];  /* where its ring lies: a ticket, see ticket.h */
};

/* The answer to PLACE: where the consumer reads on. A side ring's memory comes once before it, over the lifeline. */
struct tsi_move {
    int refused; /* as above: TSOCKET_ELAPPED where it was evicted */
    char reason[TSI_REASON_MAX];
    uint64_t number;   /* of the PLACE that is answered */
    uint32_t ring;     /* 0: the group's; the current one: it stays */
    bool memory;       /* two descriptors have been sent before it */
    uint64_t capacity; /* of that ring */
    uint64_t max_lag;
    char arena[TSI_TICKET_MAX]; /* a ticket; empty: the ring's memory has been sent before */
};

char *tsi_move_pack(const struct tsi_move *move);
int tsi_move_unpack(const char *text, size_t len, struct tsi_move *move_out);

char *tsi_welcome_pack(const struct tsi_welcome *welcome);
int tsi_welcome_unpack(const char *text, size_t len, struct tsi_welcome *welcome_out);

#endif
