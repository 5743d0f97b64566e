/* SPDX-License-Identifier: Apache-2.0 */
#include "lifeline.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"

enum {
    BACKLOG = 128,
    GROUPS_MAX = 256,
};

static int set_address(const char *path, struct sockaddr_un *address_out)
{
    *address_out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address_out->sun_path))
        return tsi_fail(TSOCKET_EINVAL,
                        "%s: %zu bytes, a Unix socket's path has at most %zu; use a shorter TSOCKET_DIR", path,
                        strlen(path), sizeof(address_out->sun_path) - 1);
    strcpy(address_out->sun_path, path);
    return TSOCKET_OK;
}

int tsi_lifeline_listen(const char *path, int *fd_out)
{
    struct sockaddr_un address;
    int fd;
    int rc = set_address(path, &address);

    if (rc != TSOCKET_OK)
        return rc;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "socket");
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || chmod(path, 0600) != 0 ||
        listen(fd, BACKLOG) != 0) {
        rc = tsi_fail_errno(TSOCKET_ESYSTEM, "%s: cannot listen", path);
        close(fd);
        return rc;
    }
    *fd_out = fd;
    return TSOCKET_OK;
}

static int peer_of(int fd, struct tsi_peer *peer_out)
{
    struct ucred credentials;
    socklen_t len = sizeof(credentials);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "SO_PEERCRED");
    *peer_out = (struct tsi_peer){.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
    return TSOCKET_OK;
}

int tsi_lifeline_accept(int listener, int *fd_out, struct tsi_peer *peer_out)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int rc;

    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return TSOCKET_EAGAIN;
    if (fd < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "accept on the lifeline");
    rc = peer_of(fd, peer_out);
    if (rc != TSOCKET_OK)
        close(fd);
    else
        *fd_out = fd;
    return rc;
}

bool tsi_lifeline_in_group(int fd, const struct tsi_peer *peer, gid_t gid)
{
    gid_t groups[GROUPS_MAX];
    socklen_t len = sizeof(groups);

    if (peer->gid == gid)
        return true;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) != 0)
        return false;
    for (size_t i = 0; i < len / sizeof(groups[0]); i++) {
        if (groups[i] == gid)
            return true;
    }
    return false;
}

int tsi_lifeline_connect(const char *path, int *fd_out)
{
    struct sockaddr_un address;
    int fd;
    int rc = set_address(path, &address);

    if (rc != TSOCKET_OK)
        return rc;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        rc = tsi_fail_errno(errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR ? TSOCKET_ENOTFOUND
                                                                                         : TSOCKET_ESYSTEM,
                            "%s: cannot connect", path);
        close(fd);
        return rc;
    }
    *fd_out = fd;
    return TSOCKET_OK;
}

int tsi_lifeline_send(int fd, const void *packet, size_t len, const int *fds, uint32_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * TSI_LIFELINE_FDS)];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (n_fds > 0) {
        struct cmsghdr *header = &control.align;

        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(header), fds, sizeof(int) * n_fds);
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len)
        return TSOCKET_OK;
    return tsi_fail_errno(errno == EPIPE || errno == ECONNRESET ? TSOCKET_GONE : TSOCKET_ESYSTEM, "lifeline");
}

/* Takes what descriptors came, at most TSI_LIFELINE_FDS: the kernel closes what found no room. */
static uint32_t take_fds(struct msghdr *message, int *fds_out)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    uint32_t n;

    if (header == NULL || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    n = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds_out, CMSG_DATA(header), n * sizeof(int));
    return n;
}

static int wait_readable(int fd, uint64_t deadline_ns)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int n = poll(&waiting, 1, tsi_clock_left_ms(tsi_clock_ns(), deadline_ns));

    if (n > 0)
        return TSOCKET_OK;
    if (n == 0)
        return tsi_fail(TSOCKET_EAGAIN, "lifeline: no answer in time");
    return tsi_fail_errno(errno == EINTR ? TSOCKET_EINTR : TSOCKET_ESYSTEM, "lifeline");
}

int tsi_lifeline_recv(int fd, uint64_t deadline_ns, void *packet, size_t room, size_t *len_out, int *fds_out,
                      uint32_t *n_fds_out)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * TSI_LIFELINE_FDS)];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = room};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    uint32_t n_fds;
    ssize_t len;
    int rc = wait_readable(fd, deadline_ns);

    if (rc != TSOCKET_OK)
        return rc;
    len = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (len == 0 || (len < 0 && errno == ECONNRESET))
        return tsi_fail(TSOCKET_GONE, "the daemon closed the lifeline");
    if (len < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "lifeline");
    n_fds = take_fds(&message, fds_out);
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        while (n_fds > 0)
            close(fds_out[--n_fds]);
        return tsi_fail(TSOCKET_EPROTOCOL, "lifeline: a packet that is too long");
    }
    *len_out = (size_t)len;
    *n_fds_out = n_fds;
    return TSOCKET_OK;
}

void tsi_lifeline_hang_up(int fd)
{
    shutdown(fd, SHUT_WR); /* the other side may be gone already */
}

bool tsi_lifeline_hung_up(int fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLRDHUP};

    return poll(&waiting, 1, 0) > 0 && (waiting.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}
