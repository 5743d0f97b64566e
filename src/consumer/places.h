/* SPDX-License-Identifier: Apache-2.0 */
/* Where a consumer can read: what HELLO says of it (wire.h), made of options.device. */
#ifndef TSC_PLACES_H
#define TSC_PLACES_H

#include <stdbool.h>

#include "../ipc/wire.h"

/* Whether options.device may be that. */
bool tsc_places_ok(const char *device);

/*
 * "" (whatever there is), "host", "cuda" (any GPU that this process sees), "cuda:N" or "cuda:UUID" (that one); host
 * memory comes last, unless it is all that is wanted. The driver is looked at only where the daemon has rings in GPUs
 * (`gpu`): a process that reads host memory never loads it. TSOCKET_ENOTFOUND, TSOCKET_EDEVICE: the device that was
 * asked for is not there, or does not work.
 */
int tsc_places_list(const char *device, bool gpu, char list_out[TSI_DEVICE_LIST_MAX]);

#endif
