/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For LD_PRELOAD: the clock on the wall is set back by an hour with every call that looks at it. The monotonic clock is
 * the machine's.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic long looks;

static time_t set_back(time_t now)
{
    return now - 3600 * (++looks % 100000);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now_out)
{
    long rc = syscall(SYS_clock_gettime, clock, now_out);

    if (rc == 0 && clock == CLOCK_REALTIME)
        now_out->tv_sec = set_back(now_out->tv_sec);
    return (int)rc;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict now_out, void *restrict zone)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    *now_out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return rc;
}

__attribute__((visibility("default"))) time_t time(time_t *now_out)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_REALTIME, &now);
    if (now_out != NULL)
        *now_out = now.tv_sec;
    return now.tv_sec;
}
