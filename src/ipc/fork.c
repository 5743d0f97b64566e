/* SPDX-License-Identifier: Apache-2.0 */
#include "fork.h"

#include <pthread.h>
#include <stddef.h>

#include "error.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects what follows; held across a fork */
static struct tsi_fork_guard *guards;
static bool registered;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
    for (struct tsi_fork_guard *guard = guards; guard != NULL; guard = guard->next) {
        if (guard->before != NULL)
            guard->before(guard->context);
    }
}

static void after_fork_in_parent(void)
{
    for (struct tsi_fork_guard *guard = guards; guard != NULL; guard = guard->next) {
        if (guard->in_parent != NULL)
            guard->in_parent(guard->context);
    }
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
    for (struct tsi_fork_guard *guard = guards; guard != NULL; guard = guard->next)
        guard->in_child(guard->context);
    pthread_mutex_unlock(&lock);
}

int tsi_fork_watch(struct tsi_fork_guard *guard)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    if (!registered)
        error = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    if (error == 0) {
        registered = true;
        guard->watched = true;
        guard->previous = NULL;
        guard->next = guards;
        if (guards != NULL)
            guards->previous = guard;
        guards = guard;
    }
    pthread_mutex_unlock(&lock);
    return error == 0 ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "pthread_atfork: no memory");
}

void tsi_fork_forget(struct tsi_fork_guard *guard)
{
    if (!guard->watched)
        return;
    pthread_mutex_lock(&lock);
    if (guard->previous != NULL)
        guard->previous->next = guard->next;
    else
        guards = guard->next;
    if (guard->next != NULL)
        guard->next->previous = guard->previous;
    guard->watched = false;
    pthread_mutex_unlock(&lock);
}
