/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: which of them, by what name, and their contexts.
 *
 * A device is known by its UUID: ordinals differ between processes (CUDA_VISIBLE_DEVICES), and a MIG instance has a
 * UUID of its own. We work in its primary context, which is the one that PyTorch and the CUDA runtime use: a trainer's
 * pointers and ours are of one address space. Each of our calls makes it current for as long as it takes, and no
 * longer: the thread may be the trainer's.
 *
 *     tsi_devices_open("cuda:0,host", &devices)   -->   tsi_device_enter / calls / tsi_device_leave   -->   close
 *
 * A device belongs to whoever opened it, may be used by any number of threads, and must outlive what was made on it.
 */
#ifndef TSI_DEVICE_H
#define TSI_DEVICE_H

#include <stdbool.h>

#include "cuda_api.h"

#define TSI_DEVICES_MAX     8  /* rings of one stream in as many GPUs */
#define TSI_DEVICE_NAME_LEN 64 /* with the final 0 */
#define TSI_UUID_TEXT_LEN   41 /* "GPU-" and 8-4-4-4-12 hexadecimal digits, with the final 0 */
#define TSI_DEVICE_WHY_LEN  256

struct tsi_device {
    struct tsi_cuda cuda;
    int number; /* the driver's, in this process */
    struct tsi_cu_context *context;
    struct tsi_cu_uuid uuid;
    char uuid_text[TSI_UUID_TEXT_LEN]; /* as nvidia-smi prints it */
    char name[TSI_DEVICE_NAME_LEN];    /* for people */
};

/* "GPU-..." as nvidia-smi prints it; and back, "MIG-..." too, dashes where they belong. False: it is not of that form.
 */
void tsi_uuid_print(const struct tsi_cu_uuid *uuid, char text_out[TSI_UUID_TEXT_LEN]);
bool tsi_uuid_parse(const char *text, struct tsi_cu_uuid *uuid_out);

/*
 * Opens one device: "cuda" is the first, "cuda:N" the N-th that this process sees, "cuda:GPU-..." or "cuda:MIG-..." the
 * one with that UUID. TSOCKET_EINVAL: the text is none of these; TSOCKET_ENOTFOUND: no driver, no such device;
 * TSOCKET_EDEVICE: it does not work; TSOCKET_ENOMEM: it has no memory left for a context.
 */
int tsi_device_open(const char *which, struct tsi_device *device_out);

/* The same by UUID alone: what a consumer is told. */
int tsi_device_open_uuid(const struct tsi_cu_uuid *uuid, struct tsi_device *device_out);

void tsi_device_close(struct tsi_device *device); /* all zero is allowed */

/* Whether a device can be called so: "cuda", "cuda:N", "cuda:UUID". */
bool tsi_device_name_ok(const char *which);

/*
 * Which devices this process sees: of "cuda" all, else the one of that name. No context is made. Errors as
 * tsi_device_open's; of more than `max` devices the first.
 */
int tsi_devices_see(const char *which, unsigned max, struct tsi_cu_uuid uuids_out[], unsigned *n_out);

/* Around calls that need the device's context. TSOCKET_EDEVICE with the reason: it is not to be left then. */
int tsi_device_enter(const struct tsi_device *device);
void tsi_device_leave(const struct tsi_device *device);

/* A number that the driver has about the device; 0 where it does not know what is asked. */
int tsi_device_attribute(const struct tsi_device *device, enum tsi_cu_attribute attribute);

/*
 * How the processes of this machine have the device together, as this process sees it: "plain" (they take turns), "mps"
 * (this process is a client of MPS), "mig" (it is an instance of a partitioned GPU), "mig+mps". A driver that does not
 * know MPS's attribute says plain.
 */
const char *tsi_device_mode(const struct tsi_device *device);

/* Where the rings of a stream are to be. */
struct tsi_devices {
    struct tsi_device device[TSI_DEVICES_MAX];
    unsigned count;
    bool host;                    /* in host memory, too */
    char why[TSI_DEVICE_WHY_LEN]; /* "auto" has come to host: why no GPU; else empty */
};

/*
 * `list` is "auto" (the first GPU if it works, else host), or some of "host", "cuda", "cuda:N", "cuda:UUID" with commas
 * between them. Errors as tsi_device_open's; a device that is named twice is TSOCKET_EINVAL.
 */
bool tsi_devices_ok(const char *list); /* whether it has that form; the devices need not be there */
int tsi_devices_open(const char *list, struct tsi_devices *devices_out);
void tsi_devices_close(struct tsi_devices *devices);

#endif
