/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
#define TSI_STEP_NAME(name, side) #name,
    TSI_STEPS(TSI_STEP_NAME)
#undef TSI_STEP_NAME
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int wanted = -1; /* constant behind `once`, as is the signal */
static int signal_number;
static atomic_long left; /* passes, until it happens */

static void read_wish(void)
{
    const char *text = getenv("TSOCKET_STEP");
    char name[32];
    long count;

    if (text == NULL || sscanf(text, "%31[A-Z_]:%ld:%d", name, &count, &signal_number) != 3)
        return;
    atomic_store(&left, count);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0)
            wanted = (int)i;
    }
    if (wanted < 0) { /* a test that asks for it must not pass */
        fprintf(stderr, "TSOCKET_STEP: there is no step \"%s\"\n", name);
        abort();
    }
}

/* Signals that cannot be blocked go to this thread, which goes no further; others to whichever takes them. */
void tsi_step_pass(enum tsi_step step)
{
    pthread_once(&once, read_wish);
    if ((int)step != wanted || atomic_fetch_sub(&left, 1) != 1)
        return;
    if (signal_number == SIGKILL || signal_number == SIGSTOP)
        raise(signal_number);
    else
        kill(getpid(), signal_number);
}
