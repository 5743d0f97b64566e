/* SPDX-License-Identifier: Apache-2.0 */
/* Rings in GPUs where something fails, ends or dies, on the simulated driver. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <tsocket/convert.h>

#include "gpu_rig.h"
#include "simcuda.h"

static void a_gpu_that_does_not_work_is_said_or_done_without(void **state)
{
    struct producer producer;
    struct tsocket_info info;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda:9", TSOCKET_SHARE_AUTO), TSOCKET_ENOTFOUND);
    assert_int_equal(producer_open(&producer, "cuda:0", TSOCKET_SHARE_HOST), TSOCKET_EINVAL);
    simcuda_fail("cuMemCreate", 1, TSI_CU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(producer_open(&producer, "cuda:0", TSOCKET_SHARE_AUTO), TSOCKET_ENOMEM);
    simcuda_fail("cuMemCreate", 1, TSI_CU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(producer_open(&producer, "auto", TSOCKET_SHARE_AUTO), TSOCKET_OK);
    assert_int_equal(attach(NULL, &ts), TSOCKET_OK);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.memory, TSOCKET_MEMORY_HOST);
    expect_epoch(ts, 0);
    tsocket_close(ts);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

/* --- failures */

static void a_gpu_that_breaks_ends_the_run_with_the_cause(void **state)
{
    struct producer producer;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda", TSOCKET_SHARE_VMM), TSOCKET_OK);
    simcuda_fail("cuEventSynchronize", 1, TSI_CU_ERROR_ECC_UNCORRECTABLE);
    assert_int_equal(tsocket_producer_wait(producer.producer, PATIENCE_MS), TSOCKET_EDEVICE);
    assert_non_null(strstr(tsocket_last_error(), "CUDA_ERROR_ECC_UNCORRECTABLE (214)"));
    producer_close(&producer);
    rig_folder_check_and_remove();
}

/* A whole run, wherever it ends. Nothing in it may wait for ever. */
static int one_run(enum tsocket_share share)
{
    struct producer producer;
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts = NULL;
    int rc = producer_open(&producer, "cuda", share);

    if (rc != TSOCKET_OK)
        return rc;
    tsocket_options_init(&options);
    options.last = TSOCKET_LAST_PAD;
    options.device = "cuda";
    options.epochs = 1;
    rc = tsocket_open(RIG_NAME, 9, &options, &ts);
    for (int waits = 0; rc == TSOCKET_OK || rc == TSOCKET_EPOCH_END || rc == TSOCKET_EAGAIN;) {
        rc = tsocket_next(ts, 10, &batch);
        if (rc == TSOCKET_OK)
            rc = tsocket_release_after(ts, &batch, NULL);
        if (rc != TSOCKET_EAGAIN)
            continue;
        rc = tsocket_producer_wait(producer.producer, 0); /* who waits for that is to end the run */
        if (++waits > 500)
            fail_msg("the run stands still after a failed %s", simcuda_failed());
    }
    tsocket_close(ts);
    producer_close(&producer);
    return rc;
}

/* What a call leaves that failed while things were given back: it cannot be reached again. */
static bool gives_back(const char *function)
{
    static const char *const functions[] = {"cuCtxPushCurrent_v2", "cuMemFree_v2",
                                            "cuMemUnmap",          "cuMemAddressFree",
                                            "cuMemRelease",        "cuStreamDestroy_v2",
                                            "cuEventDestroy_v2",   "cuIpcCloseMemHandle",
                                            "cuMemHostUnregister", "cuDevicePrimaryCtxRelease_v2",
                                            "cuCtxPopCurrent_v2"};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(function, functions[i]) == 0)
            return true;
    }
    return false;
}

static void whatever_call_fails_the_run_ends_and_leaves_nothing(void **state)
{
    static const enum tsocket_share shares[] = {TSOCKET_SHARE_VMM, TSOCKET_SHARE_IPC};

    (void)state;
    rig_folder_make();
    for (int i = 0; i < 2; i++) {
        unsigned long live = simcuda_live(), calls = simcuda_calls("*");

        assert_int_equal(one_run(shares[i]), TSOCKET_END);
        assert_int_equal(simcuda_live(), live);
        calls = simcuda_calls("*") - calls;
        for (unsigned long k = 1; k <= calls; k++) {
            simcuda_fail("*", k, TSI_CU_ERROR_LAUNCH_FAILED);
            if (one_run(shares[i]) != TSOCKET_END)
                assert_true(tsocket_last_error()[0] != '\0');
            simcuda_fail("*", 0, TSI_CU_SUCCESS);
            if (simcuda_live() != live && !gives_back(simcuda_failed()))
                fail_msg("%s, call %lu: %lu things are left", simcuda_failed(), k, simcuda_live() - live);
            live = simcuda_live();
        }
    }
    rig_folder_check_and_remove();
}

