/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A second process for a test of this folder: CUDA does not survive a fork, so the test's own program is started once
 * more, and does what it finds under the peer's name in its table.
 *
 *     struct peer peer;
 *     peer_start(&peer, "importer");        the table's function runs there, with the other end of peer.socket
 *     peer_send(peer.socket, &handle, sizeof(handle), -1);
 *     assert_int_equal(peer_wait(&peer), 0);
 *
 * All of these end the process that calls them with a message if the system fails.
 */
#ifndef TEST_GPU_PEER_H
#define TEST_GPU_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peer {
    pid_t pid;
    int socket;
};

struct peer_role {
    const char *name;
    int (*run)(int socket); /* its result is the process's exit status */
};

/* First thing in main: where the program was started as a peer, it does that role and exits. */
void peer_main(int argc, char **argv, const struct peer_role *roles, size_t n_roles);

void peer_start(struct peer *peer, const char *role);
/* The same in a PID namespace of its own; where this machine allows that. */
bool peer_can_start_apart(void);
void peer_start_apart(struct peer *peer, const char *role);

int peer_wait(struct peer *peer); /* its exit status; 128 + the signal that ended it */

void peer_send(int socket, const void *message, size_t bytes, int fd); /* fd -1: none */
int peer_receive(int socket, void *message_out, size_t bytes);         /* the descriptor that came with it, or -1 */

#endif
