/* SPDX-License-Identifier: Apache-2.0 */
#include "socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <zmq.h>

#include "error.h"
#include "runtime.h"

enum {
    ROUTE_BYTES = 5, /* ZeroMQ's own: a zero byte, then a number */
};

struct tsi_socket {
    void *context;
    void *socket;
};

static int set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value));
}

static int open_socket(int type, struct tsi_socket **socket_out)
{
    struct tsi_socket *self = calloc(1, sizeof(*self));
    int64_t message_max = type == ZMQ_ROUTER ? TSI_MESSAGE_MAX : TSI_ANSWER_MAX;

    if (self == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a socket");
    self->context = zmq_ctx_new();
    if (self->context != NULL)
        self->socket = zmq_socket(self->context, type);
    if (self->socket == NULL || set(self->socket, ZMQ_LINGER, 0) != 0 ||
        zmq_setsockopt(self->socket, ZMQ_MAXMSGSIZE, &message_max, sizeof(message_max)) != 0 ||
        (type == ZMQ_ROUTER && set(self->socket, ZMQ_ROUTER_MANDATORY, 1) != 0) ||
        (type == ZMQ_DEALER && set(self->socket, ZMQ_RECONNECT_IVL, -1) != 0)) {
        int rc = tsi_fail(TSOCKET_ESYSTEM, "ZeroMQ: cannot make a socket: %s", zmq_strerror(zmq_errno()));

        tsi_socket_close(self);
        return rc;
    }
    *socket_out = self;
    return TSOCKET_OK;
}

/* A signal interrupts it before it has done anything. */
static int attach(void *socket, int type, const char *endpoint)
{
    int rc = 0;

    do
        rc = type == ZMQ_ROUTER ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint);
    while (rc != 0 && zmq_errno() == EINTR);
    return rc;
}

static int open_at(int type, const char *path, struct tsi_socket **socket_out)
{
    char endpoint[TSI_PATH_MAX + sizeof("ipc://")];
    struct tsi_socket *self = NULL;
    int rc = open_socket(type, &self);

    if (rc != TSOCKET_OK)
        return rc;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    if (attach(self->socket, type, endpoint) != 0 || (type == ZMQ_ROUTER && chmod(path, 0600) != 0)) {
        rc = tsi_fail(TSOCKET_ESYSTEM, "ZeroMQ: %s: %s", endpoint, zmq_strerror(zmq_errno()));
        tsi_socket_close(self);
        return rc;
    }
    *socket_out = self;
    return TSOCKET_OK;
}

int tsi_socket_bind(const char *path, struct tsi_socket **socket_out)
{
    return open_at(ZMQ_ROUTER, path, socket_out);
}

int tsi_socket_connect(const char *path, struct tsi_socket **socket_out)
{
    return open_at(ZMQ_DEALER, path, socket_out);
}

void tsi_socket_close(struct tsi_socket *socket)
{
    if (socket == NULL)
        return;
    if (socket->socket != NULL)
        zmq_close(socket->socket);
    if (socket->context != NULL)
        zmq_ctx_term(socket->context);
    free(socket);
}

void tsi_socket_forget(struct tsi_socket *socket)
{
    free(socket);
}

static int send_part(struct tsi_socket *socket, const void *part, size_t len, int flags)
{
    for (;;) {
        if (zmq_send(socket->socket, part, len, flags | ZMQ_DONTWAIT) >= 0)
            return TSOCKET_OK;
        if (zmq_errno() == EAGAIN)
            return TSOCKET_EAGAIN;
        if (zmq_errno() == EHOSTUNREACH)
            return TSOCKET_GONE;
        if (zmq_errno() != EINTR)
            return tsi_fail(TSOCKET_ESYSTEM, "ZeroMQ: cannot send: %s", zmq_strerror(zmq_errno()));
    }
}

int tsi_socket_send(struct tsi_socket *socket, uint32_t route, const void *message, size_t len)
{
    unsigned char id[ROUTE_BYTES] = {0};
    int rc = TSOCKET_OK;

    if (route != 0) {
        memcpy(&id[1], &route, sizeof(route));
        rc = send_part(socket, id, sizeof(id), ZMQ_SNDMORE);
    }
    return rc == TSOCKET_OK ? send_part(socket, message, len, 0) : rc;
}

/* One part; -1 when none is there (or, within a message, never). */
static int recv_part(struct tsi_socket *socket, void *part, size_t room, bool *more_out)
{
    int more = 0;
    size_t more_len = sizeof(more);
    int len;

    do
        len = zmq_recv(socket->socket, part, room, ZMQ_DONTWAIT);
    while (len < 0 && zmq_errno() == EINTR);
    if (len >= 0)
        zmq_getsockopt(socket->socket, ZMQ_RCVMORE, &more, &more_len);
    *more_out = more != 0;
    return len;
}

static void drop_rest(struct tsi_socket *socket, bool more)
{
    unsigned char ignored;

    while (more && recv_part(socket, &ignored, sizeof(ignored), &more) >= 0)
        continue;
}

int tsi_socket_recv(struct tsi_socket *socket, uint32_t *route_out, void *message, size_t room, size_t *len_out)
{
    unsigned char id[ROUTE_BYTES + 1];
    bool more;
    int len;

    if (route_out != NULL) {
        len = recv_part(socket, id, sizeof(id), &more);
        if (len < 0)
            return TSOCKET_EAGAIN;
        if (len != ROUTE_BYTES || id[0] != 0 || !more) {
            drop_rest(socket, more);
            return TSOCKET_EPROTOCOL;
        }
        memcpy(route_out, &id[1], sizeof(*route_out));
    }
    len = recv_part(socket, message, room, &more);
    if (len < 0)
        return TSOCKET_EAGAIN;
    drop_rest(socket, more);
    if (more || (size_t)len > room)
        return TSOCKET_EPROTOCOL;
    *len_out = (size_t)len;
    return TSOCKET_OK;
}

int tsi_socket_fd(struct tsi_socket *socket)
{
    int fd = -1;
    size_t len = sizeof(fd);

    zmq_getsockopt(socket->socket, ZMQ_FD, &fd, &len);
    return fd;
}

bool tsi_socket_pending(struct tsi_socket *socket)
{
    int events = 0;
    size_t len = sizeof(events);

    return zmq_getsockopt(socket->socket, ZMQ_EVENTS, &events, &len) == 0 && (events & ZMQ_POLLIN) != 0;
}

int tsi_socket_wait(struct tsi_socket *socket, int other_fd, bool to_send, int timeout_ms)
{
    zmq_pollitem_t items[] = {
        {.socket = socket->socket, .events = (short)(to_send ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN)},
        {.fd = other_fd, .events = ZMQ_POLLIN},
    };
    int n = zmq_poll(items, 2, timeout_ms);

    if (n > 0)
        return TSOCKET_OK;
    return n < 0 && zmq_errno() == EINTR ? TSOCKET_EINTR : TSOCKET_EAGAIN;
}
