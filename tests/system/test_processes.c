/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer and its daemon as processes of their own. Trainers fork: for data, for checkpoints, for a shell command;
 * neither parent nor daemon may be harmed by it. Either is stopped, or dies.
 */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

enum {
    SAMPLES = 101,
};

static const char *const daemon_args[] = {"--join-grace", "0", "--ring", "64", "synthetic:101x8x8", NULL};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Runs `body` in a child and returns how that ended. Its failure ends the child alone. */
static int in_child(void (*body)(struct tsocket *ts), struct tsocket *ts)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        body(ts);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void must(bool condition)
{
    if (!condition)
        _exit(1);
}

/* One whole epoch from wherever the consumer is, without a gap. */
static void read_an_epoch(struct tsocket *ts)
{
    struct tsocket_batch batch;
    uint64_t first;
    int rc;

    assert_int_equal(tsocket_position(ts, NULL, &first), TSOCKET_OK);
    while ((rc = tsocket_next(ts, 20000, &batch)) == TSOCKET_OK) {
        assert_int_equal(batch.first, first);
        first += batch.count;
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    assert_int_equal(rc, TSOCKET_EPOCH_END);
    assert_int_equal(first, SAMPLES);
}

static void use_everything(struct tsocket *ts)
{
    struct tsocket_batch batch = {.count = 0};
    struct tsocket_info info;
    struct tsocket_epoch epoch;

    must(tsocket_next(ts, -1, &batch) == TSOCKET_EFORK);
    must(tsocket_release(ts, &batch) == TSOCKET_EFORK);
    must(tsocket_flush(ts) == TSOCKET_EFORK);
    must(tsocket_describe(ts, &info) == TSOCKET_EFORK);
    must(tsocket_position(ts, NULL, NULL) == TSOCKET_EFORK);
    must(tsocket_ended_epoch(ts, &epoch) == TSOCKET_EFORK);
    tsocket_close(ts);
}

static void the_childs_handle_answers_efork_and_can_be_closed(void **state)
{
    struct tsocket_batch held;
    struct tsocket *ts;
    pid_t daemon;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(daemon_args);
    ts = rig_attach(7, NULL);
    assert_int_equal(tsocket_next(ts, -1, &held), TSOCKET_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(in_child(use_everything, ts), 0);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    for (int i = 0; i < 3; i++)
        read_an_epoch(ts); /* the parent is not disturbed */
    tsocket_close(ts);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static void attach_on_its_own(struct tsocket *parents)
{
    struct tsocket *ts = NULL;
    struct tsocket_batch batch;

    must(tsocket_open(RIG_NAME, 5, NULL, &ts) == TSOCKET_OK);
    must(tsocket_next(ts, -1, &batch) == TSOCKET_OK);
    must(tsocket_release(ts, &batch) == TSOCKET_OK);
    tsocket_close(ts);
    tsocket_close(parents);
}

static void the_child_can_open_a_handle_of_its_own(void **state)
{
    struct tsocket *ts;
    pid_t daemon;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(daemon_args);
    ts = rig_attach(7, NULL);
    assert_int_equal(in_child(attach_on_its_own, ts), 0);
    read_an_epoch(ts);
    tsocket_close(ts);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

/* A trainer that holds a batch for ever, and has a child that lives on: forked only, or forked and become another. */
static pid_t start_trainer_with_child(bool exec, int told)
{
    pid_t trainer = fork();
    struct tsocket_batch batch;
    pid_t child;

    assert_true(trainer >= 0);
    if (trainer > 0)
        return trainer;
    must(tsocket_next(rig_attach(7, NULL), -1, &batch) == TSOCKET_OK);
    child = fork();
    must(child >= 0);
    if (child == 0 && exec)
        execlp("sleep", "sleep", "600", (char *)NULL);
    if (child > 0)
        must(write(told, &child, sizeof(child)) == sizeof(child));
    for (;;)
        pause();
}

/* Reads until the dead trainer's batch blocks the ring, kills it, and measures how long that lasts. */
static void a_death_with_a_surviving_child(bool exec)
{
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts;
    pid_t daemon, trainer, child;
    uint64_t killed;
    int pipe_fds[2], rc;

    rig_folder_make();
    daemon = rig_daemon_start(daemon_args);
    assert_int_equal(pipe(pipe_fds), 0);
    trainer = start_trainer_with_child(exec, pipe_fds[1]);
    close(pipe_fds[1]); /* if the trainer fails, read does not wait for it */
    assert_int_equal(read(pipe_fds[0], &child, sizeof(child)), sizeof(child));
    tsocket_options_init(&options);
    options.join = TSOCKET_JOIN_NOW;
    ts = rig_attach(3, &options);
    while ((rc = tsocket_next(ts, 200, &batch)) == TSOCKET_OK)
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_EAGAIN);
    killed = now_ms();
    kill(trainer, SIGKILL);
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
    assert_true(now_ms() - killed < 1000);
    assert_int_equal(kill(child, 0), 0); /* it does live on */
    kill(child, SIGKILL);
    waitpid(trainer, NULL, 0);
    tsocket_close(ts);
    close(pipe_fds[0]);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static void a_trainer_that_dies_is_noticed_though_its_forked_child_lives_on(void **state)
{
    (void)state;
    a_death_with_a_surviving_child(false);
}

static void a_trainer_that_dies_is_noticed_though_a_program_it_started_lives_on(void **state)
{
    (void)state;
    a_death_with_a_surviving_child(true);
}

static void write_into_a_batch(struct tsocket *unused)
{
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;

    (void)unused;
    must(tsocket_next(ts, -1, &batch) == TSOCKET_OK);
    *(volatile unsigned char *)(uintptr_t)batch.data[0] = 1;
}

static void make_a_batch_writable(struct tsocket *unused)
{
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;
    uintptr_t page;

    (void)unused;
    must(tsocket_next(ts, -1, &batch) == TSOCKET_OK);
    page = (uintptr_t)batch.data[0] & ~(uintptr_t)4095;
    must(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) != 0 && (errno == EACCES || errno == EPERM));
    tsocket_close(ts);
}

static void a_trainer_cannot_write_into_what_it_reads(void **state)
{
    struct tsocket *ts;
    pid_t daemon;
    int status;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(daemon_args);
    status = in_child(write_into_a_batch, NULL);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    assert_int_equal(in_child(make_a_batch_writable, NULL), 0);
    ts = rig_attach(7, NULL);
    read_an_epoch(ts);
    tsocket_close(ts);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

static void a_signal_handler_interrupts_a_waiting_next(void **state)
{
    static const char *const waiting[] = {"--wait-for", "2", "--ring", "64", "synthetic:101x8x8", NULL};
    struct sigaction action = {.sa_handler = count_alarm};
    struct tsocket_batch batch;
    struct tsocket *ts;
    pid_t daemon;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(waiting);
    ts = rig_attach(7, NULL);
    alarms = 0;
    sigaction(SIGALRM, &action, NULL);
    alarm(1);
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_EINTR);
    assert_int_equal(alarms, 1);
    assert_int_equal(tsocket_next(ts, 10, &batch), TSOCKET_EAGAIN);
    signal(SIGALRM, SIG_DFL);
    tsocket_close(ts);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static void continue_later(pid_t daemon)
{
    pid_t waker = fork();

    assert_true(waker >= 0);
    if (waker == 0) {
        usleep(300000);
        kill(daemon, SIGCONT);
        _exit(0);
    }
}

/* Whether everything is sent, given some time to ZeroMQ's thread. */
static bool flushed(struct tsocket *ts)
{
    for (int i = 0; i < 100; i++) {
        if (tsocket_flush(ts) == TSOCKET_OK)
            return true;
        usleep(100);
    }
    return false;
}

/* So many releases that the queue to the daemon is full, and the consumer cannot even say that it waits. */
static void a_consumer_goes_on_with_a_daemon_that_was_stopped_while_the_queue_to_it_filled_up(void **state)
{
    static const char *const args[] = {"--join-grace", "0",   "--ring",           "32768",
                                       "--max-batch",  "256", "null:1000000x1x1", NULL};
    struct tsocket_batch batch;
    struct tsocket *ts;
    pid_t daemon;
    bool full = false;
    uint64_t begun;
    int rc;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(args);
    ts = rig_attach(1, NULL);
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_OK);
    kill(daemon, SIGSTOP);
    do {
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
        full = full || !flushed(ts);
        rc = tsocket_next(ts, 0, &batch);
    } while (rc == TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_EAGAIN);
    assert_true(full);
    assert_int_equal(tsocket_flush(ts), TSOCKET_EAGAIN);
    continue_later(daemon);
    begun = now_ms();
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
    assert_true(now_ms() - begun < 10000); /* it was woken, rather than its time being over */
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_flush(ts), TSOCKET_OK);
    wait(NULL);
    tsocket_close(ts);
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

static void a_batch_can_be_read_after_the_daemon_was_killed(void **state)
{
    struct tsocket_batch held, batch;
    struct tsocket *ts;
    unsigned char copy[7 * 8 * 8 * 3];
    pid_t daemon;
    int rc;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(daemon_args);
    ts = rig_attach(7, NULL);
    assert_int_equal(tsocket_next(ts, -1, &held), TSOCKET_OK);
    memcpy(copy, held.data[0], sizeof(copy));
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    assert_memory_equal(copy, held.data[0], sizeof(copy));
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    while ((rc = tsocket_next(ts, -1, &batch)) == TSOCKET_OK)
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_GONE);
    tsocket_close(ts);
    daemon = rig_daemon_start(daemon_args); /* sweeps what the killed one left */
    tsocket_close(rig_attach(7, NULL));
    rig_daemon_stop(daemon);
    rig_folder_check_and_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_childs_handle_answers_efork_and_can_be_closed),
        cmocka_unit_test(the_child_can_open_a_handle_of_its_own),
        cmocka_unit_test(a_trainer_that_dies_is_noticed_though_its_forked_child_lives_on),
        cmocka_unit_test(a_trainer_that_dies_is_noticed_though_a_program_it_started_lives_on),
        cmocka_unit_test(a_trainer_cannot_write_into_what_it_reads),
        cmocka_unit_test(a_signal_handler_interrupts_a_waiting_next),
        cmocka_unit_test(a_consumer_goes_on_with_a_daemon_that_was_stopped_while_the_queue_to_it_filled_up),
        cmocka_unit_test(a_batch_can_be_read_after_the_daemon_was_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
