/* SPDX-License-Identifier: Apache-2.0 */
/* next and release, while data is there: no allocation, no system call. Not built with sanitizers: they need both. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

/* --- every allocation of this thread is counted, libzmq's as well */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

static _Thread_local unsigned long allocations;

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}

static void read_batches(struct tsocket *ts, int n)
{
    struct tsocket_batch batch;

    while (n > 0) {
        int rc = tsocket_next(ts, -1, &batch);

        if (rc == TSOCKET_EPOCH_END)
            continue;
        assert_int_equal(rc, TSOCKET_OK);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
        n--;
    }
}

static void next_and_release_allocate_nothing(void **state)
{
    const struct rig_options options = {.epoch_samples = 1009, .capacity = 256, .max_batch = 8, .null = true};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(8, NULL);
    unsigned long before;

    (void)state;
    read_batches(ts, 100);
    before = allocations;
    read_batches(ts, 10000);
    assert_int_equal(allocations - before, 0);
    tsocket_close(ts);
    rig_close(rig);
}

static void the_counter_counts(void **state)
{
    unsigned long before = allocations;
    void *volatile memory = malloc(10);

    (void)state;
    free(memory);
    assert_int_equal(allocations - before, 1);
}

/* --- system calls: a filter kills the process at the first one that is not allowed */

enum {
    SAMPLES_READY = 48,
};

#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void allow_only_the_end(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

/* A second consumer reads ahead, so that the first needs to wait for nothing. */
static struct tsocket *attach_before_ready_data(uint32_t hold)
{
    struct tsocket_options options;
    struct tsocket *first, *ahead;
    struct tsocket_batch batch;

    tsocket_options_init(&options);
    options.hold = hold;
    first = rig_attach(1, &options);
    ahead = rig_attach(1, NULL);
    for (int i = 0; i < SAMPLES_READY; i++) {
        if (tsocket_next(ahead, -1, &batch) != TSOCKET_OK || tsocket_release(ahead, &batch) != TSOCKET_OK)
            _exit(1);
    }
    return first;
}

static void take_ready_batches(void)
{
    struct tsocket *ts = attach_before_ready_data(SAMPLES_READY);
    struct tsocket_batch batch;

    allow_only_the_end();
    for (int i = 0; i < SAMPLES_READY; i++) {
        if (tsocket_next(ts, -1, &batch) != TSOCKET_OK)
            _exit(2);
    }
    _exit(0);
}

static void make_a_system_call(void)
{
    allow_only_the_end();
    syscall(SYS_getpid);
    _exit(0);
}

static int end_of(void (*body)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0)
        body();
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    return status;
}

static void next_makes_no_system_call_while_data_is_there(void **state)
{
    static const char *const args[] = {"--join-grace", "0", "--ring", "64", "synthetic:101x8x8", NULL};
    pid_t daemon;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(args);
    assert_int_equal(end_of(take_ready_batches), 0);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static void the_filter_notices_a_system_call(void **state)
{
    int status = end_of(make_a_system_call);

    (void)state;
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(next_and_release_allocate_nothing),
        cmocka_unit_test(the_filter_notices_a_system_call),
        cmocka_unit_test(next_makes_no_system_call_while_data_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
