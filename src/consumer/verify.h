/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tsocketctl verify FILE`: shows from a daemon's ledger, without the daemon, that every consumer got every sample of
 * every epoch that it completed exactly once, or names the exceptions. As text, or as one line of JSON:
 *
 *     {"file":"...","proven":true,"runs":1,"records":812,
 *      "streams":[{"name":"train","dataset":"...","recipe":"...","seed":0,"epochs":3}],
 *      "consumers":[{"name":"trial","stream":"train","rank":0,"world":1,"attachments":1,"epochs":3,"samples":3000,
 *                    "again":0,"by_token":0,"dropped":0,"skipped":0,"parked":0,"state":"left"}],
 *      "exceptions":[],"notes":[{"what":"middle","consumer":"trial","stream":"train","epoch":3,"from":7,"text":"..."}]}
 */
#ifndef TSC_VERIFY_H
#define TSC_VERIFY_H

#include <stdio.h>

/* Returns the exit status: 0 (proven), 1 (exceptions, or the file cannot be read), 2 (usage). */
int tsc_verify_main(int argc, char *const *argv);

void tsc_verify_help(FILE *out);

#endif
