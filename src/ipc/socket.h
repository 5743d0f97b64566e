/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemon and consumers: ZeroMQ over a Unix socket, ROUTER on the daemon's side, DEALER on the other.
 * The only file that knows ZeroMQ. Nothing here ever waits but tsi_socket_wait.
 *
 * A route names a consumer's connection on the daemon's side. Only routes that ZeroMQ made up itself are taken: a peer
 * that chooses its own could collide with, and so silence, another.
 */
#ifndef TSI_SOCKET_H
#define TSI_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a message; a peer that sends more is disconnected. */
#define TSI_MESSAGE_MAX 16384     /* to a daemon */
#define TSI_ANSWER_MAX  (1 << 20) /* from a daemon: a status has a few hundred bytes for each consumer */

struct tsi_socket;

/* Daemon: binds to a path (no "ipc://"). Consumer: connects. *socket_out is the caller's. TSOCKET_ESYSTEM. */
int tsi_socket_bind(const char *path, struct tsi_socket **socket_out);
int tsi_socket_connect(const char *path, struct tsi_socket **socket_out);

void tsi_socket_close(struct tsi_socket *socket); /* NULL is allowed; drops what is unsent */

/* In a forked child: frees the memory that is ours, touches nothing that the parent's threads use. */
void tsi_socket_forget(struct tsi_socket *socket);

/*
 * Sends one message; `route` is the consumer's, or 0 on the consumer's side. TSOCKET_EAGAIN: the queue is full, nothing
 * was sent. TSOCKET_GONE: no such peer any more. TSOCKET_ESYSTEM.
 */
int tsi_socket_send(struct tsi_socket *socket, uint32_t route, const void *message, size_t len);

/*
 * The next message. TSOCKET_EAGAIN: none is there. TSOCKET_EPROTOCOL: one was there and was not of our form, or longer
 * than `room`; it is dropped, call again. `route_out` is NULL on the consumer's side.
 */
int tsi_socket_recv(struct tsi_socket *socket, uint32_t *route_out, void *message, size_t room, size_t *len_out);

/*
 * Becomes readable when messages may have come; edge-triggered. Before sleeping on it, ask tsi_socket_pending: it is
 * what may not be slept over.
 */
int tsi_socket_fd(struct tsi_socket *socket);
bool tsi_socket_pending(struct tsi_socket *socket);

/*
 * Waits until a message is there, `other_fd` is readable, the time is over, or, if `to_send`, one can be sent.
 * TSOCKET_OK, TSOCKET_EAGAIN, TSOCKET_EINTR.
 */
int tsi_socket_wait(struct tsi_socket *socket, int other_fd, bool to_send, int timeout_ms);

#endif
