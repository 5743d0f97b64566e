/* SPDX-License-Identifier: Apache-2.0 */
/* Start, devices, contexts, the end of the process. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STACK_MAX = 32,
};

struct sim sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .n_devices = 1,
    .memory_bytes = (size_t)1 << 30,
    .peers = true,
    .seed = 1,
};

static _Thread_local struct tsi_cu_context *stack[STACK_MAX];
static _Thread_local int depth;

/* --- calls */

/* Takes the lock; after a fork it may belong to a thread that is not there any more, and is left alone. */
static int begin(enum sim_function function)
{
    int result;

    if (sim.forked)
        return TSI_CU_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&sim.lock);
    if (!sim.started && function != SIM_cuInit)
        result = TSI_CU_ERROR_NOT_INITIALIZED;
    else
        result = sim.down ? TSI_CU_ERROR_DEINITIALIZED : TSI_CU_SUCCESS;
    if (result != TSI_CU_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    return result;
}

static int check_context(struct tsi_cu_context **context_out)
{
    if (context_out == NULL)
        return TSI_CU_SUCCESS;
    if (depth == 0)
        return TSI_CU_ERROR_INVALID_CONTEXT;
    *context_out = stack[depth - 1];
    return stack[depth - 1]->retained > 0 ? stack[depth - 1]->error : TSI_CU_ERROR_CONTEXT_IS_DESTROYED;
}

int sim_enter(enum sim_function function, struct tsi_cu_context **context_out)
{
    int result = begin(function);

    if (result != TSI_CU_SUCCESS)
        return result;
    result = sim_control_count(function);
    if (result == TSI_CU_SUCCESS)
        result = check_context(context_out);
    if (result != TSI_CU_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    return result;
}

int sim_leave(int result)
{
    pthread_mutex_unlock(&sim.lock);
    return result;
}

bool sim_enter_free(enum sim_function function, struct tsi_cu_context **context_out, int *result_out)
{
    int injected, result = begin(function);

    *result_out = result;
    if (result != TSI_CU_SUCCESS)
        return false;
    injected = sim_control_count(function);
    result = check_context(context_out);
    *result_out = injected != TSI_CU_SUCCESS ? injected : result;
    if (context_out != NULL && depth == 0) {
        pthread_mutex_unlock(&sim.lock);
        return false;
    }
    return true;
}

/* --- start and end */

static void after_fork(void)
{
    sim.forked = true;
}

static void at_exit(void)
{
    if (sim.forked)
        return;
    pthread_mutex_lock(&sim.lock);
    sim.down = true; /* workers begin nothing any more */
    sim_control_report();
    pthread_mutex_unlock(&sim.lock);
}

static void uuid_of(int mig, int physical_device, unsigned char bytes_out[16])
{
    memcpy(bytes_out, "simulated GPU \0\0", 16);
    bytes_out[14] = (unsigned char)mig;
    bytes_out[15] = (unsigned char)physical_device;
}

/* "GPU-..." or "MIG-...", as nvidia-smi prints a UUID: the device is seen alone, as the instance that it names. */
static bool choose_by_uuid(const char *text)
{
    unsigned char uuid[16], wanted[16];
    const char *at = text + strlen("GPU-");

    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof(wanted); i++, at += 2) {
        at += *at == '-';
        if (sscanf(at, "%2hhx", &wanted[i]) != 1)
            return false;
    }
    uuid_of(wanted[14], wanted[15], uuid);
    if (memcmp(uuid, wanted, sizeof(uuid)) != 0 || wanted[15] >= sim.n_devices)
        return false;
    sim.mig = wanted[14];
    sim.physical_device[0] = wanted[15];
    sim.n_devices = 1;
    return true;
}

/* CUDA_VISIBLE_DEVICES: numbers, in the order that this process wants them in; what follows a wrong one is not seen. Or
 * one UUID. */
static void choose_devices(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int n = 0;

    for (int i = 0; i < SIM_DEVICES_MAX; i++)
        sim.physical_device[i] = i;
    if (text != NULL && choose_by_uuid(text))
        return;
    while (text != NULL && *text != '\0' && n < sim.n_devices) {
        char *end;
        long device = strtol(text, &end, 10);

        if (end == text || device < 0 || device >= sim.n_devices)
            break;
        sim.physical_device[n++] = (int)device;
        text = *end == ',' ? end + 1 : end;
    }
    if (text != NULL)
        sim.n_devices = n;
}

