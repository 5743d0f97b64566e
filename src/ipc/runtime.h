/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime folder: how daemon and consumers of one machine find each other.
 *
 *     ROOT/NAME/             ROOT: $TSOCKET_DIR, else $XDG_RUNTIME_DIR/tsocket, else /tmp/tsocket-UID
 *         lock               flock()ed by the daemon that owns NAME; holds its pid
 *         lifeline           Unix socket, see lifeline.h
 *         z-RANDOM           ZeroMQ's socket; told only over the lifeline
 *
 * The lock decides who owns a name: a second bind of a ZeroMQ ipc path succeeds and deafens the first. The kernel drops
 * the lock with its owner, and the next owner removes what a killed one left behind.
 */
#ifndef TSI_RUNTIME_H
#define TSI_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tsocket/tsocket.h>

#define TSI_PATH_MAX   108 /* sun_path with its final 0 */
#define TSI_RANDOM_HEX 33  /* 128 random bits as text, with the final 0 */

struct tsi_runtime {
    int lock_fd;
    char folder[TSI_PATH_MAX];
    char lifeline[TSI_PATH_MAX];
    char socket[TSI_PATH_MAX]; /* ZeroMQ's, without "ipc://" */
    bool lost;                 /* somebody has removed it: has been logged */
};

/* 1 to TSOCKET_NAME_MAX of A-Z a-z 0-9 . _ -, the first not a dot: a file name that cannot leave its folder. */
bool tsi_name_ok(const char *name);

/*
 * Daemon: takes NAME. `shared`: other users may enter the folder (0711; who may attach is for the lifeline to decide).
 * TSOCKET_EBUSY names the owner's pid. TSOCKET_EINVAL, TSOCKET_ESYSTEM.
 */
int tsi_runtime_take(const char *name, bool shared, struct tsi_runtime *runtime_out);

/* Opens the folder to other users once everything in it has its final mode. */
int tsi_runtime_share(const struct tsi_runtime *runtime);

void tsi_runtime_give_back(struct tsi_runtime *runtime);

/*
 * Looks whether the folder is still there, and still this daemon's; to be called now and then. If not, nobody new can
 * find it: that is logged, once. Who is attached goes on.
 */
void tsi_runtime_watch(struct tsi_runtime *runtime);

/*
 * Consumer: connects to NAME's lifeline, looking in every folder a daemon could use. TSOCKET_ENOTFOUND lists them.
 * On TSOCKET_OK *fd_out is the caller's.
 */
int tsi_runtime_connect(const char *name, int *fd_out);

/* The names of daemons that answer, in the folders a consumer would search; returns how many (at most `max`). */
int tsi_runtime_list(char names[][TSOCKET_NAME_MAX + 1], uint32_t max);

/* 128 bits from the kernel as hexadecimal text. TSOCKET_ESYSTEM. */
int tsi_random_hex(char out[TSI_RANDOM_HEX]);

#endif
