/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ledger that a test makes by hand, record by record, and what the audit finds in it. One at a time:
 *
 *     run(); attach(1, "a"); place(1, 0, 0, END); released(1, 0, LEN); epochs(1); left(1); end_run();
 *     assert_proven(1);
 */
#ifndef HAND_LEDGER_H
#define HAND_LEDGER_H

#include <stdint.h>

#include "consumer/audit.h"

#define END         UINT64_MAX
#define AUDIT(test) cmocka_unit_test_setup_teardown(test, ledger_begin, ledger_end)

enum {
    LEN = 100, /* of every epoch */
    SEED = 7,
};

extern struct tsc_audit audit; /* of the test that runs */

int ledger_begin(void **state);
int ledger_end(void **state);

/* What a daemon says. */
void say(const struct tsi_record *record);
void say_text(enum tsi_record_of of, const char *text);
void run_of(const char *dataset);
void run(void);
void epoch_len(uint64_t epoch, uint64_t len);
void epochs(uint64_t n);
void attach_rank(uint64_t id, const char *name, uint32_t batch, uint32_t rank, uint32_t world, unsigned detail);
void attach(uint64_t id, const char *name);
void resume(uint64_t id, const char *name);
void place(uint64_t id, uint64_t epoch, uint64_t index, uint64_t until);
void released(uint64_t id, uint64_t epoch, uint64_t index);
void skipped(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to);
void owed(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to);
void again(uint64_t id, uint64_t epoch, uint64_t from, uint64_t to);
void left(uint64_t id);
void died(uint64_t id);
void end_run(void);

/* No exception, of so many consumers. */
void assert_proven(uint64_t n_consumers);

/* The one finding of this kind; no other is an exception. */
const struct tsc_finding *only(enum tsc_what what);
void assert_only(enum tsc_what what, uint64_t epoch, uint64_t from, uint64_t to);

#endif
