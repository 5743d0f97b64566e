/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching to a daemon: find it, be greeted, say HELLO, take the WELCOME and the memory that comes with it.
 *
 *     runtime folder -> lifeline: greeting -> ZeroMQ: HELLO -> ZeroMQ: WELCOME + lifeline: descriptors -> mapped
 */
#ifndef TSC_ATTACH_H
#define TSC_ATTACH_H

#include "../ipc/socket.h"
#include "../ipc/wire.h"
#include "ring.h"

struct tsc_link {
    struct tsi_socket *socket;
    int lifeline;
    char token[TSI_RANDOM_HEX]; /* that the daemon knows us by */
};

struct tsc_attachment {
    struct tsc_link link;
    struct tsi_welcome welcome;
    struct tsc_ring *ring; /* the group's ring */
};

/* "DAEMON" or "DAEMON/STREAM"; without one `stream_out` is empty. False: one of them is empty or too long. */
bool tsc_split_name(const char *name, char daemon_out[TSOCKET_NAME_MAX + 1], char stream_out[TSOCKET_NAME_MAX + 1]);

#define TSC_ANSWER_MS 30000 /* a daemon that is stopped or drowned in work; far above what any answer takes */

/*
 * `hello` is sent with the daemon's token filled in, and for its device, which is options.device, what that comes to
 * here (places.h). The daemon is looked for until `connect_timeout_ms` is over (0: once, -1: for ever); once it is
 * there, each of its two answers is waited for `answer_ms`. TSOCKET_OK: the attachment is the caller's, for tsc_detach.
 * Errors as tsocket_open's.
 */
int tsc_attach(const char *daemon, const struct tsi_hello *hello, int connect_timeout_ms, int answer_ms,
               struct tsc_attachment *attachment_out);

void tsc_detach(struct tsc_attachment *attachment);

/* Ends the connection, and leaves the ring alone. */
void tsc_link_close(struct tsc_link *link);

/* Sends a cold message; its token is filled in. TSOCKET_EAGAIN: the queue is full. TSOCKET_ENOMEM. */
int tsc_link_say(const struct tsc_link *link, const struct tsi_hello *message);

/* Takes a ring's descriptors from the lifeline, waiting for them, and maps it. Errors as tsc_ring_open's. */
int tsc_link_take_ring(const struct tsc_link *link, const struct tsi_layout *layout, const char *ticket, uint32_t name,
                       struct tsc_ring **ring_out);

/*
 * Asks a daemon for something or tells it something: `question` needs its type and what belongs to that ("STATUS",
 * "STOP", "DRAIN", "SET"). TSOCKET_OK: *json_out is the answer, for free(). Errors as tsocket_open's, what the daemon
 * refuses with, and TSOCKET_EAGAIN: no answer within the time.
 */
int tsc_query(const char *daemon, const struct tsi_hello *question, int timeout_ms, char **json_out);

#endif
