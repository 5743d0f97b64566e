/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever the system refuses, once, at whatever moment: a producer and a consumer either get through their run or are
 * told by an error code with a reason. Nothing crashes, hangs, or is left behind.
 *
 * The linker sends the calls of our own objects (not of libzmq, which ends the process where memory is short) through
 * the wrappers below, of which the k-th fails. k is swept until a run makes fewer calls than that.
 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

#include "rig.h"

static atomic_long calls_until_fault; /* 0 and below: no more faults in this run */
static const char *volatile fault;    /* the call that failed */

static bool fails(const char *name)
{
    if (atomic_fetch_sub(&calls_until_fault, 1) != 1)
        return false;
    fault = name;
    return true;
}

/* WRAP(result, name, (parameters), (arguments), what to answer, errno) */
#define WRAP(result, name, parameters, arguments, answer, error)                                                       \
    result __real_##name parameters;                                                                                   \
    result __wrap_##name parameters;                                                                                   \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        if (!fails(#name))                                                                                             \
            return __real_##name arguments;                                                                            \
        errno = (error);                                                                                               \
        return (answer);                                                                                               \
    }

WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL, ENOMEM)
WRAP(void *, malloc, (size_t size), (size), NULL, ENOMEM)
WRAP(char *, strdup, (const char *text), (text), NULL, ENOMEM)
WRAP(int, memfd_create, (const char *name, unsigned flags), (name, flags), -1, EMFILE)
WRAP(int, posix_fallocate, (int fd, off_t from, off_t len), (fd, from, len), ENOSPC, 0)
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t from), (at, len, prot, flags, fd, from),
     MAP_FAILED, ENOMEM)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), -1, EACCES)
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EPERM)
WRAP(int, flock, (int fd, int operation), (fd, operation), -1, ENOLCK)
WRAP(int, ftruncate, (int fd, off_t len), (fd, len), -1, EIO)
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at), -1, ENOSPC)
WRAP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len), -1, ENOSPC)
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(ssize_t, getrandom, (void *out, size_t len, unsigned flags), (out, len, flags), -1, ENOSYS)
WRAP(int, eventfd, (unsigned value, int flags), (value, flags), -1, EMFILE)
WRAP(int, epoll_create1, (int flags), (flags), -1, EMFILE)
WRAP(int, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event), (epoll, operation, fd, event), -1,
     ENOSPC)
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE)
WRAP(int, bind, (int fd, const struct sockaddr *address, socklen_t len), (fd, address, len), -1, EADDRINUSE)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t len), (fd, address, len), -1, ECONNREFUSED)
WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *len, int flags), (fd, address, len, flags), -1, EMFILE)
WRAP(int, getsockopt, (int fd, int level, int name, void *value, socklen_t *len), (fd, level, name, value, len), -1,
     ENOPROTOOPT)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags), -1, EPIPE)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags), -1, ECONNRESET)
WRAP(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*body)(void *), void *context),
     (thread, how, body, context), EAGAIN, 0)
WRAP(void *, zmq_ctx_new, (void), (), NULL, EMFILE)
WRAP(void *, zmq_socket, (void *context, int type), (context, type), NULL, EMFILE)
WRAP(int, zmq_setsockopt, (void *socket, int option, const void *value, size_t len), (socket, option, value, len), -1,
     EINVAL)
WRAP(int, zmq_bind, (void *socket, const char *endpoint), (socket, endpoint), -1, EADDRINUSE)
WRAP(int, zmq_connect, (void *socket, const char *endpoint), (socket, endpoint), -1, ECONNREFUSED)

/* A full queue is found at a message's first part, never behind it. */
int __real_zmq_send(void *socket, const void *data, size_t len, int flags);
int __wrap_zmq_send(void *socket, const void *data, size_t len, int flags);
int __wrap_zmq_send(void *socket, const void *data, size_t len, int flags)
{
    static _Thread_local bool behind;

    if (!behind && fails("zmq_send")) {
        errno = EAGAIN;
        return -1;
    }
    behind = (flags & ZMQ_SNDMORE) != 0;
    return __real_zmq_send(socket, data, len, flags);
}

/* Only for the consumer: a HELLO that the daemon has no memory to read costs its sender a long wait. */
static void *cjson_malloc(size_t size)
{
    return gettid() == getpid() ? __wrap_malloc(size) : __real_malloc(size);
}

/* --- the run that everything happens to */

static const struct tsocket_field one_field[] = {{.name = "value", .dtype = TSOCKET_INT64}};

enum {
    SAMPLES = 20,
    PATIENCE_MS = 5000,
};

static void *fill(void *context)
{
    struct tsocket_producer *producer = context;
    struct tsocket_claim claim;

    while (tsocket_producer_claim(producer, -1, &claim) == TSOCKET_OK) {
        int64_t value = rig_value(claim.epoch, claim.ordinal);

        memcpy(claim.data[0], &value, sizeof(value));
        if (claim.ordinal == SAMPLES / 2)
            tsocket_producer_reject(producer, &claim, "odd", "the test wants it so");
        else
            tsocket_producer_commit(producer, &claim);
    }
    return NULL;
}

/* An error must have a reason. */
static int checked(int rc)
{
    if (rc < 0)
        assert_true(strlen(tsocket_last_error()) > 0);
    return rc;
}

static int read_one_epoch(void)
{
    struct tsocket_batch batch;
    struct tsocket *ts = NULL;
    uint64_t samples = 0;
    int rc = checked(tsocket_open(RIG_NAME, 3, NULL, &ts));

    if (rc != TSOCKET_OK)
        return rc;
    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK) {
        samples += batch.count;
        tsocket_release(ts, &batch);
    }
    if (rc == TSOCKET_EPOCH_END)
        assert_int_equal(samples, SAMPLES - 1);
    assert_int_not_equal(rc, TSOCKET_EAGAIN); /* that would have been a hang */
    tsocket_close(ts);
    return rc;
}

