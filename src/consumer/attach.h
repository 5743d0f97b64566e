/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching to a daemon: find it, be greeted, say HELLO, take the WELCOME and the memory that comes with it.
 *
 *     runtime folder -> lifeline: greeting -> ZeroMQ: HELLO -> ZeroMQ: WELCOME + lifeline: two descriptors -> mapped
 */
#ifndef TSC_ATTACH_H
#define TSC_ATTACH_H

#include "../ipc/arena.h"
#include "../ipc/socket.h"
#include "../ipc/wire.h"

struct tsc_link {
    struct tsi_socket *socket;
    int lifeline;
};

struct tsc_attachment {
    struct tsc_link link;
    struct tsi_welcome welcome;
    struct tsi_arena control;
    struct tsi_arena ring;
};

/*
 * `hello` is sent with the daemon's token filled in. The daemon is looked for until `connect_timeout_ms` is over
 * (0: once, -1: for ever). TSOCKET_OK: the attachment is the caller's, for tsc_detach. Errors as tsocket_open's.
 */
int tsc_attach(const char *daemon, const struct tsi_hello *hello, int connect_timeout_ms,
               struct tsc_attachment *attachment_out);

void tsc_detach(struct tsc_attachment *attachment);

/*
 * Asks a daemon for one thing ("STATUS") or tells it one ("STOP"). TSOCKET_OK: *json_out is the answer, for free().
 * Errors as tsocket_open's, and TSOCKET_EAGAIN: no answer within the time.
 */
int tsc_query(const char *daemon, const char *type, int timeout_ms, char **json_out);

#endif
