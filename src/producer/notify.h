/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What systemd wants to hear of a service of Type=notify: datagrams to the socket in $NOTIFY_SOCKET. Where nobody
 * listens, nothing happens. Main thread only.
 *
 *     READY=1          it serves
 *     WATCHDOG=1       twice in each $WATCHDOG_USEC: the main thread and whoever holds the producer's lock go on
 *     STATUS=...       a line for `systemctl status`, every ten seconds
 *     RELOADING=1      SIGHUP is being obeyed; then READY=1
 *     STOPPING=1       it ends
 */
#ifndef TSP_NOTIFY_H
#define TSP_NOTIFY_H

#include <stdint.h>

#include <tsocket/producer.h>

struct tsp_notify {
    int fd;               /* connected to the socket, or -1 */
    uint64_t watchdog_ns; /* between two signs of life; 0: none are wanted */
    uint64_t watchdog_due_ns;
    uint64_t status_due_ns;
};

void tsp_notify_open(struct tsp_notify *notify, uint64_t now_ns);
void tsp_notify_close(struct tsp_notify *notify);

void tsp_notify_ready(const struct tsp_notify *notify);
void tsp_notify_reloading(const struct tsp_notify *notify, uint64_t now_ns);
void tsp_notify_stopping(const struct tsp_notify *notify);

/* What is due, after the producer has answered. */
void tsp_notify_tick(struct tsp_notify *notify, struct tsocket_producer *producer, uint64_t now_ns);

#endif