/* Reads until the epoch's end. */
static int read_on(struct tsocket *ts, uint64_t *samples)
{
    struct tsocket_batch batch;
    int rc;

    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK) {
        *samples += batch.count;
        tsocket_release(ts, &batch);
    }
    assert_int_not_equal(rc, TSOCKET_EAGAIN);
    return checked(rc);
}

/* From a token whose place the group's ring has left behind: on a side ring; and once more after a pause. */
static int read_from_token(const char *token, uint64_t samples)
{
    struct tsocket_options options;
    struct tsocket *ts = NULL;
    int rc;

    tsocket_options_init(&options);
    options.resume = token;
    rc = checked(tsocket_open(RIG_NAME, 2, &options, &ts));
    if (rc != TSOCKET_OK)
        return rc;
    rc = checked(tsocket_pause(ts));
    if (rc == TSOCKET_OK)
        rc = read_on(ts, &samples);
    if (rc == TSOCKET_EPOCH_END)
        assert_int_equal(samples, SAMPLES - 1);
    tsocket_close(ts);
    return rc;
}

static int read_elsewhere(void)
{
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket_batch batch;
    struct tsocket *ts = NULL;
    uint64_t samples = 0;
    int rc = checked(tsocket_open(RIG_NAME, 3, NULL, &ts));

    if (rc != TSOCKET_OK)
        return rc;
    rc = checked(tsocket_next(ts, PATIENCE_MS, &batch));
    if (rc == TSOCKET_OK) {
        assert_int_equal(tsocket_token(ts, &batch, token), TSOCKET_OK);
        tsocket_release(ts, &batch);
        samples = batch.count;
        rc = read_on(ts, &samples);
    }
    if (rc == TSOCKET_EPOCH_END)
        rc = read_from_token(token, batch.count);
    tsocket_close(ts);
    return rc;
}

static int (*reading)(void); /* what the consumer does in this sweep */

static int serve_and_read(struct tsocket_producer *producer)
{
    struct tsocket_stream_options stream;
    pthread_t thread;
    char *status = NULL;
    int rc;

    tsocket_stream_options_init(&stream);
    stream.fields = one_field;
    stream.n_fields = 1;
    stream.epoch_samples = SAMPLES;
    stream.capacity = 8;
    stream.max_batch = 4;
    stream.side_rings = 1;
    stream.dataset_id = "00000000000000aa";
    stream.recipe_id = "00000000000000bb";
    rc = checked(tsocket_producer_add_stream(producer, &stream, NULL));
    if (rc == TSOCKET_OK)
        rc = checked(tsocket_producer_start(producer));
    if (rc != TSOCKET_OK)
        return rc;
    assert_int_equal(__real_pthread_create(&thread, NULL, fill, producer), 0);
    rc = reading();
    if (tsocket_producer_status(producer, &status) == TSOCKET_OK)
        cJSON_free(status);
    tsocket_producer_stop(producer);
    pthread_join(thread, NULL);
    return rc;
}

static char ledger[64];

static int run_once(void)
{
    struct tsocket_producer_options options;
    struct tsocket_producer *producer = NULL;
    int rc;

    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    options.join_grace_ms = 0;
    options.ledger = ledger;
    rc = checked(tsocket_producer_open(&options, &producer));
    if (rc == TSOCKET_OK)
        rc = serve_and_read(producer);
    tsocket_producer_close(producer);
    return rc;
}

static int open_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/* What cannot be locked belongs to nobody, so nobody removed it. */
static void remove_unlocked(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/" RIG_NAME "/lock", getenv("TSOCKET_DIR"));
    unlink(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

static void sweep(int (*what)(void))
{
    cJSON_Hooks hooks = {.malloc_fn = cjson_malloc, .free_fn = free};
    int before;
    long k;

    reading = what;
    snprintf(ledger, sizeof(ledger), "/tmp/tsocket-faults-%d", (int)getpid());
    cJSON_InitHooks(&hooks);
    rig_folder_make();
    atomic_store(&calls_until_fault, 0);
    assert_int_equal(run_once(), TSOCKET_EPOCH_END);
    before = open_descriptors();
    for (k = 1; fault != NULL || k == 1; k++) {
        int rc;

        fault = NULL;
        atomic_store(&calls_until_fault, k);
        rc = run_once();
        atomic_store(&calls_until_fault, 0);
        if (rc != TSOCKET_EPOCH_END && fault == NULL)
            fail_msg("call %ld: %s without a fault: %s", k, tsocket_errname(rc), tsocket_last_error());
        if (open_descriptors() != before)
            fail_msg("call %ld, %s: descriptors are left", k, fault != NULL ? fault : "none");
        if (fault != NULL && strcmp(fault, "flock") == 0)
            remove_unlocked();
        if (rmdir(getenv("TSOCKET_DIR")) != 0)
            fail_msg("call %ld, %s: files are left", k, fault != NULL ? fault : "none");
        rig_folder_make();
    }
    assert_in_range(k, 50, 5000);
    rig_folder_check_and_remove();
    unlink(ledger);
    cJSON_InitHooks(NULL);
}

static void any_call_may_fail_once(void **state)
{
    (void)state;
    sweep(read_one_epoch);
}

static void any_call_may_fail_once_while_a_consumer_reads_elsewhere(void **state)
{
    (void)state;
    sweep(read_elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail_once),
        cmocka_unit_test(any_call_may_fail_once_while_a_consumer_reads_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
