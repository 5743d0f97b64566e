/* SPDX-License-Identifier: Apache-2.0 */
#include "attach.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/step.h"
#include "places.h"

enum {
    RETRY_MS = 20, /* between two looks for a daemon that is not there yet */
};

/* --- one exchange: what has come in so far */

struct reply {
    char *text; /* or NULL: nothing yet */
    size_t len;
    struct tsc_ring_fds memory;
};

static void close_fds(struct tsc_ring_fds *fds)
{
    while (fds->n > 0)
        close(fds->fds[--fds->n]);
}

static void reply_fini(struct reply *reply)
{
    close_fds(&reply->memory);
    free(reply->text);
}

void tsc_link_close(struct tsc_link *link)
{
    tsi_socket_close(link->socket);
    if (link->lifeline >= 0)
        close(link->lifeline);
    *link = (struct tsc_link){.lifeline = -1};
}

bool tsc_split_name(const char *name, char daemon_out[TSOCKET_NAME_MAX + 1], char stream_out[TSOCKET_NAME_MAX + 1])
{
    const char *slash = strchr(name, '/');
    size_t daemon_len = slash != NULL ? (size_t)(slash - name) : strlen(name);

    if (daemon_len > TSOCKET_NAME_MAX || (slash != NULL && (strlen(slash + 1) > TSOCKET_NAME_MAX || slash[1] == '\0')))
        return false;
    memcpy(daemon_out, name, daemon_len);
    daemon_out[daemon_len] = '\0';
    strcpy(stream_out, slash != NULL ? slash + 1 : "");
    return true;
}

static int find(const char *daemon, int timeout_ms, int *fd_out)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);

    for (;;) {
        int rc = tsi_runtime_connect(daemon, fd_out);
        int left_ms = tsi_clock_left_ms(tsi_clock_ns(), deadline_ns);

        if (rc != TSOCKET_ENOTFOUND || left_ms == 0)
            return rc;
        if (poll(NULL, 0, left_ms > 0 && left_ms < RETRY_MS ? left_ms : RETRY_MS) < 0)
            return tsi_fail(TSOCKET_EINTR, "interrupted while waiting for the daemon \"%s\"", daemon);
    }
}

static int greet(int lifeline, uint64_t deadline_ns, struct tsi_greeting *greeting_out)
{
    char packet[TSI_LIFELINE_PACKET_MAX];
    int fds[TSI_LIFELINE_FDS];
    uint32_t n_fds;
    size_t len;
    int rc = tsi_lifeline_recv(lifeline, deadline_ns, packet, sizeof(packet), &len, fds, &n_fds);

    if (rc != TSOCKET_OK)
        return rc;
    while (n_fds > 0)
        close(fds[--n_fds]);
    rc = tsi_greeting_unpack(packet, len, greeting_out);
    if (rc == TSOCKET_OK && greeting_out->refused[0] != '\0')
        rc = tsi_fail(TSOCKET_EREFUSED, "%s", greeting_out->refused);
    return rc;
}

