/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fork does to a handle. The child must not keep the lifeline open (the daemon would not notice the parent's
 * death) and must not use the parent's ZeroMQ socket. Every handle joins a list that an atfork handler walks in the
 * child: the list is process state, for there is no other way to be told of a fork.
 */
#ifndef TSC_FORK_H
#define TSC_FORK_H

#include <stdbool.h>

struct tsc_fork_guard {
    int lifeline;
    bool forked; /* this is the child's copy */
    struct tsc_fork_guard *previous, *next;
};

int tsc_fork_watch(struct tsc_fork_guard *guard, int lifeline); /* TSOCKET_OK or TSOCKET_ENOMEM */
void tsc_fork_forget(struct tsc_fork_guard *guard);

#endif
