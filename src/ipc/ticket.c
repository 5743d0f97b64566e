/* SPDX-License-Identifier: Apache-2.0 */
#include "ticket.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "error.h"

static const char *const words[] = {
    [TSI_ARENA_HOST] = "host", [TSI_ARENA_CUDA_IPC] = "cuda-ipc", [TSI_ARENA_CUDA_VMM] = "cuda-vmm"};

const char *tsi_arena_word(enum tsi_arena_kind kind)
{
    return words[kind];
}

void tsi_ticket_pack(const struct tsi_arena_ticket *ticket, char text_out[TSI_TICKET_MAX])
{
    char uuid[TSI_UUID_TEXT_LEN];
    int len;

    if (ticket->kind == TSI_ARENA_HOST) {
        strcpy(text_out, words[TSI_ARENA_HOST]);
        return;
    }
    tsi_uuid_print(&ticket->uuid, uuid);
    len = snprintf(text_out, TSI_TICKET_MAX, "%s %s %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64, words[ticket->kind],
                   uuid, ticket->bytes, (uint64_t)ticket->pid, ticket->pid_namespace, ticket->address);
    if (ticket->kind == TSI_ARENA_CUDA_VMM)
        return;
    text_out[len++] = ' ';
    for (size_t i = 0; i < sizeof(ticket->handle.reserved); i++)
        len += snprintf(text_out + len, TSI_TICKET_MAX - (size_t)len, "%02x",
                        (unsigned)(unsigned char)ticket->handle.reserved[i]);
}

static enum tsi_arena_kind kind_of(const char *word)
{
    return strcmp(word, words[TSI_ARENA_CUDA_VMM]) == 0   ? TSI_ARENA_CUDA_VMM
           : strcmp(word, words[TSI_ARENA_CUDA_IPC]) == 0 ? TSI_ARENA_CUDA_IPC
                                                          : TSI_ARENA_HOST;
}

static void read_handle(const char *text, struct tsi_cu_ipc_handle *handle)
{
    unsigned byte;

    for (size_t i = 0; i < sizeof(handle->reserved) && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        handle->reserved[i] = (char)byte;
}

/* It is read generously, and must then be what would have been written. */
int tsi_ticket_unpack(const char *text, struct tsi_arena_ticket *ticket_out)
{
    struct tsi_arena_ticket ticket = {.kind = TSI_ARENA_HOST};
    char again[TSI_TICKET_MAX], word[16] = "", uuid[TSI_UUID_TEXT_LEN] = "";
    uint64_t pid = 0;
    int at = 0;

    if (sscanf(text, "%15s %40s %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 "%n", word, uuid, &ticket.bytes, &pid,
               &ticket.pid_namespace, &ticket.address, &at) == 6 &&
        tsi_uuid_parse(uuid, &ticket.uuid)) {
        ticket.kind = kind_of(word);
        ticket.pid = (int64_t)pid;
        if (ticket.kind == TSI_ARENA_CUDA_IPC && text[at] == ' ' &&
            strlen(text + at + 1) == 2 * sizeof(ticket.handle.reserved))
            read_handle(text + at + 1, &ticket.handle);
    }
    tsi_ticket_pack(&ticket, again);
    if (strcmp(text, again) != 0)
        return tsi_fail(TSOCKET_EPROTOCOL, "message: \"arena\" names no memory that this library knows");
    *ticket_out = ticket;
    return TSOCKET_OK;
}
