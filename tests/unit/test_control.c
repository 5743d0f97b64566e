/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/control.h"

static void a_look_tells_what_was_published(void **state)
{
    static struct tsi_control control;
    struct tsi_sight sight;

    (void)state;
    tsi_control_init(&control);
    assert_int_equal(tsi_control_state(&control), TSI_RUNNING);
    assert_int_equal(tsi_control_look(&control, 0).begun, 0);
    tsi_control_begin(&control, 0, 0, 13);
    tsi_control_publish(&control, 9);
    tsi_control_shorten(&control, 0, 12);
    tsi_control_publish(&control, 12);
    tsi_control_begin(&control, 1, 12, TSI_LEN_OPEN);
    sight = tsi_control_look(&control, 0);
    assert_true(sight.head == 12 && sight.begun == 2 && sight.start == 0 && sight.len == 12);
    sight = tsi_control_look(&control, 1);
    assert_true(sight.start == 12 && sight.len == TSI_LEN_OPEN);
    tsi_control_raise_floor(&control, 5);
    assert_false(tsi_control_still_holds(&control, 4));
    assert_true(tsi_control_still_holds(&control, 5));
    tsi_control_set_state(&control, TSI_FINISHED);
    assert_int_equal(tsi_control_state(&control), TSI_FINISHED);
}

static void a_failure_is_told_with_its_first_reason(void **state)
{
    static struct tsi_control control;
    char why[TSI_WHY_MAX], longer[2 * TSI_WHY_MAX];

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    tsi_control_init(&control);
    tsi_control_fail(&control, "torn\nin two");
    tsi_control_fail(&control, "another");
    assert_int_equal(tsi_control_state(&control), TSI_FAILED);
    tsi_control_why(&control, why);
    assert_string_equal(why, "torn\\x0ain two");
    tsi_control_init(&control);
    tsi_control_fail(&control, longer);
    tsi_control_why(&control, why);
    assert_in_range(strlen(why), TSI_WHY_MAX - 10, TSI_WHY_MAX - 1);
    memset(control.why, 'x', sizeof(control.why)); /* a page that somebody has spoilt */
    tsi_control_why(&control, why);
    assert_int_equal(strlen(why), TSI_WHY_MAX - 1);
}

enum {
    EPOCHS = 200000,
    LEN = 8,
};

static uint64_t start_of(uint64_t epoch)
{
    return epoch / 3 * (3 * LEN - 3) + (epoch % 3 == 0 ? 0 : epoch % 3 == 1 ? LEN : 2 * LEN - 1);
}

/* Epochs of 8 samples; of every third the last one is bad, of the next one two. As the daemon publishes them. */
static void *write_epochs(void *context)
{
    struct tsi_control *control = context;

    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t start = start_of(epoch), len = LEN;

        if (epoch >= TSI_EPOCHS / 2)
            tsi_control_raise_floor(control, start_of(epoch - TSI_EPOCHS / 2));
        tsi_control_begin(control, epoch, start, len);
        for (uint64_t i = 1; i <= LEN - 2; i++)
            tsi_control_publish(control, start + i);
        for (uint64_t bad = 0; bad < epoch % 3; bad++)
            tsi_control_shorten(control, epoch, --len);
        tsi_control_publish(control, start + len);
    }
    return NULL;
}

/* The next epoch to look at. Counts in *wrong what control.h says cannot be seen. */
static uint64_t look_once(const struct tsi_control *control, uint64_t epoch, uint64_t *wrong)
{
    struct tsi_sight sight = tsi_control_look(control, epoch);

    if (sight.begun <= epoch)
        return epoch;
    if (!tsi_control_still_holds(control, start_of(epoch))) /* too late: its entry may be another epoch's by now */
        return sight.begun - 1;
    *wrong += sight.start != start_of(epoch);
    *wrong += sight.begun == epoch + 1 && sight.head > sight.start + LEN;
    if (sight.head < sight.start + sight.len)
        return epoch;
    *wrong += sight.len != LEN - epoch % 3; /* decided: it does not change any more */
    return epoch + 1;
}

static void a_reader_beside_the_writer_sees_only_what_was_published(void **state)
{
    static struct tsi_control control;
    uint64_t epoch = 0, wrong = 0;
    pthread_t writer;

    (void)state;
    tsi_control_init(&control);
    assert_int_equal(pthread_create(&writer, NULL, write_epochs, &control), 0);
    while (epoch < EPOCHS)
        epoch = look_once(&control, epoch, &wrong);
    pthread_join(writer, NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_tells_what_was_published),
        cmocka_unit_test(a_failure_is_told_with_its_first_reason),
        cmocka_unit_test(a_reader_beside_the_writer_sees_only_what_was_published),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
