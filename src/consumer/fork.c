/* SPDX-License-Identifier: Apache-2.0 */
#include "fork.h"

#include <pthread.h>
#include <unistd.h>

#include "../ipc/error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows; held across a fork */
static struct tsc_fork_guard *guards;
static bool registered;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    for (struct tsc_fork_guard *guard = guards; guard != NULL; guard = guard->next) {
        if (!guard->forked)
            close(guard->lifeline);
        guard->forked = true;
    }
    pthread_mutex_unlock(&lock);
}

int tsc_fork_watch(struct tsc_fork_guard *guard, int lifeline)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    if (!registered)
        error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    if (error == 0) {
        registered = true;
        *guard = (struct tsc_fork_guard){.lifeline = lifeline, .next = guards};
        if (guards != NULL)
            guards->previous = guard;
        guards = guard;
    }
    pthread_mutex_unlock(&lock);
    return error == 0 ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "pthread_atfork: no memory");
}

void tsc_fork_forget(struct tsc_fork_guard *guard)
{
    pthread_mutex_lock(&lock);
    if (guard->previous != NULL)
        guard->previous->next = guard->next;
    else
        guards = guard->next;
    if (guard->next != NULL)
        guard->next->previous = guard->previous;
    pthread_mutex_unlock(&lock);
}
