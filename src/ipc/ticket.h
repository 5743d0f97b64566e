/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ticket: what a consumer must know to map an arena, as text in a message.
 *
 *     "host"                                                  the descriptor on the lifeline is all
 *     "cuda-vmm UUID BYTES PID NAMESPACE ADDRESS"             with a descriptor as well
 *     "cuda-ipc UUID BYTES PID NAMESPACE ADDRESS HANDLE"      without
 *
 * Numbers are hexadecimal. After an unpack that succeeds the text had this form; what the numbers mean is checked where
 * they are used (cuda_arena.h).
 */
#ifndef TSI_TICKET_H
#define TSI_TICKET_H

#include "arena.h"
#include "cuda_abi.h"

#define TSI_TICKET_MAX 288 /* bytes of the text, with the final 0 */

struct tsi_arena_ticket {
    enum tsi_arena_kind kind;
    uint64_t bytes;          /* of the mapping, in whole blocks; as all below, of a GPU's only */
    struct tsi_cu_uuid uuid; /* of the device */
    int64_t pid;             /* of the daemon, in its PID namespace: */
    uint64_t pid_namespace;  /* together they say which process it is */
    uint64_t address;        /* there */
    struct tsi_cu_ipc_handle handle;
};

void tsi_ticket_pack(const struct tsi_arena_ticket *ticket, char text_out[TSI_TICKET_MAX]);
int tsi_ticket_unpack(const char *text, struct tsi_arena_ticket *ticket_out); /* TSOCKET_OK or TSOCKET_EPROTOCOL */

/* "host", "cuda-ipc", "cuda-vmm" */
const char *tsi_arena_word(enum tsi_arena_kind kind);

#endif