/* --- other processes */

static void what_is_held_when_the_daemon_dies_stays_and_is_then_given_back(void **state)
{
    struct tsocket_options options;
    const char *const args[] = {"synthetic:100x4x4", "--ring", "40", "--max-batch", "10", "--device", "cuda", NULL};
    struct tsocket_batch held, batch;
    struct tsocket *ts;
    unsigned long mapped;
    int64_t index[10];
    pid_t daemon;
    int rc;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(args);
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(10, &options);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &held), TSOCKET_OK);
    kill(daemon, SIGKILL);
    assert_int_equal(waitpid(daemon, NULL, 0), daemon);
    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK)
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_GONE);
    mapped = simcuda_live();
    assert_int_equal(tsocket_copy(ts, &held, 2, index), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    assert_true(simcuda_live() < mapped);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_GONE);
    tsocket_close(ts);
    assert_int_equal(system("rm -rf \"${TSOCKET_DIR:?}\"/*"), 0);
    rig_folder_check_and_remove();
}

/* The simulated driver aborts a daemon that frees its memory while this process has it open. */
static void a_daemon_that_stops_frees_what_is_held_after_it_is_released(void **state)
{
    const char *const args[] = {"synthetic:100x4x4", "--ring", "40",      "--max-batch", "10",
                                "--device",          "cuda",   "--share", "ipc",         NULL};
    struct tsocket_batch held, batch;
    struct tsocket *ts;
    int64_t index[10];
    pid_t daemon;
    int rc, status;

    (void)state;
    rig_folder_make();
    setenv("SIMCUDA_STRICT", "1", 1);
    daemon = rig_daemon_start(args);
    unsetenv("SIMCUDA_STRICT");
    ts = rig_attach(10, NULL);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &held), TSOCKET_OK);
    kill(daemon, SIGTERM);
    usleep(300000); /* it is closing by now */
    assert_int_equal(tsocket_copy(ts, &held, 2, index), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK)
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_GONE);
    assert_int_equal(waitpid(daemon, &status, 0), daemon);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    tsocket_close(ts);
    rig_folder_check_and_remove();
}

static atomic_int complaints;

static void listen(void *context, char level, const char *message)
{
    (void)context;
    if (level == 'E' && strstr(message, "was changed while") != NULL)
        atomic_fetch_add(&complaints, 1);
}

static void who_writes_to_a_batch_is_found_out(void **state)
{
    struct tsocket_batch batch;
    struct producer producer;
    struct trainer trainer;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda", TSOCKET_SHARE_IPC), TSOCKET_OK);
    setenv("TSOCKET_CHECK", "1", 1);
    assert_int_equal(attach("cuda", &ts), TSOCKET_OK);
    unsetenv("TSOCKET_CHECK");
    trainer_open(&trainer, 8);
    tsocket_set_log_sink(listen, NULL);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(complaints, 0);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(trainer.device.cuda.cuMemsetD8Async((uintptr_t)batch.data[0], 1, 8, trainer.stream), 0);
    assert_int_equal(tsocket_release_after(ts, &batch, trainer.stream), TSOCKET_OK);
    while (tsocket_flush(ts) == TSOCKET_EAGAIN)
        usleep(1000);
    assert_int_equal(complaints, 1);
    tsocket_close(ts);
    trainer_close(&trainer);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

static void kernels_that_the_driver_refuses_are_told(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = 40, .max_batch = 10});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_conversion conversion;
    struct tsocket_batch batch;

    (void)state;
    tsocket_conversion_init(&conversion);
    rig_expect_batch(ts, 0, 0, 10, &batch);
    simcuda_fail("cuModuleLoadData", 1, TSI_CU_ERROR_INVALID_IMAGE);
    assert_int_equal(tsocket_convert_on(ts, &conversion, NULL, batch.data[1], 10, 8, (void *)8, NULL), TSOCKET_EDEVICE);
    assert_non_null(strstr(tsocket_last_error(), "CUDA_ERROR_INVALID_IMAGE (200)"));
    tsocket_close(ts);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_that_does_not_work_is_said_or_done_without),
        cmocka_unit_test(a_gpu_that_breaks_ends_the_run_with_the_cause),
        cmocka_unit_test(kernels_that_the_driver_refuses_are_told),
        cmocka_unit_test(whatever_call_fails_the_run_ends_and_leaves_nothing),
        cmocka_unit_test(what_is_held_when_the_daemon_dies_stays_and_is_then_given_back),
        cmocka_unit_test(a_daemon_that_stops_frees_what_is_held_after_it_is_released),
        cmocka_unit_test(who_writes_to_a_batch_is_found_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