int tsc_link_say(const struct tsc_link *link, const struct tsi_hello *message)
{
    struct tsi_hello mine = *message;
    char *text;
    int rc;

    memcpy(mine.token, link->token, sizeof(mine.token));
    text = tsi_hello_pack(&mine);
    if (text == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a message");
    rc = tsi_socket_send(link->socket, 0, text, strlen(text));
    cJSON_free(text);
    return rc;
}

/* A new socket has room. Without any, nobody has accepted it: who has greeted us a moment ago is dead. */
static int say_first(const struct tsc_link *link, const struct tsi_hello *message)
{
    int rc = tsc_link_say(link, message);

    return rc == TSOCKET_EAGAIN ? tsi_fail(TSOCKET_GONE, "the daemon died while it was asked") : rc;
}

/* Greeted, connected, and `hello` on its way. */
static int link_open(const char *daemon, const struct tsi_hello *hello, int connect_timeout_ms, int answer_ms,
                     struct tsc_link *link_out)
{
    struct tsc_link link = {.lifeline = -1};
    struct tsi_hello mine = *hello;
    struct tsi_greeting greeting;
    int rc = find(daemon, connect_timeout_ms, &link.lifeline);

    if (rc == TSOCKET_OK)
        rc = greet(link.lifeline, tsi_clock_deadline(tsi_clock_ns(), answer_ms), &greeting);
    if (rc == TSOCKET_OK && strcmp(hello->type, "HELLO") == 0)
        rc = tsc_places_list(hello->device, greeting.gpu, mine.device);
    if (rc == TSOCKET_OK) {
        TSI_STEP(GREETING_HEARD);
        memcpy(link.token, greeting.token, sizeof(link.token));
        rc = tsi_socket_connect(greeting.socket, &link.socket);
    }
    if (rc == TSOCKET_OK)
        rc = say_first(&link, &mine);
    TSI_STEP(HELLO_SENT);
    if (rc == TSOCKET_OK)
        *link_out = link;
    else
        tsc_link_close(&link);
    return rc;
}

static int take_message(struct tsi_socket *socket, struct reply *reply)
{
    char *text = malloc(TSI_ANSWER_MAX + 1);
    int rc = text == NULL ? tsi_fail(TSOCKET_ENOMEM, "no memory for a message")
                          : tsi_socket_recv(socket, NULL, text, TSI_ANSWER_MAX, &reply->len);

    if (rc != TSOCKET_OK) {
        free(text);
        return rc;
    }
    text[reply->len] = '\0';
    free(reply->text);
    reply->text = text;
    return TSOCKET_OK;
}

/*
 * Waits for the answer. Descriptors that come first are kept. The daemon never hangs up before it has answered: an
 * end of file here means that it died.
 */
static int wait_for_message(const struct tsc_link *link, uint64_t deadline_ns, struct reply *reply)
{
    char packet[TSI_LIFELINE_PACKET_MAX];
    size_t len;

    for (;;) {
        int left_ms = tsi_clock_left_ms(tsi_clock_ns(), deadline_ns);
        int rc = take_message(link->socket, reply);

        if (rc != TSOCKET_EAGAIN)
            return rc;
        if (reply->memory.n == 0)
            rc =
                tsi_lifeline_recv(link->lifeline, 0, packet, sizeof(packet), &len, reply->memory.fds, &reply->memory.n);
        else if (tsi_lifeline_hung_up(link->lifeline))
            rc = tsi_fail(TSOCKET_GONE, "the daemon closed the lifeline");
        if (rc != TSOCKET_OK && rc != TSOCKET_EAGAIN)
            return rc;
        if (left_ms == 0)
            return tsi_fail(TSOCKET_EAGAIN, "the daemon does not answer; is it stopped?");
        if (tsi_socket_wait(link->socket, link->lifeline, false, left_ms) == TSOCKET_EINTR)
            return tsi_fail(TSOCKET_EINTR, "interrupted while waiting for the daemon's answer");
    }
}

int tsc_link_take_ring(const struct tsc_link *link, const struct tsi_layout *layout, const char *ticket, uint32_t name,
                       struct tsc_ring **ring_out)
{
    char packet[TSI_LIFELINE_PACKET_MAX];
    struct tsc_ring_fds fds = {.n = 0};
    size_t len;
    int rc = tsi_lifeline_recv(link->lifeline, tsi_clock_deadline(tsi_clock_ns(), TSC_ANSWER_MS), packet,
                               sizeof(packet), &len, fds.fds, &fds.n);

    if (rc == TSOCKET_OK)
        rc = tsc_ring_open(&fds, layout, ticket, name, ring_out);
    close_fds(&fds);
    return rc;
}

static int accept_welcome(struct reply *reply, struct tsc_attachment *attachment)
{
    int rc = tsi_welcome_unpack(reply->text, reply->len, &attachment->welcome);

    if (rc == TSOCKET_OK && attachment->welcome.refused != TSOCKET_OK)
        rc = tsi_fail(attachment->welcome.refused, "%s", attachment->welcome.reason);
    if (rc != TSOCKET_OK)
        return rc;
    if (reply->memory.n == 0)
        return tsc_link_take_ring(&attachment->link, &attachment->welcome.layout, attachment->welcome.arena, 0,
                                  &attachment->ring);
    return tsc_ring_open(&reply->memory, &attachment->welcome.layout, attachment->welcome.arena, 0, &attachment->ring);
}

int tsc_attach(const char *daemon, const struct tsi_hello *hello, int connect_timeout_ms, int answer_ms,
               struct tsc_attachment *attachment_out)
{
    struct tsc_attachment attachment = {.ring = NULL};
    struct reply reply = {.text = NULL};
    uint64_t deadline_ns;
    int rc = link_open(daemon, hello, connect_timeout_ms, answer_ms, &attachment.link);

    if (rc != TSOCKET_OK)
        return rc;
    deadline_ns = tsi_clock_deadline(tsi_clock_ns(), answer_ms);
    rc = wait_for_message(&attachment.link, deadline_ns, &reply);
    TSI_STEP(WELCOME_HEARD);
    if (rc == TSOCKET_OK)
        rc = accept_welcome(&reply, &attachment);
    reply_fini(&reply);
    TSI_STEP(MAPPED);
    if (rc == TSOCKET_OK)
        *attachment_out = attachment;
    else
        tsc_detach(&attachment);
    return rc;
}

void tsc_detach(struct tsc_attachment *attachment)
{
    tsc_link_close(&attachment->link);
    tsc_ring_close(attachment->ring);
    attachment->ring = NULL;
}

/* A refusal is an answer like any other here, but not the one that was asked for. */
static int check_answer(const struct reply *reply)
{
    struct tsi_move refusal;

    if (tsi_move_unpack(reply->text, reply->len, &refusal) == TSOCKET_OK && refusal.refused != TSOCKET_OK)
        return tsi_fail(refusal.refused, "%s", refusal.reason);
    return TSOCKET_OK;
}

int tsc_query(const char *daemon, const struct tsi_hello *question, int timeout_ms, char **json_out)
{
    struct reply reply = {.text = NULL};
    struct tsc_link link;
    int rc = link_open(daemon, question, 0, TSC_ANSWER_MS, &link);

    if (rc != TSOCKET_OK)
        return rc;
    rc = wait_for_message(&link, tsi_clock_deadline(tsi_clock_ns(), timeout_ms), &reply);
    if (rc == TSOCKET_OK)
        rc = check_answer(&reply);
    if (rc == TSOCKET_OK) {
        *json_out = reply.text;
        reply.text = NULL;
    }
    reply_fini(&reply);
    tsc_link_close(&link);
    return rc;
}
