/* SPDX-License-Identifier: Apache-2.0 */
#include "versions.h"

#include <stdio.h>

#include "jpeg.h"
#include "png.h"

const char *tsp_versions(void)
{
    static char text[128];

    snprintf(text, sizeof(text), "%s, libpng %s", tsp_jpeg_library(), tsp_png_library());
    return text;
}
