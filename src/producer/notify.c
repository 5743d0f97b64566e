/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"
#include "progress.h"

#define STATUS_NS (10 * TSI_NS_PER_S)
#define TEXT_MAX  1024

/* The socket's path, or '@' and a name that is in no folder. */
static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    int fd;

    if ((path[0] != '/' && path[0] != '@') || len >= sizeof(address.sun_path)) {
        errno = EINVAL;
        return -1;
    }
    memcpy(address.sun_path, path, len);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 &&
        connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* How often to give a sign of life: twice as often as is asked for, if it is asked of this process. */
static uint64_t watchdog_ns(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

    if (usec == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    return strtoull(usec, NULL, 10) * 1000 / 2;
}

void tsp_notify_open(struct tsp_notify *notify, uint64_t now_ns)
{
    const char *path = getenv("NOTIFY_SOCKET");

    *notify = (struct tsp_notify){.fd = -1, .status_due_ns = now_ns};
    if (path == NULL || path[0] == '\0')
        return;
    notify->fd = connect_to(path);
    if (notify->fd < 0)
        tsi_log('W', "NOTIFY_SOCKET: %s; the service manager will not hear of this process", strerror(errno));
    else
        notify->watchdog_ns = watchdog_ns();
    notify->watchdog_due_ns = now_ns;
}

void tsp_notify_close(struct tsp_notify *notify)
{
    if (notify->fd >= 0)
        close(notify->fd);
    notify->fd = -1;
}

/* A manager that does not listen at the moment is not waited for. */
static void tell(const struct tsp_notify *notify, const char *text)
{
    if (notify->fd >= 0 && send(notify->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        tsi_log('D', "NOTIFY_SOCKET: %s", strerror(errno));
}

void tsp_notify_ready(const struct tsp_notify *notify)
{
    tell(notify, "READY=1");
}

void tsp_notify_reloading(const struct tsp_notify *notify, uint64_t now_ns)
{
    char text[64];

    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, now_ns / 1000);
    tell(notify, text);
}

void tsp_notify_stopping(const struct tsp_notify *notify)
{
    tell(notify, "STOPPING=1");
}

static void tell_status(const struct tsp_notify *notify, struct tsocket_producer *producer)
{
    char line[TEXT_MAX], text[TEXT_MAX + 8];
    char *status;

    if (tsocket_producer_status(producer, &status) != TSOCKET_OK)
        return;
    tsp_progress_line(status, line, sizeof(line));
    free(status);
    snprintf(text, sizeof(text), "STATUS=%s", line);
    tell(notify, text);
}

void tsp_notify_tick(struct tsp_notify *notify, struct tsocket_producer *producer, uint64_t now_ns)
{
    if (notify->fd < 0)
        return;
    if (notify->watchdog_ns > 0 && now_ns >= notify->watchdog_due_ns) {
        tell(notify, "WATCHDOG=1");
        notify->watchdog_due_ns = now_ns + notify->watchdog_ns;
    }
    if (now_ns >= notify->status_due_ns) {
        tell_status(notify, producer);
        notify->status_due_ns = now_ns + STATUS_NS;
    }
}
