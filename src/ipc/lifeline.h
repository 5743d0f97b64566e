/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lifeline: a Unix socket between a daemon and each consumer. Its end-of-file tells either side at once that the
 * other has died, without timers and across PID namespaces. It also says who the peer is, and carries descriptors.
 *
 *     consumer                          daemon
 *        |---- connect ------------------>|   SO_PEERCRED, number of consumers
 *        |<--- greeting (JSON) -----------|   ZeroMQ endpoint and token, or why not
 *        |==== HELLO, WELCOME over ZeroMQ, see wire.h ====
 *        |<--- control page, ring --------|   one packet, two descriptors
 *        |            ...                 |
 *        |---- last words --------------->|   a consumer that closes, see wire.h's RELEASE
 *        |<--- end of file -------------->|   either has gone
 *
 * SOCK_SEQPACKET: a packet arrives whole or not at all. Every descriptor is close-on-exec.
 */
#ifndef TSI_LIFELINE_H
#define TSI_LIFELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TSI_LIFELINE_PACKET_MAX 1024
#define TSI_LIFELINE_FDS        2 /* control page, ring */

struct tsi_peer {
    pid_t pid; /* 0: in a PID namespace that this process cannot see */
    uid_t uid;
    gid_t gid;
};

/* Daemon. TSOCKET_ESYSTEM. */
int tsi_lifeline_listen(const char *path, int *fd_out);

/* Daemon: a new peer, its socket non-blocking. TSOCKET_EAGAIN: none is waiting. TSOCKET_ESYSTEM. */
int tsi_lifeline_accept(int listener, int *fd_out, struct tsi_peer *peer_out);

/* Whether the peer on `fd` belongs to group `gid`, supplementary groups included. */
bool tsi_lifeline_in_group(int fd, const struct tsi_peer *peer, gid_t gid);

/* Consumer: connects. TSOCKET_ENOTFOUND: nobody listens there. TSOCKET_ESYSTEM. */
int tsi_lifeline_connect(const char *path, int *fd_out);

/* Sends one packet, never waiting. The descriptors stay the caller's. TSOCKET_GONE: the other side has. */
int tsi_lifeline_send(int fd, const void *packet, size_t len, const int *fds, uint32_t n_fds);

/*
 * Receives one packet, of at most `room` bytes, waiting until the deadline (see clock.h). `fds_out` must have room for
 * TSI_LIFELINE_FDS; what comes is the caller's, *n_fds_out of them. TSOCKET_GONE: end of file. TSOCKET_EAGAIN,
 * TSOCKET_EINTR, TSOCKET_EPROTOCOL (too long, too many descriptors), TSOCKET_ESYSTEM.
 */
int tsi_lifeline_recv(int fd, uint64_t deadline_ns, void *packet, size_t room, size_t *len_out, int *fds_out,
                      uint32_t *n_fds_out);

/* Hangs up: the other side sees the end, and may still be heard. */
void tsi_lifeline_hang_up(int fd);

/* Whether the other side has hung up (a packet that waits to be read does not count). Never waits. */
bool tsi_lifeline_hung_up(int fd);

#endif
