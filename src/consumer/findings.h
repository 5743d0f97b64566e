/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an audit of a ledger has to say: exceptions, each of which means "not proven", and notes, which do not.
 */
#ifndef TSC_FINDINGS_H
#define TSC_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tsc_what {
    /* exceptions */
    TSC_MISSING,     /* [from, to) of an epoch that was completed was never released */
    TSC_TWICE,       /* [from, to) was released twice */
    TSC_SKIPPED,     /* it was moved past [from, to) */
    TSC_BEYOND,      /* it released up to `from`, where the epoch ends at `to` */
    TSC_NO_LENGTH,   /* the epoch's length is not recorded */
    TSC_TWO_LENGTHS, /* the epoch has the lengths `from` and `to` */
    TSC_SCATTERED,   /* so many pieces that they were not followed */
    TSC_NO_RANK,     /* nobody read the share of rank `from` of `to` in an epoch that other ranks completed */
    TSC_LOST,        /* `from` records are lost */
    TSC_DAMAGED,     /* `from` records, the first at byte `to`, are damaged */
    TSC_STRAY,       /* a record about a consumer or stream that was not introduced */

    /* notes */
    TSC_NOTES,
    TSC_PARTIAL = TSC_NOTES, /* it joined in the middle, at `from`, as it wanted */
    TSC_MIDDLE,              /* it ended in the middle of an epoch, at `from` */
    TSC_OWED,                /* it died before [from, to), which it had lost, came again */
    TSC_RANK_BEHIND,         /* rank `from` of `to` has not come to the end of an epoch that other ranks completed */
    TSC_CRASHED,             /* run `from` did not end in order */
    TSC_TORN,                /* `from` bytes of a torn record are at the file's end */
};

struct tsc_consumer;

struct tsc_finding {
    enum tsc_what what;
    const struct tsc_consumer *who; /* NULL: nobody in particular */
    const char *stream;             /* NULL: none in particular */
    uint64_t epoch;
    uint64_t from;
    uint64_t to;
};

struct tsc_findings {
    struct tsc_finding *items;
    size_t n;
    size_t room;
    size_t exceptions; /* of the n */
    bool no_memory;    /* some are missing here, counted all the same */
};

void tsc_findings_add(struct tsc_findings *findings, const struct tsc_finding *finding);
void tsc_findings_fini(struct tsc_findings *findings);

bool tsc_finding_is_exception(const struct tsc_finding *finding);

/* A short word for programs ("missing"), and a sentence for people, without who it is about. */
const char *tsc_finding_word(enum tsc_what what);
void tsc_finding_text(const struct tsc_finding *finding, char *out, size_t len);

#endif
