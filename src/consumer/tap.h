/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tsocketctl tap`: a consumer for people and tests. It prints what it is given as JSON lines:
 *
 *     {"event":"attached","epoch":0,"position":0,"epoch_samples":13}
 *     {"event":"batch","epoch":0,"first":0,"count":7,"index":[3,...],"label":[0,...],"hash":"<XXH3-128 of the images>"}
 *     {"event":"epoch_end","epoch":0,"samples":13}
 *     {"event":"elapsed","epoch":0,"first":7}             the batch was lost while it was held, and comes again
 *     {"event":"error","code":"GONE","message":"..."}
 *     {"event":"token","token":"..."}
 *
 * A batch that was padded also says "valid", how many of its samples are real. With views, the hash is of all fields
 * but label and index, in their order. The token is the last line of all but a stream that has ended: --resume goes on
 * there.
 */
#ifndef TSC_TAP_H
#define TSC_TAP_H

#include <stdio.h>

/* Returns the exit status: 0, 1 (cannot write), 2 (usage), 3 (error event) or 128 and the signal that ended it. */
int tsc_tap_main(int argc, char *const *argv);

void tsc_tap_help(FILE *out);

#endif
