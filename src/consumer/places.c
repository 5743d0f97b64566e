/* SPDX-License-Identifier: Apache-2.0 */
#include "places.h"

#include <string.h>

#include "../ipc/device.h"

enum {
    SEEN_MAX = 16, /* what TSI_DEVICE_LIST_MAX has room for */
};

_Static_assert(TSI_DEVICE_LIST_MAX >= SEEN_MAX * TSI_UUID_TEXT_LEN + sizeof("host"), "a list must fit");

bool tsc_places_ok(const char *device)
{
    return device[0] == '\0' || strcmp(device, "host") == 0 || tsi_device_name_ok(device);
}

int tsc_places_list(const char *device, bool gpu, char list_out[TSI_DEVICE_LIST_MAX])
{
    struct tsi_cu_uuid seen[SEEN_MAX];
    unsigned n = 0;
    int rc = TSOCKET_OK;

    list_out[0] = '\0';
    if (gpu && strcmp(device, "host") != 0)
        rc = tsi_devices_see(device[0] != '\0' ? device : "cuda", SEEN_MAX, seen, &n);
    if (rc != TSOCKET_OK && device[0] != '\0')
        return rc;
    for (unsigned i = 0; i < n; i++) {
        tsi_uuid_print(&seen[i], list_out + strlen(list_out));
        strcat(list_out, ",");
    }
    strcat(list_out, "host");
    return TSOCKET_OK;
}
