/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <err.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PEER_FD = 3, /* where a peer finds its end of the socket */
    DIED = 128,
};

extern char **environ;

void peer_main(int argc, char **argv, const struct peer_role *roles, size_t n_roles)
{
    if (argc != 3 || strcmp(argv[1], "--peer") != 0)
        return;
    for (size_t i = 0; i < n_roles; i++) {
        if (strcmp(argv[2], roles[i].name) == 0)
            exit(roles[i].run(PEER_FD));
    }
    errx(1, "no role %s", argv[2]);
}

static void start(struct peer *peer, char *const argv[])
{
    posix_spawn_file_actions_t actions;
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        err(1, "socketpair");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], PEER_FD);
    if (posix_spawnp(&peer->pid, argv[0], &actions, NULL, argv, environ) != 0)
        err(1, "posix_spawn of %s", argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    peer->socket = fds[0];
}

void peer_start(struct peer *peer, const char *role)
{
    start(peer, (char *[]){"/proc/self/exe", "--peer", (char *)role, NULL});
}

/* A user who is not root needs a user namespace as well. */
static const char *unshare_options(void)
{
    return geteuid() == 0 ? "-pf" : "-Urpf";
}

bool peer_can_start_apart(void)
{
    struct peer peer;

    start(&peer, (char *[]){"unshare", (char *)unshare_options(), "true", NULL});
    return peer_wait(&peer) == 0;
}

void peer_start_apart(struct peer *peer, const char *role)
{
    char program[4096];
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (len < 0)
        err(1, "/proc/self/exe");
    program[len] = '\0';
    start(peer, (char *[]){"unshare", (char *)unshare_options(), program, "--peer", (char *)role, NULL});
}

int peer_wait(struct peer *peer)
{
    int status;

    close(peer->socket);
    if (waitpid(peer->pid, &status, 0) != peer->pid)
        err(1, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : DIED + WTERMSIG(status);
}

void peer_send(int socket, const void *message, size_t bytes, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec data = {.iov_base = (void *)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};

    if (fd >= 0) {
        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        *CMSG_FIRSTHDR(&header) =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&header)), &fd, sizeof(fd));
    }
    if (sendmsg(socket, &header, MSG_NOSIGNAL) != (ssize_t)bytes)
        err(1, "sendmsg to the peer");
}

int peer_receive(int socket, void *message_out, size_t bytes)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec data = {.iov_base = message_out, .iov_len = bytes};
    struct msghdr header = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    int fd = -1;

    if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != (ssize_t)bytes)
        errx(1, "the peer sent something else, or is gone");
    if (CMSG_FIRSTHDR(&header) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
    return fd;
}
