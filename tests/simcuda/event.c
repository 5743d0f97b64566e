/* SPDX-License-Identifier: Apache-2.0 */
/* Events, also those that other processes have opened: these count in a page of a memfd, and are looked at. */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_NS = 100000, /* how often a shared event is looked at: other processes wake nobody here */
};

static struct tsi_cu_event *create(struct tsi_cu_context *context)
{
    struct tsi_cu_event *event = calloc(1, sizeof(*event));

    if (event == NULL)
        return NULL;
    event->context = context;
    event->refs = 1;
    event->fd = -1;
    event->count = &event->own;
    return event;
}

void sim_event_unref(struct tsi_cu_event *event)
{
    if (--event->refs > 0)
        return;
    if (event->fd >= 0) {
        munmap(event->count, sizeof(*event->count));
        close(event->fd);
    }
    free(event);
}

/* Its counts are those in fd, which is its own from now on, or closed. */
static bool share(struct tsi_cu_event *event, int fd)
{
    struct sim_event_count *count = MAP_FAILED;

    if (fd >= 0)
        count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (count == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    event->fd = fd;
    event->count = count;
    return true;
}

static bool is_broken(const struct tsi_cu_event *event)
{
    return event->context->error != TSI_CU_SUCCESS;
}

void sim_event_pass(struct tsi_cu_event *event, uint64_t number)
{
    if (event->count->passed < number)
        event->count->passed = number;
}

void sim_event_await(struct tsi_cu_event *event, uint64_t number)
{
    struct timespec until;

    while (event->count->passed < number && !is_broken(event)) {
        if (event->fd < 0) {
            pthread_cond_wait(&sim.changed, &sim.lock);
            continue;
        }
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&sim.changed, &sim.lock, &until);
    }
}

int cuEventCreate(struct tsi_cu_event **event_out, unsigned flags)
{
    struct tsi_cu_context *context;
    struct tsi_cu_event *event;
    int fd, result = sim_enter(SIM_cuEventCreate, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if ((flags & TSI_CU_EVENT_INTERPROCESS) != 0 && (flags & TSI_CU_EVENT_DISABLE_TIMING) == 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    event = create(context);
    if (event == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    if ((flags & TSI_CU_EVENT_INTERPROCESS) != 0) {
        fd = memfd_create("simcuda-event", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)sizeof(*event->count)) != 0)
            abort(); /* a test without memory */
        if (!share(event, fd)) {
            free(event);
            return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
        }
    }
    sim.live[SIM_KIND_EVENT]++;
    *event_out = event;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuEventDestroy_v2(struct tsi_cu_event *event)
{
    int result;

    if (!sim_enter_free(SIM_cuEventDestroy, NULL, &result))
        return result;
    sim_event_unref(event);
    sim.live[SIM_KIND_EVENT]--;
    return sim_leave(result);
}

int cuEventRecord(struct tsi_cu_event *event, struct tsi_cu_stream *stream)
{
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuEventRecord, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (event->context->device != sim_stream_device(context, stream))
        return sim_leave(TSI_CU_ERROR_INVALID_HANDLE);
    event->count->recorded++;
    result = sim_stream_event(context, stream, true, event, event->count->recorded);
    if (result != TSI_CU_SUCCESS)
        event->count->recorded--;
    return sim_leave(result);
}

/* It means the record that is the latest now. */
int cuStreamWaitEvent(struct tsi_cu_stream *stream, struct tsi_cu_event *event, unsigned flags)
{
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuStreamWaitEvent, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (flags != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    return sim_leave(sim_stream_event(context, stream, false, event, event->count->recorded));
}

int cuEventQuery(struct tsi_cu_event *event)
{
    int result = sim_enter(SIM_cuEventQuery, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (is_broken(event))
        return sim_leave(event->context->error);
    return sim_leave(event->count->passed >= event->count->recorded ? TSI_CU_SUCCESS : TSI_CU_ERROR_NOT_READY);
}

int cuEventSynchronize(struct tsi_cu_event *event)
{
    int result = sim_enter(SIM_cuEventSynchronize, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    event->refs++;
    sim_event_await(event, event->count->recorded);
    result = event->context->error;
    sim_event_unref(event);
    return sim_leave(result);
}

/* --- between processes; the opened one is destroyed like any other */

int cuIpcGetEventHandle(struct tsi_cu_ipc_handle *handle_out, struct tsi_cu_event *event)
{
    int result = sim_enter(SIM_cuIpcGetEventHandle, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (event->fd < 0 || !sim_handle_make(event->fd, 0, 0, handle_out))
        return sim_leave(TSI_CU_ERROR_INVALID_HANDLE);
    return sim_leave(TSI_CU_SUCCESS);
}

int cuIpcOpenEventHandle(struct tsi_cu_event **event_out, struct tsi_cu_ipc_handle handle)
{
    struct tsi_cu_context *context;
    struct tsi_cu_event *event;
    int fd, result = sim_enter(SIM_cuIpcOpenEventHandle, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    result = sim_handle_open(&handle, &fd);
    if (result != TSI_CU_SUCCESS)
        return sim_leave(result);
    event = create(context);
    if (event == NULL || !share(event, fd)) {
        free(event);
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    }
    sim.live[SIM_KIND_EVENT]++;
    *event_out = event;
    return sim_leave(TSI_CU_SUCCESS);
}
