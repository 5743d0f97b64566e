/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum {
    ITEM_LEN = 64, /* of one device in a list, with the final 0 */
};

/* --- names */

void tsi_uuid_print(const struct tsi_cu_uuid *uuid, char text_out[TSI_UUID_TEXT_LEN])
{
    const unsigned char *b = uuid->bytes;

    snprintf(text_out, TSI_UUID_TEXT_LEN, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

bool tsi_uuid_parse(const char *text, struct tsi_cu_uuid *uuid_out)
{
    char again[TSI_UUID_TEXT_LEN];
    unsigned byte;
    size_t at = strlen("GPU-");

    if (strlen(text) != TSI_UUID_TEXT_LEN - 1 || (strncmp(text, "GPU-", at) != 0 && strncmp(text, "MIG-", at) != 0))
        return false;
    for (size_t i = 0; i < sizeof(uuid_out->bytes); i++) {
        at += text[at] == '-';
        if (sscanf(text + at, "%2x", &byte) != 1)
            return false;
        uuid_out->bytes[i] = (unsigned char)byte;
        at += 2;
    }
    tsi_uuid_print(uuid_out, again);
    return strcasecmp(again + strlen("GPU"), text + strlen("GPU")) == 0;
}

/* --- one device */

static int describe(struct tsi_device *device)
{
    int result = device->cuda.cuDeviceGetName(device->name, sizeof(device->name), device->number);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(&device->cuda, result, "cuDeviceGetName of device %d", device->number);
    result = device->cuda.cuDeviceGetUuid(&device->uuid, device->number);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(&device->cuda, result, "cuDeviceGetUuid of device %d", device->number);
    tsi_uuid_print(&device->uuid, device->uuid_text);
    return TSOCKET_OK;
}

static int count_devices(const struct tsi_cuda *cuda, int *count_out)
{
    int result = cuda->cuDeviceGetCount(count_out);

    return result == TSI_CU_SUCCESS ? TSOCKET_OK : tsi_cuda_fail(cuda, result, "cuDeviceGetCount");
}

static int find_number(struct tsi_device *device, const char *digits)
{
    char *end;
    unsigned long ordinal = strtoul(digits, &end, 10);
    int count, result, rc = count_devices(&device->cuda, &count);

    if (rc != TSOCKET_OK)
        return rc;
    if (*end != '\0' || ordinal >= (unsigned long)count)
        return tsi_fail(TSOCKET_ENOTFOUND, "there is no device cuda:%s: the driver shows cuda:0 to cuda:%d", digits,
                        count - 1);
    result = device->cuda.cuDeviceGet(&device->number, (int)ordinal);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(&device->cuda, result, "cuDeviceGet of %lu", ordinal);
    return describe(device);
}

static int find_uuid(struct tsi_device *device, const struct tsi_cu_uuid *uuid)
{
    char text[TSI_UUID_TEXT_LEN];
    int count, result, rc = count_devices(&device->cuda, &count);

    for (int i = 0; rc == TSOCKET_OK && i < count; i++) {
        result = device->cuda.cuDeviceGet(&device->number, i);
        if (result != TSI_CU_SUCCESS)
            return tsi_cuda_fail(&device->cuda, result, "cuDeviceGet of %d", i);
        rc = describe(device);
        if (rc == TSOCKET_OK && memcmp(&device->uuid, uuid, sizeof(*uuid)) == 0)
            return TSOCKET_OK;
    }
    if (rc != TSOCKET_OK)
        return rc;
    tsi_uuid_print(uuid, text);
    return tsi_fail(
        TSOCKET_ENOTFOUND,
        "this process does not see the device %s (CUDA_VISIBLE_DEVICES, the container's devices, or another "
        "MIG instance)",
        text);
}

/* The device is found: takes its primary context. */
static int retain(struct tsi_device *device)
{
    int result = device->cuda.cuDevicePrimaryCtxRetain(&device->context, device->number);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(&device->cuda, result, "cannot open a context on %s (%s): cuDevicePrimaryCtxRetain",
                             device->name, device->uuid_text);
    return TSOCKET_OK;
}

/* What stands behind "cuda:"; "0" for "cuda"; NULL: it is no device's name. */
static const char *name_of(const char *which)
{
    struct tsi_cu_uuid uuid;
    const char *name = strncmp(which, "cuda:", 5) == 0 ? which + 5 : strcmp(which, "cuda") == 0 ? "0" : "";

    return tsi_uuid_parse(name, &uuid) || (name[0] != '\0' && name[strspn(name, "0123456789")] == '\0') ? name : NULL;
}

bool tsi_device_name_ok(const char *which)
{
    return name_of(which) != NULL;
}

/* The driver is loaded, and the device known; without a context. */
static int find(const char *which, struct tsi_device *device)
{
    const char *name = name_of(which);
    struct tsi_cu_uuid uuid;
    int rc;

    if (name == NULL)
        return tsi_fail(TSOCKET_EINVAL, "no device can be called \"%s\": cuda, cuda:N or cuda:GPU-UUID are possible",
                        which);
    rc = tsi_cuda_load(&device->cuda);
    if (rc != TSOCKET_OK)
        return rc;
    return tsi_uuid_parse(name, &uuid) ? find_uuid(device, &uuid) : find_number(device, name);
}

int tsi_device_open(const char *which, struct tsi_device *device_out)
{
    struct tsi_device device = {0};
    int rc = find(which, &device);

    if (rc == TSOCKET_OK)
        rc = retain(&device);
    if (rc == TSOCKET_OK)
        *device_out = device;
    return rc;
}

int tsi_devices_see(const char *which, unsigned max, struct tsi_cu_uuid uuids_out[], unsigned *n_out)
{
    struct tsi_device device = {0};
    int count = 1, rc = find(which, &device);

    if (rc == TSOCKET_OK && strcmp(which, "cuda") == 0)
        rc = count_devices(&device.cuda, &count);
    for (int i = 0; rc == TSOCKET_OK && i < count && (unsigned)i < max; i++) {
        if (count > 1) {
            char digits[16];

            snprintf(digits, sizeof(digits), "%d", i);
            rc = find_number(&device, digits);
        }
        uuids_out[i] = device.uuid;
        *n_out = (unsigned)i + 1;
    }
    return rc;
}

int tsi_device_open_uuid(const struct tsi_cu_uuid *uuid, struct tsi_device *device_out)
{
    struct tsi_device device = {0};
    int rc = tsi_cuda_load(&device.cuda);

    if (rc == TSOCKET_OK)
        rc = find_uuid(&device, uuid);
    if (rc == TSOCKET_OK)
        rc = retain(&device);
    if (rc == TSOCKET_OK)
        *device_out = device;
    return rc;
}

void tsi_device_close(struct tsi_device *device)
{
    if (device->context != NULL)
        device->cuda.cuDevicePrimaryCtxRelease(device->number); /* an error that stuck long ago may be said again */
    memset(device, 0, sizeof(*device));
}

int tsi_device_enter(const struct tsi_device *device)
{
    int result = device->cuda.cuCtxPushCurrent(device->context);

    return result == TSI_CU_SUCCESS ? TSOCKET_OK : tsi_cuda_fail(&device->cuda, result, "cuCtxPushCurrent");
}

void tsi_device_leave(const struct tsi_device *device)
{
    struct tsi_cu_context *context;

    device->cuda.cuCtxPopCurrent(&context);
}

int tsi_device_attribute(const struct tsi_device *device, enum tsi_cu_attribute attribute)
{
    int value;

    return device->cuda.cuDeviceGetAttribute(&value, (int)attribute, device->number) == TSI_CU_SUCCESS ? value : 0;
}

/* The driver has no number for MIG; an instance's name has it behind the GPU's: "NVIDIA A100 MIG 1g.5gb". */
const char *tsi_device_mode(const struct tsi_device *device)
{
    bool mig = strstr(device->name, " MIG ") != NULL;
    bool mps = tsi_device_attribute(device, TSI_CU_ATTRIBUTE_MPS) != 0;

    return mig ? mps ? "mig+mps" : "mig" : mps ? "mps" : "plain";
}

/* --- a list of them */

static int add_device(struct tsi_devices *devices, const char *which)
{
    struct tsi_device *device = &devices->device[devices->count];
    int rc;

    if (devices->count == TSI_DEVICES_MAX)
        return tsi_fail(TSOCKET_EINVAL, "more than %d devices", TSI_DEVICES_MAX);
    rc = tsi_device_open(which, device);
    if (rc != TSOCKET_OK)
        return rc;
    devices->count++;
    for (unsigned i = 0; i + 1 < devices->count; i++) {
        if (memcmp(&devices->device[i].uuid, &device->uuid, sizeof(device->uuid)) == 0)
            return tsi_fail(TSOCKET_EINVAL, "the device %s is there twice: %s", which, device->uuid_text);
    }
    return TSOCKET_OK;
}

static int add_item(struct tsi_devices *devices, const char *text, size_t len)
{
    char item[ITEM_LEN];

    if (len >= sizeof(item))
        return tsi_fail(TSOCKET_EINVAL, "no device can be called \"%s\"", text);
    memcpy(item, text, len);
    item[len] = '\0';
    if (strcmp(item, "host") != 0)
        return add_device(devices, item);
    devices->host = true;
    return TSOCKET_OK;
}

bool tsi_devices_ok(const char *list)
{
    char item[ITEM_LEN];

    if (strcmp(list, "auto") == 0)
        return true;
    for (;;) {
        size_t len = strcspn(list, ",");

        if (len >= sizeof(item))
            return false;
        memcpy(item, list, len);
        item[len] = '\0';
        if (strcmp(item, "host") != 0 && !tsi_device_name_ok(item))
            return false;
        if (list[len] == '\0')
            return true;
        list += len + 1;
    }
}

/* Whatever a GPU lacks, host memory is there. */
static void open_auto(struct tsi_devices *devices)
{
    if (add_device(devices, "cuda") == TSOCKET_OK)
        return;
    devices->host = true;
    snprintf(devices->why, sizeof(devices->why), "%s", tsocket_last_error());
}

int tsi_devices_open(const char *list, struct tsi_devices *devices_out)
{
    const char *at = list;
    int rc = TSOCKET_OK;

    memset(devices_out, 0, sizeof(*devices_out));
    if (strcmp(list, "auto") == 0) {
        open_auto(devices_out);
        return TSOCKET_OK;
    }
    while (rc == TSOCKET_OK) {
        size_t len = strcspn(at, ",");

        rc = add_item(devices_out, at, len);
        if (at[len] == '\0')
            break;
        at += len + 1;
    }
    if (rc != TSOCKET_OK)
        tsi_devices_close(devices_out);
    return rc;
}

void tsi_devices_close(struct tsi_devices *devices)
{
    for (unsigned i = 0; i < devices->count; i++)
        tsi_device_close(&devices->device[i]);
    memset(devices, 0, sizeof(*devices));
}
