/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that a sample's bytes depend on besides this one, as a line: "libjpeg-turbo 2.1.5, libpng 1.6.39". */
#ifndef TSP_VERSIONS_H
#define TSP_VERSIONS_H

const char *tsp_versions(void);

#endif
