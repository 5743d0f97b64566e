/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fork does to a handle or a producer. The child must not keep a lifeline open (the other side would not notice
 * the parent's death), nor a daemon's name, and must not use the parent's ZeroMQ socket. Whoever has any of these joins
 * a list that atfork handlers walk: the list is process state, for there is no other way to be told of a fork.
 *
 *     fork: before, of all -- the process is doubled --> in_parent, of all | in_child, of all
 *
 * The hooks run in the thread that forks. They may take locks (before) and let them go (both others), if nobody calls
 * watch or forget with these held.
 */
#ifndef TSI_FORK_H
#define TSI_FORK_H

#include <stdbool.h>

struct tsi_fork_guard {
    void (*before)(void *context);    /* or NULL */
    void (*in_parent)(void *context); /* or NULL */
    void (*in_child)(void *context);
    void *context;
    bool watched; /* the library's, as what follows */
    struct tsi_fork_guard *previous, *next;
};

/* The hooks and their context are filled in. TSOCKET_OK or TSOCKET_ENOMEM. */
int tsi_fork_watch(struct tsi_fork_guard *guard);

/* One that is not watched is left alone. */
void tsi_fork_forget(struct tsi_fork_guard *guard);

#endif
