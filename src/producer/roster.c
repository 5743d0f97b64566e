/* SPDX-License-Identifier: Apache-2.0 */
#include "roster.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../ipc/clock.h"
#include "../ipc/control.h"
#include "../ipc/error.h"

enum {
    CRASH_S = 60, /* over so long deaths of one name are counted */
};

int tsp_roster_init(struct tsp_roster *roster, uint32_t max)
{
    *roster = (struct tsp_roster){.consumers = calloc(max, sizeof(struct tsp_consumer *)), .max = max, .next_id = 1};
    return roster->consumers != NULL ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for %u consumers", max);
}

static void close_consumer(struct tsp_consumer *consumer)
{
    close(consumer->lifeline);
    if (consumer->pidfd >= 0)
        close(consumer->pidfd);
    free(consumer);
}

void tsp_roster_fini(struct tsp_roster *roster)
{
    while (roster->n > 0)
        close_consumer(roster->consumers[--roster->n]);
    free(roster->consumers);
    roster->consumers = NULL;
}

/* The lowest number that nobody has: there are as many as there can be consumers. */
static uint32_t free_seat(const struct tsp_roster *roster)
{
    uint64_t taken[TSI_SEATS / 64] = {0};
    uint32_t seat = 0;

    for (uint32_t i = 0; i < roster->n; i++)
        taken[roster->consumers[i]->seat / 64] |= UINT64_C(1) << (roster->consumers[i]->seat % 64);
    while (taken[seat / 64] >> (seat % 64) & 1)
        seat++;
    return seat;
}

int tsp_roster_add(struct tsp_roster *roster, int lifeline, const struct tsi_peer *peer, uint64_t now_ns,
                   struct tsp_consumer **consumer_out)
{
    struct tsp_consumer *consumer;

    if (roster->n == roster->max)
        return tsi_fail(TSOCKET_EREFUSED,
                        "the daemon has %u connections, as many as its limit of open files allows; close one, or start "
                        "it with a higher limit (ulimit -n)",
                        roster->n);
    consumer = calloc(1, sizeof(*consumer));
    if (consumer == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "the daemon has no memory for another consumer");
    if (tsi_random_hex(consumer->token) != TSOCKET_OK) {
        free(consumer);
        return TSOCKET_ESYSTEM;
    }
    consumer->id = roster->next_id++;
    consumer->seat = free_seat(roster);
    consumer->lifeline = lifeline;
    consumer->peer = *peer;
    consumer->greeted_ns = now_ns;
    /* A second sign of its end: a child that it forked may keep the lifeline open. Fails across PID namespaces. */
    consumer->pidfd = peer->pid > 0 ? (int)syscall(SYS_pidfd_open, peer->pid, 0) : -1;
    roster->consumers[roster->n++] = consumer;
    *consumer_out = consumer;
    return TSOCKET_OK;
}

void tsp_roster_remove(struct tsp_roster *roster, struct tsp_consumer *consumer)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster->consumers[i] == consumer) {
            roster->consumers[i] = roster->consumers[--roster->n];
            close_consumer(consumer);
            return;
        }
    }
}

struct tsp_consumer *tsp_roster_by_id(const struct tsp_roster *roster, uint64_t id)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster->consumers[i]->id == id)
            return roster->consumers[i];
    }
    return NULL;
}

struct tsp_consumer *tsp_roster_by_token(const struct tsp_roster *roster, const char *token)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (strcmp(roster->consumers[i]->token, token) == 0)
            return roster->consumers[i];
    }
    return NULL;
}

struct tsp_consumer *tsp_roster_by_route(const struct tsp_roster *roster, uint32_t route)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster->consumers[i]->stream != NULL && roster->consumers[i]->route == route)
            return roster->consumers[i];
    }
    return NULL;
}

static bool reads(const struct tsp_consumer *consumer, const struct tsp_stream *ring)
{
    return consumer->ring == ring && consumer->state == TSP_READING;
}

struct tsp_consumer *tsp_roster_slowest(const struct tsp_roster *roster, const struct tsp_stream *ring)
{
    struct tsp_consumer *slowest = NULL;

    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];

        if (reads(consumer, ring) && (slowest == NULL || consumer->released < slowest->released))
            slowest = consumer;
    }
    return slowest;
}

uint32_t tsp_roster_readers(const struct tsp_roster *roster, const struct tsp_stream *ring)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < roster->n; i++)
        n += reads(roster->consumers[i], ring);
    return n;
}

uint32_t tsp_roster_count(const struct tsp_roster *roster, const struct tsp_stream *stream,
                          enum tsp_consumer_state state)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < roster->n; i++)
        n += roster->consumers[i]->state == state && (stream == NULL || roster->consumers[i]->stream == stream);
    return n;
}

uint32_t tsp_roster_attached(const struct tsp_roster *roster, const struct tsp_stream *stream)
{
    return tsp_roster_count(roster, stream, TSP_JOINING) + tsp_roster_count(roster, stream, TSP_READING) +
           tsp_roster_count(roster, stream, TSP_PARKED);
}

static bool is_counted(const struct tsp_crashes *crashes, const char *name, uint64_t now_ns)
{
    return crashes->n > 0 && now_ns - crashes->since_ns < CRASH_S * TSI_NS_PER_S && strcmp(crashes->name, name) == 0;
}

void tsp_roster_note_crash(struct tsp_roster *roster, const char *name, uint64_t now_ns)
{
    struct tsp_crashes *oldest = &roster->crashes[0];

    for (uint32_t i = 0; i < TSP_CRASHES_MAX; i++) {
        struct tsp_crashes *crashes = &roster->crashes[i];

        if (is_counted(crashes, name, now_ns)) {
            crashes->n++;
            return;
        }
        if (crashes->since_ns < oldest->since_ns)
            oldest = crashes;
    }
    *oldest = (struct tsp_crashes){.n = 1, .since_ns = now_ns};
    memcpy(oldest->name, name, strlen(name) + 1);
}

uint32_t tsp_roster_crashes(const struct tsp_roster *roster, const char *name, uint64_t now_ns)
{
    for (uint32_t i = 0; i < TSP_CRASHES_MAX; i++) {
        if (is_counted(&roster->crashes[i], name, now_ns))
            return roster->crashes[i].n;
    }
    return 0;
}

const char *tsp_consumer_state_word(enum tsp_consumer_state state)
{
    static const char *const words[] = {"greeted", "joining", "reading", "parked"};

    return words[state];
}