int cuInit(unsigned flags)
{
    int result = sim_enter(SIM_cuInit, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (flags != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    if (!sim.started) {
        sim_control_read();
        choose_devices();
        for (int i = 0; i < SIM_DEVICES_MAX; i++)
            sim.contexts[i].device = i;
        if (sim.n_devices == 0)
            return sim_leave(TSI_CU_ERROR_NO_DEVICE);
        pthread_atfork(NULL, NULL, after_fork);
        atexit(at_exit);
        sim.started = true;
    }
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDriverGetVersion(int *version_out)
{
    int result = sim_enter(SIM_cuDriverGetVersion, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    *version_out = 12000;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuGetErrorName(int result, const char **name_out)
{
    static const struct {
        int value;
        const char *name;
    } names[] = {
#define NAME(name, value) {value, "CUDA_" #name},
        TSI_CU_RESULTS(NAME)
#undef NAME
    };

    *name_out = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].value == result)
            *name_out = names[i].name;
    }
    return *name_out != NULL ? TSI_CU_SUCCESS : TSI_CU_ERROR_INVALID_VALUE;
}

/* --- devices */

static bool is_device(int device)
{
    return device >= 0 && device < sim.n_devices;
}

int cuDeviceGetCount(int *count_out)
{
    int result = sim_enter(SIM_cuDeviceGetCount, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    *count_out = sim.n_devices;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDeviceGet(int *device_out, int ordinal)
{
    int result = sim_enter(SIM_cuDeviceGet, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(ordinal))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    *device_out = ordinal;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDeviceGetName(char *name_out, int len, int device)
{
    int result = sim_enter(SIM_cuDeviceGetName, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(device) || len <= 0)
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    snprintf(name_out, (size_t)len, sim.mig != 0 ? "Simulated GPU MIG 1g.1gb" : "Simulated GPU");
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDeviceGetUuid_v2(struct tsi_cu_uuid *uuid_out, int device)
{
    int result = sim_enter(SIM_cuDeviceGetUuid, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(device))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    uuid_of(sim.mig, sim.physical_device[device], uuid_out->bytes);
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDeviceGetAttribute(int *value_out, int attribute, int device)
{
    int result = sim_enter(SIM_cuDeviceGetAttribute, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(device))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    *value_out = sim_attribute(attribute);
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDeviceCanAccessPeer(int *can_out, int device, int peer)
{
    int result = sim_enter(SIM_cuDeviceCanAccessPeer, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(device) || !is_device(peer))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    *can_out = sim.peers && device != peer;
    return sim_leave(TSI_CU_SUCCESS);
}

/* --- contexts */

int cuDevicePrimaryCtxRetain(struct tsi_cu_context **context_out, int device)
{
    int result = sim_enter(SIM_cuDevicePrimaryCtxRetain, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_device(device))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    sim.contexts[device].retained++;
    sim.live[SIM_KIND_CONTEXT]++;
    *context_out = &sim.contexts[device];
    return sim_leave(TSI_CU_SUCCESS);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int result;

    if (!sim_enter_free(SIM_cuDevicePrimaryCtxRelease, NULL, &result))
        return result;
    if (!is_device(device))
        return sim_leave(TSI_CU_ERROR_INVALID_DEVICE);
    if (sim.contexts[device].retained == 0) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_CONTEXT);
    }
    sim.contexts[device].retained--;
    sim.live[SIM_KIND_CONTEXT]--;
    return sim_leave(result);
}

int cuCtxPushCurrent_v2(struct tsi_cu_context *context)
{
    int result = sim_enter(SIM_cuCtxPushCurrent, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (context == NULL || depth == STACK_MAX)
        return sim_leave(TSI_CU_ERROR_INVALID_CONTEXT);
    stack[depth++] = context;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuCtxPopCurrent_v2(struct tsi_cu_context **context_out)
{
    int result;

    if (!sim_enter_free(SIM_cuCtxPopCurrent, NULL, &result))
        return result;
    if (depth == 0)
        return sim_leave(TSI_CU_ERROR_INVALID_CONTEXT);
    depth--;
    if (context_out != NULL)
        *context_out = stack[depth];
    return sim_leave(result);
}
