/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../ipc/error.h"

struct tsc_gpu {
    struct tsi_device device;     /* without a device its driver alone */
    struct tsi_cu_stream *stream; /* NULL without a device */
    struct tsi_cu_event **events; /* of each window: NULL until it is needed */
    uint32_t windows;
};

static bool has_device(const struct tsc_gpu *gpu)
{
    return gpu->device.context != NULL;
}

static int enter(const struct tsc_gpu *gpu)
{
    return has_device(gpu) ? tsi_device_enter(&gpu->device) : TSOCKET_OK;
}

static void leave(const struct tsc_gpu *gpu)
{
    if (has_device(gpu))
        tsi_device_leave(&gpu->device);
}

/* Leaves, and says what failed, if something did. */
static int conclude(const struct tsc_gpu *gpu, int result, const char *call)
{
    leave(gpu);
    return result == TSI_CU_SUCCESS ? TSOCKET_OK : tsi_cuda_fail(&gpu->device.cuda, result, "%s", call);
}

/* --- life */

static int make_stream(struct tsc_gpu *gpu)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuStreamCreate(&gpu->stream, TSI_CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

int tsc_gpu_open(const struct tsi_cu_uuid *uuid, uint32_t windows, struct tsc_gpu **gpu_out)
{
    struct tsc_gpu *gpu = calloc(1, sizeof(*gpu));
    int rc;

    if (gpu == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a device's state");
    gpu->windows = windows;
    gpu->events = calloc(windows, sizeof(struct tsi_cu_event *));
    if (gpu->events == NULL)
        rc = tsi_fail(TSOCKET_ENOMEM, "no memory for %" PRIu32 " events", windows);
    else
        rc = uuid != NULL ? tsi_device_open_uuid(uuid, &gpu->device) : tsi_cuda_load(&gpu->device.cuda);
    if (rc == TSOCKET_OK && uuid != NULL)
        rc = make_stream(gpu);
    if (rc == TSOCKET_OK)
        *gpu_out = gpu;
    else
        tsc_gpu_close(gpu);
    return rc;
}

/* Errors are no news here. */
void tsc_gpu_close(struct tsc_gpu *gpu)
{
    if (gpu == NULL)
        return;
    for (uint32_t i = 0; gpu->events != NULL && i < gpu->windows; i++) {
        if (gpu->events[i] != NULL)
            gpu->device.cuda.cuEventDestroy(gpu->events[i]);
    }
    if (gpu->stream != NULL && enter(gpu) == TSOCKET_OK) {
        gpu->device.cuda.cuStreamDestroy(gpu->stream);
        leave(gpu);
    }
    tsi_device_close(&gpu->device);
    free(gpu->events);
    free(gpu);
}

const struct tsi_device *tsc_gpu_device(const struct tsc_gpu *gpu)
{
    return gpu != NULL && has_device(gpu) ? &gpu->device : NULL;
}

/* --- memory */

int tsc_gpu_alloc(struct tsc_gpu *gpu, uint64_t bytes, uint64_t *address_out)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuMemAlloc(address_out, bytes), "cuMemAlloc");
}

void tsc_gpu_free(struct tsc_gpu *gpu, uint64_t address)
{
    if (address == 0 || enter(gpu) != TSOCKET_OK)
        return;
    gpu->device.cuda.cuMemFree(address);
    leave(gpu);
}

int tsc_gpu_copy(struct tsc_gpu *gpu, uint64_t to, uint64_t from, uint64_t bytes)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuMemcpyDtoDAsync(to, from, bytes, gpu->stream), "cuMemcpyDtoDAsync");
}

int tsc_gpu_copy_in(struct tsc_gpu *gpu, uint64_t to, const void *from, uint64_t bytes)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuMemcpyHtoDAsync(to, from, bytes, gpu->stream), "cuMemcpyHtoDAsync");
}

int tsc_gpu_copy_out(struct tsc_gpu *gpu, void *to, uint64_t from, uint64_t bytes)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuMemcpyDtoHAsync(to, from, bytes, gpu->stream), "cuMemcpyDtoHAsync");
}

int tsc_gpu_finish(struct tsc_gpu *gpu)
{
    int rc = enter(gpu);

    if (rc != TSOCKET_OK)
        return rc;
    return conclude(gpu, gpu->device.cuda.cuStreamSynchronize(gpu->stream), "cuStreamSynchronize");
}

/* --- events */

static int record(struct tsc_gpu *gpu, uint32_t window, void *stream)
{
    const struct tsi_cuda *cuda = &gpu->device.cuda;
    int result = TSI_CU_SUCCESS;

    if (gpu->events[window] == NULL)
        result = cuda->cuEventCreate(&gpu->events[window], TSI_CU_EVENT_BLOCKING_SYNC | TSI_CU_EVENT_DISABLE_TIMING);
    if (result != TSI_CU_SUCCESS)
        return conclude(gpu, result, "cuEventCreate");
    return conclude(gpu, cuda->cuEventRecord(gpu->events[window], stream),
                    "cuEventRecord (the stream must be one of the device that the data is on)");
}

int tsc_gpu_record(struct tsc_gpu *gpu, uint32_t window, void *stream)
{
    int rc = enter(gpu);

    return rc == TSOCKET_OK ? record(gpu, window, stream) : rc;
}

/* An event needs no current context to be asked. */
int tsc_gpu_passed(struct tsc_gpu *gpu, uint32_t window, bool *passed_out)
{
    int result = gpu->device.cuda.cuEventQuery(gpu->events[window]);

    *passed_out = result == TSI_CU_SUCCESS;
    if (result == TSI_CU_SUCCESS || result == TSI_CU_ERROR_NOT_READY)
        return TSOCKET_OK;
    return tsi_cuda_fail(&gpu->device.cuda, result, "the work behind a batch has failed: cuEventQuery");
}

void tsc_gpu_await(struct tsc_gpu *gpu, uint32_t window)
{
    gpu->device.cuda.cuEventSynchronize(gpu->events[window]); /* an error ends the wait as well */
}
