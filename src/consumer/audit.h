/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An audit of a ledger: takes its records one by one, in the order of the file, and says at the end who got what.
 *
 *     records --> runs, streams, readings (one per attachment) --> consumers (readings that went on one from another)
 *                                 |
 *                                 +--> findings
 *
 * An attachment that came with a token goes on from one that had ended before: of the same name, rank and stream; if
 * there are several, of the same process, or the one that ended nearest to the token's place. The records are not
 * trusted: any bytes lead to findings, not to harm.
 */
#ifndef TSC_AUDIT_H
#define TSC_AUDIT_H

#include <tsocket/producer.h>

#include "../ipc/record.h"
#include "findings.h"
#include "reading.h"

#define TSC_AUDIT_TEXT_MAX 256

struct tsc_audit {
    /* what it found */
    struct tsc_findings findings;
    struct tsc_consumer *consumers; /* newest first; after end, as they came */
    struct tsc_stream *streams;     /* one for each stream of each run; likewise */
    uint64_t n_consumers;
    uint64_t runs;
    uint64_t records;
    uint64_t begun_ns; /* real time, as the daemon's clock had it: only to be shown */
    uint64_t ended_ns;

    /* where it is */
    bool running;
    struct tsc_stream *numbered[TSOCKET_STREAMS_MAX]; /* of this run */
    struct tsc_reading *live;
    struct tsc_reading *ended;         /* newest first */
    char texts[3][TSC_AUDIT_TEXT_MAX]; /* of the next STREAM or ATTACH */
    uint64_t damaged;
    uint64_t damaged_at; /* the first of them */
};

/* Starts as {0}. */
void tsc_audit_record(struct tsc_audit *audit, const struct tsi_record *record);

/* In place of a record there is something else, at that byte of the file. */
void tsc_audit_damage(struct tsc_audit *audit, uint64_t offset);

/* There are no more records; `torn` bytes are left over. Now the findings are complete. */
void tsc_audit_end(struct tsc_audit *audit, uint64_t torn);

void tsc_audit_fini(struct tsc_audit *audit);

#endif
