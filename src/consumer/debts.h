/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is owed to a consumer, as an audit knows it: windows that it lost while it held them, until it has got them
 * again. Starts as {0}.
 */
#ifndef TSC_DEBTS_H
#define TSC_DEBTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tsc_debt {
    uint64_t epoch;
    uint64_t from;
    uint64_t to;
};

struct tsc_debts {
    struct tsc_debt *items; /* in the order in which they were lost */
    size_t n;
    size_t room;
};

/* False: no memory, and it is not in. */
bool tsc_debts_add(struct tsc_debts *debts, const struct tsc_debt *debt);

/* It has been given again. False: just that is not owed. */
bool tsc_debts_settle(struct tsc_debts *debts, const struct tsc_debt *debt);

/* Whether anything of that epoch, or of one before it, is owed. */
bool tsc_debts_until(const struct tsc_debts *debts, uint64_t epoch);

void tsc_debts_fini(struct tsc_debts *debts);

#endif
